"""Scoring: metrics of predictions, and their intervals.

Shapes: N examples, K classes, k ranked classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hierbench.answers.choices import RuleChoice
from hierbench.answers.decision_rule import answer_nodes
from hierbench.answers.definitions import DEFINITIONS
from hierbench.answers.node_metrics import node_metrics
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.hierarchy.nodes import Nodes
from hierbench.metrics import DEFAULT_KS, Evidence, usable_ks
from hierbench.metrics.bootstrap import bootstrap_intervals
from hierbench.metrics.calibration import ScoreKind, as_probabilities, first_unbounded, kind_of_rows, row_facts
from hierbench.metrics.metric import Metric
from hierbench.metrics.metric_table import compute_each, compute_in_parts, follows_from_ranks
from hierbench.metrics.ranked_classes import ranked, rows_at_a_time
from hierbench.metrics.sums import contributions, metrics_from_contributions, mistakes_from_contributions
from hierbench.runs.run_evidence import evidence_of_ranks
from hierbench.runs.scored_record import EXAMPLES_PER_CHUNK, stored_type
from hierbench.studies.scoring.prediction_parts import Predictions
from hierbench.utils.arrays import release
from hierbench.utils.errors import Argument, InputError, UserError

SCORES_ARE = Argument("scores_are", option_name="scores")
LEAST = 100  # resamples
FEWEST_SUSPECTED = 20  # images: in fewer the target may have the smallest score by chance
MOST = 1_000_000


@dataclass(frozen=True)
class Result:
    """One scored file.

    Attributes:
        metrics: those of `evaluate` that its number of ranked classes allows.
        intervals: {metric: (low, high)}, 95% bootstrap over examples; empty without resamples.
        mistakes: at each distance, 0 to the height.
        num_ties: examples with several classes of the largest score.
        columns: in which order the columns of scores were, "" without scores of all classes.
        kind: what the scores were taken as, None without scores of all classes.
        looks_like: what the scores look like, None where rows differ.
        num_all: examples with those whose target is a node above the classes.
        nodes: {label of a rule, or "answers" of the file: its node metrics} over all examples.
        defined: the values of definitions that were asked for.
        notes: what else was understood, in sentences.
    """

    where: str
    num_examples: int
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    mistakes: list[int]
    num_ties: int = 0
    columns: str = ""
    kind: ScoreKind | None = None
    looks_like: ScoreKind | None = None
    num_all: int = 0
    nodes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    defined: Sequence[tuple[str, Metric, float]] = ()
    notes: Sequence[str] = ()


def rank(
    predictions: Predictions, tree: Hierarchy, ks_asked: Sequence[int] = DEFAULT_KS
) -> tuple[IntArray, list[int], int, Tensor | None]:
    """Return ranked classes and counts.

    Returns:
        [N, k] ranked classes, as many as the largest metric needs; the ks that they allow; how many examples have
        several classes of the largest score; and the `row_facts` of the scores, if there are scores of all classes.

    Raises:
        UserError: a score is NaN, or a row has +inf or nothing but -inf.
    """
    ks = usable_ks(ks_asked, tree.num_classes)
    if predictions.classes is not None:
        return predictions.classes, [k for k in ks if k <= predictions.classes.shape[1]], 0, None
    scores = predictions.all_scores
    classes = np.empty((len(scores), max(ks)), dtype=np.int64)
    num_ties = 0
    facts = list[Tensor]()
    size = rows_at_a_time(scores.shape[1])
    for start in range(0, len(classes), size):
        rows = slice(start, start + size)
        chunk = stored_scores(scores[rows])
        top, num_nan = ranked(chunk, max(ks))
        if int(num_nan):
            row = start + int(chunk.isnan().any(dim=1).nonzero()[0])
            raise UserError(f"{predictions.where}: a score is NaN, first in row {row}")
        unbounded = first_unbounded(chunk)
        if unbounded is not None:
            raise UserError(
                f"{predictions.where}: row {start + unbounded} has +inf, or nothing but -inf; -inf masks single classes"
            )
        facts.append(row_facts(chunk))
        classes[rows] = top.numpy()
        best_two = chunk.gather(1, top[:, :2]) if max(ks) > 1 else chunk.topk(2, dim=1).values
        num_ties += int((best_two[:, 0] == best_two[:, 1]).sum())
        release(scores)
    return classes, list(ks), num_ties, torch.cat(facts)


def stored_scores(values: NDArray[Any]) -> Tensor:
    """Return scores [N, K] of a file, copied, in the type in which they are ranked and stored, see `stored_type`."""
    if values.dtype == np.float16:  # which PyTorch widens several times as fast
        return torch.from_numpy(np.array(values)).float()
    return torch.from_numpy(np.array(values, dtype=stored_type(values.dtype)))


def notes_on_scores(predictions: Predictions, top: IntArray) -> list[str]:
    """Return a line where the target has the smallest score far more often than the largest, as with distances.

    Args:
        predictions: with scores of all classes or without.
        top: [N] the best-ranked classes.
    """
    targets = predictions.true_classes
    right = float((top == targets).mean())
    if predictions.classes is not None or len(targets) < FEWEST_SUSPECTED:
        return []
    chance = 1.0 / predictions.all_scores.shape[1]
    if right >= chance:
        return []
    parts = range(0, len(targets), EXAMPLES_PER_CHUNK)
    least = np.concatenate([predictions.all_scores[s : s + EXAMPLES_PER_CHUNK].argmin(axis=1) for s in parts])
    smallest = float((least == targets).mean())
    if smallest < 2.0 * chance:  # and so of `right`, which is below it
        return []
    shares = f"the smallest score in {100 * smallest:.0f} % of the images, the largest in {100 * right:.0f} %"
    return [f"The target has {shares}: distances and losses are to be given with the opposite sign."]


def check_resamples(resamples: int) -> None:
    """Raise an InputError for fewer resamples than have a 2.5th percentile to speak of, or too many."""
    if resamples != 0 and not LEAST <= resamples <= MOST:
        message = f"resamples must be 0, or from {LEAST} to {MOST:,}, got {resamples:,}"
        raise InputError(message, Argument("resamples", resamples))


def known_kind(facts: Tensor, where: str, stated: ScoreKind | None) -> tuple[ScoreKind, ScoreKind | None]:
    """Return what scores are by their `row_facts`, as stated or as they look, and what they look like.

    Raises:
        UserError: they look like nothing, and nothing is said of them.
    """
    try:
        looks_like = kind_of_rows(facts)
    except ValueError as error:
        if stated is None:
            raise InputError(f"{where}: {error} ({SCORES_ARE})", SCORES_ARE) from None
        return stated, None
    return stated or looks_like, looks_like


def score(
    predictions: Predictions, tree: Hierarchy, resamples: int, seed: int, stated_kind: ScoreKind | None = None
) -> Result:
    """Return the metrics of predictions with targets, with bootstrap intervals unless `resamples` is 0.

    Raises:
        UserError: as `rank`; or some rows of scores are probabilities and some are not, and nothing is said of them.
    """
    classes, ks, num_ties, facts = rank(predictions, tree)
    kind, looks_like = (None, None) if facts is None else known_kind(facts, predictions.where, stated_kind)
    sums = contributions(classes, predictions.true_classes, tree, ks)
    intervals = bootstrap_intervals(sums, ks, resamples, seed) if resamples and len(sums) > 1 else {}
    return Result(
        predictions.where,
        predictions.num_examples,
        metrics_from_contributions(sums, ks),
        intervals,
        mistakes_from_contributions(sums, tree),
        num_ties,
        predictions.columns,
        kind,
        looks_like,
        notes=[*predictions.notes, *notes_on_scores(predictions, classes[:, 0])],
    )


def further_metrics(
    predictions: Predictions, tree: Hierarchy, names: Sequence[str], kind: ScoreKind | None
) -> dict[str, float]:
    """Return metrics beyond those of `score`, NaN where undefined; of ranked classes those that follow from them."""
    if not names:
        return {}
    classes = predictions.classes
    computable = [name for name in names if classes is None or follows_from_ranks(name, classes.shape[1])]
    return compute_in_parts(computable, _parts(predictions, tree, kind))


def _parts(predictions: Predictions, tree: Hierarchy, kind: ScoreKind | None) -> Iterator[Evidence]:
    """Yield the evidence of a part of the examples at a time."""
    for rows in Evidence.rows_of_parts(predictions.num_examples, tree.num_classes):
        targets = predictions.true_classes[rows]
        if predictions.classes is not None:
            yield evidence_of_ranks(predictions.classes[rows], targets, tree)
            continue
        scores = stored_scores(predictions.all_scores[rows])
        release(predictions.all_scores)
        yield Evidence(scores, torch.from_numpy(targets), tree, as_probabilities(scores, kind))


def score_rules(
    predictions: Predictions, tree: Hierarchy, choices: Sequence[RuleChoice], kind: ScoreKind | None
) -> dict[str, dict[str, float]]:
    """Return {label of a rule: its node metrics}, over all examples, also those with a target above the classes.

    Raises:
        UserError: a rule has to be fitted, or the scores of all classes are not there.
    """
    if not choices:
        return {}
    for choice in choices:
        if choice.accuracy is not None:
            raise UserError(
                f"nothing here fits {choice.rule.name}: give its parameter, as in "
                f"{choice.rule.name}:{choice.rule.fitted}=0.8"
            )
    if predictions.classes is not None:
        raise UserError(f"{predictions.where} ranks classes alone: rules need the scores of all classes")
    targets = predictions.true_classes
    nodes = {choice.label: np.empty(len(targets), dtype=np.int64) for choice in choices}
    for start in range(0, len(targets), EXAMPLES_PER_CHUNK):
        rows = slice(start, start + EXAMPLES_PER_CHUNK)
        logs = _log_probabilities(predictions, kind, rows)
        for choice in choices:
            probabilities = (logs / (choice.temperature or 1.0)).softmax(dim=1)
            nodes[choice.label][rows] = answer_nodes(choice.rule, probabilities, tree, choice.parameters).numpy()
        release(predictions.all_scores)
    return {label: node_metrics(answers, _as_nodes(targets, tree), tree) for label, answers in nodes.items()}


def score_answers(predictions: Predictions, tree: Hierarchy) -> Result:
    """Return the node metrics of answers that may be nodes above the classes."""
    assert predictions.classes is not None
    answers = _as_nodes(predictions.classes[:, 0], tree)
    nodes = {"answers": node_metrics(answers, _as_nodes(predictions.true_classes, tree), tree)}
    num = predictions.num_examples
    return Result(predictions.where, num, {}, {}, [], num_all=num, nodes=nodes, notes=predictions.notes)


def _as_nodes(classes: IntArray, tree: Hierarchy) -> IntArray:
    """Return the nodes [N] of class indices, or of -1 - n for an inner node n."""
    return np.where(classes >= 0, Nodes(tree).num_inner + classes, -1 - classes)


def score_definitions(
    predictions: Predictions, tree: Hierarchy, sources: Sequence[str], kind: ScoreKind | None
) -> list[tuple[str, Metric, float]]:
    """Return (source, definition, value) of `DEFINITIONS` of these sources that the predictions suffice for."""
    classes = predictions.classes
    chosen = [
        (source, metric)
        for source in sources
        for metric in DEFINITIONS[source]
        if metric.exists_on(tree) and (classes is None or (metric.ranked and metric.parameter <= classes.shape[1]))
    ]
    values = compute_each([metric for _, metric in chosen], _parts(predictions, tree, kind) if chosen else [])
    return [(*pair, value) for pair, value in zip(chosen, values, strict=True)]


def _log_probabilities(predictions: Predictions, kind: ScoreKind | None, rows: slice) -> Tensor:
    scores = stored_scores(predictions.all_scores[rows])
    return as_probabilities(scores, kind).log() if kind != "logits" else scores.double()
