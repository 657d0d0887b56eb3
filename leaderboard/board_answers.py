"""The answers behind a table, as they are kept beside its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hierbench.answers.choices import RuleChoice, area_under
from hierbench.answers.node_metrics import NODE_METRICS, node_metrics
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.hierarchy.nodes import Nodes
from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.columns import column_of
from hierbench.leaderboard.extra_columns import counted_runs
from hierbench.leaderboard.ranking import mark_rows
from hierbench.leaderboard.statistics import Row, summarise
from hierbench.runs import compact
from hierbench.runs.answer_file import RunAnswers, kept_answers
from hierbench.runs.record import Record
from hierbench.runs.run_archive import opened
from hierbench.utils.errors import UserError

DEFAULT_METRICS = ("correct", "coverage", "scaled_accuracy", "hf", "edges")


@dataclass(frozen=True, eq=False)
class BoardAnswers:
    """The answers behind a table.

    Attributes:
        board: whose rows are trained methods, all with answers.
        choices: the rules.
        by_run: {run id: its answers}.
        hierarchy: the tree.
        targets: [N] test classes.
        notes: a line on each row that is left out.
    """

    board: BoardData
    choices: Sequence[RuleChoice]
    by_run: Mapping[str, RunAnswers]
    hierarchy: Hierarchy
    targets: IntArray
    notes: Sequence[str]

    @cached_property
    def boards(self) -> dict[str, BoardData]:
        """The table of each rule by its label: its rows have the metrics of nodes in place of those of classes."""
        return {choice.label: self._board_of(choice) for choice in self.choices}

    def _board_of(self, choice: RuleChoice) -> BoardData:
        columns = tuple(column_of(NODE_METRICS[name]) for name in DEFAULT_METRICS)
        first_class = Nodes(self.hierarchy).num_inner
        rows = []
        for row in self.board.rows:
            if choice.temperature is not None and not self.has_logits(row):
                continue
            values = [
                node_metrics(
                    answers.nodes[choice.label],
                    np.concatenate([first_class + self.targets, answers.above]),
                    self.hierarchy,
                )
                for answers in self.answers_of(row)
            ]
            cells = {
                name: summarise([NODE_METRICS[name].scale * value[name] for value in values])
                for name in DEFAULT_METRICS
            }
            rows.append(replace(row, metrics={**row.metrics, **cells}))
        is_fitted = choice.accuracy is not None  # to this share of correct answers
        compared = [column for column in columns if not (is_fitted and column.name == "correct")]
        return replace(self.board, rows=mark_rows(rows, compared), columns=columns)

    def areas(self, choice: RuleChoice, row: Row) -> list[float]:
        """Return the area under the curve of a fitted rule for each run of a row, [] for a rule without one."""
        if choice.accuracy is None:
            return []
        return [area_under(self.curve(answers, choice)) for answers in self.answers_of(row)]

    def curve(self, answers: RunAnswers, choice: RuleChoice) -> list[tuple[float, float]]:
        """Return (coverage, share of correct answers) of a fitted rule."""
        return answers.record.curves[choice.curve]

    def answers_of(self, row: Row) -> list[RunAnswers]:
        """Return the answers of the runs behind a row."""
        return [self.by_run[run.id] for run in counted_runs(row, self.board.records)]

    def best_classes(self, row: Row) -> list[IntArray]:
        """Return the best-ranked class [N] of each test image, for each run of a row."""
        return [best_classes(run) for run in counted_runs(row, self.board.records)]

    def has_logits(self, row: Row) -> bool:
        """Whether the softmax of a row's scores is what was trained to be probabilities."""
        return all(answers.record.logits for answers in self.answers_of(row))


def board_answers(
    board: BoardData,
    choices: Sequence[RuleChoice],
    tree: Hierarchy,
    by_run: Mapping[str, RunAnswers] | None = None,
    lacking: Mapping[str, str] | None = None,
) -> BoardAnswers:
    """Return the answers of the runs of a table.

    Args:
        board: the table.
        choices: the rules.
        tree: of its runs.
        by_run: {run id: its answers}; by default those that are kept beside the runs.
        lacking: {run id: why it has no answers}, of runs without.

    Raises:
        UserError: no row has answers.
    """
    labels = {choice.label for choice in choices}
    by_run = kept_by_run(board) if by_run is None else by_run
    by_run = {run_id: answers for run_id, answers in by_run.items() if labels <= answers.nodes.keys()}
    rows = list[Row]()
    notes = list[str]()
    for row in board.rows:
        if is_posthoc(row, board):
            notes.append(f"{row.title} {row.type} is left out: it re-ranks what others predict")
            continue
        runs = [] if row.scored else counted_runs(row, board.records)
        without = [run.id for run in runs if run.id not in by_run]
        if runs and not without:
            rows.append(row)
        elif without:
            why = (lacking or {}).get(without[0], "its answers are not kept with all runs")
            notes.append(f"{row.title} {row.type} is left out: {why}")
    if not rows:
        raise UserError(f"no row of {board.dataset} has answers: {notes[-1] if notes else 'it has no trained run'}")
    run = counted_runs(rows[0], board.records)[0]
    try:
        targets = run.predictions()[1] if run.has_predictions else compact.read_targets(opened(board.records.root))
    except (OSError, ValueError) as error:
        raise UserError(f"the targets of run {run.id[:12]} cannot be read: {error}") from None
    return BoardAnswers(
        replace(board, rows=tuple(rows)), choices, by_run, tree, np.asarray(targets, dtype=np.int64), notes
    )


def kept_by_run(board: BoardData) -> dict[str, RunAnswers]:
    """Return {run id: its answers} of those that are kept beside the trained runs of a table."""
    kept = {run.id: kept_answers(run) for run in trained_runs(board)}
    return {run_id: answers for run_id, answers in kept.items() if answers is not None}


def trained_runs(board: BoardData) -> list[Record]:
    """Return the runs behind the rows of trained methods; a UserError if there are none."""
    trained = [row for row in board.rows if not row.scored and not is_posthoc(row, board)]
    runs = [run for row in trained for run in counted_runs(row, board.records)]
    if not runs:
        raise UserError("no row of this table is a trained method with a finished run")
    return runs


def is_posthoc(row: Row, board: BoardData) -> bool:
    """Whether a row re-ranks the scores of others: what it does is a rule, or beyond the rules."""
    return bool(row.runs) and bool(board.records[row.runs[0]].bases)


def best_classes(run: Record) -> IntArray:
    """Return the best-ranked class [N] of each test image; a UserError if the run's predictions cannot be read."""
    try:
        if run.has_predictions:
            return np.asarray(run.predictions()[0].argmax(axis=1), dtype=np.int64)
        return np.asarray(compact.read_compact(run.folder).ranked[:, 0], dtype=np.int64)
    except (OSError, ValueError) as error:
        raise UserError(f"the predictions of run {run.id[:12]} cannot be read: {error}") from None
