"""The runs on disk: `<runs>/<id>/` with the files of a job, written atomically; the disk is the source of truth."""

import csv
import io
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.runs.integrity import PREDICTIONS, RESULTS, checked_status
from hierbench.utils.errors import UserError
from hierbench.utils.files import (
    read_json_object,
    refuse_links,
    remove_abandoned,
    remove_made,
    temporary_beside,
    write_atomically,
    write_json,
    write_text,
)

HistoryRow = dict[str, float]
# The files of a run, and their names in its folder `damaged`.
RUN_FILE = re.compile(
    r"(spec|status|metrics|further-metrics|environment|mirrored|tuning|ablation)\.json"
    r"|history\.csv|predictions\.npz|checkpoint\.pt"
)
QUARANTINED_FILE = re.compile(RUN_FILE.pattern.replace(r"\.", r"(-\d+)?\."))
RUN_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Run:
    """One job's folder.

    Files: spec.json, status.json ({"state": planned | running | done | failed, ...}), history.csv, metrics.json,
    predictions.npz (test scores [N, K], float32 or post-hoc float64, targets [N], and level_predictions [N, L] of
    methods that make them), checkpoint.pt, environment.json. A run is done when its status is "done"; the status is
    written last and holds the digests of the other files.

    Attributes:
        guard: called before each write; raises if another process has taken over the job.
    """

    folder: Path
    guard: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)

    def clear(self) -> None:
        """Remove the run's own files, so that the job starts from the beginning; other files stay."""
        remove_made(self.folder, RUN_FILE)
        remove_made(self.subfolder("damaged"), QUARANTINED_FILE)

    def subfolder(self, name: str) -> Path:
        """Return a folder inside the run's; a UserError if it is a symbolic link."""
        return refuse_links(self.folder, name)

    @property
    def status(self) -> dict[str, Any]:
        """The content of status.json: {} if it is missing, {"state": "damaged"} if it is corrupted."""
        try:
            return checked_status(read_json_object(self.folder / "status.json"))
        except FileNotFoundError:
            return {}
        except (ValueError, OSError):
            return {"state": "damaged"}

    def plan(self, spec: dict[str, Any]) -> None:
        """Create the folder with its spec; needs the run's lock where other processes may write its status."""
        if not (self.folder / "spec.json").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.write_record("spec.json", spec)
        if not self.status:
            self.set_status("planned")

    def set_status(self, state: str, **details: Any) -> None:
        """Write status.json."""
        self.write_record("status.json", {"state": state, **details})

    def write_record(self, name: str, content: dict[str, Any]) -> None:
        """Write one of the JSON files."""
        self.guard()
        write_json(self.folder / name, content)

    def write_history(self, rows: list[HistoryRow]) -> None:
        """Write history.csv, a row per epoch; floats in full precision."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self.guard()
        write_text(self.folder / "history.csv", text.getvalue())

    def write_predictions(
        self,
        scores: NDArray[np.floating[Any]],
        targets: NDArray[np.int64],
        level_predictions: NDArray[np.int64] | None = None,
    ) -> None:
        """Write the test scores [N, K], targets [N] and level-wise predictions [N, L], if there are any."""
        arrays: dict[str, Any] = {"scores": scores, "targets": targets}
        if level_predictions is not None:
            arrays["level_predictions"] = level_predictions
        self.guard()
        write_atomically(self.folder / PREDICTIONS, lambda file: np.savez(file, **arrays))


@dataclass(frozen=True)
class Store:
    """All runs below one folder."""

    root: Path

    def run(self, job_id: str) -> Run:
        """Return the run of a job; a UserError for an id, perhaps of a corrupted record, that is not a file name."""
        if job_id in ("", ".", "..") or "/" in job_id or "\0" in job_id:
            raise UserError(f"{job_id[:80]!r} is not the id of a run")
        return Run(refuse_links(self.root, job_id))

    def runs(self) -> list[Run]:
        """Return every run that has a spec, by id; symbolic links are left out."""
        places = (Run(self.root / name) for name in run_names(self.root))
        return [run for run in places if not run.folder.is_symlink() and os.path.lexists(run.folder / "spec.json")]

    def tidy(self, ids: Sequence[str]) -> None:
        """Remove temporary files of killed commands from the folder and from these runs."""
        for folder in (self.root, *(self.run(job_id).folder for job_id in ids)):
            remove_abandoned(folder)

    def check_writable(self) -> None:
        """Raise a UserError unless the folder can be written."""
        problem = self.write_problem()
        if problem:
            raise UserError(problem)

    def write_problem(self) -> str:
        """Return why the folder cannot be written, "" if it can."""
        probe = temporary_beside(self.root / "probe")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            try:
                probe.write_bytes(b"{}")  # not empty: the disk may be full
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            return f"runs cannot be written to {self.root}: {error.strerror or error}"
        return ""


def run_names(root: Path) -> list[str]:
    """Return the names of all run folders, also of links to one, and of those without a spec."""
    names = []
    for entry in os.scandir(root) if root.is_dir() else ():
        is_run = RUN_ID.fullmatch(entry.name) is not None
        if not entry.is_dir(follow_symlinks=False):
            is_kept = is_run
        else:
            is_kept = os.path.lexists(f"{entry.path}/spec.json") or (
                is_run and any(os.path.lexists(f"{entry.path}/{name}") for name in ("status.json", *RESULTS))
            )
        names += [entry.name] if is_kept else []
    return sorted(names)
