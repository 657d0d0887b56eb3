"""Estimates how long a plan takes here: a measured training step times the steps; nothing of it is kept.

Shapes: B batch.
"""

import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.data.feature_cache import CacheRequest, find_features
from hierbench.data.prepared import Prepared
from hierbench.data.writer import SPLITS
from hierbench.execution.inputs import Inputs
from hierbench.execution.parameters import stand_in_tree
from hierbench.execution.resources import Setting
from hierbench.execution.timing import Trainee, Workload, measure_seconds
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.methods.ce import CrossEntropy
from hierbench.models import build_backbone
from hierbench.models.backbones import Backbone
from hierbench.models.libraries.feature_map import on_meta
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.runs.record_reader import read_records
from hierbench.training.fabric import resolve_precision
from hierbench.training.feature_extraction import IMAGES_PER_BLOCK, blocks_at_once, frozen_backbone, one_thread_each

PROBE_BATCH = {"cpu": 2, "cuda": 64}  # images of a timed step
ROUNDS = 3
PROBE = 2  # images of a first forward pass, which tells how many are timed
MAX_TIMED_SECONDS = 0.5  # seconds of each measurement, about


@dataclass(frozen=True)
class Extraction:
    """A cache of features that a plan needs."""

    pool: str  # "average" or "max"
    cached: bool  # whether it is there
    images: int  # N of all splits
    vectors: int  # with the views of training images
    bytes: int  # of its files
    seconds: float | None  # to extract it here; 0 if cached, None if not known


@dataclass(frozen=True)
class Estimate:
    """The expected time and memory of the training jobs of a plan on this machine."""

    per_job: Mapping[FeatureType, float]  # seconds of one job with the baseline's head, by type
    seconds: float | None  # of all jobs, with their extractions
    extractions: Sequence[Extraction]  # the caches of features that they train on


def estimate(
    recipe: Recipe,
    kinds: Sequence[FeatureType],
    inputs: Inputs | None,
    setting: Setting,
    *,
    measure: bool = True,
) -> Estimate:
    """Return the estimate for jobs of these types; without seconds where these are not known.

    It is measured for a dry run alone (`measure`): a run says how long it takes once that is seen. Recorded runs of the
    recipe go before a measurement. Of jobs that run elsewhere (no workers) it is not known.
    """
    is_local = measure and setting.workers > 0 and setting.device in ("cpu", "cuda")
    extractions = _extractions(recipe, kinds, inputs, setting.device if is_local else None)
    if not kinds or not is_local:
        return Estimate({}, None if kinds else 0.0, extractions)
    try:
        per_job = recorded_seconds(recipe, setting)
        per_job |= _seconds_per_job(recipe, [kind for kind in kinds if kind not in per_job], inputs, setting)
    except RuntimeError:  # a model that does not fit in memory: its jobs will report it
        return Estimate({}, None, extractions)
    jobs = [per_job[kind] for kind in kinds]
    seconds = max(sum(jobs) / setting.workers, max(jobs)) + sum(each.seconds or 0.0 for each in extractions)
    return Estimate(per_job, seconds, extractions)


def recorded_seconds(recipe: Recipe, setting: Setting) -> dict[FeatureType, float]:
    """Return the median seconds by type of the trainings that this runs folder has of a recipe as it is."""
    seconds: dict[FeatureType, list[float]] = {}
    for record in read_records(setting.store.root):
        spec = record.spec
        if record.done and spec is not None and spec.base is None and spec.dataset.name == recipe.dataset:
            ran = (spec.train.length, spec.train.every, spec.model.backbone)
            if ran == (recipe.train.length, recipe.train.every, recipe.model.backbone):
                seconds.setdefault(spec.type, []).append(record.seconds)
    return {kind: statistics.median(values) for kind, values in seconds.items()}


def _sizes(recipe: Recipe, prepared: Prepared | None) -> dict[str, int]:
    """Return the number of images by split: of the data, or as the recipe expects it."""
    return {split: getattr(recipe.expected, split) if prepared is None else prepared.size(split) for split in SPLITS}


