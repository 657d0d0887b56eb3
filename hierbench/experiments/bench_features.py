"""The speed of training on cached features, against the same arithmetic in a plain loop.

Shapes: B batch, C channels, K classes, N examples.
"""

import statistics
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hierbench.config.rates import Rates
from hierbench.config.sections import FEATURE_TYPES, FeatureType
from hierbench.config.spec import TrainSpec
from hierbench.data.feature_split import FeatureSplit
from hierbench.methods.ce import CrossEntropy
from hierbench.models.backbones import Backbone
from hierbench.models.classifier import Classifier
from hierbench.models.features import ResidualBlock, TypeI, TypeII
from hierbench.planning.cost import stand_in_tree
from hierbench.planning.timing import RATE, in_turn, median_ratio
from hierbench.training.fabric import make_fabric
from hierbench.training.step import Step, make_optimizer

UNITS = 600  # of type I, as in the paper


def measure_features(
    device: str, rounds: int, batch: int = 64, channels: int = 1280, classes: int = 200, steps: int = 40
) -> list[dict[str, Any]]:
    """Measure both types with cross-entropy, in float32: whole epochs, from drawing the order to the last step.

    Both sides read features that stay in the device's memory: the engine as jobs do, the plain loop by picking the rows
    of a batch. Neither validates, saves or shows progress, which jobs do once per epoch or less often.

    Returns:
        A dict per type: "step_ms" of the engine, "bare_ms" of the plain loop, "ratio" of their speeds, a median over
        rounds: 1 is as fast as the plain loop.
    """
    split = NoiseSplit(batch * steps, channels, classes, torch.device(device))
    found = []
    for feature_type in FEATURE_TYPES:
        ours = _engine(feature_type, channels, classes, device, batch)
        bare = _PlainLoop(feature_type, channels, classes, device)
        functions = [lambda ours=ours: _epoch(ours, split, batch), lambda bare=bare: bare.epoch(split, batch)]
        engine_s, bare_s = in_turn(functions, rounds, device)
        found.append(
            {
                "type": feature_type,
                "step_ms": 1000 * statistics.median(engine_s) / steps,
                "bare_ms": 1000 * statistics.median(bare_s) / steps,
                "ratio": median_ratio(bare_s, engine_s),
            }
        )
    return found


class NoiseSplit(FeatureSplit):
    """The split of a training, with noise [N, C] float32 in place of cached features of one view."""

    def __init__(self, num: int, channels: int, classes: int, device: torch.device) -> None:
        self.num_views = 1
        self._hold(torch.randn(num, channels).numpy(), np.arange(num) % classes, device, 0, 1, resident=True)


def _epoch(step: Step, split: FeatureSplit, batch: int) -> Tensor:
    """Do an epoch as the trainer does; return the loss terms [steps, terms]."""
    batches = split.train_batches(torch.randperm(len(split)).split(batch))
    return torch.stack([step([part], batch) for part in batches])


def _engine(feature_type: FeatureType, channels: int, classes: int, device: str, batch: int) -> Step:
    """Return the step of a training, set up as the trainer does."""
    tree = stand_in_tree((max(2, classes // 20), classes))
    features = TypeI(channels, UNITS) if feature_type == "type-I" else TypeII(channels, classes)
    model = Classifier(Backbone(nn.Identity(), channels), features, CrossEntropy(tree, features.num_features))
    rates = Rates(backbone=RATE, transform=RATE, classifier=RATE)
    how = TrainSpec(epochs=1, batch_size=batch, momentum=0.9, weight_decay=5e-4, lr=rates)
    fabric = make_fabric(device, "float32")
    wrapped, optimizer = fabric.setup(model.train(), make_optimizer(model, how))
    return Step(model.method, wrapped, optimizer, fabric.backward)


class _PlainLoop:
    """The same layers and the same loss with nothing around them."""

    def __init__(self, feature_type: FeatureType, channels: int, classes: int, device: str) -> None:
        layers: list[nn.Module]
        if feature_type == "type-I":
            layers = [nn.BatchNorm1d(channels), nn.Linear(channels, UNITS), nn.BatchNorm1d(UNITS), nn.ELU(inplace=True)]
            layers.append(nn.Linear(UNITS, classes))
        else:
            layers = [nn.Linear(channels, classes, bias=False), nn.BatchNorm1d(classes)]
            layers += [ResidualBlock(classes), ResidualBlock(classes), nn.Linear(classes, classes)]
        self.network = nn.Sequential(*layers).to(device)
        self.sgd = torch.optim.SGD(self.network.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4, fused=True)

    def epoch(self, split: FeatureSplit, batch: int) -> None:
        """Do a step on each batch of rows in random order."""
        for rows in torch.randperm(len(split)).to(split.device).split(batch):
            self.sgd.zero_grad()
            outputs = self.network(split.images.index_select(0, rows))
            functional.cross_entropy(outputs, split.labels[rows]).backward()
            self.sgd.step()
