"""How long a training step takes: the one place that times it, for `hierbench bench` and for the estimate of a plan.

Shapes: B batch, N examples, K classes, D features.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hierbench.api.method import Method
from hierbench.config.recipe import Augment, FeatureType, Model, Precision
from hierbench.data.augment import crop_of, normalise
from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics import Tally
from hierbench.models import build_backbone, build_classifier
from hierbench.models.compiled import compile_embedding


def seconds_of(function: Callable[[], object], device: str) -> float:
    """Return how long a call takes, what it starts on the device included."""
    wait_for(device)
    start = time.perf_counter()
    function()
    wait_for(device)
    return time.perf_counter() - start


def wait_for(device: str) -> None:
    """Wait until an accelerator has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def in_turn(
    functions: Sequence[Callable[[], object]], rounds: int, device: str, limit: float = math.inf
) -> list[list[float]]:
    """Return seconds of each function in each round, [rounds][functions]; after `limit` seconds no round begins.

    One after the other in every round, so that a machine whose speed drifts is as slow for all; each has run once
    before.
    """
    for function in functions:
        function()
    start, seconds = time.perf_counter(), list[list[float]]()
    while not seconds or (len(seconds) < rounds and time.perf_counter() - start < limit):
        seconds.append([seconds_of(function, device) for function in functions])
    return seconds


def median_ratio(above: Iterable[float], below: Iterable[float]) -> float:
    """Return the median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


@dataclass(frozen=True)
class Workload:
    """What a step works on and with.

    Attributes:
        model: the recipe's section.
        augment: the recipe's section.
        image_size: (H, W).
        hierarchy: over the K classes.
        batch: B.
        device: "cpu" or "cuda".
        precision: of the forward pass; weights and the loss are float32.
    """

    model: Model
    augment: Augment
    image_size: tuple[int, int]
    hierarchy: Hierarchy
    batch: int
    device: str
    precision: Precision

    def autocast(self) -> torch.autocast:
        """Return the context of a forward pass."""
        return torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bfloat16")


class Data:
    """Uint8 noise in the place of a training split, and the path from it to a batch."""

    def __init__(self, work: Workload) -> None:
        self.work, self.device = work, torch.device(work.device)
        num, classes = 4 * work.batch, work.hierarchy.num_classes
        self.images = torch.randint(0, 256, (num, 3, *work.image_size), dtype=torch.uint8, device=self.device)
        self.labels = torch.arange(num, device=self.device) % classes
        self.mean = torch.tensor(work.augment.mean, device=self.device)
        self.std = torch.tensor(work.augment.std, device=self.device)
        self.crop = crop_of(work.augment)

    def train_batch(self) -> tuple[Tensor, Tensor]:
        """Return augmented images [B, 3, H, W] float32 and labels [B] of rows drawn at random."""
        rows = torch.randint(len(self.labels), (self.work.batch,)).to(self.device)
        return normalise(self.crop(self.images, rows), self.mean, self.std), self.labels[rows]

    def eval_batch(self) -> tuple[Tensor, Tensor]:
        """Return images [B, 3, H, W] float32 and labels [B]."""
        images, labels = self.images[: self.work.batch], self.labels[: self.work.batch]
        return normalise(images, self.mean, self.std), labels


class Step:
    """A training step as `hierbench.training.trainer` does it, and the parts of it that are not the model's.

    Args:
        work: what it works on.
        data: of the same workload.
        method: the class of the method.
        kind: the type of model.
        params: the method's hyperparameters, None for the defaults.
        compiled: whether to compile on CUDA, as training does.
    """

    def __init__(
        self,
        work: Workload,
        data: Data,
        method: type[Method],
        kind: FeatureType,
        params: Any = None,
        *,
        compiled: bool = True,
    ) -> None:
        self.work, self.data = work, data
        torch.backends.cudnn.benchmark = True  # as in training
        model = build_classifier(method, work.hierarchy, kind, work.model, params)
        self.model = model.to(data.device).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            [parameter for group in model.parameter_groups().values() for parameter in group],
            lr=1e-4,  # small: noise teaches nothing, and the loss must stay finite
            momentum=0.9,
            weight_decay=5e-4,
            fused=True,
        )
        self.features = torch.randn(work.batch, model.method.num_features, device=data.device)
        if work.device == "cuda" and compiled:  # as in training
            compile_embedding(model, (work.batch, 3, *work.image_size), work.autocast)

    def __call__(self) -> None:
        """Gather, augment and normalise a batch; forward, loss, backward, SGD."""
        self.model.train()
        images, targets = self.data.train_batch()
        with self.work.autocast():
            outputs = self.model(images)
        loss = torch.stack(list(self.model.method.loss(outputs, targets).values())).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def besides_the_model(self) -> None:
        """Do all but backbone, feature extractor and optimiser: data path, head, loss, and a batch's metrics."""
        _, targets = self.data.train_batch()
        features = self.features.detach().requires_grad_()
        method = self.model.method
        outputs = method(features)
        torch.stack(list(method.loss(outputs, targets).values())).sum().backward()
        with torch.inference_mode():
            tally = Tally(self.work.hierarchy)
            tally.add(method.scores(outputs), targets)
            tally.metrics()

    @torch.inference_mode()
    def evaluate(self) -> None:
        """Normalise a batch, score it and count."""
        self.model.eval()
        images, targets = self.data.eval_batch()
        with self.work.autocast():
            outputs = self.model(images)
        tally = Tally(self.work.hierarchy)
        tally.add(self.model.method.scores(outputs), targets)
        tally.metrics()


class BareBackbone:
    """Forward and backward pass of the backbone alone, on a batch that is ready."""

    def __init__(self, work: Workload, data: Data) -> None:
        self.work = work
        backbone = build_backbone(work.model.backbone, work.model.wrn_group_input)
        self.backbone = backbone.to(data.device).to(memory_format=torch.channels_last)
        self.images, _ = data.train_batch()
        self.forward = torch.compile(self.backbone, dynamic=False) if work.device == "cuda" else self.backbone

    def __call__(self) -> None:
        """Run it."""
        self.backbone.zero_grad()
        with self.work.autocast():
            features = self.forward(self.images)
        features.float().mean().backward()
