"""A run as all that reads results gets it: immutable, read and checked once by `hierbench.runs.record_reader`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.api.code import identity_code
from hierbench.config.scored_spec import Scored
from hierbench.config.spec import DatasetSpec, Spec
from hierbench.hierarchy.label_tree import IntArray
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.state import Note, State
from hierbench.runs.store import HistoryRow
from hierbench.utils.arrays import load_arrays
from hierbench.utils.errors import UserError
from hierbench.utils.files import LARGEST_TEXT, file_digest, read_bytes, read_text, refuse_links

COMPACT = "predictions-compact.npz"  # see `hierbench.runs.compact`
OF_ONE = ("seed", "base")  # fields that differ between the specs of a row
LARGEST_METRIC = 1e9  # of any recorded number


@dataclass(frozen=True, eq=False)
class Record:
    """One run, found by its folder and id.

    Attributes:
        folder: that it was read from.
        state: how much its numbers can be trusted.
        spec: of a job; None for scored predictions, and where it cannot be read.
        scored: of predictions made elsewhere.
        row: the common part of the specs of its row, as JSON; "" without a spec.
        status: content of status.json.
        result: content of metrics.json, {} where the run is not finished.
        environment: content of environment.json, {} likewise.
        findings: why it is rejected or damaged.
        notes: for readers, without reason to reject it.
        damaged: names of the files that are not those which the run wrote.
    """

    folder: Path
    state: State
    spec: Spec | None = None
    scored: Scored | None = None
    row: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The name of its folder: the SHA-256 of its spec."""
        return self.folder.name

    @property
    def done(self) -> bool:
        """Whether it has a result that counts."""
        return self.state.is_finished

    @property
    def rejected(self) -> bool:
        """Whether it is rejected or damaged."""
        return self.state in (State.REJECTED, State.DAMAGED)

    @property
    def label(self) -> str:
        """Its name in messages."""
        if self.spec is not None:
            return self.spec.label
        return f"{self.scored.name} scored" if self.scored is not None else self.id[:12]

    @property
    def job(self) -> Spec:
        """Its spec, where there must be one: a row's run."""
        assert self.spec is not None, self.folder
        return self.spec

    @property
    def method_digest(self) -> str:
        """The digest of the code of its method: that of its spec; of ours, which a version names, that recorded."""
        method = self.job.method
        is_ours = method.code == identity_code(method.name, method.version)
        return str(self.environment.get("method_code", method.code)) if is_ours else method.code

    @property
    def data(self) -> DatasetSpec:
        """The data that it is of, where its spec has been read."""
        assert self.dataset is not None, self.folder
        return self.dataset

    @property
    def content(self) -> dict[str, Any]:
        """The content of its spec.json, {} where that cannot be read."""
        spec = self.spec or self.scored
        return {} if spec is None else spec.content()

    @property
    def dataset(self) -> DatasetSpec | None:
        """The data that it is of."""
        spec = self.spec or self.scored
        return None if spec is None else spec.dataset

    @property
    def bases(self) -> tuple[str, ...]:
        """The ids of the runs that it re-ranks."""
        return () if self.spec is None else self.spec.bases

    @property
    def metrics(self) -> Mapping[str, float | None]:
        """Its metrics on the split of its spec, {} without a result; a severity without mistakes is None."""
        metrics: Mapping[str, float | None] = self.result.get("test" if self.spec is None else self.spec.split, {})
        return metrics

    @property
    def title(self) -> str:
        """The title of its method, "" without a result."""
        return str(self.result.get("title", ""))

    @property
    def started(self) -> float:
        """When it began, in seconds since 1970; 0 where that is not recorded."""
        started = self.status.get("started")
        return float(started) if isinstance(started, int | float) else 0.0

    @property
    def seconds(self) -> float:
        """How long it took."""
        seconds = self.status.get("seconds")
        return float(seconds) if isinstance(seconds, int | float) else 0.0

    @property
    def remark(self) -> str:
        """The remark on its data, e.g. that it is only a part of the dataset."""
        return str(self.environment.get("data", {}).get("remark") or "")

    @property
    def comparison(self) -> str:
        """Digest of the settings that all rows of a table share, see `Spec.comparison`."""
        return comparison_of_row(self.row)

    @cached_property
    def has_predictions(self) -> bool:
        """Whether its predictions are here; published records have them in compact form alone."""
        return (self.folder / PREDICTIONS).is_file()

    @cached_property
    def has_ranks(self) -> bool:
        """Whether its predictions are here in any form."""
        return self.has_predictions or (self.folder / COMPACT).is_file()

    def recorded_digest(self, name: str) -> str | None:
        """Return the recorded SHA-256 of one of its files, or None."""
        recorded = self.status.get("files", {}).get(name)
        return None if recorded is None else str(recorded["sha256"])

    def predictions(self) -> tuple[NDArray[np.floating[Any]], IntArray]:
        """Read the test scores [N, K] and targets [N]; a ValueError if the file is missing or not the one recorded."""
        scores, targets = self.arrays("scores", "targets")
        return scores, targets

    def level_predictions(self) -> IntArray | None:
        """Read the level-wise predictions on the test split; a ValueError if the file is missing or not the recorded.

        Returns:
            [N, L] the node at each level, coarsest first, as `Hierarchy.level_targets` counts them; None for a method
            that predicts classes alone.
        """
        levels, targets = self.arrays("level_predictions?", "targets")
        if levels is None:
            return None
        if levels.ndim != 2 or levels.dtype.kind not in "iu" or len(levels) != len(targets) or (levels < 0).any():
            shape = f"{levels.shape} {levels.dtype}"
            raise ValueError(
                f"predictions of run {self.id[:12]} are damaged: the level-wise ones, {shape}, are not indices of nodes"
            )
        return np.asarray(levels, dtype=np.int64)

    def arrays(self, *names: str) -> list[Any]:
        """Read arrays of the predictions by name, None for one that may be absent, written "NAME?", and is.

        Raises:
            ValueError: the file is missing, corrupted, or has another SHA-256 than the recorded one, if there is one.
        """
        path = self.folder / PREDICTIONS
        recorded = self.recorded_digest(PREDICTIONS)
        try:
            if recorded is not None and file_digest(path) != recorded:
                raise ValueError("its checksum differs")
            return load_arrays(path, *names)
        except (OSError, ValueError) as error:
            raise ValueError(f"predictions of run {self.id[:12]} cannot be read: {error}") from error

    def history(self) -> list[HistoryRow]:
        """Read history.csv, a row per epoch.

        Raises:
            OSError: it cannot be read.
            UserError: it is not a table of numbers.
        """
        rows = self._history_rows()
        if rows is None:
            file = self.folder / "history.csv"
            raise UserError(f"{file} is damaged; remove the folder {self.folder} to run it again")
        return rows

    def _history_rows(self) -> list[HistoryRow] | None:
        """Return the rows of history.csv, None where it is not a table of numbers; an OSError if it cannot be read."""
        try:
            rows = csv.DictReader(io.StringIO(read_text(self.folder / "history.csv"), newline=""))
            return [{key: float(value) for key, value in row.items()} for row in rows]
        except (ValueError, TypeError, AttributeError, csv.Error):  # non-numeric, missing or surplus cells
            return None

    @property
    def epochs_done(self) -> int:
        """How many epochs history.csv has by now; 0 if it is missing or corrupted."""
        try:
            return len(self._history_rows() or ())
        except OSError:
            return 0

    def read(self, name: str, limit: int = LARGEST_TEXT) -> bytes:
        """Read a file of the run's folder; an OSError if it is missing, no regular file, or larger than the limit."""
        return read_bytes(refuse_links(self.folder.parent, self.id) / name, limit)


