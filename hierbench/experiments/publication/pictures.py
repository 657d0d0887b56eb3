"""The pictures of a table, drawn from the runs behind it; one that needs what is not here is left out."""

from importlib import import_module
from pathlib import Path

from hierbench.leaderboard.board import Board
from hierbench.reports.plots import style
from hierbench.reports.plots.source import Request
from hierbench.runs.further_metrics import has_predictions
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

FROM_RECORDS = ("tradeoff", "severity")
FROM_SCORES = "operating"


def draw(board: Board, dataset: str, folder: Path, records: Store, source: Store, data_dir: Path) -> list[str]:
    """Write `<dataset>-<kind>.svg` of a publication, as far as they can be drawn.

    Args:
        board: the published table.
        dataset: its name or the file of a user's dataset.
        folder: of the publication.
        records: that it has, verified.
        source: where the runs may have their full predictions.
        data_dir: where the tree may be.

    Returns:
        a line for each picture that is not drawn.
    """
    notes = []
    for kind in (*FROM_RECORDS, FROM_SCORES):
        try:
            if kind == FROM_SCORES:
                _check_predictions(board, source)
            of = source if kind == FROM_SCORES else records
            draw_one(kind, board, dataset, of, data_dir, folder / f"{board.dataset}-{kind}.svg")
        except UserError as error:
            notes.append(f"no {kind} picture: {one_line(str(error), 300)}")
    return notes


def draw_one(kind: str, board: Board, dataset: str, store: Store, data_dir: Path, path: Path) -> None:
    """Write a picture of a board's runs in a store; a UserError says what it lacks."""
    with style.house_style():
        module = import_module(f"hierbench.reports.plots.{kind}")
        style.write_figure(module.draw(Request(dataset, data_dir, board.of_runs, store)).figure, path)


def _check_predictions(board: Board, source: Store) -> None:
    """Raise a UserError unless a folder has the full predictions of all of a board's runs."""
    ids = [run_id for row in board.of_runs.rows for run_id in row.runs]
    if lacking := sum(not has_predictions(source.run(run_id)) for run_id in ids):
        raise UserError(
            f"{lacking} of {len(ids)} runs have no predictions.npz in {source.root}, and it needs all scores"
        )
