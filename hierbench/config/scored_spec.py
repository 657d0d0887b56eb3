"""Predictions that were made elsewhere and only scored here: the spec of their record, in place of a job's."""

from typing import Annotated, Any, Literal

from pydantic import Field

from hierbench.config.spec import DatasetSpec, json_digest
from hierbench.config.validation import Closed


class Scored(Closed):
    """A name for the predictions, and the examples that they are of; their training is not known."""

    schema_version: Literal[1] = 1
    kind: Literal["scored"] = "scored"
    name: Annotated[str, Field(min_length=1, max_length=100)]  # of the row in a leaderboard
    dataset: DatasetSpec
    split: Literal["test"] = "test"
    top: Annotated[int, Field(ge=1)] | None = None  # ranked classes per example; None: a score for every class
    scores: Literal["probabilities", "logits", "votes"] | None = None  # as the user says; None: as they look
    predictions: str  # SHA-256 of shape, dtype and content in the order of the dataset

    def content(self) -> dict[str, Any]:
        """Return the record as JSON types, without fields at their defaults, so that ids hold."""
        return self.model_dump(mode="json", exclude={"scores"} if self.scores is None else None)

    @property
    def id(self) -> str:
        """SHA-256 of the canonical JSON."""
        return json_digest(self.content())


def is_scored(spec: dict[str, Any]) -> bool:
    """Whether a spec.json describes scored predictions rather than a job."""
    return spec.get("kind") == "scored"
