"""Measures the speed of this machine: a clock, noise in place of data, and the real training step.

Shapes: B batch, N examples, K classes, D features.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hierbench.api.method import Method
from hierbench.config.rates import Rates
from hierbench.config.sections import Augment, FeatureType, Model, Precision
from hierbench.config.spec import TrainSpec
from hierbench.data.augment import crop_of
from hierbench.data.feature_split import FeatureSplit
from hierbench.data.loader import Split
from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics import Tally
from hierbench.models import build_backbone, build_classifier
from hierbench.models.classifier import compile_embedding
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.training.fabric import make_fabric
from hierbench.training.step import Step, make_optimizer

RATE = 1e-4  # small, so that the loss on noise stays finite


def seconds_of(function: Callable[[], object], device: str) -> float:
    """Return the seconds of a call, including the work that it starts on the device."""
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    function()
    wait()
    return time.perf_counter() - start


def in_turn(
    functions: Sequence[Callable[[], object]], rounds: int, device: str, limit: float = math.inf
) -> list[list[float]]:
    """Return seconds of each function in each round, [functions][rounds]; after `limit` seconds no round begins.

    Functions run once before. They alternate, so that drifts of the machine's speed affect all alike.
    """
    for function in dict.fromkeys(functions):
        function()
    start, seconds = time.perf_counter(), list[list[float]]()
    while not seconds or (len(seconds) < rounds and time.perf_counter() - start < limit):
        seconds.append([seconds_of(function, device) for function in functions])
    return [list(column) for column in zip(*seconds, strict=True)]


def median_ratio(above: Iterable[float], below: Iterable[float]) -> float:
    """Return the median over rounds of the ratio."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def head_pass(method: Method, targets: Tensor, times: int = 1) -> Callable[[], Any]:
    """Return a function that does forward pass, loss and backward pass of a method alone, and returns its outputs.

    It gets noise in place of features [B, D], `times` times; `targets` are [B].
    """
    features = torch.randn(len(targets), method.num_features, device=targets.device)

    def call() -> Any:
        for _ in range(times):
            method.zero_grad()
            outputs = method(features.detach().requires_grad_())
            torch.stack(list(method.loss(outputs, targets).values())).sum().backward()
        return outputs

    return call


@dataclass
class Workload:
    """The configuration of a model, and noise on the device in place of a dataset."""

    model: Model
    augment: Augment
    image_size: tuple[int, int]  # (H, W) as stored
    hierarchy: Hierarchy
    batch: int  # B
    device: str  # "cpu" or "cuda"
    precision: Precision  # of backbone and feature extractor; the rest is float32
    batches: int = 4  # N / B

    def __post_init__(self) -> None:
        self.split = NoiseFeatures(self) if self.model.frozen else NoiseImages(self)
        self.targets = torch.arange(self.batch, device=self.device) % self.hierarchy.num_classes

    def autocast(self) -> torch.autocast:
        """Return the context of a forward pass."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bfloat16")

    def train_batches(self, steps: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and labels [B] of random rows, as a job's training does."""
        return self.split.train_batches(list(torch.randint(len(self.split), (steps, self.batch))))


class NoiseImages(Split):
    """A split of uint8 noise [N, 3, H, W], of which B images are evaluated."""

    def __init__(self, work: Workload) -> None:
        images = torch.randint(0, 256, (work.batches * work.batch, 3, *work.image_size), dtype=torch.uint8)
        _hold_noise(self, images, work)
        self.crop, self.input_size = crop_of(work.augment), work.model.input_size
        self.mean = torch.tensor(work.augment.mean, device=work.device)
        self.std = torch.tensor(work.augment.std, device=work.device)


class NoiseFeatures(FeatureSplit):
    """A split of noise in place of cached features [N, C] of one view, of which B vectors are evaluated."""

    def __init__(self, work: Workload) -> None:
        self.num_views = 1
        _hold_noise(self, torch.randn(work.batches * work.batch, cached_backbone(work.model).num_channels), work)


def _hold_noise(split: Split, noise: Tensor, work: Workload) -> None:
    labels = np.arange(len(noise)) % work.hierarchy.num_classes
    split._hold(noise.numpy(), labels, torch.device(work.device), 0, 1, resident=True)
    split.evaluated = torch.arange(work.batch)


class Trainee:
    """A model on the workload: its training step, its evaluation, and the parts of a step outside the network.

    It is set up as jobs are, with Fabric and, on CUDA, compiled; not so with `bare`, which starts seconds sooner.
    """

    def __init__(self, work: Workload, method: type[Method], feature_type: FeatureType, *, bare: bool = False) -> None:
        self.work = work
        torch.backends.cudnn.benchmark = True  # as in training
        model = build_classifier(method, work.hierarchy, feature_type, work.model)
        self.model = model.to(work.device).to(memory_format=torch.channels_last)
        self.head = head_pass(model.method, work.targets)
        rates = Rates(backbone=RATE, transform=RATE, classifier=RATE)
        how = TrainSpec(epochs=1, batch_size=work.batch, momentum=0.9, weight_decay=5e-4, lr=rates)
        optimizer = make_optimizer(model, how)
        if bare:
            self.step = Step(model.method, self.outputs, optimizer)
            return
        fabric = make_fabric(work.device, work.precision)
        wrapped, wrapped_optimizer = fabric.setup(model, optimizer)
        self.step = Step(model.method, wrapped, wrapped_optimizer, fabric.backward)
        if work.device == "cuda" and not work.model.frozen:
            compile_embedding(model, (work.batch, 3, *(work.model.input_size or work.image_size)), fabric.autocast)

    def outputs(self, images: Tensor) -> Any:
        """Return the method's outputs for images [B, 3, H, W]."""
        with self.work.autocast():
            return self.model(images)

    def train(self, steps: int = 1) -> None:
        """Gather, augment and normalise batches, and do a training step on each."""
        self.model.train()
        for part in self.work.train_batches(steps):
            self.step([part], self.work.batch)

    def besides_the_model(self, times: int = 1) -> None:
        """Do everything except backbone, feature extractor and optimizer: data path, head, loss, and metrics."""
        for _, targets in self.work.train_batches(times):
            outputs = self.head()
            with torch.inference_mode():
                self._count([(outputs, targets)])

    @torch.inference_mode()
    def evaluate(self) -> None:
        """Normalise a batch, score it and compute metrics."""
        self.model.eval()
        self._count((self.outputs(images), targets) for images, targets in self.work.split.eval_batches())

    def _count(self, parts: Iterable[tuple[Any, Tensor]]) -> None:
        tally = Tally(self.work.hierarchy)
        for outputs, targets in parts:
            tally.add(self.model.method.scores(outputs), targets)
        tally.metrics()


def bare_backbone(work: Workload) -> Callable[[], None]:
    """Return a function that does forward and backward pass of the backbone alone, on a prepared batch."""
    backbone = build_backbone(work.model).to(work.device).to(memory_format=torch.channels_last)
    forward = torch.compile(backbone, dynamic=False) if work.device == "cuda" else backbone
    images, _ = next(work.train_batches())

    def call() -> None:
        backbone.zero_grad()
        with work.autocast():
            features = forward(images)
        features.float().mean().backward()

    return call
