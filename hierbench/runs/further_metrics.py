"""Metrics that metrics.json does not hold, kept once they are computed from a run's predictions.

They are kept in the user's cache, under the digest of the predictions and of the code that computes them, and beside
the records of a published table, in `further-metrics.json`, which says the same of its values.
"""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.record import Record, is_number
from hierbench.runs.records import Records
from hierbench.utils.files import read_json_object, write_json

FURTHER_FILE = "further-metrics.json"
SOURCES = ("hierbench.metrics", "hierbench.hierarchy")  # packages that compute the values, and `evidence`
Values = dict[str, float]  # NaN where a metric is undefined


def cache_folder() -> Path | None:
    """Return the cache folder of this user; None where there is no home."""
    folder = os.environ.get("HIERBENCH_CACHE_DIR")
    if folder:
        return Path(folder).absolute()
    with suppress(RuntimeError):
        usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        return (usual if usual.is_absolute() else Path("~/.cache").expanduser()) / "hierbench"
    return None


def first_base(record: Record, records: Records) -> Record | None:
    """Return the first base of a post-hoc run, which provides its confidence; None for a trained run."""
    return records[record.bases[0]] if record.bases else None


def predictions_origin(record: Record, records: Records) -> list[str | None]:
    """Return the digests of the predictions from which a run's metrics follow: its own, and its first base's.

    A base that is not here, as where its record was not published, has the digest that the run has recorded.
    """
    digest = record.recorded_digest(PREDICTIONS)
    if not record.bases:
        return [digest]
    base = records.get(record.bases[0])
    recorded = record.status.get("base_predictions")
    first = recorded[0] if isinstance(recorded, list) and recorded else recorded
    base_digest = None if base is None else base.recorded_digest(PREDICTIONS)
    return [digest, base_digest or (first if isinstance(first, str) else None)]


def read_further(record: Record, records: Records) -> Values:
    """Return the values that are kept for a run; {} where they have to be computed.

    Values of other code are returned only where there are no predictions to compute them from.
    """
    place = _cache_file(record, records)
    content = None if place is None else _read(place)
    kept = {} if content is None else _values(content, record, records)
    return kept | published_values(record, records)


def published_values(record: Record, records: Records) -> Values:
    """Return the values that are kept in a run's folder; as in `read_further`."""
    content = _read(record.folder / FURTHER_FILE)
    return {} if content is None else _values(content, record, records)


def _values(content: Mapping[str, Any], record: Record, records: Records) -> Values:
    values = content.get("values")
    stale = content.get("code") != digest_of_code() and record.has_predictions
    if content.get("predictions") != predictions_origin(record, records) or stale or not isinstance(values, dict):
        return {}
    if not all(value is None or is_number(value) for value in values.values()):
        return {}
    return {name: math.nan if value is None else float(value) for name, value in values.items()}


def write_further(record: Record, records: Records, values: Values) -> None:
    """Keep the values of a run in the user's cache, where that can be written."""
    place = _cache_file(record, records)
    if place is not None:
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_json(place, values_content(record, records, values))


def values_content(record: Record, records: Records, values: Values) -> dict[str, Any]:
    """Return the content of a file with the values of a run."""
    return {
        "schema": 1,
        "code": digest_of_code(),
        "predictions": predictions_origin(record, records),
        "values": {name: None if math.isnan(value) else value for name, value in sorted(values.items())},
    }


def _cache_file(record: Record, records: Records) -> Path | None:
    origin = predictions_origin(record, records)
    folder = cache_folder()
    if folder is None or origin[0] is None or not record.has_predictions:
        return None
    key = sha256(json.dumps([digest_of_code(), record.id, *origin]).encode()).hexdigest()
    return folder / "further-metrics" / f"{key}.json"


def _read(path: Path) -> dict[str, Any] | None:
    if not os.path.lexists(path):  # most runs: failing to open it takes ten times as long
        return None
    try:
        return read_json_object(path)
    except (OSError, ValueError):
        return None


@cache
def digest_of_code() -> str:
    """Return the SHA-256 of the sources that compute metrics."""
    digest = sha256()
    for package in SOURCES:
        for file in sorted(resources.files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                digest.update(f"{package}/{file.name}\n".encode() + file.read_bytes())
    digest.update(resources.files("hierbench.runs").joinpath("run_evidence.py").read_bytes())
    return digest.hexdigest()
