"""The features that a plan's jobs train on where the backbone is frozen: which are cached, their size and time."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.data.features import Wanted, find_features
from hierbench.data.prepared import Prepared
from hierbench.data.writer import SPLITS
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.planning.resources import Setting
from hierbench.planning.timing import seconds_of
from hierbench.training.features import BLOCK, blocks_at_once, frozen_backbone, one_thread_each
from hierbench.utils.errors import UserError

PROBE = 2  # images of a first forward pass, which tells how many are timed
LONGEST = 0.5  # seconds of those, at the speed of the first


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
    """Return the seconds of one image's features on this machine.

    As many blocks as in extraction are computed at the same time, since cores share caches and memory; they are smaller
    where the backbone is slow.
    """
    backbone = frozen_backbone(recipe.model, None).to(device)
    height, width = recipe.model.input_size or recipe.expected.image_size
    at_once = blocks_at_once(device, (height, width))

    def compute(num: int) -> None:
        with torch.inference_mode():  # it holds for one thread
            backbone(torch.zeros(num, 3, height, width, device=device).contiguous(memory_format=torch.channels_last))

    with one_thread_each(), ThreadPoolExecutor(at_once) as threads:
        compute(PROBE)  # warm-up
        each = seconds_of(lambda: compute(PROBE), device) / PROBE
        num = max(PROBE, min(BLOCK, int(LONGEST / each)))
        return seconds_of(lambda: list(threads.map(compute, [num] * at_once)), device) / (num * at_once)
