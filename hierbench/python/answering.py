"""`hierbench.answer_board`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

from hierbench.answers.choices import ACCURACIES, DEFAULT_RULES, parse_choices
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.leaderboard.answers_table import Show, answer_table, tree_table
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_answers import BoardAnswers
from hierbench.leaderboard.formats import html, render
from hierbench.leaderboard.table import Table
from hierbench.python.boards import check_known
from hierbench.studies.computed_answers import answer_board as compute_board

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Answers:
    """What the methods of a board answer under decision rules; a notebook shows it as a table.

    Attributes:
        content: board, rules, and {run id: its answers}, see `BoardAnswers`.
    """

    content: BoardAnswers

    def table(self, show: Show = "rules") -> Table:
        """Return the table of rules, or that of "temperature", "levels" or "sets"."""
        check_known("show", show, get_args(Show))
        return answer_table(self.content, show)

    def tree_test(self, trees: Mapping[str, Hierarchy] = MappingProxyType({})) -> Table:
        """Return whether mistakes respect the tree, and what remains of gains on {name: another tree}."""
        return tree_table(self.content, trees)

    def frame(self, show: Show = "rules") -> "pd.DataFrame":
        """Return a table for pandas, numbers at full precision."""
        import pandas as pd

        return pd.DataFrame(self.table(show).as_records())

    def __str__(self) -> str:
        return render(self.table())

    def _repr_html_(self) -> str:
        return html.notebook(self.table())


def answer_board(
    board: Board, rules: Sequence[str] | None = None, at: Sequence[float] = ACCURACIES, *, data_dir: str | Path = "data"
) -> Answers:
    """Return what the trained methods of a board answer under decision rules; as `hierbench answers`.

    Args:
        board: of runs, see `hierbench.board`. Answers that are computed are kept beside the runs.
        rules: as "majority" or "climbing:threshold=0.8", or the path of a file; by default those of `DEFAULT_RULES`.
        at: shares of correct answers on validation that fitted parameters reach.
        data_dir: folder of prepared datasets.

    Raises:
        UserError: a ValueError: an unknown rule, or no row has answers.
    """
    choices = parse_choices(DEFAULT_RULES if rules is None else rules, at)
    return Answers(compute_board(board, choices, Path(data_dir)))
