"""Intervals over seeds and test images: how far a number would move with other images, of the same kind and as many.

Shapes: S seeds, N test images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hierbench.config.spec import DatasetSpec
from hierbench.leaderboard.statistics import Summary, half_width
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.hierarchy.label_tree import Hierarchy
    from hierbench.leaderboard.board import Board

Values = NDArray[np.float64]
FindTree = Callable[[DatasetSpec], "Hierarchy | None"]


def example_values(contributions: Sequence[NDArray[Any]], ks: Sequence[int]) -> dict[str, Values]:
    """Return {metric: values [S, N] whose mean is the metric} of the paper's metrics.

    Severity is a ratio, the sum of the distances over the number of mistakes: its values are the linearised ones, the
    ratio plus what each image adds to it (Cochran, Sampling Techniques, 1977, section 6.3).

    Args:
        contributions: [N, 1 + len(ks)] of each run, see `hierbench.metrics.sums.contributions`.
        ks: as there, from 1 on.
    """
    each = np.stack([part.astype(np.float64) for part in contributions])  # [S, N, 1 + len(ks)]
    values = {"top1": 100.0 * each[:, :, 0]}
    values |= {f"hierdist@{k}": each[:, :, 1 + place] / k for place, k in enumerate(ks)}
    mistakes = 1.0 - each[:, :, 0]
    counts = mistakes.sum(axis=1, keepdims=True)
    if (counts > 0).all():
        ratio = each[:, :, 1].sum(axis=1, keepdims=True) / counts
        share = counts / each.shape[1]
        values["mistake_severity"] = ratio + (each[:, :, 1] - ratio * mistakes) / share
    return values


class ExampleReader:
    """Reads the contributions of the test images of finished runs, from their predictions in any form."""

    def __init__(self, records: Records, find_tree: FindTree) -> None:
        self.records = records
        self.find_tree = find_tree

    def row(self, runs: Sequence[Record]) -> dict[str, Values]:
        """Return the values of a row's runs, {} where one has no predictions or its tree is not here."""
        from hierbench.metrics.sums import DEFAULT_KS, contributions, usable_ks

        tree = self.find_tree(runs[0].data) if runs else None
        try:
            ranks = [self._ranks(run, tree) for run in runs] if tree is not None else []
        except (OSError, ValueError):  # of a received folder, whose findings say why
            return {}
        if tree is None or not all(ranks):
            return {}
        ks = usable_ks(DEFAULT_KS, tree.num_classes)
        return example_values([contributions(*pair, tree, ks).numpy() for pair in ranks if pair], ks)

    def _ranks(self, run: Record, tree: Hierarchy) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return ranked classes [N, k] and targets [N] of a run."""
        from hierbench.runs import compact
        from hierbench.runs.run_archive import opened

        if run.has_predictions:
            scores, targets = run.predictions()
            return compact.ranked_classes(scores), targets
        if run.has_ranks:
            return compact.read_compact(run.folder).ranked, compact.read_targets(opened(self.records.root))
        base = self.records.get(run.bases[0]) if run.bases else None
        if base is None or run.spec is None or not run.spec.follows_from_base:
            return None
        ranks = self._ranks(base, tree)
        return ranks and (compact.nearest_classes(ranks[0][:, 0], tree), ranks[1])


def with_examples(board: Board, find_tree: FindTree) -> Board:
    """Return a board with the values of its rows' test images, from which intervals over images follow."""
    from hierbench.leaderboard.extra_columns import counted_runs

    reader = ExampleReader(board.records, find_tree)
    examples = {row.key: reader.row(counted_runs(row, board.records)) for row in board.rows if not row.scored}
    return replace(board, examples=examples)


def over_images(board: Board, data_dir: Path) -> Board:
    """Return a board whose half-widths are over seeds and images.

    Raises:
        UserError: its rows have no predictions, or their tree is not here.
    """
    from hierbench.runs.run_evidence import Trees  # PyTorch

    board = with_examples(board, Trees(data_dir).find)
    if not any(board.examples.values()):
        raise UserError(
            "intervals over images are computed from the predictions of runs and their tree, which are not here"
        )
    rows = []
    for row in board.rows:
        values = board.examples.get(row.key, {})
        cells: dict[str, Summary] = {
            name: replace(cell, ci95=half_width(values[name])) if name in values else cell
            for name, cell in row.metrics.items()
        }
        rows.append(replace(row, metrics=cells))
    return replace(board, rows=tuple(rows), intervals="images")
