"""Estimates how long a plan takes here by timing a few training steps and forward passes of each type."""

import statistics
from collections.abc import Mapping, Sequence

import torch

from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.data.prepared import Prepared
from hierbench.data.writer import SPLITS
from hierbench.hierarchy.tree import Hierarchy
from hierbench.methods.ce import CrossEntropy
from hierbench.planning.cost import stand_in_tree
from hierbench.planning.extraction import Extraction
from hierbench.planning.resources import Setting
from hierbench.planning.timing import Trainee, Workload, in_turn, seconds_of
from hierbench.training.precision import resolve_precision

PROBE_BATCH = {"cpu": 8, "cuda": 64}  # images of a first step, which determines the batch to time
BUDGET = 0.3  # seconds that one timed step may take
ROUNDS = 3


def time_to_train(
    recipe: Recipe,
    kinds: Sequence[FeatureType],
    prepared: Prepared | None,
    setting: Setting,
    extractions: Sequence[Extraction] = (),
    *,
    measure: bool = True,
) -> float | None:
    """Return the seconds that jobs of these types and their extractions will take, None where that is not known.

    On an accelerator it is measured for a dry run alone: a run would use the device twice. Of jobs that run elsewhere
    (no workers) it is not known.
    """
    if not kinds:
        return 0.0
    per_job = seconds_per_job(recipe, kinds, prepared, setting, measure=measure)
    return None if per_job is None else total_seconds(per_job, kinds, setting, extractions)


def total_seconds(
    per_job: Mapping[FeatureType, float],
    kinds: Sequence[FeatureType],
    setting: Setting,
    extractions: Sequence[Extraction] = (),
) -> float:
    """Return the seconds that jobs of these types and their extractions take on all workers."""
    jobs = [per_job[kind] for kind in kinds]
    training = max(sum(jobs) / setting.workers, max(jobs)) if jobs else 0.0
    return training + sum(extraction.seconds or 0.0 for extraction in extractions)


def seconds_per_job(
    recipe: Recipe,
    kinds: Sequence[FeatureType],
    prepared: Prepared | None,
    setting: Setting,
    *,
    measure: bool = True,
) -> dict[FeatureType, float] | None:
    """Return by type the seconds of one job with the baseline's head; None where that is not known."""
    if not kinds:
        return {}
    if not setting.workers or (setting.device != "cpu" and (setting.device != "cuda" or not measure)):
        return None
    if prepared is None:
        tree = stand_in_tree(recipe.expected.level_sizes)
        sizes = {split: getattr(recipe.expected, split) for split in SPLITS}
    else:
        tree, sizes = prepared.hierarchy(recipe.distance), {split: prepared.size(split) for split in SPLITS}
    try:
        return _per_job(recipe, kinds, tree, sizes, setting)
    except RuntimeError:  # a model that does not fit in memory: its jobs will report it
        return None


def estimate(
    recipe: Recipe,
    to_train: Sequence[FeatureType],
    hierarchy: Hierarchy,
    sizes: Mapping[str, int],
    setting: Setting,
) -> float:
    """Return seconds for the jobs that train: their steps, a validation per epoch and a test.

    `to_train` has the type of each job to train; where devices share a job, one is timed on its part of a batch.
    """
    return total_seconds(_per_job(recipe, to_train, hierarchy, sizes, setting), to_train, setting)


def steps_of(recipe: Recipe, num_train: int) -> tuple[int, int]:
    """Return the size of a batch and the number of a job's steps; the last short batch of an epoch is dropped."""
    batch_size = min(recipe.train.batch_size, num_train)
    return batch_size, recipe.train.epochs * (num_train // batch_size)


def _per_job(
    recipe: Recipe,
    to_train: Sequence[FeatureType],
    hierarchy: Hierarchy,
    sizes: Mapping[str, int],
    setting: Setting,
) -> dict[FeatureType, float]:
    before = torch.get_num_threads()
    torch.set_num_threads(setting.threads or before)
    batch_size, steps = steps_of(recipe, sizes["train"])
    trained = steps * batch_size
    evaluated = recipe.train.epochs * sizes["val"] + sizes["test"]
    try:
        of_type: dict[FeatureType, float] = {}
        part = max(2, min(batch_size, recipe.train.micro_batch or batch_size) // setting.devices)
        for feature_type in sorted(set(to_train)):
            step, forward = seconds_per_image(recipe, feature_type, hierarchy, setting.device, part)
            of_type[feature_type] = (step * trained + forward * evaluated) / setting.devices
    finally:
        torch.set_num_threads(before)
    return of_type


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
        return Trainee(work, CrossEntropy, feature_type, compiled=False)  # compiling takes longer than measuring

    state = torch.get_rng_state()
    try:
        batch = min(PROBE_BATCH[device], batch_size)
        trainee = trainee_of(batch)
        trainee.train()  # warm-up
        # A step on features takes milliseconds, of which one alone says little.
        looks = 5 if recipe.model.frozen else 1
        seconds = min(seconds_of(trainee.train, device) for _ in range(looks))
        if seconds >= BUDGET:  # or something else ran meanwhile
            seconds = min(seconds, *(seconds_of(trainee.train, device) for _ in range(2)))
        if seconds >= BUDGET:
            return seconds / batch, seconds_of(trainee.evaluate, device) / batch
        larger = min(batch_size, int(batch * BUDGET / seconds))
        if larger > batch:
            batch, trainee = larger, trainee_of(larger)
        train, forward = map(statistics.median, in_turn([trainee.train, trainee.evaluate], ROUNDS * looks, device))
        return train / batch, forward / batch
    finally:
        torch.set_rng_state(state)
