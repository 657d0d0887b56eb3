"""Decision rules fitted on validation images, or on one half of the test images for the other, and their answers.

Shapes: N images, K classes, L levels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hierbench.answers.choices import FittedChoices, RuleChoice, fit_choices, parse_choices
from hierbench.answers.node_metrics import example_metrics
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.hierarchy.levels import nodes_on
from hierbench.metrics.node_probabilities import NodeProbabilities
from hierbench.studies.report.resampling import Floats
from hierbench.studies.report.scored_images import ScoredImages
from hierbench.utils.console import Meter

REPORT_RULES = (
    "argmax_leaf",
    "confidence_threshold",
    "climbing",
    "darts",
    "crm",
    "rank_thresholds",
    "inaturalist_rollup:temperature=1",  # products take the scores as they are
    "speciesnet_rollup:temperature=1",
    "antenna_rollup:temperature=1",
)
BY_RANK = "rank_thresholds"  # always fitted: one of the three recommendations
AT = 0.9  # correctness of the recommendations
FITTED_ON = 2**25  # scores, a quarter of a gibibyte: of as many images rules are fitted
LEAST_IMAGES = 20  # images on which anything is fitted
IMAGES_PER_FIT = 5000.0  # images that are answered in the time of a fit
METRICS = ("correct", "information", "hf", "edges", "root")

CPU = torch.device("cpu")


def report_choices(rules: Sequence[str]) -> list[RuleChoice]:
    """Return the choices of rules at 90 and 95 %, with thresholds by rank unless there are none."""
    if not rules:
        return []
    named = [*rules, BY_RANK] if not any(text.partition("@")[0] == BY_RANK for text in rules) else rules
    return parse_choices(named)


@dataclass(frozen=True, eq=False)
class FittedRules:
    """What some images say of the parameters of rules.

    Attributes:
        images: of which these were fitted.
        rows: the images that were looked at, a drawn part of many.
        fitted: temperature and parameters.
    """

    images: ScoredImages
    rows: IntArray
    fitted: FittedChoices

    @property
    def temperature(self) -> float:
        """Of the scores."""
        return self.fitted.calibration.temperature

    @property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """{label of a rule: its parameters}."""
        return self.fitted.parameters

    @property
    def untouched(self) -> IntArray:
        """The images that the temperature has not seen."""
        rows: IntArray = self.rows[self.fitted.second_half.numpy()]
        return rows


def fit_rules(images: ScoredImages, rows: IntArray, choices: Sequence[RuleChoice], seed: int) -> FittedRules:
    """Fit rules on images, a drawn part of them where their scores are many."""
    rows = sampled(rows, images.tree.num_classes)
    targets = torch.from_numpy(images.targets[rows])
    return FittedRules(images, rows, fit_choices(images.logits(rows), targets, images.tree, choices, seed))


def sampled(rows: IntArray, num_classes: int) -> IntArray:
    """Return the rows, or evenly some of them where their scores are many."""
    most = max(LEAST_IMAGES, FITTED_ON // num_classes)
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def answer_metrics(answers: torch.Tensor, targets: torch.Tensor, tree: Hierarchy) -> dict[str, Floats]:
    """Return what answers [N] to targets [N], both nodes, are worth, per image: `METRICS`, shares as 0 to 1."""
    values = example_metrics(answers, targets, tree)
    values["root"] = (answers == 0).double()
    return {name: values[name].numpy() for name in METRICS}


@dataclass(frozen=True, eq=False)
class ImageAnswers:
    """What rules answer for the N images of a file, none of which its rules were fitted on.

    Attributes:
        images: the file.
        fitted: rules and the images [M] that they are applied to; together all N.
        for_use: fitted on all that may be looked at, to be used elsewhere.
        halves: whether they are fitted on halves of the file itself.
        confidence: [2, N, L] of the most probable node of each level, without and with temperature.
        right: [2, N, L] whether it is the target's.
        nodes: {label of a rule: [N] its answers}.
    """

    images: ScoredImages
    fitted: Sequence[tuple[FittedRules, IntArray]]
    for_use: FittedRules
    halves: bool
    confidence: NDArray[np.float32]
    right: NDArray[np.bool_]
    nodes: Mapping[str, IntArray]

    @cached_property
    def metrics(self) -> dict[str, dict[str, Floats]]:
        """{label of a rule: {metric: [N]}}."""
        tree = self.images.tree
        targets = nodes_on(tree, CPU).num_inner + torch.from_numpy(self.images.targets)
        return {label: answer_metrics(torch.from_numpy(nodes), targets, tree) for label, nodes in self.nodes.items()}

    def fitted_metric(self, label: str, name: str) -> float:
        """Return the mean of a rule's metric over the images that its parameters were fitted on."""
        return float(np.mean([rules.fitted.metrics[label][name] for rules, _ in self.fitted]))


