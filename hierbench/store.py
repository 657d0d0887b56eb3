"""The runs on disk: `<runs>/<id>/` with the files of one job, each written atomically; the disk is the truth."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hierbench.arrays import load_arrays
from hierbench.errors import UserError
from hierbench.files import (
    file_digest,
    read_json,
    read_text,
    temporary_beside,
    write_atomically,
    write_json,
    write_text,
)
from hierbench.integrity import PREDICTIONS, is_as_recorded, sealed, unsealed

HistoryRow = dict[str, float]
STEP = 1_000_000  # ns between two file times that every file system tells apart
LARGEST_METRIC = 1e6  # per cent and distances have three digits


def _nothing() -> None:
    """Guard nothing."""


@dataclass(frozen=True)
class Run:
    """One job's folder.

    Files: spec.json, status.json ({"state": planned | running | done | failed, ...}), history.csv, metrics.json,
    predictions.npz (test scores [N, K], float32 or post-hoc float64, and targets [N]), checkpoint.pt,
    environment.json. A run is done when its status says so, which is written last and holds the others' digests.

    Attributes:
        guard: called before each write; it raises where another process has taken the job over.
    """

    folder: Path
    guard: Callable[[], None] = field(default=_nothing, compare=False, repr=False)

    @property
    def status(self) -> dict[str, Any]:
        """What status.json says, {} without one, {"state": "damaged"} where it is not what was written."""
        try:
            return unsealed(read_text(self.folder / "status.json"))
        except FileNotFoundError:
            return {}
        except (ValueError, OSError):
            return {"state": "damaged"}

    @property
    def done(self) -> bool:
        """Whether the run is finished, and its files are what it wrote."""
        state = self.status.get("state")
        return state == "done" and (self.folder / "metrics.json").exists() and not self.damaged()

    @property
    def state(self) -> str:
        """What an error's line says of a run that is not done."""
        if names := self.damaged():
            return f"is damaged ({', '.join(names)}); hierbench run sets that aside and computes it again"
        return f"is not finished: {self.status.get('state')}"

    def damaged(self, predictions: Literal["optional", "needed", "read"] = "optional") -> list[str]:
        """Return the names of the files that are not what the run wrote, or are gone.

        A run of an earlier version recorded no digests; its records must at least be readable.

        Args:
            predictions: "optional" ones may be gone, as they are from published records, "needed" ones not; their
                size and time are enough, unless they are to be "read".
        """
        status = self.status
        if status.get("state") == "damaged":
            return ["status.json"]
        if status.get("state") != "done":
            return []
        if "files" not in status:
            return [name for name in ("spec.json", "metrics.json") if not self._readable(name)]
        wrong = []
        for name, record in status["files"].items():
            path, large = self.folder / name, name == PREDICTIONS
            may_be_gone = large and predictions == "optional" and not path.exists()
            if not may_be_gone and not is_as_recorded(path, record, trust_time=large and predictions != "read"):
                wrong.append(name)
        return wrong

    @property
    def has_spec(self) -> bool:
        """Whether spec.json can be read."""
        return self._readable("spec.json")

    def digest_of(self, name: str) -> str | None:
        """Return the SHA-256 that was recorded of a result file, None where there is none."""
        record = self.status.get("files", {}).get(name)
        return None if record is None else str(record["sha256"])

    def metrics(self) -> dict[str, Any]:
        """Return metrics.json; it has the section "val" in a run of tuning, otherwise "test"."""
        content = self._read("metrics.json")
        result = content.get(self.spec().get("split", "test"))
        fits = isinstance(result, dict) and {"top1", "mistake_severity", "hierdist@1"} <= result.keys()
        if not fits or not isinstance(content.get("title"), str):
            raise UserError(f"{self.folder}/metrics.json is damaged; remove the folder to run it again")
        assert isinstance(result, dict)
        for name, value in result.items():
            known = isinstance(value, int | float) and abs(value) < LARGEST_METRIC
            if not known and not (value is None and name == "mistake_severity"):
                raise UserError(f"{self.folder}/metrics.json is damaged; remove the folder to run it again")
        return content

    def spec(self) -> dict[str, Any]:
        """Return spec.json."""
        return self._read("spec.json")

    def _readable(self, name: str) -> bool:
        try:
            self._read(name)
        except UserError:
            return False
        return True

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        try:
            content = read_json(path)
        except FileNotFoundError:
            return {}
        except (ValueError, OSError) as error:
            raise UserError(f"{path} is damaged ({error}); remove the folder {self.folder} to run it again") from None
        if not isinstance(content, dict):
            raise UserError(f"{path} is damaged; remove the folder {self.folder} to run it again")
        return content

    def plan(self, spec: dict[str, Any]) -> None:
        """Create the folder with its spec, so that a planned job counts even if it never runs.

        Where other processes may be at work, only with the run's lock: this must not overwrite their status.
        """
        if not (self.folder / "spec.json").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.write_record("spec.json", spec)
        if not self.status:
            self.set_status("planned")

    def set_status(self, state: str, **details: Any) -> None:
        """Write status.json."""
        self.write_record("status.json", sealed({"state": state, **details}))

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
            OSError: it can not be read.
            UserError: it is no table of numbers.
        """
        path = self.folder / "history.csv"
        try:
            rows = csv.DictReader(io.StringIO(read_text(path), newline=""))
            return [{key: float(value) for key, value in row.items()} for row in rows]
        except (ValueError, TypeError, AttributeError, csv.Error):  # cells that are no numbers, are missing or too many
            raise UserError(f"{path} is damaged; hierbench run sets it aside and computes it again") from None

    def write_predictions(self, scores: NDArray[np.floating[Any]], targets: NDArray[np.int64]) -> None:
        """Write the test scores [N, K] and targets [N]."""
        self.guard()
        write_atomically(self.folder / "predictions.npz", lambda file: np.savez(file, scores=scores, targets=targets))

    def predictions(self) -> tuple[NDArray[np.floating[Any]], NDArray[np.int64]]:
        """Read the test scores [N, K] and targets [N].

        Raises:
            ValueError: the file is missing or damaged.
        """
        try:
            path, recorded = self.folder / PREDICTIONS, self.digest_of(PREDICTIONS)
            if recorded is not None and file_digest(path) != recorded:
                raise ValueError("its checksum is another")
            scores, targets = load_arrays(path, "scores", "targets")
            return scores, targets
        except (OSError, ValueError) as error:
            raise ValueError(f"predictions of run {self.folder.name[:12]} can not be read: {error}") from error


@dataclass(frozen=True)
class Store:
    """All runs below one folder.

    Attributes:
        root: the folder.
        apart: ids of jobs whose runs lie in `<root>/collapse` instead, where no table looks for them: they are trained
            a second time, for what the first did not keep.
    """

    root: Path
    apart: frozenset[str] = frozenset()

    def run(self, job_id: str) -> Run:
        """Return the run of a job, whose id may come out of a damaged record."""
        if job_id in ("", ".", "..") or "/" in job_id or "\0" in job_id:
            raise UserError(f"{job_id[:80]!r} is no id of a run")
        return Run((self.root / "collapse" if job_id in self.apart else self.root) / job_id)

    def runs(self) -> Iterator[Run]:
        """Yield every run that has a spec, oldest first."""
        specs = self.root.glob("*/spec.json") if self.root.is_dir() else iter(())
        for path in sorted(specs, key=lambda path: (path.stat().st_mtime_ns, path.parent.name)):
            yield Run(path.parent)

    def now(self) -> int:
        """Return a file time in ns that is later than all runs', also where the clock was ahead and was put right."""
        times = [path.stat().st_mtime_ns for path in self.root.glob("*/spec.json")]
        return max(time.time_ns(), max(times, default=0) + STEP)

    def writable(self) -> None:
        """Raise a UserError unless runs can be written here."""
        probe = temporary_beside(self.root / "probe")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            write_text(probe, json.dumps({}))
            probe.unlink()
        except OSError as error:
            raise UserError(f"runs can not be written to {self.root}: {error.strerror or error}") from None
