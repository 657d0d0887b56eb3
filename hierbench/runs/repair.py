"""What is damaged in a run's folder is set aside and said; the job is then run again as far as need be."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

from hierbench.config.spec import Spec
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError

Note = Callable[[str], None]  # takes one line for the user


def is_finished(spec: Spec, store: Store) -> bool:
    """Whether a job's result is there and whole, and if re-ranked, is of what its base predicts today."""
    run = store.run(spec.id)
    return run.status.get("state") == "done" and not _damaged(spec, run) and _is_of_base(spec, run, store)


def _is_of_base(spec: Spec, run: Run, store: Store) -> bool:
    if spec.base is None:
        return True
    used, now = run.status.get("base_predictions"), store.run(spec.base).digest_of(PREDICTIONS)
    return now is None or used == now


def _damaged(spec: Spec, run: Run, *, read: bool = False) -> list[str]:
    names = run.damaged("read" if read else "needed")
    if "spec.json" not in names and (run.folder / "spec.json").exists():
        try:
            same = run.spec() == spec.content()
        except UserError:
            same = False
        names += [] if same else ["spec.json"]
    return names


def needs_mending(spec: Spec, run: Run, *, read: bool = False) -> bool:
    """Whether a run's folder lacks its first record, or something in it is damaged; `read` also reads predictions."""
    return not run.status or bool(_damaged(spec, run, read=read))


def mend(spec: Spec, run: Run, note: Note, *, read: bool = False) -> None:
    """Set aside what is damaged, so that the job counts as not finished; with the run's lock alone.

    What remains of its time stays in the status; everything else of a result is written again by the job.
    """
    if names := _damaged(spec, run, read=read):
        before = run.status
        kept = {key: before[key] for key in ("started", "seconds") if key in before}
        place = set_aside(run, names)
        run.set_status("planned", **kept)
        what = ", ".join(names)
        where = f"set aside in {place}" if place else "gone"
        note(f"note: {what} of {spec.label}: damaged; {where}, computed again")
    run.plan(spec.content())


def set_aside(run: Run, names: list[str]) -> Path | None:
    """Move files into the run's folder `damaged`, beside what is there; return it, None if no file was there."""
    place = run.subfolder("damaged")
    there = [run.folder / name for name in names if os.path.lexists(run.folder / name)]
    for path in there:
        run.guard()
        place.mkdir(exist_ok=True)
        names_of_it = (place / f"{path.stem}{f'-{n}' if n else ''}{path.suffix}" for n in count())
        path.rename(next(free for free in names_of_it if not os.path.lexists(free)))
    return place if there else None
