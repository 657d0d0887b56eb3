"""The answers of one run, from its scores on the validation and the test split.

Shapes: N test examples, N_val validation examples, K classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hierbench.answers.choices import RuleChoice, area_under, fit_choice
from hierbench.answers.conformal import SetScore, conformal_sets, summarise_sets
from hierbench.answers.decision_rule import checked_chunks
from hierbench.answers.temperature import calibrate
from hierbench.api.registry import find_method
from hierbench.data.prepared import Prepared
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.calibration import bin_counts, calibration_errors
from hierbench.metrics.computations import sum_counts
from hierbench.metrics.node_probabilities import node_tables
from hierbench.runs.answer_file import RunAnswers
from hierbench.runs.job import Job
from hierbench.runs.record import Record
from hierbench.training.posthoc import validation_scores

SETS: tuple[tuple[SetScore, int | None], ...] = (  # and the level of the groups that have a quantile each
    (SetScore("lac"), None),
    (SetScore("lac"), 1),
    (SetScore("aps"), None),
    (SetScore("raps"), None),
    (SetScore("nodes", 1), None),
    (SetScore("nodes", 2), None),
)
ALPHA = 0.1  # of the sets
SEED = 0  # of the two halves of the validation split


@dataclass(frozen=True, eq=False)
class RunScores:
    """Scores whose softmax are probabilities, in float64, [N, K] and [N_val, K], and targets [N] and [N_val]."""

    test: Tensor
    targets: Tensor
    validation: Tensor
    validation_targets: Tensor


def read_scores(record: Record, prepared: Prepared, hierarchy: Hierarchy, device: torch.device) -> RunScores:
    """Return the scores of a trained run; those on the validation split are computed from its checkpoint."""
    job = Job(record.job, find_method(record.job.method.name))
    validation, validation_targets = validation_scores(job, prepared, record, hierarchy, device)
    scores, targets = map(torch.from_numpy, record.predictions())
    return RunScores(scores.double(), targets.long(), validation.cpu().double(), validation_targets.cpu().long())


def compute_answers(
    scores: RunScores, hierarchy: Hierarchy, choices: Sequence[RuleChoice], predictions: str
) -> RunAnswers:
    """Return the answers of a run.

    The temperature is fitted on one half of the validation examples, the quantiles of the sets are those of the other
    half, and the parameters of rules are fitted on all of them.

    Args:
        scores: of the run.
        hierarchy: over the K classes.
        choices: the rules.
        predictions: SHA-256 of the run's predictions.npz.
    """
    order = torch.from_numpy(np.random.default_rng(SEED).permutation(len(scores.validation)))
    half = len(order) // 2
    calibration = calibrate(scores.validation[order[:half]], scores.validation_targets[order[:half]])
    first_class = node_tables(hierarchy, scores.test.device).nodes.num_inner
    nodes = dict[str, Any]()
    rules = dict[str, Any]()
    for temperature in dict.fromkeys(choice.temperature for choice in choices):
        used = calibration.temperature if temperature is None else temperature
        validation = list(checked_chunks((scores.validation / used).softmax(1), hierarchy))
        test = list(checked_chunks((scores.test / used).softmax(1), hierarchy))
        areas = dict[str, float]()
        for choice in choices:
            if choice.temperature != temperature:
                continue
            parameters = fit_choice(choice, validation, first_class + scores.validation_targets, hierarchy)
            nodes[choice.label] = torch.cat([choice.rule(chunk, **parameters) for _, chunk in test]).numpy()
            rules[choice.label] = {"parameters": parameters}
            if choice.accuracy is not None:
                curve = replace(choice, accuracy=None).label
                if curve not in areas:
                    areas[curve] = area_under(choice, test, first_class + scores.targets, hierarchy)
                rules[choice.label]["area"] = areas[curve]
    content = {
        "predictions": predictions,
        "calibration": calibration._asdict(),
        "rules": {choice.label: rules[choice.label] for choice in choices},
        **calibration_records(scores, calibration.temperature, hierarchy),
        "sets": set_records(scores, order[half:], calibration.temperature, hierarchy),
    }
    return RunAnswers({choice.label: nodes[choice.label] for choice in choices}, content)


def calibration_records(scores: RunScores, temperature: float, hierarchy: Hierarchy) -> dict[str, Any]:
    """Return "levels": NLL and ECE (per cent) of the test examples at each level, the classes last, at T = 1 and at T.

    The probability of a node is the sum over the classes below it.
    """
    records = list[dict[str, Any]]()
    for level, targets in enumerate(hierarchy.level_targets.T, start=1):
        belongs = torch.from_numpy(targets)
        size = hierarchy.level_sizes[level - 1]
        true = belongs[scores.targets]
        record: dict[str, Any] = {"level": level, "nll": [], "ece": []}
        for value in (1.0, temperature):
            probabilities = (scores.test / value).softmax(1)
            sums = probabilities.new_zeros(len(true), size).index_add(1, belongs, probabilities)
            counts = bin_counts(sums.argmax(dim=1), sums, true)
            record["nll"].append(float(-sums.gather(1, true[:, None]).log().clamp_min(-1000.0).mean()))
            record["ece"].append(float(calibration_errors(sum_counts(counts))[0]))
        records.append(record)
    return {"levels": records}


def set_records(scores: RunScores, rows: Tensor, temperature: float, hierarchy: Hierarchy) -> list[dict[str, Any]]:
    """Return a record for each kind of set at 90%: coverage, its interval, sizes, and the least coverage of a branch.

    Args:
        scores: of the run.
        rows: the validation examples whose quantiles are used.
        temperature: of the scores.
        hierarchy: over the K classes.
    """
    validation = (scores.validation[rows] / temperature).softmax(1)
    targets = scores.validation_targets[rows]
    test = (scores.test / temperature).softmax(1)
    branch = torch.tensor(hierarchy.level_targets[:, 0])
    records = list[dict[str, Any]]()
    for kind, level in SETS:
        sets = conformal_sets(validation, targets, test, hierarchy, ALPHA, kind.kind, kind.nodes, group_level=level)
        summary = summarise_sets(sets, scores.targets, test, hierarchy, ALPHA, len(rows))
        covered = sets.gather(1, scores.targets[:, None])[:, 0].double()
        branches = branch[scores.targets]
        least = min(float(covered[branches == each].mean()) for each in branches.unique())
        about = {"score": kind.kind, "nodes": kind.nodes, "group_level": level}
        records.append({**about, **summary._asdict(), "least": least})
    return records
