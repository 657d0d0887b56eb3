"""Runs whose records were read and verified before: a table of thousands reads no file of theirs again."""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from hierbench.config.spec import Spec
from hierbench.runs.store import Run

OF_ONE = ("seed", "base")  # what differs between the specs of a row


@dataclass(frozen=True)
class KnownRun(Run):
    """A finished run with the content of its files as they were verified.

    Attributes:
        known: its spec.
        row: `row_of` the spec.
        result: content of metrics.json.
        environment: content of environment.json; of many runs one object, which nobody may change.
    """

    known: Spec = field(kw_only=True, compare=False, repr=False)
    row: str = field(kw_only=True, compare=False, repr=False)
    result: dict[str, Any] = field(kw_only=True, compare=False, repr=False)
    environment: dict[str, Any] = field(kw_only=True, compare=False, repr=False)

    @property
    def done(self) -> bool:
        """Whether the run is finished and its files are uncorrupted: it was when it was verified."""
        return True

    def damaged(
        self, predictions: Literal["optional", "needed", "read"] = "optional", status: dict[str, Any] | None = None
    ) -> list[str]:
        """Return the names of damaged files: there were none; what is read is compared again."""
        return super().damaged(predictions, status) if predictions == "read" else []

    def spec(self) -> dict[str, Any]:
        """Return spec.json."""
        return self.known.content()

    def metrics(self) -> dict[str, Any]:
        """Return metrics.json."""
        return self.result


def row_of(spec: Spec) -> str:
    """Return what the specs of a row have in common, all but seed and base, as JSON."""
    return json.dumps({name: value for name, value in spec.content().items() if name not in OF_ONE})


def spec_of_row(row: str, **own: Any) -> Spec:
    """Return the spec of a row with a seed and a base; the specs of a row share their sections."""
    return _spec(row).model_copy(update=own)


@lru_cache(maxsize=4096)
def _spec(row: str) -> Spec:
    return Spec.model_validate({**json.loads(row), "seed": 0})


@lru_cache(maxsize=4096)
def comparison_of_row(row: str) -> str:
    """Return the `comparison` of the specs of a row."""
    return _spec(row).comparison


def comparison_of(spec: Spec, run: Run) -> str:
    """Return the `comparison` of a run's spec."""
    return comparison_of_row(run.row) if isinstance(run, KnownRun) else spec.comparison
