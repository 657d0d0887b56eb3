"""The runs on disk: `<runs>/<id>/` with the files of one job, each written atomically; the disk is the truth."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.arrays import load_arrays
from hierbench.errors import UserError
from hierbench.files import read_json, read_text, write_atomically, write_json, write_text

HistoryRow = dict[str, float]
LARGEST_METRIC = 1e6  # per cent and distances have three digits


@dataclass(frozen=True)
class Run:
    """One job's folder.

    Files: spec.json, status.json ({"state": planned | running | done | failed, ...}), history.csv, metrics.json,
    predictions.npz (test scores [N, K], float32 or post-hoc float64, and targets [N]), checkpoint.pt,
    environment.json. A run is done when its status says so, which is written last.
    """

    folder: Path

    @property
    def status(self) -> dict[str, Any]:
        """What status.json says, {} without one."""
        return self._read("status.json")

    @property
    def done(self) -> bool:
        """Whether the run is finished and its result can be used."""
        return self.status.get("state") == "done" and (self.folder / "metrics.json").exists()

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
        """Create the folder with its spec, so that a planned job counts even if it never runs."""
        if not (self.folder / "spec.json").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / "spec.json", spec)
        if not self.status:
            self.set_status("planned")

    def set_status(self, state: str, **details: Any) -> None:
        """Write status.json."""
        write_json(self.folder / "status.json", {"state": state, **details})

    def write_history(self, rows: list[HistoryRow]) -> None:
        """Write history.csv, a row per epoch; floats in full precision."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.folder / "history.csv", text.getvalue())

    def history(self) -> list[dict[str, float]]:
        """Read history.csv.

        Raises:
            OSError: it can not be read.
            UserError: it is no table of numbers.
        """
        try:
            rows = csv.DictReader(io.StringIO(read_text(self.folder / "history.csv"), newline=""))
            return [{key: float(value) for key, value in row.items()} for row in rows]
        except (ValueError, TypeError, csv.Error) as error:  # TypeError: a row is longer or shorter than the header
            raise UserError(f"{self.folder}/history.csv is damaged ({error})") from None

    def write_predictions(self, scores: NDArray[np.floating[Any]], targets: NDArray[np.int64]) -> None:
        """Write the test scores [N, K] and targets [N]."""
        write_atomically(self.folder / "predictions.npz", lambda file: np.savez(file, scores=scores, targets=targets))

    def predictions(self) -> tuple[NDArray[np.floating[Any]], NDArray[np.int64]]:
        """Read the test scores [N, K] and targets [N].

        Raises:
            ValueError: the file is missing or damaged.
        """
        try:
            scores, targets = load_arrays(self.folder / "predictions.npz", "scores", "targets")
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

    def writable(self) -> None:
        """Raise a UserError unless runs can be written here."""
        probe = self.root / f".probe-{os.getpid()}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            write_text(probe, json.dumps({}))
            probe.unlink()
        except OSError as error:
            raise UserError(f"runs can not be written to {self.root}: {error.strerror or error}") from None
