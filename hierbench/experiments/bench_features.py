"""The speed of training on cached features, against the same arithmetic in a plain loop.

Shapes: B batch, C channels, K classes, N examples.
"""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hierbench.config.rates import Rates
from hierbench.config.sections import FEATURE_TYPES, FeatureType
from hierbench.config.spec import TrainSpec
from hierbench.methods.ce import CrossEntropy
from hierbench.models.classifier import Classifier
from hierbench.models.features import ResidualBlock, TypeI, TypeII
from hierbench.models.frozen import CachedBackbone
from hierbench.planning.cost import stand_in_tree
from hierbench.planning.timing import RATE, in_turn, median_ratio
from hierbench.training.fabric import make_fabric
from hierbench.training.step import Step, make_optimizer

OneStep = Callable[[Tensor, Tensor], object]
UNITS = 600  # of type I, as in the paper


def measure_features(
    device: str, rounds: int, batch: int = 64, channels: int = 1280, classes: int = 200, steps: int = 40
) -> list[dict[str, Any]]:
    """Measure both types with cross-entropy, in float32, with everything that a training step does.

    Returns:
        A dict per type: "step_ms" of the engine, "bare_ms" of the plain loop, "ratio" of their speeds, a median over
        rounds: 1 is as fast as the plain loop.
    """
    num = batch * steps
    features = torch.randn(num, channels, device=device)
    labels = torch.arange(num, device=device) % classes

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.randperm(num).to(device).split(batch):
            yield features.index_select(0, rows), labels[rows]

    found = []
    for feature_type in FEATURE_TYPES:
        ours = _engine(feature_type, channels, classes, device, batch)
        bare = _plain_loop(feature_type, channels, classes, device)
        functions = [partial(_repeat, step, batches) for step in (ours, bare)]
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


def _repeat(step: OneStep, batches: Callable[[], Iterator[tuple[Tensor, Tensor]]]) -> None:
    for features, targets in batches():
        step(features, targets)


def _engine(feature_type: FeatureType, channels: int, classes: int, device: str, batch: int) -> OneStep:
    """Return the step of a training, set up as the trainer does."""
    tree = stand_in_tree((max(2, classes // 20), classes))
    features = TypeI(channels, UNITS) if feature_type == "type-I" else TypeII(channels, classes)
    model = Classifier(CachedBackbone(channels), features, CrossEntropy(tree, features.num_features))
    rates = Rates(backbone=RATE, transform=RATE, classifier=RATE)
    how = TrainSpec(epochs=1, batch_size=batch, momentum=0.9, weight_decay=5e-4, lr=rates)
    fabric = make_fabric(device, "float32")
    wrapped, optimizer = fabric.setup(model.train(), make_optimizer(model, how))
    step = Step(model.method, wrapped, optimizer, fabric.backward)
    return lambda images, targets: step([(images, targets)], batch)


def _plain_loop(feature_type: FeatureType, channels: int, classes: int, device: str) -> OneStep:
    """Return a step of the same layers and the same loss with nothing around them."""
    layers: list[nn.Module]
    if feature_type == "type-I":
        layers = [nn.BatchNorm1d(channels), nn.Linear(channels, UNITS), nn.BatchNorm1d(UNITS), nn.ELU(inplace=True)]
        layers.append(nn.Linear(UNITS, classes))
    else:
        layers = [nn.Linear(channels, classes, bias=False), nn.BatchNorm1d(classes)]
        layers += [ResidualBlock(classes), ResidualBlock(classes), nn.Linear(classes, classes)]
    network = nn.Sequential(*layers).to(device)
    sgd = torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4, fused=True)

    def step(images: Tensor, targets: Tensor) -> None:
        sgd.zero_grad()
        functional.cross_entropy(network(images), targets).backward()
        sgd.step()

    return step
