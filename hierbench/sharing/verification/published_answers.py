"""The answers kept with runs, compared with their predictions, and a published table of them with what they give."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hierbench.answers.choices import choices_of
from hierbench.answers.decision_rule import answer_nodes, known_rules
from hierbench.config.spec import DatasetSpec
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.nodes import Nodes
from hierbench.leaderboard.answers_table import BEST_CLASS, answers_tables
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_answers import BoardAnswers, best_classes, board_answers
from hierbench.leaderboard.formats import render
from hierbench.runs.answer_file import ANSWERS_FILE, RunAnswers, kept_answers
from hierbench.runs.findings import ConsistencyCheck
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.runs.run_archive import opened
from hierbench.runs.run_evidence import Trees
from hierbench.sharing.published_tree import shipped_tree, tree_beside
from hierbench.sharing.received_files import Received
from hierbench.sharing.table_page import answers_page
from hierbench.sharing.verification.published_pages import is_same
from hierbench.utils.errors import UserError
from hierbench.utils.files import parse_json_object, read_text
from hierbench.utils.text import one_line

NODES_CLAIMED = "the nodes of all rules but the best class are claimed: they follow from scores that are not here"
NEAR = 0.001  # share of nodes that may differ from those of all scores: thresholds that another processor just misses


class _GivenAnswers(Received):
    """A table of answers as it was found."""

    rows: list[dict[str, Any]]


def published_answers(board: Board, data_dir: Path) -> BoardAnswers | None:
    """Return the answers of all rules that the runs of a publication keep; None without any, or without their tree."""
    kept = [answers for answers in map(kept_answers, board.records) if answers is not None]
    run = next((board.records[row.runs[0]] for row in board.rows if row.runs and not row.scored), None)
    tree = None if run is None else tree_finder(board.records, data_dir)(run.data)
    if tree is None or not kept:
        return None
    common = set[str].intersection(*(set(answers.nodes) for answers in kept))
    try:
        choices = choices_of([label for label in kept[0].nodes if label in common])
        return board_answers(board, choices, tree) if choices else None
    except UserError:
        return None


def check_answers(
    records: Records, data_dir: Path, table: Path | None, answers: Callable[[], BoardAnswers | None] = lambda: None
) -> list[ConsistencyCheck]:
    """Return a finding on the answers beside the runs of a folder and on their table; [] where there are none.

    Args:
        records: of the folder, as they were checked.
        data_dir: prepared data, of the trees.
        table: the file of the published table of answers, which may be missing; None for a runs folder.
        answers: makes what the table is compared with.
    """
    runs = [run for run in records if run.done and os.path.lexists(run.folder / ANSWERS_FILE)]
    has_table = table is not None and os.path.lexists(table)
    if not runs and not has_table:
        return []
    finding = ConsistencyCheck(str(records.root / "answers") if table is None else str(table.with_suffix("")))
    find_tree = tree_finder(records, data_dir)
    for run in runs:
        try:
            problem = _problem(run, find_tree(run.data))
        except UserError as error:
            problem = str(error)
        if problem:
            finding.reject(f"run {run.id[:12]} ({run.label}): {problem}")
    if not finding.rejected and not all(run.has_predictions for run in runs):
        finding.note(NODES_CLAIMED)
    if table is not None and has_table and not finding.rejected:
        try:
            _compare_table(table, answers(), finding)
        except UserError as error:
            finding.reject(str(error))
    return [finding]


def tree_finder(records: Records, data_dir: Path) -> Callable[[DatasetSpec], Hierarchy | None]:
    """Return a function that finds the tree of data: of prepared data, shipped, or beside records; None without."""
    trees = Trees(data_dir)
    return lambda data: trees.find(data) or shipped_tree(data) or tree_beside(opened(records.root), data)


def _problem(run: Record, tree: Hierarchy | None) -> str:
    """Return why the answers of a run are not those of its predictions, "" if they may be."""
    answers = kept_answers(run)
    if answers is None:
        return "its answers are damaged, or of other predictions"
    if tree is None:
        return ""
    num_inner = Nodes(tree).num_inner
    if not run.has_predictions and not run.has_ranks:
        return ""  # a claimed run
    predicted = num_inner + best_classes(run)
    num = len(predicted)
    if answers.above.max(initial=0) >= num_inner:
        return "targets of its answers are no nodes above the classes"
    for label, nodes in answers.nodes.items():
        if nodes.shape != (num + len(answers.above),) or nodes.max(initial=0) >= num_inner + tree.num_classes:
            return f"the answers of {label} are no nodes of its test images"
    leaves = answers.nodes.get(BEST_CLASS)
    if leaves is not None and not np.array_equal(leaves[:num], predicted):
        return "the answers of argmax_leaf are not the best classes of its predictions"
    return _recompute(run, answers, tree) if run.has_predictions else ""


def _recompute(run: Record, answers: RunAnswers, tree: Hierarchy) -> str:
    """Return which rule gives other nodes for the scores of all classes, with the recorded parameters."""
    scores = torch.from_numpy(run.predictions()[0]).double()
    record = answers.record
    for label, nodes in answers.nodes.items():
        name = label.partition("@")[0].partition(":")[0]
        if name not in known_rules():  # a file, which is not run
            continue
        try:
            (choice,) = choices_of([label])
            probabilities = (scores / (choice.temperature or record.calibration.temperature)).softmax(dim=1)
            parameters = choice.rule.checked(record.parameters.get(label, {}))
            again = answer_nodes(choice.rule, probabilities, tree, parameters).numpy()
        except (ValueError, TypeError) as error:
            return f"{label} cannot be answered again: {one_line(str(error), 100)}"
        num_other = int((again != nodes[: len(again)]).sum())
        if num_other > NEAR * len(again):
            return f"{label} answers other nodes for {num_other:,} of its test images"
    return ""


def _compare_table(table: Path, answers: BoardAnswers | None, finding: ConsistencyCheck) -> None:
    """Reject a table with another number than the answers give; note a page that differs."""
    if answers is None:
        return finding.reject("no row has answers of all its runs, or its tree is not here")
    rows = _GivenAnswers.read(table).rows
    made = parse_json_object(render(answers_tables(answers)[0], "json"))["rows"]
    if len(rows) != len(made):
        return finding.reject(f"it has {len(rows)} rows, the answers give {len(made)}")
    for row, expected in zip(rows, made, strict=True):
        for key in sorted(row.keys() | expected.keys()):
            if not is_same(row.get(key), expected.get(key)):
                about = f"the row {row.get('rule')} {row.get('title')} {row.get('type')}"
                return finding.reject(f"{about}: {key} is {row.get(key)!r}, the answers give {expected.get(key)!r}")
    try:
        page = read_text(table.with_suffix(".md"))
    except (OSError, ValueError):
        page = ""
    if page != answers_page(answers, table.parent):
        finding.note(f"{table.with_suffix('.md').name} is not what this version writes of these answers; the .json is")
    return None