def _seconds_per_job(
    recipe: Recipe, kinds: Sequence[FeatureType], inputs: Inputs | None, setting: Setting
) -> dict[FeatureType, float]:
    """Return the seconds of a job's steps by type; one device is timed on its part of a batch.

    One backbone that is trained is measured once for all types, whose heads cost little beside it.
    """
    prepared = None if inputs is None else inputs.prepared
    sizes = _sizes(recipe, prepared)
    before = torch.get_num_threads()
    tree = stand_in_tree(recipe.expected.level_sizes) if prepared is None else prepared.hierarchy(recipe.distance)
    num = max(1, sizes["train"] // recipe.train.every)
    batch = min(recipe.train.batch_size, num)
    steps = recipe.train.steps or recipe.train.epochs * (num // batch)  # the last short batch of an epoch is dropped
    part = max(2, min(batch, recipe.train.micro_batch or batch) // setting.devices)
    torch.set_num_threads(setting.threads or before)
    measured = sorted(set(kinds)) if recipe.model.frozen else sorted(set(kinds))[:1]
    images = steps * batch / setting.devices
    try:
        seconds = {kind: seconds_per_image(recipe, kind, tree, setting.device, part) * images for kind in measured}
        return {kind: seconds.get(kind, seconds[measured[0]]) for kind in kinds}
    finally:
        torch.set_num_threads(before)


def seconds_per_image(
    recipe: Recipe, feature_type: FeatureType, hierarchy: Hierarchy, device: str, batch_size: int
) -> float:
    """Return the seconds of a training step per image, with the recipe's backbone and image size.

    The head is always the baseline's: heads cost little, and an estimate should not run the user's code.
    """
    precision = resolve_precision(recipe.train.precision, device, frozen=recipe.model.frozen)

    size = recipe.expected.image_size
    # A step on features takes milliseconds, so that few images or rounds are not enough.
    batch = batch_size if recipe.model.frozen else min(PROBE_BATCH[device], batch_size)
    rounds = 5 * ROUNDS if recipe.model.frozen else ROUNDS
    with torch.random.fork_rng(devices=[]):
        work = Workload(recipe.model, recipe.augment, size, hierarchy, batch, device, precision)
        network = None if recipe.model.frozen else _zero_network(recipe, device)
        trainee = Trainee(work, CrossEntropy, feature_type, network)
        trainee.train()  # warm-up
        seconds = list[float]()
        while len(seconds) < rounds and sum(seconds) < MAX_TIMED_SECONDS:
            seconds.append(measure_seconds(trainee.train, device))
        return statistics.median(seconds) / batch


def _zero_network(recipe: Recipe, device: str) -> Backbone:
    """Return the recipe's backbone with zeros for weights: random ones take seconds, and no step's time needs them."""
    network = on_meta(lambda: build_backbone(recipe.model)).to_empty(device=device)
    for tensor in network.state_dict().values():
        tensor.zero_()
    return network


def _extractions(
    recipe: Recipe, kinds: Sequence[FeatureType], inputs: Inputs | None, device: str | None
) -> list[Extraction]:
    """Return the caches that jobs of these types need, timed on a device; [] if the backbone is trained."""
    model = recipe.model
    sizes = _sizes(recipe, None if inputs is None else inputs.prepared)
    if not model.frozen or model.given_features:
        return []
    vectors = sum(sizes.values()) + (model.views - 1) * sizes["train"]
    num_bytes = vectors * cached_backbone(model).num_channels * np.dtype(np.float32).itemsize
    extractions = dict[str, Extraction]()
    per_image = None
    for kind in dict.fromkeys(kinds):
        pool = model.type_i_pool if kind == "type-I" else "average"
        cached = False
        if inputs is not None:
            request = CacheRequest.by(inputs.prepared, model, recipe.augment, inputs.digest, kind)
            cached = find_features(request) is not None
        if not cached and device is not None and per_image is None:
            per_image = _seconds_to_extract(recipe, device)
        seconds = 0.0 if cached else None if per_image is None else per_image * vectors
        extractions[pool] = Extraction(pool, cached, sum(sizes.values()), vectors, num_bytes, seconds)
    return list(extractions.values())


def _seconds_to_extract(recipe: Recipe, device: str) -> float:
    """Return the seconds of one image's features, in as many blocks at a time as in extraction."""
    backbone = frozen_backbone(recipe.model, None).to(device)
    height, width = recipe.model.input_size or recipe.image_size
    at_once = blocks_at_once(device, (height, width))

    def compute(num: int) -> None:
        with torch.inference_mode():  # it holds for one thread
            backbone(torch.zeros(num, 3, height, width, device=device).contiguous(memory_format=torch.channels_last))

    with one_thread_each(), ThreadPoolExecutor(at_once) as threads:
        compute(PROBE)  # warm-up
        each = measure_seconds(lambda: compute(PROBE), device) / PROBE
        num = max(PROBE, min(IMAGES_PER_BLOCK, int(MAX_TIMED_SECONDS / each)))
        return measure_seconds(lambda: list(threads.map(compute, [num] * at_once)), device) / (num * at_once)
