"""Where a run folder becomes a `Record`: its files are compared with its id, its seal and each other, once.

No other package opens a file of a finished run. What is wrong with a folder becomes a finding of its record, never an
exception: any file in it may be missing, damaged or made up. Nothing is computed from predictions here, so that
PyTorch is not needed: `hierbench.sharing.verification.inspection` does that for received folders.
"""

import json
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from hierbench.config.scored_spec import Scored, is_scored
from hierbench.config.spec import CODE_VERSION, Spec, json_digest
from hierbench.runs.integrity import PREDICTIONS, checked_status, read_files
from hierbench.runs.record import COMPACT, OF_ONE, Record, is_number, spec_of_row
from hierbench.runs.records import Records
from hierbench.runs.requests import MAX_REQUESTS_BYTES, oldest_first, read_requests
from hierbench.runs.run_archive import opened
from hierbench.runs.state import Note, State
from hierbench.runs.store import RUN_ID, run_names
from hierbench.utils.files import LARGEST_TEXT, parse_json_object, read_bytes
from hierbench.utils.processes import without_collection

LARGEST_SEED = 100_000  # runs of a table have a thousand at most, those of tuning come after
LONGEST_TITLE = 100  # characters
NEEDED = ("top1", "mistake_severity", "hierdist@1")  # every result has these
Content = Mapping[str, Any]
Parse = Callable[[bytes], dict[str, Any]]


class _ProblemError(Exception):
    """A problem that ends the reading of a record."""


def read_records(
    root: Path, ids: Collection[str] | None = None, *, dataset: str | None = None, received: bool = False
) -> Records:
    """Return the runs of a folder.

    Args:
        root: the folder, or one with the archive of a publication; symbolic links in it are findings, not followed.
        ids: only these runs and their bases.
        dataset: only its runs; folders that name no dataset are left out too.
        received: read predictions, too, to compare their digest; of own runs, their size tells.
    """
    place = opened(root)
    if ids is None:
        with without_collection():
            paths = [place / name for name in run_names(place)]
            record_by_name = {path.name: _read(path, dataset, received=received) for path in paths}
    else:
        record_by_name = {}
        pending = list(ids)
        while pending:
            name = pending.pop(0)
            if name not in record_by_name and RUN_ID.fullmatch(name) and os.path.lexists(place / name):
                record_by_name[name] = record = read_record(place / name, received=received)
                pending += record.bases
    records = {name: record for name, record in record_by_name.items() if record is not None}
    notes = list[str]()
    requests = read_requests(place, notes, limit=MAX_REQUESTS_BYTES if received else LARGEST_TEXT)
    order = oldest_first(records, requests, {name: record.started for name, record in records.items()})
    return Records(root, {name: records[name] for name in order}, requests=requests, notes=tuple(notes))


def read_record(folder: Path, *, received: bool = False) -> Record:
    """Return the record of one folder, which need not be there; `received` as above."""
    record = _read(folder, None, received=received)
    assert record is not None, "of any dataset"
    return record


def _read(folder: Path, dataset: str | None, *, received: bool) -> Record | None:
    """Return the record of one folder; None where it says that it is of another dataset."""
    fields: dict[str, Any] = {"folder": folder}
    parse = _parse_strictly if received else _parse_quickly
    findings = list[str]()
    notes = list[str]()
    damaged = list[str]()
    state = State.REJECTED
    try:
        if folder.is_symlink() or not folder.is_dir():
            damaged.append("spec.json")
            folder_kind = "a symbolic link, which is not followed" if folder.is_symlink() else "no folder"
            raise _ProblemError(f"its folder is {folder_kind}")
        content = _read_spec(folder, damaged)
        if dataset is not None and _dataset_in(content) != dataset:
            return None
        fields |= _parse_spec(content, folder.name)
        if fields.get("spec") is not None and fields["spec"].code != CODE_VERSION:
            notes.append(f"made by version {fields['spec'].code} of the engine's numbers; this one is {CODE_VERSION}")
        fields["status"] = status = _read_status(folder, damaged, parse)
        if status["state"] != "done":
            state = State.UNFINISHED
            why = status.get("error")
            notes.append(f"{status['state']}: {why}" if why else status["state"])
        else:
            files, wrong = read_files(folder, status["files"], read_predictions=received)
            findings += wrong.values()
            damaged += wrong
            record = Record(state=State.REJECTED, **fields)
            findings += _missing_digests(record)
            if not damaged:
                fields |= _read_contents(record, files, findings, parse)
            state = State.RECORDED if _has_evidence(record) else State.CLAIMED
    except _ProblemError as problem:
        findings.append(str(problem))
        if "status" not in fields:
            with suppress(_ProblemError):
                fields["status"] = status = _read_status(folder, [], parse)
                if (
                    not damaged
                    and "spec.json" in read_files(folder, status.get("files", {}), read_predictions=False)[1]
                ):
                    damaged.append("spec.json")
    if damaged:
        state = State.DAMAGED
    elif findings:
        state = State.REJECTED
    return Record(
        state=state, findings=tuple(findings), notes=tuple(map(Note, notes)), damaged=tuple(damaged), **fields
    )


def _read_spec(folder: Path, damaged: list[str]) -> dict[str, Any]:
    try:
        return _parse_strictly(read_bytes(f"{folder}/spec.json"))
    except FileNotFoundError:
        damaged.append("spec.json")
        raise _ProblemError("spec.json is missing") from None
    except (OSError, ValueError) as error:
        damaged.append("spec.json")
        raise _ProblemError(f"spec.json cannot be read: {error}") from None


def _dataset_in(content: Content) -> Any:
    data = content.get("dataset")
    return data.get("name") if isinstance(data, dict) else None


