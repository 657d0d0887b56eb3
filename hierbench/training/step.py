"""One training step, which `train` repeats, `hierbench bench` times and `hierbench.training.memory` tries for size.

Shapes: B batch.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hierbench.api.method import Method, loss_names
from hierbench.config.spec import TrainSpec
from hierbench.hierarchy.tree import Hierarchy
from hierbench.models import Classifier, build_classifier
from hierbench.runs.job import Job


def new_classifier(job: Job, hierarchy: Hierarchy, weights: Path | None = None) -> Classifier:
    """Return a job's model, initialised from the global random generator; see `build_classifier`."""
    method, spec = job.found.cls, job.spec
    assert issubclass(method, Method)
    return build_classifier(method, hierarchy, spec.type, spec.model, job.params, weights)


def make_optimizer(model: Classifier, how: TrainSpec) -> torch.optim.SGD:
    """Return SGD over the model's groups; weight decay is on all parameters that get a gradient, norms included."""
    groups = [
        {"params": group, "name": name, "lr": getattr(how.lr, name)}
        for name, group in model.parameter_groups().items()
        if group  # a method may have no parameters
    ]
    return torch.optim.SGD(groups, momentum=how.momentum, weight_decay=how.weight_decay, fused=True)


def learning_rate(initial: float, epoch: int, epochs: int) -> float:
    """Return the cosine-annealed rate of an epoch: initial (1 + cos(pi epoch / epochs)) / 2."""
    return initial * (1.0 + math.cos(math.pi * epoch / epochs)) / 2.0


def set_rates(optimizer: torch.optim.Optimizer, how: TrainSpec, epoch: int) -> dict[str, float]:
    """Give each group its learning rate of an epoch, from 0, and return all rates by group."""
    rates = {name: learning_rate(rate, epoch, how.epochs) for name, rate in how.lr.model_dump().items()}
    for group in optimizer.param_groups:
        group["lr"] = rates[group["name"]]
    return rates


class Step:
    """A model and its optimizer, set up on a device; each call is one step. `names` are those of the loss terms."""

    def __init__(
        self,
        method: Method,
        forward: Callable[[Tensor], Any],
        optimizer: torch.optim.Optimizer,
        backward: Callable[[Tensor], object] = Tensor.backward,
    ) -> None:
        self.method, self.forward, self.optimizer, self.backward = method, forward, optimizer, backward
        self.names: list[str] = []

    def __call__(self, parts: Iterable[tuple[Tensor, Tensor]], batch_size: int) -> Tensor:
        """Do forward, loss and backward pass of each part of a batch, then one step of the optimizer.

        Args:
            parts: images [b, 3, H, W] and labels [b] of each micro-batch; their b add up to B.
            batch_size: B.

        Returns:
            The loss terms [terms], means over the batch, on the device: no synchronisation here.
        """
        self.optimizer.zero_grad()
        means: list[Tensor] = []
        for images, targets in parts:
            terms = self.method.loss(self.forward(images), targets)
            self.names = loss_names(terms, self.names)
            shares = torch.stack(list(terms.values())) * (len(targets) / batch_size)
            self.backward(shares.sum())
            means.append(shares.detach())
        self.optimizer.step()
        return sum(means[1:], means[0])