def answer_images(
    images: ScoredImages, validation: ScoredImages | None, choices: Sequence[RuleChoice], seed: int
) -> ImageAnswers:
    """Fit rules on validation images, or on halves of the images themselves, and return what they answer."""
    num = len(images.targets)
    every = np.arange(num)
    num_fits = 1 if validation is not None else 3
    with Meter("rules", num_fits * IMAGES_PER_FIT + num) as meter:

        def fit(fitted_on: ScoredImages, rows: IntArray) -> FittedRules:
            rules = fit_rules(fitted_on, rows, choices, seed)
            meter.end_part("rules fitted", IMAGES_PER_FIT)
            return rules

        if validation is not None:
            for_use = fit(validation, np.arange(len(validation.targets)))
            return _apply(images, [(for_use, every)], for_use, choices, meter)
        units = images.units
        side = np.random.default_rng(seed).permutation(units.max() + 1)[units] % 2
        halves = [np.flatnonzero(side == half) for half in (0, 1)]
        fitted = [(fit(images, halves[1 - i]), halves[i]) for i in (0, 1)]
        return _apply(images, fitted, fit(images, every), choices, meter)


def _apply(
    images: ScoredImages,
    fitted: Sequence[tuple[FittedRules, IntArray]],
    for_use: FittedRules,
    choices: Sequence[RuleChoice],
    meter: Meter,
) -> ImageAnswers:
    tree = images.tree
    num = len(images.targets)
    true = tree.level_targets[images.targets]
    confidence = np.empty((2, num, tree.num_levels), dtype=np.float32)
    right = np.empty((2, num, tree.num_levels), dtype=np.bool_)
    nodes = {choice.label: np.empty(num, dtype=np.int64) for choice in choices}
    temperatures = list(dict.fromkeys([1.0, None, *(choice.temperature for choice in choices)]))  # None: fitted
    which = np.empty(num, dtype=np.int64)
    for number, (_, rows) in enumerate(fitted):
        which[rows] = number
    for part in images.parts():
        logits = images.logits(part)
        for number, (rules, _) in enumerate(fitted):
            some = np.flatnonzero(which[part] == number)
            rows = part.start + some
            part_logits = logits if len(some) == len(logits) else logits[some]
            for stage, used in enumerate(temperatures):
                scaled = part_logits if used == 1.0 else part_logits / (used or rules.temperature)
                chunk = NodeProbabilities(scaled.softmax(dim=1), tree)
                if stage < len(confidence):
                    best = chunk.by_level
                    confidence[stage, rows] = best.probability.numpy()
                    right[stage, rows] = best.place.numpy() == true[rows]
                for choice in choices:
                    if choice.temperature == used:
                        nodes[choice.label][rows] = choice.rule(chunk, **rules.parameters[choice.label]).numpy()
        meter.end_part("answers", float(part.stop - part.start))
    halves = len(fitted) > 1
    return ImageAnswers(images, fitted, for_use, halves, confidence, right, nodes)
