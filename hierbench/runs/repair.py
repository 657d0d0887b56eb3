"""Quarantine corrupted run files, so that the job can be recomputed."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from hierbench.config.spec import Spec
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError

Note = Callable[[str], None]  # takes one line for the user


def is_finished(spec: Spec, store: Store) -> bool:
    """Whether a job's result is complete and uncorrupted, and a re-ranked one is of its bases' present predictions."""
    run = store.run(spec.id)
    status = run.status
    if status.get("state") != "done":
        return False
    recorded = status.get("base_predictions")
    used = recorded if isinstance(recorded, list) else [recorded]
    present = predictions_of_bases(spec, store)
    same = len(present) == len(used) and all(now in (None, then) for now, then in zip(present, used, strict=True))
    return (same or not present) and not _damaged(spec, run, status)


def predictions_of_bases(spec: Spec, store: Store) -> list[str | None]:
    """Return the digests of the predictions that a job re-ranks, None where there are none; [] for one that trains."""
    return [store.run(base).digest_of(PREDICTIONS) for base in spec.bases]


def _damaged(spec: Spec, run: Run, status: dict[str, Any] | None = None, *, read: bool = False) -> list[str]:
    names = run.damaged("read" if read else "needed", status)
    if "spec.json" not in names and (run.folder / "spec.json").exists():
        try:
            same = run.spec() == spec.content()
        except UserError:
            same = False
        names += [] if same else ["spec.json"]
    return names


def needs_repair(spec: Spec, run: Run, *, read: bool = False) -> bool:
    """Whether a run has no status yet, or corrupted files; `read` also verifies the predictions' content."""
    return not run.status or bool(_damaged(spec, run, read=read))


def repair(spec: Spec, run: Run, note: Note, *, read: bool = False) -> None:
    """Quarantine corrupted files and plan the job again; to be called with the run's lock. Its time so far is kept."""
    if names := _damaged(spec, run, read=read):
        before = run.status
        kept = {key: before[key] for key in ("started", "seconds") if key in before}
        place = quarantine(run, names)
        run.set_status("planned", **kept)
        what = ", ".join(names)
        where = f"quarantined in {place}" if place else "gone"
        note(f"note: {what} of {spec.label}: damaged; {where}, computed again")
    run.plan(spec.content())


def quarantine(run: Run, names: list[str]) -> Path | None:
    """Move files to the run's folder `damaged` without overwriting; return it, or None if there were none."""
    place = run.subfolder("damaged")
    there = [run.folder / name for name in names if os.path.lexists(run.folder / name)]
    for path in there:
        run.guard()
        place.mkdir(exist_ok=True)
        names_of_it = (place / f"{path.stem}{f'-{n}' if n else ''}{path.suffix}" for n in count())
        path.rename(next(free for free in names_of_it if not os.path.lexists(free)))
    return place if there else None
