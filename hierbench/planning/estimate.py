"""How long a plan will take here, from timing a few training steps and forward passes of each type."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence

import torch

from hierbench.config.recipe import FeatureType, Recipe
from hierbench.hierarchy.tree import Hierarchy
from hierbench.methods.ce import CrossEntropy
from hierbench.planning.timing import Trainee, Workload, in_turn, seconds_of
from hierbench.training.precision import resolve_precision

PROBE_BATCH = {"cpu": 8, "cuda": 64}  # images of a first step, from which the batch that is timed follows
BUDGET = 0.3  # seconds that one timed step may take
ROUNDS = 3
MEMORY = 0.5  # share of the free memory that a step may fill


def estimate(
    recipe: Recipe,
    to_train: Sequence[FeatureType],
    hierarchy: Hierarchy,
    sizes: Mapping[str, int],
    device: str,
    workers: int,
    threads: int | None,
    devices: int = 1,
) -> float:
    """Return seconds for the jobs that train: their steps, a validation per epoch and a test.

    Args:
        recipe: the configuration.
        to_train: the type of every job that is not cached.
        hierarchy: of the dataset, or one with the same level sizes.
        sizes: images of train, val and test.
        device: "cpu" or "cuda"; on others nothing is known about how to wait for it.
        workers: jobs that run side by side.
        threads: per worker, None leaves PyTorch's number.
        devices: that share a job; one of them is timed with its part of a batch.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    batch_size = min(recipe.train.batch_size, sizes["train"])
    trained = recipe.train.epochs * (sizes["train"] // batch_size) * batch_size  # the last short batch is dropped
    evaluated = recipe.train.epochs * sizes["val"] + sizes["test"]
    try:
        of_type = {}
        for kind in sorted(set(to_train)):
            part = max(2, min(batch_size, recipe.train.micro_batch or batch_size) // devices)
            step, forward = seconds_per_image(recipe, kind, hierarchy, device, part)
            of_type[kind] = (step * trained + forward * evaluated) / devices
    finally:
        torch.set_num_threads(before)
    jobs = [of_type[kind] for kind in to_train]
    return max(sum(jobs) / workers, max(jobs))


def seconds_per_image(
    recipe: Recipe, kind: FeatureType, hierarchy: Hierarchy, device: str, batch_size: int
) -> tuple[float, float]:
    """Return seconds of training and of evaluating one image of the recipe's size with the recipe's backbone.

    With the baseline's head whatever the jobs': it costs little, and the user's code is not run to plan it.
    """
    precision = resolve_precision(recipe.train.precision, device)

    def trainee_of(batch: int) -> Trainee:
        size = recipe.expected.image_size
        work = Workload(recipe.model, recipe.augment, size, hierarchy, batch, device, precision)
        return Trainee(work, CrossEntropy, kind, compiled=False)  # to compile takes longer than to measure

    state = torch.get_rng_state()
    try:
        batch, free = min(PROBE_BATCH[device], batch_size), _free_memory(device)
        trainee = trainee_of(batch)
        kept = _memory_of(trainee.train)  # the first step also sets things up
        seconds = seconds_of(trainee.train, device)
        if seconds >= BUDGET:
            return seconds / batch, seconds_of(trainee.evaluate, device) / batch
        larger = min(batch_size, int(batch * min(BUDGET / seconds, MEMORY * free / kept)))
        if larger > batch:
            batch, trainee = larger, trainee_of(larger)
        train, forward = map(statistics.median, in_turn([trainee.train, trainee.evaluate], ROUNDS, device))
        return train / batch, forward / batch
    finally:
        torch.set_rng_state(state)


def _free_memory(device: str) -> float:
    """Return the free bytes of a GPU, or all bytes of this machine's memory."""
    if device == "cuda":
        return float(torch.cuda.mem_get_info()[0])
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not on every system
        return float("inf")


def _memory_of(step: Callable[[], object]) -> float:
    """Return the bytes that a step keeps for its backward pass: all that PyTorch saves on the way."""
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        step()
    return float(sum(kept.values()))
