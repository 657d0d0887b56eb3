"""A job: one method on one dataset, type and seed; its id is the SHA-256 of everything that changes its result."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from hierbench.config.recipe import Augment, Evaluation, FeatureType, Model, Precision, Protocol, Rates

# Raise when the engine's numbers change (training loop, schedule, evaluation, augmentation), so that no result of the
# old code is taken for one of the new.
CODE_VERSION = 2


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class DatasetSpec(_Frozen):
    """Which examples, in which order of classes, on which tree."""

    name: str
    digest: str
    hierarchy: str
    distance: Literal["height", "depth"]
    jpeg_quality: int = 0


class MethodSpec(_Frozen):
    """Which method; `code` is the digest of its file without comments and blank space."""

    name: str
    version: str
    code: str
    params: dict[str, Any]


class TrainSpec(_Frozen):
    """How long, in which precision and with which rates, those of the job's own type."""

    epochs: int
    batch_size: int
    precision: Precision = "float32"
    micro_batch: int = 0
    momentum: float
    weight_decay: float
    lr: Rates


class Spec(_Frozen):
    """Everything that changes a job's result, every switch of its protocol, and nothing else.

    Attributes:
        split: what the result is of; tuning looks at validation alone.
        weights: SHA-256 of the file that the backbone starts from, None where it starts from nothing.
        base: of a post-hoc job, the id of the job whose predictions it takes.
    """

    schema_version: Literal[1] = 1
    code: int = CODE_VERSION
    protocol: Protocol = "paper"
    dataset: DatasetSpec
    method: MethodSpec
    type: FeatureType
    model: Model
    train: TrainSpec
    augment: Augment
    evaluation: Evaluation = Evaluation()
    weights: str | None = None
    split: Literal["test", "val"] = "test"
    seed: int
    base: str | None = None

    def content(self) -> dict[str, Any]:
        """Return the spec as JSON types."""
        return self.model_dump(mode="json", by_alias=True)

    @property
    def id(self) -> str:
        """SHA-256 of the canonical JSON."""
        return digest_of(self.content())

    @property
    def comparison(self) -> str:
        """Digest of what all rows of one leaderboard must share: data, protocol, model and training."""
        content = self.content()
        for key in ("method", "type", "seed", "base"):
            del content[key]
        del content["train"]["lr"]  # differs between the types by design, see `type_rates`
        return digest_of(content)

    @property
    def label(self) -> str:
        """What a person calls it."""
        return f"{self.method.name} {self.type} seed {self.seed}"


def digest_of(content: Any) -> str:
    """Return the SHA-256 of canonical JSON: sorted keys, no blanks, no NaN."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(text.encode()).hexdigest()
