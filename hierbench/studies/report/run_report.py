"""From the runs of a table's rows to a report: it needs what trains, for the scores on the validation split."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.data.prepared import find_for_spec
from hierbench.execution.resources import choose_device
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.paired import named_rows
from hierbench.leaderboard.statistics import Row
from hierbench.metrics.ranked_classes import top_classes
from hierbench.runs.job import Job
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_records
from hierbench.runs.run_evidence import Trees
from hierbench.studies.report.model_report import ModelReport, ReportSettings, make_report
from hierbench.studies.report.scored_images import REPORT_KS, ScoredImages, of_predictions
from hierbench.studies.scoring.prediction_parts import Predictions
from hierbench.training.posthoc import validation_scores
from hierbench.utils.console import say
from hierbench.utils.errors import UserError


def report_runs(
    dataset: str,
    rows: Sequence[str],
    settings: ReportSettings,
    runs: Path,
    data_dir: Path,
    request: str | None = None,
) -> ModelReport:
    """Compute the report on a row of a dataset's table, METHOD[:TYPE], and another one to compare it with.

    All finished seeds of a row count. Rules are fitted on the validation split, by the checkpoints of its runs; the
    predictions of a re-ranking method are taken as ranked classes.

    Raises:
        UserError: no such row, or its predictions, checkpoints or data are not here.
    """
    if not 1 <= len(rows) <= 2:
        raise UserError(f"rows are one or two, METHOD[:TYPE] each, got {len(rows)}")
    recipe = load_recipe(dataset)
    board = Board.of(dataset, read_records(runs), scored=False, request=request)
    chosen = [_row(board, name) for name in rows]
    if chosen[0] is chosen[-1] and len(chosen) == 2:
        raise UserError(f"{rows[0]} and {rows[1]} are the same row")
    data = board.records[chosen[0].runs[0]].data
    tree = Trees(data_dir).of(data)
    read = [[_of_run(board.records[run], tree, data_dir) for run in row.runs] for row in chosen]
    sides = [[test for test, _ in seeds] for seeds in read]
    validations = [[validation for _, validation in seeds if validation is not None] for seeds in read]
    validations = [seeds if len(seeds) == len(side) else [] for seeds, side in zip(validations, sides, strict=True)]
    names = [f"{row.title} {row.type}" for row in chosen]
    prepared = find_for_spec(data, data_dir)
    counts = None
    if prepared is not None:
        counts = np.bincount(prepared.arrays("train")[1], minlength=tree.num_classes)[: tree.num_classes]
    return make_report(tree, recipe.title, names, sides, validations, settings, counts)


def _row(board: Board, name: str) -> Row:
    rows = named_rows(board.rows, name)
    if len(rows) > 1:
        kinds = ", ".join(f"{row.method}:{row.type}" for row in rows)
        raise UserError(f"{name} is several rows, {kinds}: give one of them")
    return rows[0]


def _of_run(record: Record, tree: Hierarchy, data_dir: Path) -> tuple[ScoredImages, ScoredImages | None]:
    """Return the test images of a run, and its validation images where it is a trained one with its checkpoint."""
    where = f"{record.job.label}, run {record.id[:12]}"
    if not record.has_predictions:
        raise UserError(f"{where}: its predictions are not here")
    scores, targets = record.predictions()
    if record.job.bases:  # re-ranked: no probabilities
        ranked = top_classes(torch.from_numpy(scores), min(max(REPORT_KS), tree.num_classes)).numpy()
        return of_predictions(Predictions(where, None, ranked, targets, None), tree), None
    prepared = find_for_spec(record.data, data_dir)
    if prepared is None:
        raise UserError(f"{where}: its data is not in {data_dir}")
    job = Job(record.job, find_method(record.job.method.name))
    device = torch.device(choose_device("auto"))
    columns = "in the order of the tree"
    test = of_predictions(Predictions(where, scores, None, targets, None, columns), tree, "logits")
    try:
        scores_and_targets = [part.cpu().numpy() for part in validation_scores(job, prepared, record, tree, device)]
    except UserError as error:
        say(f"note: rules are fitted on halves of the test images: {error}")
        return test, None
    return test, of_predictions(
        Predictions(f"{where}, validation", scores_and_targets[0], None, scores_and_targets[1], None, columns),
        tree,
        "logits",
    )