def _parse_spec(content: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the parsed spec: `spec` and `row`, or `scored`."""
    fields: dict[str, Any]
    try:
        if is_scored(content):
            scored = Scored.model_validate(content)
            fields = {"scored": scored}
            content_as_read = scored.content()
        else:
            spec, row, content_as_read = _spec_in(content)
            fields = {"spec": spec, "row": row}
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise _ProblemError(f"spec.json is not a spec of this version of hierbench ({place})") from None
    if content_as_read != content or json_digest(content) != name:  # it may say anything: no row counts it
        raise _ProblemError(f"its folder is not named after its spec, whose digest is {json_digest(content)[:12]}")
    return fields


def _spec_in(content: dict[str, Any]) -> tuple[Spec, str, dict[str, Any]]:
    """Return a spec, its row and its content; the specs of a row are validated once and share their sections."""
    run_fields = {name: content.get(name) for name in OF_ONE}
    if type(run_fields["seed"]) is int and not 0 <= run_fields["seed"] <= LARGEST_SEED:
        raise _ProblemError(f"spec.json has the impossible seed {run_fields['seed']}")
    row = json.dumps({name: value for name, value in content.items() if name not in OF_ONE})
    first, canonical, shared = _row_in(row)
    base = run_fields["base"]
    if type(run_fields["seed"]) is int and (base is None or isinstance(base, str)):
        return first.model_copy(update=run_fields), canonical, {**shared, **run_fields}
    spec = Spec.model_validate(content)
    return spec, canonical, spec.content()


@lru_cache(maxsize=4096)
def _row_in(row: str) -> tuple[Spec, str, dict[str, Any]]:
    spec = spec_of_row(row)
    shared = {name: value for name, value in spec.content().items() if name not in OF_ONE}
    return spec, json.dumps(shared), shared


def _read_status(folder: Path, damaged: list[str], parse: Parse) -> dict[str, Any]:
    try:
        return checked_status(parse(read_bytes(f"{folder}/status.json")))
    except FileNotFoundError:
        raise _ProblemError("status.json is missing") from None
    except (OSError, ValueError) as error:
        damaged.append("status.json")
        raise _ProblemError(f"status.json: {error}") from None


def _missing_digests(record: Record) -> Iterable[str]:
    """Yield a finding for each file of a finished run without a digest in status.json."""
    needed = ["spec.json", "metrics.json", "environment.json"]
    needed += ["history.csv"] if record.spec is not None and not record.bases else []
    needed += [PREDICTIONS] if record.spec is None or record.spec.split == "test" else []
    lacking = [name for name in needed if name not in record.status["files"]]
    if lacking:
        yield f"status.json has no digest of {' and '.join(lacking)}"


def _read_contents(record: Record, files: Mapping[str, bytes], findings: list[str], parse: Parse) -> dict[str, Any]:
    """Return `result` and `environment`."""
    contents: dict[str, Any] = {}
    try:
        result = parse(files["metrics.json"])
        problem = _problem_of_result(result, "test" if record.spec is None else record.spec.split)
    except ValueError as error:
        result = {}
        problem = str(error)
    if problem:
        findings.append(f"metrics.json holds no possible result: {problem}")
    else:
        contents["result"] = result
    try:
        environment = parse(files.get("environment.json", b"{}"))
    except ValueError as error:
        environment = {}
        findings.append(f"environment.json cannot be read: {error}")
    data = environment.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("splits"), dict):
        environment["data"] = {"splits": {}}
        if record.spec is not None:
            findings.append("environment.json does not say which data it was computed with")
    return {**contents, "environment": environment}


def _parse_strictly(content: bytes) -> dict[str, Any]:
    return parse_json_object(content.decode())


def _parse_quickly(content: bytes) -> dict[str, Any]:
    """Parse a file that this program wrote, as its digest says: of 5,000 runs in a third of the time."""
    try:
        parsed = from_json(content, allow_inf_nan=False)
    except ValueError:  # half a surrogate pair, as in a title made of a file's name, only Python's parser reads it
        return _parse_strictly(content)
    if not isinstance(parsed, dict):
        raise ValueError("it is not a JSON object")
    return parsed


def _problem_of_result(content: Content, split: str) -> str:
    """Return the problem of the content of metrics.json, "" without one."""
    result = content.get(split)
    title = content.get("title")
    ends = content.get("intervals", {})
    val = content.get("val", {})
    if not isinstance(result, dict) or not result.keys() >= set(NEEDED) or not all(map(_is_metric, result.items())):
        return f"it has no numbers of the {split} split"
    if not isinstance(val, dict) or not all(map(_is_metric, val.items())):
        return "it has no numbers of the validation split"
    if not isinstance(title, str):
        return "it has no title"
    if len(title) > LONGEST_TITLE:
        return f"its title has {len(title)} characters, more than {LONGEST_TITLE}"
    if not isinstance(ends, dict) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(_is_metric((name, end)) for end in pair)
        for name, pair in ends.items()
    ):
        return "its intervals are not pairs of numbers"
    return ""


def _is_metric(entry: tuple[str, Any]) -> bool:
    """Whether a name and its value are those of a metric: a number, or None for a severity without mistakes."""
    name, value = entry
    if value is None:
        return name == "mistake_severity"
    return is_number(value)


def _has_evidence(record: Record) -> bool:
    """Whether its metrics follow from predictions, here or of its base; tuning runs store no predictions."""
    if record.spec is not None and (record.spec.split != "test" or record.spec.follows_from_base):
        return True
    return any(_is_file(record.folder / name) for name in (PREDICTIONS, COMPACT))


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
