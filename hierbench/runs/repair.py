"""Quarantine corrupted run files, so that the job can be recomputed."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

from hierbench.config.spec import Spec
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_record
from hierbench.runs.store import Run, Store

Note = Callable[[str], None]  # takes one line for the user


def is_finished(spec: Spec, store: Store) -> bool:
    """Whether a job's result is complete and uncorrupted, and a re-ranked one is of its bases' present predictions."""
    record = read_record(store.run(spec.id).folder)
    if record.status.get("state") != "done":
        return False
    recorded = record.status.get("base_predictions")
    used = recorded if isinstance(recorded, list) else [recorded]
    present = predictions_of_bases(spec, store)
    same = len(present) == len(used) and all(now in (None, then) for now, then in zip(present, used, strict=True))
    return (same or not present) and not _damaged_files(spec, record)


def predictions_of_bases(spec: Spec, store: Store) -> list[str | None]:
    """Return the digests of the predictions that a job re-ranks, or None if any is missing; [] for one that trains."""
    return [read_record(store.run(base).folder).recorded_digest(PREDICTIONS) for base in spec.bases]


def _damaged_files(spec: Spec, record: Record) -> list[str]:
    """Return the files of a run that are damaged, or not those of this job; a finished one needs its predictions."""
    names = list(record.damaged)
    files = record.status.get("files", {})
    if record.status.get("state") != "done":  # its files need not be there yet
        names = [name for name in names if os.path.lexists(record.folder / name)]
    elif PREDICTIONS in files and not record.has_predictions and PREDICTIONS not in names:
        names.append(PREDICTIONS)
    if "spec.json" not in names and (record.folder / "spec.json").exists() and record.content != spec.content():
        names.append("spec.json")
    return names


def needs_repair(spec: Spec, run: Run, *, read: bool = False) -> bool:
    """Whether a run has no status yet, or corrupted files; `read` also verifies the predictions' content."""
    return not run.status or bool(_damaged_files(spec, read_record(run.folder, received=read)))


def repair(spec: Spec, run: Run, note: Note, *, read: bool = False) -> None:
    """Quarantine corrupted files and plan the job again; to be called with the run's lock. Its time so far is kept."""
    names = _damaged_files(spec, read_record(run.folder, received=read))
    if names:
        before = run.status
        kept = {key: before[key] for key in ("started", "seconds") if key in before}
        place = quarantine(run, names)
        run.set_status("planned", **kept)
        damaged_names = ", ".join(names)
        where = f"quarantined in {place}" if place else "gone"
        note(f"note: {damaged_names} of {spec.label}: damaged; {where}, computed again")
    run.plan(spec.content())


def quarantine(run: Run, names: list[str]) -> Path | None:
    """Move files to the run's folder `damaged` without overwriting; return it, or None without files."""
    place = run.subfolder("damaged")
    files = [run.folder / name for name in names if os.path.lexists(run.folder / name)]
    for path in files:
        run.guard()
        place.mkdir(exist_ok=True)
        names_of_it = (place / f"{path.stem}{f'-{n}' if n else ''}{path.suffix}" for n in count())
        path.rename(next(free for free in names_of_it if not os.path.lexists(free)))
    return place if files else None
