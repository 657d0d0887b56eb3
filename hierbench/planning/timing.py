"""Measures the speed of this machine: a clock, noise in place of data, and the real training step.

Shapes: B batch, K classes, D features.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hierbench.api.method import Method
from hierbench.config.rates import Rates
from hierbench.config.sections import Augment, FeatureType, Model, Precision
from hierbench.config.spec import TrainSpec
from hierbench.data.augment import crop_of, normalise
from hierbench.data.loader import resize_to
from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics import Tally
from hierbench.models import build_backbone, build_classifier
from hierbench.models.compiled import compile_embedding
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.training.step import Step, make_optimizer

RATE = 1e-4  # small, so that the loss on noise stays finite


def seconds_of(function: Callable[[], object], device: str) -> float:
    """Return the seconds of a call, including the work that it starts on the device."""
    wait_for(device)
    start = time.perf_counter()
    function()
    wait_for(device)
    return time.perf_counter() - start


def wait_for(device: str) -> None:
    """Wait until CUDA has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def in_turn(
    functions: Sequence[Callable[[], object]],
    rounds: int,
    device: str,
    limit: float = math.inf,
    warm_up: Iterable[Callable[[], object]] = (),
) -> list[list[float]]:
    """Return seconds of each function in each round, [functions][rounds]; after `limit` seconds no round begins.

    Functions alternate, so that drifts of the machine's speed affect all alike; those of `warm_up` run once before, all
    by default.
    """
    for function in dict.fromkeys(warm_up or functions):
        function()
    start, seconds = time.perf_counter(), list[list[float]]()
    while not seconds or (len(seconds) < rounds and time.perf_counter() - start < limit):
        seconds.append([seconds_of(function, device) for function in functions])
    return [list(column) for column in zip(*seconds, strict=True)]


def median_ratio(above: Iterable[float], below: Iterable[float]) -> float:
    """Return the median over rounds of the ratio."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


@dataclass
class Workload:
    """The configuration of a model, and uint8 noise on the device in place of a dataset."""

    model: Model
    augment: Augment
    image_size: tuple[int, int]  # (H, W) as stored
    hierarchy: Hierarchy
    batch: int  # B
    device: str  # "cpu" or "cuda"
    precision: Precision  # of backbone and feature extractor; the rest is float32

    def __post_init__(self) -> None:
        num = 4 * self.batch
        if self.model.frozen:  # cached features stand for images
            self.images = torch.randn(num, cached_backbone(self.model).num_channels, device=self.device)
        else:
            self.images = torch.randint(0, 256, (num, 3, *self.image_size), dtype=torch.uint8, device=self.device)
        self.labels = torch.arange(num, device=self.device) % self.hierarchy.num_classes
        self.mean = torch.tensor(self.augment.mean, device=self.device)
        self.std = torch.tensor(self.augment.std, device=self.device)
        self.crop = crop_of(self.augment)

    def autocast(self) -> torch.autocast:
        """Return the context of a forward pass."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bfloat16")

    def train_batch(self) -> tuple[Tensor, Tensor]:
        """Return augmented images [B, 3, H, W], or features [B, C], float32 and labels [B] of random rows."""
        rows = torch.randint(len(self.labels), (self.batch,)).to(self.device)
        if self.model.frozen:
            return self.images.index_select(0, rows), self.labels[rows]
        images = normalise(self.crop(self.images, rows), self.mean, self.std)
        return resize_to(images, self.model.input_size), self.labels[rows]

    def eval_batch(self) -> tuple[Tensor, Tensor]:
        """Return images [B, 3, H, W], or features [B, C], float32 and labels [B]."""
        if self.model.frozen:
            return self.images[: self.batch], self.labels[: self.batch]
        images = normalise(self.images[: self.batch], self.mean, self.std)
        return resize_to(images, self.model.input_size), self.labels[: self.batch]


class Trainee:
    """A model on the workload: its training step, its evaluation, and the parts of a step outside the network.

    With `compiled` it is compiled on CUDA, as in training.
    """

    def __init__(
        self, work: Workload, method: type[Method], feature_type: FeatureType, *, compiled: bool = True
    ) -> None:
        self.work = work
        torch.backends.cudnn.benchmark = True  # as in training
        model = build_classifier(method, work.hierarchy, feature_type, work.model)
        self.model = model.to(work.device).to(memory_format=torch.channels_last)
        self.features = torch.randn(work.batch, model.method.num_features, device=work.device)
        rates = Rates(backbone=RATE, transform=RATE, classifier=RATE)
        how = TrainSpec(epochs=1, batch_size=work.batch, momentum=0.9, weight_decay=5e-4, lr=rates)
        self.step = Step(model.method, self.outputs, make_optimizer(model, how))
        if work.device == "cuda" and compiled and not work.model.frozen:
            compile_embedding(model, (work.batch, 3, *(work.model.input_size or work.image_size)), work.autocast)

    def outputs(self, images: Tensor) -> Any:
        """Return the method's outputs for images [B, 3, H, W]."""
        with self.work.autocast():
            return self.model(images)

    def train(self) -> None:
        """Gather, augment and normalise a batch, and do a training step on it."""
        self.model.train()
        self.step([self.work.train_batch()], self.work.batch)

    def besides_the_model(self, times: int = 1) -> None:
        """Do everything except backbone, feature extractor and optimizer: data path, head, loss, and metrics."""
        for _ in range(times):
            _, targets = self.work.train_batch()
            method = self.model.method
            outputs = method(self.features.detach().requires_grad_())
            torch.stack(list(method.loss(outputs, targets).values())).sum().backward()
            with torch.inference_mode():
                self._count(outputs, targets)

    @torch.inference_mode()
    def evaluate(self) -> None:
        """Normalise a batch, score it and compute metrics."""
        self.model.eval()
        images, targets = self.work.eval_batch()
        self._count(self.outputs(images), targets)

    def _count(self, outputs: Any, targets: Tensor) -> None:
        tally = Tally(self.work.hierarchy)
        tally.add(self.model.method.scores(outputs), targets)
        tally.metrics()


class BareBackbone:
    """Forward and backward pass of the backbone alone, on a prepared batch."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        backbone = build_backbone(work.model)
        self.backbone = backbone.to(work.device).to(memory_format=torch.channels_last)
        self.images, _ = work.train_batch()
        self.forward = torch.compile(self.backbone, dynamic=False) if work.device == "cuda" else self.backbone

    def __call__(self) -> None:
        """Do one forward and backward pass."""
        self.backbone.zero_grad()
        with self.work.autocast():
            features = self.forward(self.images)
        features.float().mean().backward()
