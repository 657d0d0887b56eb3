"""The features that a plan's jobs train on where the backbone is frozen: which are cached, their size and time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.data.features import Wanted, find_features
from hierbench.data.prepared import Prepared
from hierbench.data.writer import SPLITS
from hierbench.models.frozen import cached_backbone
from hierbench.planning.resources import Setting
from hierbench.planning.timing import seconds_of
from hierbench.training.features import frozen_backbone, one_thread_each
from hierbench.utils.errors import UserError
from hierbench.utils.processes import num_cores

PROBE, BATCH = 2, 16  # images of a first forward pass, and of the one that is timed where the first is quick
QUICK = 0.1  # seconds


@dataclass(frozen=True)
class Extraction:
    """A cache of features that a plan needs.

    Attributes:
        pool: "average" or "max".
        cached: whether it is there.
        images: N of all splits.
        vectors: with the views of training images.
        bytes: of its files.
        seconds: to extract it here; 0 if cached, None if not known.
    """

    pool: str
    cached: bool
    images: int
    vectors: int
    bytes: int
    seconds: float | None


def extractions_of(
    recipe: Recipe,
    types: Sequence[FeatureType],
    prepared: Prepared | None,
    weights: str | None,
    setting: Setting,
    *,
    measure: bool = True,
) -> list[Extraction]:
    """Return the caches that jobs of these types need; none where the backbone is trained.

    `weights` is the SHA-256 of the backbone's weights. Times are measured as for `time_to_train`.
    """
    model = recipe.model
    if not model.frozen:
        return []
    here = setting.workers and (setting.device == "cpu" or (setting.device == "cuda" and measure))
    sizes = {split: getattr(recipe.expected, split) if prepared is None else prepared.size(split) for split in SPLITS}
    vectors = sum(sizes.values()) + (model.views - 1) * sizes["train"]
    num_bytes = vectors * cached_backbone(model).num_channels * np.dtype(np.float32).itemsize
    found, per_image = dict[str, Extraction](), None
    for feature_type in dict.fromkeys(types):
        pool = model.type_i_pool if feature_type == "type-I" else "average"
        cached = prepared is not None and _is_cached(Wanted.by(prepared, model, recipe.augment, weights, feature_type))
        if not cached and here and per_image is None:
            per_image = seconds_to_extract(recipe, setting.device)
        seconds = 0.0 if cached else None if per_image is None else per_image * vectors
        found[pool] = Extraction(pool, cached, sum(sizes.values()), vectors, num_bytes, seconds)
    return list(found.values())


def _is_cached(wanted: Wanted) -> bool:
    try:
        return find_features(wanted) is not None
    except UserError:  # damaged, which the jobs will say
        return False


def seconds_to_extract(recipe: Recipe, device: str) -> float:
    """Return the seconds of one image's features on this machine, with all cores."""
    backbone = frozen_backbone(recipe.model, None).to(device)
    height, width = recipe.model.input_size or recipe.expected.image_size
    at_once = num_cores() if device == "cpu" else 1

    def seconds(num: int) -> float:
        images = torch.zeros(num, 3, height, width, device=device).contiguous(memory_format=torch.channels_last)
        return seconds_of(lambda: backbone(images), device) / num

    with torch.inference_mode(), one_thread_each():
        seconds(PROBE)  # warm-up
        each = seconds(PROBE)
        return (seconds(BATCH) if each * PROBE < QUICK else each) / at_once
