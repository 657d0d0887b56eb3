"""How long a plan will take here, from timing a few training steps of each type."""

from __future__ import annotations

import time

import torch

from hierbench.hierarchy import Hierarchy
from hierbench.methods.ce import CrossEntropy
from hierbench.models import build_classifier
from hierbench.plan import Job
from hierbench.recipe import FeatureType

PROBE_BATCH = 8
PROBE_STEPS = 3
EVALUATION = 1.15  # validation, checkpoints and start-up on top of the steps


def estimate(
    to_train: list[Job], hierarchy: Hierarchy, image_size: tuple[int, int], num_train: int, workers: int, threads: int
) -> float:
    """Return seconds for the jobs that train, by extrapolating single steps on a small batch of noise.

    Args:
        to_train: jobs that are not cached.
        hierarchy: of the dataset.
        image_size: (H, W).
        num_train: training images per epoch.
        workers: jobs that run side by side.
        threads: per worker.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        per_image: dict[FeatureType, float] = {}
        total = 0.0
        for job in to_train:
            spec = job.spec
            if spec.type not in per_image:
                per_image[spec.type] = _seconds_per_image(job, hierarchy, image_size)
            total += per_image[spec.type] * num_train * spec.train.epochs
        return EVALUATION * total / workers
    finally:
        torch.set_num_threads(before)


def _seconds_per_image(job: Job, hierarchy: Hierarchy, image_size: tuple[int, int]) -> float:
    # With the baseline's head whatever the job's: it costs little, and the user's code is not run to plan it.
    model = build_classifier(CrossEntropy, hierarchy, job.spec.type, job.spec.model.backbone)
    model = model.to(memory_format=torch.channels_last)
    images = torch.randn(PROBE_BATCH, 3, *image_size).contiguous(memory_format=torch.channels_last)
    targets = torch.arange(PROBE_BATCH) % hierarchy.num_classes
    seconds = []
    for _ in range(PROBE_STEPS):
        start = time.perf_counter()
        torch.stack(list(model.method.loss(model(images), targets).values())).sum().backward()
        seconds.append(time.perf_counter() - start)
    return min(seconds) / PROBE_BATCH
