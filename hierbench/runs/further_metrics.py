"""Metrics of a run that metrics.json does not hold, kept in its folder once they are computed from its predictions.

The file is no part of the run's result and has a checksum of its own; where it is damaged, the values are computed
again. It says which predictions and which code they are from.
"""

import json
import math
import os
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.store import Run, Store
from hierbench.utils.files import LinkError, read_json_object, write_json

FILE = "further-metrics.json"
SOURCES = ("hierbench.metrics", "hierbench.hierarchy")  # packages on whose code the values depend, and `evidence`


def first_base(run: Run, store: Store) -> Run | None:
    """Return the run whose confidence a post-hoc run has: that of its first base; None for a trained one."""
    bases = run.spec().get("base") or []
    first = bases if isinstance(bases, str) else next(iter(bases), None)
    return None if first is None else store.run(str(first))


def origin_of(run: Run, store: Store) -> list[str | None]:
    """Return the digests of the predictions from which a run's metrics follow: its own, and its first base's.

    A base that is not here, as where its record was not published, has the digest that the run has recorded.
    """
    own, base = run.digest_of(PREDICTIONS), first_base(run, store)
    if base is None:
        return [own]
    recorded = run.status.get("base_predictions")
    first = recorded[0] if isinstance(recorded, list) and recorded else recorded
    return [own, base.digest_of(PREDICTIONS) or (first if isinstance(first, str) else None)]


def has_predictions(run: Run) -> bool:
    """Whether a run's predictions are there; published records have none."""
    return os.path.lexists(run.folder / PREDICTIONS)


def has_further(run: Run) -> bool:
    """Whether values are kept for a run, whatever they are worth."""
    return os.path.lexists(run.folder / FILE)


def read_further(run: Run, store: Store) -> dict[str, float]:
    """Return the values that are kept for a run, NaN where a metric is undefined; {} where they have to be computed.

    Values from other predictions are not returned, and those of other code only where there are no predictions to
    compute them from.
    """
    try:
        content = read_json_object(run.folder / FILE)
    except (OSError, ValueError):
        return {}
    if content.pop("checksum", None) != _checksum(content):
        return {}
    stale = content.get("code") != digest_of_code() and has_predictions(run)
    values = content.get("values")
    if content.get("predictions") != origin_of(run, store) or stale or not isinstance(values, dict):
        return {}
    if not all(value is None or isinstance(value, int | float) for value in values.values()):
        return {}
    return {name: math.nan if value is None else float(value) for name, value in values.items()}


def write_further(run: Run, store: Store, values: dict[str, float]) -> None:
    """Keep values beside a run, where its folder can be written."""
    content = {
        "schema": 1,
        "code": digest_of_code(),
        "predictions": origin_of(run, store),
        "values": {name: None if math.isnan(value) else value for name, value in sorted(values.items())},
    }
    with suppress(OSError, LinkError):
        write_json(run.folder / FILE, {**content, "checksum": _checksum(content)})


def _checksum(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@cache
def digest_of_code() -> str:
    """Return the SHA-256 of the sources that compute metrics."""
    digest = sha256()
    for package in SOURCES:
        for file in sorted(resources.files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                digest.update(f"{package}/{file.name}\n".encode() + file.read_bytes())
    digest.update(resources.files("hierbench.runs").joinpath("evidence.py").read_bytes())
    return digest.hexdigest()
