"""The answers of all runs of a table: read where they are kept beside a run, else computed from its scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from hierbench.answers.choices import RuleChoice
from hierbench.answers.node_metrics import NODE_METRICS, node_metrics
from hierbench.data.prepared import find_for_spec
from hierbench.execution.resources import choose_device
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.hierarchy.nodes import Nodes
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.extra_columns import counted_runs
from hierbench.leaderboard.ranking import mark_rows
from hierbench.leaderboard.statistics import Row, summarise
from hierbench.runs import compact
from hierbench.runs.answer_file import RunAnswers, read_answers, write_answers
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.record import Record
from hierbench.runs.run_evidence import Trees
from hierbench.studies.answers.run_answers import compute_answers, read_scores
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError

ANSWER_COLUMNS = {
    name: Column(name, metric.title, metric.direction == "higher", metric.unit) for name, metric in NODE_METRICS.items()
}
DEFAULT_METRICS = ("correct", "coverage", "scaled_accuracy", "hf", "edges")


@dataclass(frozen=True, eq=False)
class BoardAnswers:
    """The answers behind a table.

    Attributes:
        board: whose rows are trained methods.
        choices: the rules.
        by_run: {run id: its answers}, of the runs that have all of them.
        hierarchy: the tree.
        targets: [N] test classes.
        notes: a line on each row that is left out.
    """

    board: Board
    choices: Sequence[RuleChoice]
    by_run: Mapping[str, RunAnswers]
    hierarchy: Hierarchy
    targets: IntArray
    notes: Sequence[str]

    def board_of(self, choice: RuleChoice, metrics: Sequence[str] = DEFAULT_METRICS) -> Board:
        """Return the table of one rule: its rows have the metrics of nodes in place of those of classes."""
        columns = tuple(ANSWER_COLUMNS[name] for name in metrics)
        first_class = Nodes(self.hierarchy).num_inner
        rows = []
        for row in self.board.rows:
            values = [
                node_metrics(self.by_run[run.id].nodes[choice.label], first_class + self.targets, self.hierarchy)
                for run in self.runs_of(row)
            ]
            percent = {name: 100.0 if NODE_METRICS[name].unit == "%" else 1.0 for name in metrics}
            cells = {name: summarise([percent[name] * value[name] for value in values]) for name in metrics}
            rows.append(replace(row, metrics={**row.metrics, **cells}))
        return replace(self.board, rows=mark_rows(rows, columns), columns=columns)

    def runs_of(self, row: Row) -> list[Record]:
        """Return the runs behind a row."""
        return counted_runs(row, self.board.records)


def answer_board(board: Board, choices: Sequence[RuleChoice], data_dir: Path) -> BoardAnswers:
    """Return the answers of the trained runs of a table; those that are computed are kept beside their run.

    Raises:
        UserError: no row has answers, or the tree is not here.
    """
    trained = [row for row in board.rows if not row.scored and not is_posthoc(row, board)]
    runs = [run for row in trained for run in counted_runs(row, board.records)]
    if not runs:
        raise UserError("no row of this table is a trained method with a finished run")
    tree = Trees(data_dir).of(runs[0].data)
    by_run = dict[str, RunAnswers]()
    lacking = dict[str, str]()
    missing = list[Record]()
    for run in runs:
        kept = kept_answers(run)
        if kept is not None and all(choice.label in kept.nodes for choice in choices):
            by_run[run.id] = kept
        else:
            missing.append(run)
    with Meter("answers", float(len(missing))) as meter:
        for run in missing:
            try:
                by_run[run.id] = _compute(run, tree, choices, data_dir)
            except UserError as error:
                lacking[run.id] = str(error)
            meter.end_part(run.id, 1.0)
    rows = [row for row in trained if all(run.id in by_run for run in counted_runs(row, board.records))]
    if not rows:
        raise UserError(f"no run has answers: {next(iter(lacking.values()))}")
    notes = [f"{row.title} {row.type} is left out: it re-ranks" for row in board.rows if is_posthoc(row, board)]
    notes += [
        f"{row.title} {row.type} is left out: {lacking[run.id]}"
        for row in trained
        for run in counted_runs(row, board.records)[:1]
        if run.id in lacking
    ]
    kept_board = replace(board, rows=tuple(rows))
    return BoardAnswers(kept_board, choices, by_run, tree, _targets(runs[0], board.records.root), notes)


def is_posthoc(row: Row, board: Board) -> bool:
    """Whether a row re-ranks the scores of others: what it does is a rule, or beyond the rules."""
    return bool(row.runs) and bool(board.records[row.runs[0]].bases)


def kept_answers(run: Record) -> RunAnswers | None:
    """Return the answers beside a run if they come from its predictions."""
    try:
        answers = read_answers(run.folder)
    except (OSError, ValueError):
        return None
    return answers if answers.predictions == run.recorded_digest(PREDICTIONS) else None


def _compute(run: Record, tree: Hierarchy, choices: Sequence[RuleChoice], data_dir: Path) -> RunAnswers:
    prepared = find_for_spec(run.data, data_dir)
    digest = run.recorded_digest(PREDICTIONS)
    if prepared is None or digest is None or not run.has_predictions:
        raise UserError("its scores or its data are not here")
    scores = read_scores(run, prepared, tree, torch.device(choose_device("auto")))
    answers = compute_answers(scores, tree, choices, digest)
    earlier = kept_answers(run)
    if earlier is not None:  # other rules that were asked for before
        nodes = {**earlier.nodes, **answers.nodes}
        rules = {**earlier.content["rules"], **answers.content["rules"]}
        answers = RunAnswers(nodes, {**answers.content, "rules": rules})
    write_answers(run.folder, answers)
    return answers


def _targets(run: Record, root: Path) -> IntArray:
    if run.has_predictions:
        return np.asarray(run.predictions()[1], dtype=np.int64)
    return compact.read_targets(root)
