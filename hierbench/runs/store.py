"""The runs on disk: `<runs>/<id>/` with the files of a job, written atomically; the disk is the source of truth."""

import csv
import io
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hierbench.runs.integrity import PREDICTIONS, RESULTS, checked_status, read_files
from hierbench.utils.arrays import load_arrays
from hierbench.utils.errors import UserError
from hierbench.utils.files import (
    file_digest,
    read_json_object,
    read_text,
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
MADE = re.compile(
    r"(spec|status|metrics|further-metrics|environment|mirrored|tuning|ablation)\.json"
    r"|history\.csv|predictions\.npz|checkpoint\.pt"
)
DAMAGED = re.compile(MADE.pattern.replace(r"\.", r"(-\d+)?\."))
RUN_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Run:
    """One job's folder.

    Files: spec.json, status.json ({"state": planned | running | done | failed, ...}), history.csv, metrics.json,
    predictions.npz (test scores [N, K], float32 or post-hoc float64, targets [N], and level_predictions [N, L] of
    methods that make them), checkpoint.pt, environment.json. A run is done when its status says so, which is written
    last and holds the others' digests.

    Attributes:
        guard: called before each write; raises if another process has taken over the job.
    """

    folder: Path
    guard: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)

    def clear(self) -> None:
        """Remove the run's own files, so that the job starts from the beginning; other files stay."""
        remove_made(self.folder, MADE)
        remove_made(self.subfolder("damaged"), DAMAGED)

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

    @property
    def done(self) -> bool:
        """Whether the run is finished and its files are uncorrupted."""
        status = self.status
        return status.get("state") == "done" and not self.damaged(status=status)

    @property
    def state(self) -> str:
        """The reason, for an error's line, why a run is not done."""
        if names := self.damaged():
            return f"is damaged ({', '.join(names)}); hierbench run quarantines it and computes it again"
        return f"is not finished: {self.status.get('state')}"

    def damaged(
        self, predictions: Literal["optional", "needed", "read"] = "optional", status: dict[str, Any] | None = None
    ) -> list[str]:
        """Return the names of result files that were changed, added or removed since the run wrote them.

        Args:
            predictions: "optional" may be missing, as in published records; "needed" may not; of both, the size is
                compared; "read" also compares the digest.
            status: `self.status`, if it has been read already.
        """
        status = self.status if status is None else status
        if status.get("state") != "done":
            return ["status.json"] if status.get("state") == "damaged" else []
        files: dict[str, dict[str, Any]] = status["files"]
        _, wrong = read_files(self.folder, files, read_predictions=predictions == "read")
        lost = predictions != "optional" and PREDICTIONS in files and not os.path.lexists(self.folder / PREDICTIONS)
        return [*wrong, *([PREDICTIONS] if lost else [])]

    def digest_of(self, name: str) -> str | None:
        """Return the recorded SHA-256 of a result file, or None."""
        record = self.status.get("files", {}).get(name)
        return None if record is None else str(record["sha256"])

    def metrics(self) -> dict[str, Any]:
        """Return metrics.json, which has the section "val" in tuning runs, otherwise "test"."""
        return self._read("metrics.json")

    def spec(self) -> dict[str, Any]:
        """Return spec.json."""
        return self._read("spec.json")

    def _read(self, name: str) -> dict[str, Any]:
        try:
            return read_json_object(self.folder / name)
        except FileNotFoundError:
            return {}
        except (ValueError, OSError) as error:
            raise self._damaged(name, f" ({error})") from None

    def _damaged(self, name: str, reason: str = "") -> UserError:
        return UserError(f"{self.folder / name} is damaged{reason}; remove the folder {self.folder} to run it again")

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

    def history(self) -> list[dict[str, float]]:
        """Read history.csv.

        Raises:
            OSError: it cannot be read.
            UserError: it is not a table of numbers.
        """
        try:
            rows = csv.DictReader(io.StringIO(read_text(self.folder / "history.csv"), newline=""))
            return [{key: float(value) for key, value in row.items()} for row in rows]
        except (ValueError, TypeError, AttributeError, csv.Error):  # non-numeric, missing or surplus cells
            raise self._damaged("history.csv") from None

    @property
    def epochs_done(self) -> int:
        """How many epochs history.csv has; 0 if it is missing or corrupted."""
        try:
            return len(self.history())
        except (OSError, UserError):
            return 0

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

    def predictions(self) -> tuple[NDArray[np.floating[Any]], NDArray[np.int64]]:
        """Read the test scores [N, K] and targets [N]; a ValueError if the file is missing or corrupted."""
        scores, targets = read_predictions(self.folder / PREDICTIONS, self.digest_of(PREDICTIONS), "scores", "targets")
        return scores, targets

    def level_predictions(self) -> NDArray[np.int64] | None:
        """Read the level-wise predictions on the test split; a ValueError if the file is missing or corrupted.

        Returns:
            [N, L] the node at each level, coarsest first, as `Hierarchy.level_targets` counts them; None for a method
            that predicts classes alone.
        """
        path, names = self.folder / PREDICTIONS, ("level_predictions?", "targets")
        levels, targets = read_predictions(path, self.digest_of(PREDICTIONS), *names)
        if levels is None:
            return None
        if levels.ndim != 2 or levels.dtype.kind not in "iu" or len(levels) != len(targets) or (levels < 0).any():
            run, found = self.folder.name[:12], f"{levels.shape} {levels.dtype}"
            raise ValueError(
                f"predictions of run {run} are damaged: the level-wise ones, {found}, are no indices of nodes"
            )
        return np.asarray(levels, dtype=np.int64)


def read_predictions(path: Path, recorded: str | None, *names: str) -> list[Any]:
    """Read arrays by name, None for one that may be absent, written "NAME?", and is.

    Raises:
        ValueError: the file is missing, corrupted, or has another SHA-256 than the recorded one, if there is one.
    """
    try:
        if recorded is not None and file_digest(path) != recorded:
            raise ValueError("its checksum differs")
        return load_arrays(path, *names)
    except (OSError, ValueError) as error:
        raise ValueError(f"predictions of run {path.parent.name[:12]} cannot be read: {error}") from error


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

    def writable(self) -> None:
        """Raise a UserError unless the folder can be written."""
        probe = temporary_beside(self.root / "probe")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            try:
                probe.write_bytes(b"{}")  # not empty: the disk may be full
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"runs cannot be written to {self.root}: {error.strerror or error}") from None


def run_names(root: Path) -> list[str]:
    """Return the names of what is, or should be, a run's folder: also of links, and of folders without a spec."""
    found = []
    for entry in os.scandir(root) if root.is_dir() else ():
        is_run = RUN_ID.fullmatch(entry.name) is not None
        if not entry.is_dir(follow_symlinks=False):
            there = is_run
        else:
            there = os.path.lexists(f"{entry.path}/spec.json") or (
                is_run and any(os.path.lexists(f"{entry.path}/{name}") for name in ("status.json", *RESULTS))
            )
        found += [entry.name] if there else []
    return sorted(found)
