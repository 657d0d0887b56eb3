"""The pictures of a table, drawn from its runs; one without data is left out."""

from collections.abc import Iterable
from pathlib import Path

from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.pictures.figure_data import draw
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line


def draw_pictures(kinds: Iterable[str], board: BoardData, folder: Path) -> list[str]:
    """Write `<dataset>-<kind>.svg` of a published board, as far as they can be drawn; return a line for each other."""
    notes = []
    for kind in kinds:
        try:
            style.write_figure(draw(kind, board).figure, folder / f"{board.dataset}-{kind}.svg")
        except UserError as error:
            notes.append(f"no {kind} picture: {one_line(str(error), 300)}")
    return notes
