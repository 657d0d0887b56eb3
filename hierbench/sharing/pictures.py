"""The pictures of a table, drawn from its runs; one without data is left out."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hierbench.figures.plots import style
from hierbench.figures.plots.figure_data import FigureRequest, draw
from hierbench.leaderboard.board import Board
from hierbench.runs.records import Records
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

FROM_SCORES = "operating"  # of all classes; the others are drawn from the records


def draw_pictures(
    kinds: Iterable[str], board: Board, dataset: str, folder: Path, source: Records, data_dir: Path
) -> list[str]:
    """Write `<dataset>-<kind>.svg` of a publication, as far as they can be drawn.

    Args:
        kinds: of pictures.
        board: the published table, of verified records.
        dataset: its name or the file of a user's dataset.
        folder: of the publication.
        source: where the runs may have their full predictions.
        data_dir: where the tree may be.

    Returns:
        a line for each picture that is not drawn.
    """
    notes = []
    for kind in kinds:
        try:
            if kind == FROM_SCORES:
                _check_predictions(board, source)
            drawn_board = replace(board, records=source) if kind == FROM_SCORES else board
            draw_one(kind, drawn_board, dataset, data_dir, folder / f"{board.dataset}-{kind}.svg")
        except UserError as error:
            notes.append(f"no {kind} picture: {one_line(str(error), 300)}")
    return notes


def draw_one(kind: str, board: Board, dataset: str, data_dir: Path, path: Path) -> None:
    """Write a picture of a board's runs; a UserError names missing data."""
    style.write_figure(draw(kind, FigureRequest(dataset, data_dir, board.of_runs)).figure, path)


def _check_predictions(board: Board, source: Records) -> None:
    """Raise a UserError unless a folder has the full predictions of all of a board's runs."""
    ids = [run_id for row in board.of_runs.rows for run_id in row.runs]
    lacking = sum(run_id not in source or not source[run_id].has_predictions for run_id in ids)
    if lacking:
        raise UserError(
            f"{lacking} of {len(ids)} runs have no predictions.npz in {source.root}, and it needs all scores"
        )