@lru_cache(maxsize=4096)
def spec_of_row(row: str) -> Spec:
    """Return the spec of a row's seed 0; a ValidationError unless it is one."""
    return Spec.model_validate({**json.loads(row), "seed": 0})


@lru_cache(maxsize=4096)
def comparison_of_row(row: str) -> str:
    """Return the `comparison` of the specs of a row."""
    return spec_of_row(row).comparison


def is_number(value: Any) -> bool:
    """Whether a recorded value is a number that a metric can have; sums of such numbers are finite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_METRIC


def variant_key(record: Record) -> tuple[str, str, str]:
    """Return the key that variants of one row share."""
    return record.job.method.name, record.job.type, comparison_of_row(record.row)


def differing_params(records: Iterable[Record]) -> dict[str, str]:
    """Return {run id: "alpha=0.2"}, the hyperparameters by which runs of one method, type and settings differ."""
    groups: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for record in records:
        if record.spec is not None:
            groups.setdefault(variant_key(record), {})[record.id] = record.job.method.params
    text_by_id = {}
    for group in groups.values():
        first = next(iter(group.values()))
        names = [name for name, value in first.items() if any(params.get(name) != value for params in group.values())]
        if names:
            for run_id, params in group.items():
                text_by_id[run_id] = ", ".join(f"{name}={params.get(name)}" for name in names)
    return text_by_id
