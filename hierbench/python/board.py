"""`hierbench.board` and the `Board` that it returns: a leaderboard, its pictures, and comparisons of its rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hierbench.config.options import Place
from hierbench.config.sections import PROTOCOLS, Protocol
from hierbench.leaderboard.board import Board as Table
from hierbench.leaderboard.columns import Column, asked_columns
from hierbench.leaderboard.formats import Format, html, render
from hierbench.leaderboard.opening import open_board
from hierbench.leaderboard.paired import Comparison, Difference, compare_rows, named_rows
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.tables.board import board_table, metric_columns
from hierbench.leaderboard.tables.differences import difference_records, differences_table
from hierbench.utils.console import say
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.text import one_line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False, eq=False)
class Board:
    """A leaderboard. A notebook shows it as a table, `print` as markdown; iterating gives its rows in that order.

    `board["haframe", "type-II"]` is a row, `board["crm"]` the only one of a method. A row has `metrics`, {name: cell}
    with `mean`, `ci95` (half-width of the 95% interval) and `values` by seed, and the `seeds` and `runs` behind them.

    Attributes:
        table: what it shows, see `hierbench.leaderboard.board.Board`.
        dataset: as it was given, a name or a file.
        data_dir: folder of prepared datasets.
        plot: its pictures: `board.plot.tradeoff()`, see `Plots`.
    """

    table: Table
    dataset: str
    data_dir: Path

    @property
    def plot(self) -> Plots:
        """Its pictures."""
        return Plots(self)

    @property
    def rows(self) -> Sequence[Row]:
        """The rows in the order of the table."""
        return self.table.rows

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.table.rows)

    def __getitem__(self, name: str | tuple[str, str]) -> Row:
        """Return the row of a method, or of a method and a type; a UserError where there is none or several."""
        parts = name if isinstance(name, tuple) else (name,)
        if len(parts) > 2 or not all(isinstance(part, str) for part in parts):
            raise UserError(f"a row is board[METHOD] or board[METHOD, TYPE], not board[{name!r}]; see also board.rows")
        shown = ":".join(parts)
        found = named_rows(self.rows, shown)
        if len(found) > 1:
            names = ", ".join(f"{row.title} {row.type}" for row in found)
            raise UserError(f"{shown} has {len(found)} rows: {names}; name the type, or choose from board.rows")
        return found[0]

    def __repr__(self) -> str:
        """Return the dataset, the protocol and the numbers of rows and runs."""
        return repr(self.table)

    def __str__(self) -> str:
        """Return the table as markdown."""
        return self.render()

    def _repr_html_(self) -> str:
        return html.notebook(board_table(self.table))

    def render(self, format: Format = "markdown") -> str:
        """Return the table as a text: "markdown", "latex", "csv", "json" or "html"."""
        return render(board_table(self.table), format)

    def frame(self, by: Literal["row", "seed"] = "row") -> pd.DataFrame:
        """Return the numbers for pandas.

        Args:
            by: "row", a line per row of the table: type, method, title, finished and planned runs, and of each metric
                the mean, the half-width of its interval ("top1 ci95") and whether it is best (1 or 0); or "seed", a
                line per finished run and metric: type, method, title, metric, seed, value; published numbers have none.
        """
        import pandas as pd

        if by not in ("row", "seed"):
            raise unknown_name("frame", by, ("row", "seed"))
        names = [column.name for column in self.table.shown]
        lines: list[dict[str, Any]] = []
        columns = None if by == "row" else ["type", "method", "title", "metric", "seed", "value"]
        for row in self.rows:
            about = {"type": row.type, "method": one_line(row.method), "title": one_line(row.title)}
            if by == "row":
                lines.append(about | {"n": row.n, "planned": row.planned} | metric_columns(row, names))
                continue
            for name in filter(row.metrics.__contains__, names):
                found = row.metrics[name].values
                seeds = row.seeds if len(row.seeds) == len(found) else range(len(found))
                values = zip(seeds, found, strict=True)
                lines += [{**about, "metric": name, "seed": seed, "value": value} for seed, value in values]
        return pd.DataFrame(lines, columns=columns).replace({None: math.nan}).infer_objects()

    def compare(self, reference: str, *rows: str) -> Differences:
        """Return how far rows are from a reference in every column, paired by seed; as `hierbench compare`.

        Args:
            reference: METHOD:TYPE, or METHOD, whose row of the same type each row is compared with.
            rows: METHOD or METHOD:TYPE; by default all other rows of the table.

        Raises:
            UserError: no such row, or nothing to compare; or the numbers are published ones, without runs.
        """
        if not self.table.records:
            raise UserError("published numbers have no seeds to compare; a board of runs has")
        return Differences(self.table, compare_rows(self.table, reference, rows))


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
        from hierbench.figures.plots import style
        from hierbench.figures.plots.source import Request

        of = self.board
        if not of.table.records and kind != "tradeoff":
            raise UserError(f"published numbers have no runs to draw {kind} from; they have tradeoff")
        shown = of.table.of_runs
        if not shown.rows:
            raise UserError(f"the board of {shown.dataset} has predictions made elsewhere alone, which have no picture")
        request = Request(of.dataset, of.data_dir, shown, **run)
        with style.house_style():
            drawing = import_module(f"hierbench.figures.plots.{kind}").draw(request)
        for remark in drawing.remarks:
            say(f"note: {remark}")
        figure: Figure = drawing.figure
        return figure


@dataclass(frozen=True, repr=False)
class Differences:
    """Rows of a leaderboard minus a reference; a notebook shows a table, `print` markdown.

    Each of `comparisons` has `row`, `reference`, `differences` and `changes`, in what the settings of their runs
    differ. `differences` are {metric: difference} with `mean`, `ci95` (half-width of the 95% t-interval), `n` seeds,
    `effect` (mean over standard deviation), `p` and `p_holm` (adjusted over the table), and `significant`.
    """

    table: Table
    comparisons: Sequence[Comparison]

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.comparisons)

    def __len__(self) -> int:
        return len(self.comparisons)

    def __getitem__(self, metric: str) -> Difference:
        """Return the difference in a metric, of a single comparison."""
        if len(self.comparisons) != 1:
            raise UserError(f"there are {len(self.comparisons)} comparisons; choose from .comparisons, or use .frame()")
        found = self.comparisons[0].differences
        if metric not in found:
            raise unknown_name("metric with at least two runs a side", metric, found)
        return found[metric]

    def __repr__(self) -> str:
        pairs = ", ".join(f"{pair.row.method}:{pair.row.type}" for pair in self.comparisons[:3])
        more = ", ..." if len(self.comparisons) > 3 else ""
        return f"<Differences {self.table.dataset}: {pairs}{more} minus {self.comparisons[0].reference.method}>"

    def __str__(self) -> str:
        return render(differences_table(self.table, self.comparisons))

    def _repr_html_(self) -> str:
        return html.notebook(differences_table(self.table, self.comparisons))

    def frame(self) -> pd.DataFrame:
        """Return a line per comparison and metric for pandas, numbers at full precision."""
        import pandas as pd

        return pd.DataFrame(difference_records(self.comparisons))


def board(
    dataset: str | Path,
    runs: str | Path = "runs",
    *,
    data_dir: str | Path = "data",
    protocol: Protocol | None = None,
    metrics: str | Sequence[str] | None = None,
    source: Literal["runs", "paper"] = "runs",
    request: str | None = None,
) -> Board:
    """Return the leaderboard of all runs of a dataset, as recorded; as `hierbench leaderboard`.

    Args:
        dataset: a name, or the file of a dataset of yours.
        runs: folder of all runs, or a folder of published tables.
        data_dir: folder of prepared datasets, which gives the tree for further columns.
        protocol: of the runs, "paper" or "authors"; by default that of the last comparison.
        metrics: columns, as "hf_macro,ece" or ["hf_macro", "ece"]; with + before each they are added to the paper's.
        source: "runs", or "paper" for the table printed in Liang & Davis (ICCV 2023) and what others printed.
        request: the beginning of the id of a comparison, whose settings are shown in place of the last one's.

    Raises:
        UserError: a ValueError: no runs of the dataset, an unknown name, source, protocol or metric.
    """
    if str(source) == "both":
        raise UserError('source "both" is of the command, hierbench leaderboard --numbers both; give "runs" or "paper"')
    check_known("source", source, ("runs", "paper"))
    if protocol is not None:
        check_known("protocol", protocol, PROTOCOLS)
    columns = columns_of(metrics)
    found = open_board(str(dataset), Place(Path(runs), Path(data_dir), protocol, request), columns, source)
    return Board(found, str(dataset), Path(data_dir))


def columns_of(metrics: str | Sequence[str] | None) -> tuple[Column, ...]:
    """Return the columns of names in a list, or in a text as --metrics takes."""
    return asked_columns(metrics if metrics is None or isinstance(metrics, str) else ",".join(metrics), "metrics")


def check_known(name: str, value: Any, known: Sequence[str]) -> None:
    """Raise a UserError for an argument that is none of the known ones."""
    if not isinstance(value, str) or value not in known:
        raise unknown_name(name, str(value), known)


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number, also of NumPy; a UserError for anything else, and below the least."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UserError(f"{name} is a whole number, got {value!r}") from None
    if number < least or isinstance(value, bool):
        raise UserError(f"{name} must be at least {least}, got {value!r}")
    return number
