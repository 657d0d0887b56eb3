"""Part 4 of a report: what rules answer, which one to use for which goal, and sets of classes.

Shapes: N images, K classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import betaincinv

from hierbench.answers.choices import RuleChoice, rule_curve
from hierbench.answers.conformal import SetScore, measure_sets
from hierbench.answers.decision_rule import checked_chunks
from hierbench.hierarchy.levels import nodes_on
from hierbench.studies.report.accuracy import PER_CENT
from hierbench.studies.report.resampling import Quantity, mean_of
from hierbench.studies.report.rule_fitting import AT, BY_RANK, CPU, METRICS, ImageAnswers, sampled

SCALE = {"correct": PER_CENT, "hf": PER_CENT, "root": PER_CENT}
BETTER = {"edges": "lower", "root": ""}
ALPHA = 0.1  # of the sets
SETS = ((SetScore("lac"), None), (SetScore("lac"), 1), (SetScore("aps", randomized=True), None))
MOST_NEEDED = 2.0  # times one over the squared margin: more than any share between 0 and 1 needs
MARGIN = 0.02  # of coverage, which `needed` images keep in 95% of the cases
GOALS = {
    "information": f"most information with {AT:.0%} right",
    "nearest": "nearest to the truth",
    "ranks": "thresholds by rank",
}


@dataclass(frozen=True)
class Recommended:
    """The rule that validation chooses for a goal; `fitted` are its metrics on the images that it was fitted on."""

    goal: str
    choice: RuleChoice
    fitted: Mapping[str, float]


def rule_quantities(answers: Sequence[ImageAnswers]) -> dict[str, Quantity]:
    """Return {"LABEL METRIC": quantity} of all rules, per seed."""
    quantities = dict[str, Quantity]()
    for label in answers[0].nodes:
        for metric in answers[0].metrics[label]:
            name = f"{label} {metric}"
            values = [each.metrics[label][metric] for each in answers]
            quantities[name] = mean_of(name, values, BETTER.get(metric, "higher"), SCALE.get(metric, 1.0))
    return quantities


def recommend(answers: Sequence[ImageAnswers], choices: Sequence[RuleChoice]) -> list[Recommended]:
    """Return the rule for each of the three goals, by what the rules do on the images that they were fitted on."""

    def fitted(choice: RuleChoice) -> dict[str, float]:
        names = [name for name in METRICS if name in answers[0].for_use.fitted.metrics[choice.label]]
        return {name: float(np.mean([each.fitted_metric(choice.label, name) for each in answers])) for name in names}

    values = {choice.label: fitted(choice) for choice in choices}
    enough = [choice for choice in choices if values[choice.label]["correct"] >= AT - 1e-12]
    informative = max(
        enough or choices,
        key=lambda choice: values[choice.label]["information" if enough else "correct"],
    )
    nearest = min(choices, key=lambda choice: values[choice.label]["edges"])
    ranks = next(choice for choice in choices if choice.rule.name == BY_RANK)
    return [
        Recommended(goal, choice, values[choice.label])
        for goal, choice in zip(GOALS, (informative, nearest, ranks), strict=True)
    ]


def curves(answers: ImageAnswers, choices: Sequence[RuleChoice]) -> dict[str, list[tuple[float, float]]]:
    """Return {title: (coverage, share of right answers)} of rules with a fitted number, of the first fitted images."""
    rules, rows = answers.fitted[0]
    images = answers.images
    rows = sampled(rows, images.tree.num_classes)
    logits = images.logits(rows) / rules.temperature
    chunks = list(checked_chunks(logits.softmax(dim=1), images.tree))
    targets = nodes_on(images.tree, CPU).num_inner + torch.from_numpy(images.targets[rows])
    drawn = dict[str, list[tuple[float, float]]]()
    for choice in choices:
        is_number = choice.rule.fitted and choice.rule.fit is None and choice.accuracy is not None
        if is_number and choice.temperature is None and choice.rule.title not in drawn:
            drawn[choice.rule.title] = rule_curve(choice, chunks, targets, images.tree)
    return drawn


def sets_of(answers: ImageAnswers) -> list[dict[str, Any]]:
    """Return what sets of classes at 90 % are worth, a record for each kind.

    `coverage` lies between `low` and `high` in 95% of the cases, for so many images; `needed` calibration images keep
    it within 2 points; `branches` are the coarsest nodes.
    """
    rules, rows = answers.fitted[0]
    images = answers.images
    tree = images.tree
    rows = sampled(rows, tree.num_classes)
    seen = rules.untouched
    calibration = (rules.images.logits(seen) / rules.temperature).softmax(dim=1)
    calibration_targets = torch.from_numpy(rules.images.targets[seen])
    probabilities = (images.logits(rows) / rules.temperature).softmax(dim=1)
    targets = torch.from_numpy(images.targets[rows])
    records = list[dict[str, Any]]()
    for kind, level in SETS if tree.num_levels > 1 else SETS[:1]:
        summary, by_node = measure_sets(
            calibration, calibration_targets, probabilities, targets, tree, ALPHA, kind, level
        )
        branches = [
            {"name": tree.level_names[0][node], "n": num, "coverage": coverage}
            for node, (num, coverage) in by_node.items()
        ]
        records.append(
            {
                "score": kind.kind,
                "by_branch": level is not None,
                "wanted": 1.0 - ALPHA,
                "coverage": summary.coverage,
                "low": summary.interval[0],
                "high": summary.interval[1],
                "size": summary.size,
                "empty": summary.empty,
                "n": len(rows),
                "calibrated_on": len(seen),
                "needed": needed(ALPHA, MARGIN),
                "branches": branches,
            }
        )
    return records


def needed(alpha: float, margin: float) -> int:
    """Return the number of calibration images from which on coverage is within a margin of 1 - alpha in 95% of cases.

    Coverage over calibration sets is beta-distributed (Vovk, ACML 2012).
    """
    num = np.arange(1, int(MOST_NEEDED / margin**2))
    place = np.ceil((num + 1) * (1 - alpha) - 1e-12)
    low, high = (betaincinv(place, np.maximum(num + 1 - place, 1), share) for share in (0.025, 0.975))
    is_enough = (place <= num) & (low >= 1 - alpha - margin) & (high <= 1 - alpha + margin)
    return int(num[np.flatnonzero(~is_enough)[-1]]) + 1
