"""One training step, which `train` repeats, an estimate times and `hierbench.training.memory` tries for size.

Shapes: B batch.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hierbench.api.method import Method, loss_names
from hierbench.config.rates import Rates, check_group_names
from hierbench.config.spec import TrainSpec
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.models import Classifier, build_classifier
from hierbench.runs.job import Job

FIRST_NUMBER = re.compile(r"\D*\d+(\.\d+)*(?=\.)")


def new_classifier(job: Job, hierarchy: Hierarchy, weights: Path | None = None) -> Classifier:
    """Return a job's model, initialised from the global random generator; see `build_classifier`."""
    method = job.method.cls
    spec = job.spec
    assert issubclass(method, Method)
    return build_classifier(method, hierarchy, spec.type, spec.model, job.params, weights)


def make_optimizer(model: Classifier, train: TrainSpec) -> torch.optim.Optimizer:
    """Return SGD or AdamW over the model's groups; weight decay is on all parameters, norms included."""
    by_name = model.parameter_groups()
    check_group_names(list(train.lr.model_dump()), list(by_name))
    groups: list[dict[str, Any]] = [
        {"params": group, "name": name, "lr": train.lr.of(name)}
        for name, group in by_name.items()
        if group  # a method may have no parameters
    ]
    if train.layer_decay != 1.0:
        groups = [part for group in groups for part in _split_by_layer(model, group, train.layer_decay)]
    if train.optimizer == "adamw":
        return torch.optim.AdamW(groups, weight_decay=train.weight_decay, fused=True)
    return torch.optim.SGD(groups, momentum=train.momentum, weight_decay=train.weight_decay, fused=True)


def _split_by_layer(model: Classifier, group: dict[str, Any], decay: float) -> Iterator[dict[str, Any]]:
    """Divide the backbone's group by layers; the last has "scale" 1, each before it `decay` times the next one's."""
    depth = {id(parameter): away for away, layer in enumerate(reversed(group_layers(model))) for parameter in layer}
    parts = dict[int, list[nn.Parameter]]()
    for parameter in group["params"]:
        parts.setdefault(depth.get(id(parameter), 0), []).append(parameter)
    for away, parameters in parts.items():
        scale = decay**away
        yield group | {"params": parameters, "scale": scale, "lr": group["lr"] * scale}


def group_layers(model: Classifier) -> list[list[nn.Parameter]]:
    """Return the backbone's trainable parameters by layer, in order of registration.

    A layer is all parameters whose names agree up to their first number, with the numbers that follow it at once:
    "blocks.3" of "blocks.3.attn.qkv.weight", "layer1.0" of "layer1.0.conv2.weight"; without a number, it is the module.
    """
    layers = dict[str, list[nn.Parameter]]()
    for name, parameter in model.backbone.named_parameters():
        if parameter.requires_grad:
            layer = name.removeprefix("layers.")
            match = FIRST_NUMBER.match(layer)
            layers.setdefault(match[0] if match else layer.rpartition(".")[0], []).append(parameter)
    return list(layers.values())


def learning_rate(initial: float, epoch: float, epochs: int, warmup: int = 0) -> float:
    """Return the cosine-annealed rate of an epoch: initial (1 + cos(pi epoch / epochs)) / 2.

    With `warmup` epochs, the rate rises linearly from 0 to `initial` during them, with fractions of epochs; the cosine
    falls over those that remain.
    """
    if epoch < warmup:
        return initial * epoch / warmup
    return initial * (1.0 + math.cos(math.pi * (epoch - warmup) / (epochs - warmup))) / 2.0


def set_rates(optimizer: torch.optim.Optimizer, train: TrainSpec, epoch: int, done: float = 1.0) -> dict[str, float]:
    """Give each group its learning rate of an epoch, from 0, and return all rates by group, own groups last.

    Where the training's length is in steps, `epoch` is the number of a step, from 0. In a warm-up, the rate is that of
    the step with which the share `done` of the epoch's steps is done.
    """
    warmup = train.warmup_epochs
    time = min(epoch + done, warmup) if epoch < warmup else epoch
    groups = dict.fromkeys([*Rates.model_fields, *(group["name"] for group in optimizer.param_groups)])
    rates = {name: learning_rate(train.lr.of(name), time, train.steps or train.epochs, warmup) for name in groups}
    for group in optimizer.param_groups:
        group["lr"] = rates[group["name"]] * group.get("scale", 1.0)
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
        self.method = method
        self.forward = forward
        self.optimizer = optimizer
        self.backward = backward
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
