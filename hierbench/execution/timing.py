"""The measurements of an estimate: a clock, noise in place of data, and the real training step.

Shapes: B batch, N examples, K classes, D features.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from hierbench.api.method import Method
from hierbench.config.sections import Augment, FeatureType, Model, Precision
from hierbench.data.augment import make_crop
from hierbench.data.feature_split import FeatureSplit
from hierbench.data.loader import Split
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.models import build_classifier
from hierbench.models.backbones import Backbone
from hierbench.models.libraries.lookup import cached_backbone


def measure_seconds(function: Callable[[], object], device: str) -> float:
    """Return the seconds of a call, including the work that it starts on the device."""
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    function()
    wait()
    return time.perf_counter() - start


@lru_cache(maxsize=1)
def matrix_rate(size: int = 1024) -> float:
    """Return the operations per second of this machine's processors in a product of matrices in single precision."""
    matrix = torch.rand(size, size)
    return 2.0 * size**3 / min(measure_seconds(lambda: matrix @ matrix, "cpu") for _ in range(3))


@dataclass
class Workload:
    """The configuration of a model, and noise on the device in place of a dataset."""

    model: Model
    augment: Augment
    image_size: tuple[int, int] | None  # (H, W) as stored; None of features
    hierarchy: Hierarchy
    batch: int  # B
    device: str  # "cpu" or "cuda"
    precision: Precision  # of backbone and feature extractor; the rest is float32
    batches: int = 4  # N / B

    def __post_init__(self) -> None:
        if self.model.frozen or self.image_size is None:
            self.split: Split = NoiseFeatures(self)
        else:
            self.split = NoiseImages(self, self.image_size)
        self.targets = torch.arange(self.batch, device=self.device) % self.hierarchy.num_classes

    def autocast(self) -> torch.autocast:
        """Return the context of a forward pass."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bfloat16")

    def train_batches(self, steps: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and labels [B] of random rows, as a job's training does."""
        return self.split.train_batches(list(torch.randint(len(self.split), (steps, self.batch))))


class NoiseImages(Split):
    """A split of uint8 noise [N, 3, H, W]; B images are evaluated."""

    def __init__(self, work: Workload, size: tuple[int, int]) -> None:
        images = torch.randint(0, 256, (work.batches * work.batch, 3, *size), dtype=torch.uint8)
        _hold_noise(self, images, work)
        self.crop = make_crop(work.augment)
        self.input_size = work.model.input_size
        self.mean = torch.tensor(work.augment.mean, device=work.device)
        self.std = torch.tensor(work.augment.std, device=work.device)


class NoiseFeatures(FeatureSplit):
    """A split of noise in place of cached features [N, C] of one view; B vectors are evaluated."""

    def __init__(self, work: Workload) -> None:
        self.num_views = 1
        _hold_noise(self, torch.randn(work.batches * work.batch, cached_backbone(work.model).num_channels), work)


def _hold_noise(split: Split, noise: Tensor, work: Workload) -> None:
    labels = np.arange(len(noise)) % work.hierarchy.num_classes
    split._hold(noise.numpy(), labels, torch.device(work.device), 0, 1, resident=True)
    split.evaluated = torch.arange(work.batch)


class Trainee:
    """A model on the workload, and the passes of its training step.

    Without Fabric and an optimizer, whose imports take seconds and whose step is short beside the passes, and not
    compiled.
    """

    def __init__(
        self, work: Workload, method: type[Method], feature_type: FeatureType, network: Backbone | None = None
    ) -> None:
        self.work = work
        torch.backends.cudnn.benchmark = True  # as in training
        model = build_classifier(method, work.hierarchy, feature_type, work.model, network=network)
        self.model = model.to(work.device).to(memory_format=torch.channels_last)

    def train(self, steps: int = 1) -> None:
        """Gather, augment and normalise batches, and do a forward and a backward pass of each."""
        self.model.train()
        for images, targets in self.work.train_batches(steps):
            self.model.zero_grad()
            with self.work.autocast():
                outputs = self.model(images)
            loss = torch.stack(list(self.model.method.loss(outputs, targets).values())).sum()
            loss.backward()
