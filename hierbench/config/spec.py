"""A job: one method on one dataset, type and seed; its id is the SHA-256 of everything that changes its result."""

import json
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import Field

from hierbench.config.rates import JobRates
from hierbench.config.recipe_source import PLAIN_NAME
from hierbench.config.sections import Augment, Evaluation, FeatureType, Length, Model, Precision, Protocol, Sampling
from hierbench.config.validation import Closed

# Raise this when the engine's numbers change (training loop, schedule, evaluation, augmentation), so that results of
# the old code are not reused.
CODE_VERSION = 2
# Keys that came after the first records, in the spec only where they differ from their default: older ids hold.
ADDED = {
    "model": ("tokens", "input_size", "frozen", "views"),
    "train": ("optimizer", "warmup_epochs", "layer_decay", "sampling", "every", "steps"),
    "evaluation": ("tested",),
}


class DatasetSpec(Closed):
    """The examples, the order of their classes, and the tree."""

    name: Annotated[str, Field(pattern=PLAIN_NAME.pattern)]
    digest: str
    hierarchy: str
    distance: Literal["height", "depth"]
    jpeg_quality: int = 0


class MethodSpec(Closed):
    """The method; `code` is the digest of its file without comments and docstrings."""

    name: str
    version: str
    code: str
    params: dict[str, Any]


class TrainSpec(Length):
    """Length, precision and optimiser, with the learning rates of the job's type."""

    batch_size: int
    precision: Precision = "float32"
    micro_batch: int = 0
    momentum: float
    weight_decay: float
    optimizer: Literal["sgd", "adamw"] = "sgd"
    warmup_epochs: int = 0
    layer_decay: float = 1.0
    sampling: Sampling = "natural"
    every: int = 1
    lr: JobRates


class Spec(Closed):
    """Everything that changes a job's result, every switch of its protocol, and nothing else."""

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
    weights: str | None = None  # SHA-256 of the file of initial backbone weights, None without one
    split: Literal["test", "val"] = "test"  # of the result; tuning uses validation only
    seed: int
    base: str | tuple[str, ...] | None = None  # of a post-hoc job, the ids of the jobs that it re-ranks; of one, its id

    @property
    def bases(self) -> tuple[str, ...]:
        """The ids of the re-ranked base jobs, in the method's order; () for a job that trains."""
        return (self.base,) if isinstance(self.base, str) else self.base or ()

    @property
    def follows_from_base(self) -> bool:
        """Whether its ranking follows from the best classes of its base, so that none is published for it."""
        return (self.method.name, self.method.code) == ("nearest", "")

    def content(self) -> dict[str, Any]:
        """Return the spec as JSON types."""
        content = self.model_dump(mode="json", by_alias=True)
        for section, keys in ADDED.items():
            fields = type(getattr(self, section)).model_fields
            for key in keys:
                if getattr(getattr(self, section), key) == fields[key].default:
                    del content[section][key]
        return content

    @property
    def id(self) -> str:
        """SHA-256 of the canonical JSON."""
        return json_digest(self.content())

    @property
    def comparison(self) -> str:
        """Digest of the settings that all rows of a leaderboard share: data, protocol, model and training."""
        content = self.content()
        for key in ("method", "type", "seed", "base"):
            del content[key]
        del content["train"]["lr"]  # differs between types, and may between methods
        return json_digest(content)

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.method.name} {self.type} seed {self.seed}"


def json_digest(content: Any) -> str:
    """Return the SHA-256 of canonical JSON: sorted keys, no blanks, no NaN."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(text.encode()).hexdigest()
