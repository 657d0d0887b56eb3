"""Runs whose files are read once, for what asks often."""

from functools import cached_property
from typing import Any

from hierbench.runs.store import Run


class OnceRead(Run):
    """A run as it is when it is first asked for: files are read and digests computed once, however often that is."""

    @classmethod
    def of(cls, run: Run) -> Run:
        """Return the run of the same folder."""
        return cls(run.folder)

    @cached_property
    def done(self) -> bool:
        """Whether the run was finished and its files uncorrupted."""
        return super().done

    def spec(self) -> dict[str, Any]:
        """Return spec.json; not to be changed."""
        return self._spec

    def metrics(self) -> dict[str, Any]:
        """Return metrics.json; not to be changed."""
        return self._metrics

    @cached_property
    def _spec(self) -> dict[str, Any]:
        return super().spec()

    @cached_property
    def _metrics(self) -> dict[str, Any]:
        return super().metrics()
