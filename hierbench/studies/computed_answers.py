"""The answers of runs: from their scores on the validation and the test split; nothing is trained.

Shapes: N test examples, N_val validation examples, K classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from hierbench.answers.choices import RuleChoice, fit_choices, rule_curve
from hierbench.answers.conformal import SetScore, measure_sets
from hierbench.answers.decision_rule import checked_chunks
from hierbench.answers.temperature import fit_temperature
from hierbench.api.method import Method
from hierbench.api.registry import find_method
from hierbench.data.prepared import find_for_spec
from hierbench.data.writer import ABOVE
from hierbench.execution.resources import choose_device
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.hierarchy.readers import shipped_names, shipped_paths
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_answers import BoardAnswers, board_answers, kept_by_run, trained_runs
from hierbench.metrics.calibration import bin_counts, calibration_errors
from hierbench.metrics.computations import BINS
from hierbench.metrics.metric import sum_counts
from hierbench.metrics.node_probabilities import node_tables
from hierbench.runs.answer_file import (
    AnswerRecord,
    Bins,
    CalibrationRecord,
    LevelCalibration,
    RunAnswers,
    SetRecord,
    write_answers,
)
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.job import Job
from hierbench.runs.record import Record
from hierbench.runs.run_evidence import Trees
from hierbench.training.posthoc import validation_scores
from hierbench.utils.console import Meter, say
from hierbench.utils.errors import UserError

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
    """Scores whose softmax are probabilities, in float64, [N, K], [N_val, K] and [A, K], and targets of each.

    The A examples are labelled with nodes above the classes.
    """

    test: Tensor
    targets: Tensor
    validation: Tensor
    validation_targets: Tensor
    above: Tensor
    above_targets: Tensor


def answer_board(board: Board, choices: Sequence[RuleChoice], data_dir: Path) -> BoardAnswers:
    """Return the answers of the trained runs of a table; those that are computed are kept beside their run.

    Raises:
        UserError: no row has answers, or the tree is not here.
    """
    runs = trained_runs(board)
    tree = Trees(data_dir).of(runs[0].data)
    by_run = kept_by_run(board)
    lacking = dict[str, str]()
    labels = {choice.label for choice in choices}
    missing = [run for run in runs if run.id not in by_run or not labels <= by_run[run.id].nodes.keys()]
    with Meter("answers", float(len(missing))) as meter:
        for run in missing:
            try:
                by_run[run.id] = compute_answers(run, tree, choices, data_dir, by_run.get(run.id))
                write_answers(run.folder, by_run[run.id])
            except UserError as error:
                lacking[run.id] = str(error)
            except OSError as error:  # a full or read-only disk; the table needs no file
                say(f"note: the answers of run {run.id[:12]} are not kept: {error.strerror or error}")
            meter.end_part(run.id, 1.0)
    return board_answers(board, choices, tree, by_run, lacking)


def compute_answers(
    run: Record, tree: Hierarchy, choices: Sequence[RuleChoice], data_dir: Path, earlier: RunAnswers | None = None
) -> RunAnswers:
    """Return the answers of a run, with earlier ones of other rules.

    Raises:
        UserError: its scores, its checkpoint or its data are not here.
    """
    prepared = find_for_spec(run.data, data_dir)
    digest = run.recorded_digest(PREDICTIONS)
    if prepared is None or digest is None or not run.has_predictions:
        raise UserError("its scores or its data are not here")
    job = Job(run.job, find_method(run.job.method.name))
    device = torch.device(choose_device("auto"))
    validation = validation_scores(job, prepared, run, tree, device)
    above = tuple(part[:0] for part in validation)
    if ABOVE in prepared.splits:
        above = validation_scores(job, prepared, run, tree, device, ABOVE)
    test = map(torch.from_numpy, run.predictions())
    pairs = (test, validation, above)
    parts = [part for scores, targets in pairs for part in (scores.cpu().double(), targets.cpu().long())]
    all_scores = RunScores(*parts)
    answers = answers_of(all_scores, tree, choices)
    record = answers.record
    method = job.method.cls
    logits = issubclass(method, Method) and method.has_logits(job.params)
    nodes = answers.nodes
    if earlier is not None:
        nodes = {**earlier.nodes, **nodes}
        parameters = {**earlier.record.parameters, **record.parameters}
        curves = {**earlier.record.curves, **record.curves}
        record = record.model_copy(update={"labels": list(nodes), "parameters": parameters, "curves": curves})
    record = record.model_copy(update={"predictions": digest, "logits": logits})
    return replace(answers, nodes=nodes, record=record)


def read_trees(references: Sequence[str], tree: Hierarchy) -> dict[str, Hierarchy]:
    """Return {name: tree} of files and of shipped trees over the classes of a tree; a UserError if one is not."""
    trees = dict[str, Hierarchy]()
    for reference in references:
        try:
            if reference in shipped_names():
                paths = shipped_paths(reference)
                if set(paths) != set(tree.classes):
                    raise ValueError("it has other classes")
                other = Hierarchy.from_paths({name: paths[name] for name in tree.classes})
            else:
                other = Hierarchy.read(Path(reference), classes=tree.classes)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"--trees {reference}: {reason}") from None
        trees[Path(reference).stem] = other
    return trees


def answers_of(scores: RunScores, hierarchy: Hierarchy, choices: Sequence[RuleChoice]) -> RunAnswers:
    """Return the answers that follow from scores.

    The temperature is fitted on one half of the validation examples, the quantiles of the sets are those of the other
    half, and the parameters of rules are fitted on all of them.
    """
    fitted = fit_choices(scores.validation, scores.validation_targets, hierarchy, choices, SEED)
    calibration = fitted.calibration
    first_half = fitted.order[: len(fitted.order) // 2]
    first_class = node_tables(hierarchy, scores.test.device).nodes.num_inner
    nodes = dict[str, IntArray]()
    labels = [choice.label for choice in choices]
    curves = dict[str, list[tuple[float, float]]]()
    for temperature in dict.fromkeys(choice.temperature for choice in choices):
        used = calibration.temperature if temperature is None else temperature
        test = list(checked_chunks((scores.test / used).softmax(1), hierarchy))
        above = list(checked_chunks((scores.above / used).softmax(1), hierarchy))
        for choice in (choice for choice in choices if choice.temperature == temperature):
            parameters = fitted.parameters[choice.label]
            nodes[choice.label] = torch.cat([choice.rule(chunk, **parameters) for _, chunk in [*test, *above]]).numpy()
            if choice.accuracy is not None and choice.curve not in curves:
                points = rule_curve(choice, test, first_class + scores.targets, hierarchy)
                curves[choice.curve] = [(round(coverage, 6), round(correct, 6)) for coverage, correct in points]
    record = AnswerRecord(
        labels=list(labels),
        parameters={label: dict(fitted.parameters[label]) for label in labels},
        curves=curves,
        calibration=CalibrationRecord(**vars(calibration)),
        levels=level_records(scores, first_half, calibration.temperature, hierarchy),
        sets=set_records(scores, fitted.second_half, calibration.temperature, hierarchy),
        predictions="",
        logits=True,
    )
    predicted = scores.validation.argmax(dim=1)
    pairs = torch.stack([scores.validation_targets, predicted], dim=1)
    distinct, counts = pairs.unique(dim=0, return_counts=True)
    confusions = torch.cat([distinct, counts[:, None]], dim=1).numpy()
    return RunAnswers({label: nodes[label] for label in labels}, confusions, record, scores.above_targets.numpy())


def level_records(scores: RunScores, rows: Tensor, temperature: float, hierarchy: Hierarchy) -> list[LevelCalibration]:
    """Return a record for each level, the classes last, of the probabilities summed over the classes below each node.

    A record has NLL, ECE (per cent) and the bins of a reliability picture (number, mean confidence, accuracy) of the
    test examples three times: uncalibrated, with the run's temperature, and with one that is fitted to the level.

    Args:
        scores: of the run.
        rows: the validation examples on which the temperature of a level is fitted.
        temperature: of the run.
        hierarchy: over the K classes.
    """
    records = list[LevelCalibration]()
    for level, level_targets in enumerate(hierarchy.level_targets.T, start=1):
        belongs = torch.from_numpy(level_targets)
        size = hierarchy.level_sizes[level - 1]
        true = belongs[scores.targets]
        fitted = fit_temperature(
            _level_logs(scores.validation[rows], belongs, size), belongs[scores.validation_targets[rows]]
        )
        values = list[tuple[float, float, Bins]]()
        for logs in (
            _level_logs(scores.test, belongs, size),
            _level_logs(scores.test / temperature, belongs, size),
            _level_logs(scores.test, belongs, size) / fitted,
        ):
            normed = logs.log_softmax(dim=1)
            counts = sum_counts(bin_counts(normed.argmax(dim=1), normed.exp(), true))
            number, confidence, correct = counts[1:].reshape(3, BINS)
            means = [(value / number.clamp_min(1.0)).tolist() for value in (confidence, correct)]
            bins = (number.int().tolist(), *([round(mean, 5) for mean in each] for each in means))
            nll = float(-normed.gather(1, true[:, None]).mean())
            values.append((nll, float(calibration_errors(counts)[0]), bins))
        nlls, eces, all_bins = zip(*values, strict=True)
        records.append(LevelCalibration(level=level, temperature=fitted, nll=nlls, ece=eces, bins=all_bins))
    return records


def _level_logs(scores: Tensor, belongs: Tensor, size: int) -> Tensor:
    """Return the logs [N, size] of probabilities summed over the classes of each node, at least -1000."""
    sums = scores.new_zeros(len(scores), size).index_add(1, belongs, scores.softmax(dim=1))
    return sums.log().clamp_min(-1000.0)


def set_records(scores: RunScores, rows: Tensor, temperature: float, hierarchy: Hierarchy) -> list[SetRecord]:
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
    records = list[SetRecord]()
    for kind, level in SETS:
        summary, branches = measure_sets(validation, targets, test, scores.targets, hierarchy, ALPHA, kind, level)
        least = min(coverage for _, coverage in branches.values())
        records.append(SetRecord(score=kind.kind, nodes=kind.nodes, group_level=level, least=least, **vars(summary)))
    return records
