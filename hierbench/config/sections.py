"""The sections of a recipe, as closed models, and the types that they share with a job's spec."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hierbench.config.rates import Rate, Rates, flat_rates
from hierbench.config.validation import Closed
from hierbench.utils.text import counted

FeatureType = Literal["pooled", "type-I", "type-II"]
Precision = Literal["float32", "bfloat16"]
AskedPrecision = Literal["auto", "float32", "bfloat16"]
FEATURE_TYPES: tuple[FeatureType, ...] = ("pooled", "type-I", "type-II")
PAPER_TYPES: tuple[FeatureType, ...] = ("type-I", "type-II")  # with trained layers between the backbone and the method
Protocol = Literal["paper", "authors"]
Sampling = Literal["natural", "balanced", "blocks"]
PROTOCOLS: tuple[Protocol, ...] = ("paper", "authors")
GroupInput = Literal["activated", "raw"]
STEPS_PER_ROUND = 1000  # of a training whose length is in steps
FEATURES = re.compile(r"features-([1-9][0-9]{0,4})")  # in place of a backbone


Point = Annotated[float, Field(strict=True)]  # of a grid
Side = Annotated[int, Field(ge=1, le=4096)]  # of an image, pixels


class RatesOfTypes(Closed):
    """Learning rates per type; a method on the pooled features has those of type I."""

    type_i: Rates = Field(alias="type-I")
    type_ii: Rates = Field(alias="type-II")

    def of(self, feature_type: FeatureType) -> Rates:
        """Return the learning rates of a type."""
        return self.type_ii if feature_type == "type-II" else self.type_i


class Model(Closed):
    """Backbone, its weights, and the layers of type I between it and the method."""

    # See `hierbench.models.build_backbone`; "features-D" on a dataset of features [N, D], which have no backbone.
    backbone: str
    # "none" (drawn at random, and trained), "default" (the library's own, downloaded), a published file by name, "file"
    # (that of --weights), or "random" (drawn at random and frozen, on purpose).
    weights: Literal["none", "default", "file", "imagenet1k-v1", "pass", "random"] = "none"
    # Input of the first convolution and the shortcut in the first block of groups 2 and 3 of a wide ResNet: the block's
    # input after batch norm and activation, or unchanged (docs/protocols.md, row 34).
    wrn_group_input: GroupInput = "activated"
    type_i_pool: Literal["average", "max"] = "average"  # docs/protocols.md, row 11
    # Width of the layer of type-I models; 0 omits it with its norms (docs/protocols.md, row 12).
    type_i_units: Annotated[int, Field(ge=0, le=1_000_000)] = 600
    # Of a network that ends in tokens: a map of its patch tokens, or its class token as a map of one place.
    tokens: Literal["patch", "class"] = "patch"
    # (H, W) that images are resized to on the device; None is the library's own for `torchvision:` and `timm:`
    # backbones, and the size of the stored images for the others. A spec holds the resolved size.
    input_size: tuple[Side, Side] | None = None
    # Run the backbone once per image and view, cache its pooled features, and train the rest of the model on them.
    frozen: bool = False
    # Cached views of each training image, only for `frozen`: 1 the image, 2 also its mirror image, n > 2 random crops
    # as [augment] has them (with fewer, its crop and flip do not apply). A step takes a view of each image at random.
    views: Annotated[int, Field(ge=1, le=64)] = 1

    @property
    def given_features(self) -> int:
        """D of "features-D", 0 for a backbone."""
        match = FEATURES.fullmatch(self.backbone)
        return int(match[1]) if match else 0

    @property
    def crops(self) -> bool:
        """Whether training images are cropped and mirrored as [augment] has it."""
        return not self.frozen or (self.views > 2 and not self.given_features)

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> Self:
        if self.given_features:
            if not self.frozen:
                raise ValueError(f"{self.backbone} has no backbone that could be trained: set frozen = true")
            for name in ("weights", "wrn_group_input", "type_i_pool", "tokens", "input_size"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} needs a backbone; leave it out with {self.backbone}")
        if self.views != 1 and not self.frozen:
            raise ValueError("views needs frozen = true; without it, images are augmented at each step")
        if self.weights == "random" and not self.frozen:
            raise ValueError("weights = random is for frozen = true; a trained backbone has weights = none")
        return self


class Length(Closed):
    """The length of a training: epochs, or steps in place of them, with the cosine's rate at every step."""

    epochs: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    steps: Annotated[int, Field(ge=0, le=100_000_000)] = 0

    @property
    def rounds(self) -> int:
        """The number of its parts that end with a validation: epochs, or parts of `STEPS_PER_ROUND` steps."""
        return self.epochs or -(-self.steps // STEPS_PER_ROUND)

    @property
    def length(self) -> str:
        """The length in words."""
        return counted(self.epochs, "epoch") if self.epochs else counted(self.steps, "step")


class Train(Length):
    """Optimiser, schedule and length (docs/protocols.md, rows 16 to 21)."""

    batch_size: Annotated[int, Field(ge=2, le=1_000_000)]
    # Of backbone and feature extractor; head and loss are always float32. "auto" is bfloat16 where the device has it.
    precision: AskedPrecision = "auto"
    # Images per forward and backward pass, for devices with little memory; gradients accumulate over a batch. 0 is the
    # whole batch. Batch norm sees only a micro-batch, so this changes results.
    micro_batch: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    optimizer: Literal["sgd", "adamw"] = "sgd"  # AdamW with PyTorch's betas; `momentum` is SGD's
    # Epochs in which the rate rises linearly, step by step, to that of the cosine; part of `epochs`.
    warmup_epochs: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    # Factor on the backbone's rate per layer away from its end; 1 gives all its layers one rate.
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    # Each epoch sees every image once, or draws as many with every class equally often; "blocks" is natural, shuffled
    # within blocks, of data that is larger than the memory.
    sampling: Sampling = "natural"
    every: Annotated[int, Field(ge=1)] = 1  # of how many images of a class, in their order, one is trained on
    lr: RatesOfTypes

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> Self:
        if self.optimizer == "adamw" and self.momentum != 0.9:
            raise ValueError("momentum is for sgd; adamw has PyTorch's betas")
        if (self.epochs > 0) == (self.steps > 0):
            raise ValueError(f"epochs = {self.epochs} and steps = {self.steps}: the length is one of the two")
        if self.warmup_epochs and self.steps:
            raise ValueError("warmup_epochs is for a length in epochs")
        if self.epochs and self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs = {self.warmup_epochs} must be less than epochs = {self.epochs}")
        return self


class Augment(Closed):
    """Augmentation and normalisation; `pad`, `pad_mode` and `last_offset` are only for crop = "pad"."""

    crop: Literal["pad", "random-resized"] = "pad"  # pad and crop back, or resize a random part to the full size
    pad: Annotated[int, Field(ge=0, le=1024)] = 0  # pixels on each side
    pad_mode: Literal["reflect", "zero"] = "zero"
    last_offset: bool = True  # whether crops reach the last of the 2 pad + 1 offsets (docs/protocols.md, row 23)
    flip: bool  # half of the images
    # Per channel, of values from 0 to 1; None is the backbone's own in its library. A spec holds the resolved values.
    mean: tuple[float, float, float] | None = None
    std: tuple[Rate, Rate, Rate] | None = None

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> Self:
        if not self.pad and not self.last_offset:
            raise ValueError("last_offset = false needs a pad > 0")
        if self.crop == "random-resized" and (self.pad or self.pad_mode != "zero"):
            raise ValueError("crop = random-resized pads nothing: leave out pad and pad_mode")
        return self

    def normalisation(self) -> "Augment":
        """Return the mean and standard deviation alone: images that are neither cropped nor mirrored."""
        return Augment(flip=False, mean=self.mean, std=self.std)


class Data(Closed):
    """The dataset with a recipe's images and tree, and their storage; `data = "cifar100"` is short for `dataset`."""

    dataset: str = ""  # `load_recipe` resolves "" to the recipe's own name, and a file to the name that it gives
    # Re-save images as JPEG of this quality before resizing, 0 to disable; only for fgvc (docs/protocols.md, row 22).
    jpeg_quality: Annotated[int, Field(ge=0, le=95)] = 0

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, content: Any) -> Any:
        return {"dataset": content} if isinstance(content, str) else content

    @property
    def variant(self) -> str:
        """The name of the prepared form: the dataset's, or one that says how the images were re-saved."""
        return f"{self.dataset}-jpeg{self.jpeg_quality}" if self.jpeg_quality else self.dataset


