"""The pictures of a `Board`, each a matplotlib figure that a notebook shows; `hierbench plot` draws the same."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierbench.runs.store import Store
from hierbench.utils.console import say
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hierbench.experiments.interface.board import Board


@dataclass(frozen=True, repr=False)
class Plots:
    """The pictures of a board's rows; remarks on what is not in one go to standard error.

    Save one by `figure.savefig("tradeoff.svg")`.
    """

    board: Board

    def __repr__(self) -> str:
        return f"<Plots {self.board.table.dataset}: tradeoff, severity, levels, operating, curves, confusion>"

    def tradeoff(self) -> Figure:
        """Draw top-1 accuracy against mistake severity, a marker with 95% intervals per row."""
        return self._draw("tradeoff")

    def severity(self) -> Figure:
        """Draw how many mistakes there are at each hierarchical distance."""
        return self._draw("severity")

    def levels(self) -> Figure:
        """Draw the accuracy at every level of the tree; computed from the runs' predictions."""
        return self._draw("levels")

    def operating(self) -> Figure:
        """Draw risk over coverage where a method may answer with an ancestor; computed from the runs' predictions."""
        return self._draw("operating")

    def curves(self) -> Figure:
        """Draw loss and validation metrics over the epochs of the runs that were trained."""
        return self._draw("curves")

    def confusion(self, method: str, type: str | None = None, seed: int | None = None) -> Figure:
        """Draw the confusion matrix of a run, classes in the order of the tree; by default of the smallest seed."""
        return self._draw("confusion", method=method, type=type, seed=seed)

    def _draw(self, kind: str, **run: Any) -> Figure:
        from hierbench.reports.plots import style
        from hierbench.reports.plots.source import Request

        of = self.board
        if of.store is None and kind != "tradeoff":
            raise UserError(f"published numbers have no runs to draw {kind} from; they have tradeoff")
        shown = of.table.of_runs
        if not shown.rows:
            raise UserError(f"the board of {shown.dataset} has predictions made elsewhere alone, which have no picture")
        request = Request(of.dataset, of.data_dir, shown, of.store or Store(Path("runs")), **run)
        with style.house_style():
            drawing = import_module(f"hierbench.reports.plots.{kind}").draw(request)
        for remark in drawing.remarks:
            say(f"note: {remark}")
        figure: Figure = drawing.figure
        return figure
