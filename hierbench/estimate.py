"""How long a plan will take here, from timing a few training steps of each type."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from hierbench.hierarchy import Hierarchy
from hierbench.methods.ce import CrossEntropy
from hierbench.models import build_classifier
from hierbench.recipe import FeatureType, Recipe

PROBE_BATCH = {"cpu": 8, "cuda": 64}  # images per timed step
PROBE_STEPS = 3
EVALUATION = 1.15  # validation, checkpoints and start-up on top of the steps


def estimate(
    recipe: Recipe,
    to_train: Sequence[FeatureType],
    hierarchy: Hierarchy,
    num_train: int,
    device: str,
    workers: int,
    threads: int | None,
) -> float:
    """Return seconds for the jobs that train, by extrapolating single steps on a small batch of noise.

    Args:
        recipe: the configuration.
        to_train: the type of every job that is not cached.
        hierarchy: of the dataset, or one with the same level sizes.
        num_train: training images per epoch.
        device: "cpu" or "cuda"; on others nothing is known about how to wait for it.
        workers: jobs that run side by side.
        threads: per worker, None leaves PyTorch's number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        per_image = {kind: _seconds_per_image(recipe, kind, hierarchy, device) for kind in sorted(set(to_train))}
        total = sum(per_image[kind] for kind in to_train) * num_train * recipe.train.epochs
        return EVALUATION * total / workers
    finally:
        torch.set_num_threads(before)


def _seconds_per_image(recipe: Recipe, kind: FeatureType, hierarchy: Hierarchy, device: str) -> float:
    # With the baseline's head whatever the jobs': it costs little, and the user's code is not run to plan it.
    model = build_classifier(CrossEntropy, hierarchy, kind, recipe.model)
    model = model.to(device).to(memory_format=torch.channels_last)
    batch = PROBE_BATCH[device]
    images = torch.randn(batch, 3, *recipe.expected.image_size, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    targets = torch.arange(batch, device=device) % hierarchy.num_classes
    seconds = []
    for _ in range(PROBE_STEPS):
        start = time.perf_counter()
        torch.stack(list(model.method.loss(model(images), targets).values())).sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return min(seconds) / batch
