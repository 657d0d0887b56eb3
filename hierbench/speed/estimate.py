"""Estimates how long a plan takes here, by timing a few steps and forward passes: nothing of it is kept.

Shapes: B batch, D features.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from hierbench.api.method import Method
from hierbench.api.registry import Found, find_method
from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.data.features import Wanted, find_features
from hierbench.data.writer import SPLITS
from hierbench.execution.workers import seconds_to_start
from hierbench.hierarchy.tree import Hierarchy
from hierbench.methods.ce import CrossEntropy
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.planning.cost import Cost, num_features, stand_in_tree
from hierbench.planning.inputs import Inputs
from hierbench.planning.resources import Setting
from hierbench.speed.timing import Trainee, Workload, head_pass, in_turn, seconds_of
from hierbench.training.fabric import resolve_precision
from hierbench.training.features import BLOCK, blocks_at_once, frozen_backbone, one_thread_each
from hierbench.utils.errors import UserError, is_interrupt

PROBE_BATCH = {"cpu": 8, "cuda": 64}  # images of a first step, which determines the batch to time
BUDGET = 0.3  # seconds that one timed step may take
ROUNDS = 3
HEAD_ROUNDS, HEAD_LIMIT = 5, 2.0  # of head and loss alone; seconds after which no further round begins
PROBE = 2  # images of a first forward pass, which tells how many are timed
LONGEST = 0.5  # seconds of those, at the speed of the first


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
    """What the jobs of a plan that train will take on this machine."""

    per_job: Mapping[FeatureType, float]  # seconds of one job with the baseline's head, by type
    seconds: float | None  # of all jobs, with their extractions and the start of the processes that run them
    extractions: Sequence[Extraction]  # the caches of features that they train on


def estimate(
    recipe: Recipe, kinds: Sequence[FeatureType], inputs: Inputs, setting: Setting, *, measure: bool = True
) -> Estimate:
    """Return what jobs of these types will take; no seconds where that is not known.

    On an accelerator it is measured for a dry run alone (`measure`): a run would use the device twice. Of jobs that run
    elsewhere (no workers) it is not known.
    """
    here = setting.workers > 0 and (setting.device == "cpu" or (setting.device == "cuda" and measure))
    extractions = _extractions(recipe, kinds, inputs, setting.device if here else None)
    if not kinds or not here:
        return Estimate({}, None if kinds else 0.0, extractions)
    try:
        per_job = _seconds_per_job(recipe, kinds, inputs, setting)
    except RuntimeError:  # a model that does not fit in memory: its jobs will report it
        return Estimate({}, None, extractions)
    jobs = [per_job[kind] for kind in kinds]
    seconds = max(sum(jobs) / setting.workers, max(jobs)) + sum(each.seconds or 0.0 for each in extractions)
    # Small jobs take less time than the processes that run them take to start.
    return Estimate(per_job, seconds + seconds_to_start(setting), extractions)


def _sizes(recipe: Recipe, inputs: Inputs) -> dict[str, int]:
    """Return the number of images by split: of the data, or as the recipe expects it."""
    known = inputs.prepared
    return {split: getattr(recipe.expected, split) if known is None else known.size(split) for split in SPLITS}


def _steps(recipe: Recipe, num_train: int) -> tuple[int, int]:
    """Return the size of a batch and the number of a job's steps; the last short batch of an epoch is dropped."""
    batch_size = min(recipe.train.batch_size, num_train)
    return batch_size, recipe.train.epochs * (num_train // batch_size)


def _seconds_per_job(
    recipe: Recipe, kinds: Sequence[FeatureType], inputs: Inputs, setting: Setting
) -> dict[FeatureType, float]:
    """Return the seconds of steps, a validation per epoch and a test; one device is timed on its part of a batch."""
    sizes, prepared, before = _sizes(recipe, inputs), inputs.prepared, torch.get_num_threads()
    tree = stand_in_tree(recipe.expected.level_sizes) if prepared is None else prepared.hierarchy(recipe.distance)
    batch, steps = _steps(recipe, sizes["train"])
    evaluated = recipe.train.epochs * sizes["val"] + sizes["test"]
    part = max(2, min(batch, recipe.train.micro_batch or batch) // setting.devices)
    torch.set_num_threads(setting.threads or before)
    try:
        of_type: dict[FeatureType, float] = {}
        for kind in sorted(set(kinds)):
            step, forward = seconds_per_image(recipe, kind, tree, setting.device, part)
            of_type[kind] = (step * steps * batch + forward * evaluated) / setting.devices
        return of_type
    finally:
        torch.set_num_threads(before)


def seconds_per_image(
    recipe: Recipe, feature_type: FeatureType, hierarchy: Hierarchy, device: str, batch_size: int
) -> tuple[float, float]:
    """Return seconds of training and of evaluating one image of the recipe's size with the recipe's backbone.

    The head is always the baseline's: heads cost little, and an estimate should not run the user's code.
    """
    precision = resolve_precision(recipe.train.precision, device)

    def trainee_of(batch: int) -> Trainee:
        size = recipe.expected.image_size
        work = Workload(recipe.model, recipe.augment, size, hierarchy, batch, device, precision)
        return Trainee(work, CrossEntropy, feature_type, bare=True)

    with torch.random.fork_rng(devices=[]):
        batch = min(PROBE_BATCH[device], batch_size)
        trainee = trainee_of(batch)
        trainee.train()  # warm-up
        seconds = min(seconds_of(trainee.train, device) for _ in range(ROUNDS))  # something else may run meanwhile
        if seconds >= BUDGET:
            return seconds / batch, seconds_of(trainee.evaluate, device) / batch
        larger = min(batch_size, int(batch * BUDGET / seconds))
        if larger > batch:
            batch, trainee = larger, trainee_of(larger)
        # A step on features takes milliseconds, of which one alone says little.
        rounds = 5 * ROUNDS if recipe.model.frozen else ROUNDS
        train, forward = map(statistics.median, in_turn([trainee.train, trainee.evaluate], rounds, device))
        return train / batch, forward / batch


def with_times(
    models: Mapping[tuple[FeatureType, str], Cost],
    recipe: Recipe,
    methods: Sequence[Found],
    per_job: Mapping[FeatureType, float],
    setting: Setting,
) -> dict[tuple[FeatureType, str], Cost]:
    """Return the costs with the time of head and loss in a step, and that of a job, where it is known by type.

    A job takes that of the baseline, plus the difference of the heads at every step.
    """
    tree, timed, threads = stand_in_tree(recipe.expected.level_sizes), dict(models), torch.get_num_threads()
    batch, steps = _steps(recipe, recipe.expected.train)
    torch.set_num_threads(setting.threads or threads)
    try:
        for kind, seconds in per_job.items():
            own = {found.name: found for found in methods if (kind, found.name) in models}
            passes = dict[str, Callable[[], object]]()
            with torch.random.fork_rng(devices=[]):
                for name, found in ({"ce": find_method("ce")} | own).items():
                    try:
                        passes[name] = _head_pass(recipe, found, tree, kind, setting.device, batch)
                    except BaseException as error:  # a foreign method may raise anything; its job reports it
                        if is_interrupt(error):
                            raise
                rounds = in_turn(list(passes.values()), HEAD_ROUNDS, setting.device, HEAD_LIMIT)
            heads = dict(zip(passes, map(statistics.median, rounds), strict=True))
            for name in own.keys() & heads:
                job = max(0.0, seconds + (heads[name] - heads.get("ce", heads[name])) * steps)
                timed[kind, name] = replace(models[kind, name], head=heads[name], job=job)
    finally:
        torch.set_num_threads(threads)
    return timed


def _head_pass(
    recipe: Recipe, found: Found, tree: Hierarchy, kind: FeatureType, device: str, batch: int
) -> Callable[[], object]:
    """Return a step of a method's head and loss, after it has run once."""
    assert issubclass(found.cls, Method)
    method = found.cls(tree, num_features(recipe, tree, kind), found.params(recipe.params_of(found.name)))
    call = head_pass(method.to(device).train(), torch.arange(batch, device=device) % tree.num_classes)
    call()
    return call


def _extractions(recipe: Recipe, kinds: Sequence[FeatureType], inputs: Inputs, device: str | None) -> list[Extraction]:
    """Return the caches that jobs of these types need, timed on a device; none where the backbone is trained."""
    model, prepared, sizes = recipe.model, inputs.prepared, _sizes(recipe, inputs)
    if not model.frozen:
        return []
    vectors = sum(sizes.values()) + (model.views - 1) * sizes["train"]
    num_bytes = vectors * cached_backbone(model).num_channels * np.dtype(np.float32).itemsize
    found, per_image = dict[str, Extraction](), None
    for kind in dict.fromkeys(kinds):
        pool = model.type_i_pool if kind == "type-I" else "average"
        cached = False
        if prepared is not None:
            with suppress(UserError):  # damaged, which the jobs will say
                cached = find_features(Wanted.by(prepared, model, recipe.augment, inputs.digest, kind)) is not None
        if not cached and device is not None and per_image is None:
            per_image = _seconds_to_extract(recipe, device)
        seconds = 0.0 if cached else None if per_image is None else per_image * vectors
        found[pool] = Extraction(pool, cached, sum(sizes.values()), vectors, num_bytes, seconds)
    return list(found.values())


def _seconds_to_extract(recipe: Recipe, device: str) -> float:
    """Return the seconds of one image's features, in as many blocks at a time as in extraction."""
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