class Evaluation(Closed):
    """How results are computed."""

    # Drop the last incomplete batch: of 256 examples in test, of the training batch size in validation
    # (docs/protocols.md, row 5).
    drop_last: bool = False
    # Which examples come last, only for `drop_last`: those of the last classes ("class"), or those stored last in test
    # and a random choice by the run's seed in validation ("file").
    drop_order: Literal["class", "file"] = "class"
    # The tested model: of the epoch with the best validation accuracy, the first of equals, or of the last.
    tested: Literal["best", "last"] = "best"
    ddof: Literal[0, 1] = 1  # of the standard deviation in the interval over runs (docs/protocols.md, row 4)

    @model_validator(mode="after")
    def _nothing_is_ignored(self) -> Self:
        if self.drop_order != "class" and not self.drop_last:
            raise ValueError("drop_order = file needs drop_last = true")
        return self


# The methods of Liang & Davis, ICCV 2023, in the order of its tables, and the words of --methods for several at once.
PAPER_METHODS = ("ce", "crm", "flamingo", "hafeature", "haframe")
METHOD_GROUPS = ("all", "paper")


class Expected(Closed):
    """Sizes of the whole dataset (Table 1 of the paper): images, and nodes per level, coarsest first.

    A user's file may have only the image size (H, W) that images are resized to; a dataset of features has none.
    """

    image_size: tuple[Side, Side] | None = None
    height: int = 0
    level_sizes: tuple[int, ...] = ()
    train: int = 0
    val: int = 0
    test: int = 0


class Tune(Closed):
    """How hyperparameters and learning rates are searched.

    `grid` {method: {name: values}} replaces the grids that methods declare; a random search and TPE go from the
    smallest to the largest value. "lr.backbone", "lr.transform" and "lr.classifier" are learning rates, which a file
    may write as a table `lr`. The method "all" stands for every trained one without points of its own for a rate.
    """

    runs: Annotated[int, Field(ge=1, le=10_000)] = 3  # per configuration; configurations are compared by the mean
    sampler: Literal["grid", "random", "tpe"] = "grid"
    trials: Annotated[int, Field(ge=1)] | None = (
        None  # but of a grid; by default as many as the largest grid has points
    )
    # The best configurations are trained again until each has `finalist_runs`, and the mean of these decides.
    finalists: Annotated[int, Field(ge=0, le=1_000)] = 0
    finalist_runs: Annotated[int, Field(ge=1, le=10_000)] = 3
    every: Annotated[int, Field(ge=1)] | None = None  # as train.every, for a search on a part of the training images
    # The search that chose what stands in the recipe: configurations of each row x runs of each; "" for none.
    searched: Annotated[str, Field(pattern=r"^([1-9]\d* x [1-9]\d*)?$")] = ""
    grid: dict[str, Annotated[dict[str, tuple[Point, ...]], BeforeValidator(flat_rates)]] = Field(default={})
