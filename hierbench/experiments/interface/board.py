"""`hierbench.board` and the `Board` that it returns: a leaderboard, its pictures, and comparisons of its rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hierbench.config.options import Place
from hierbench.config.sections import PROTOCOLS, Protocol
from hierbench.experiments.checking import open_board
from hierbench.experiments.interface.plots import Plots
from hierbench.leaderboard.board import Board as Table
from hierbench.leaderboard.columns import Column, asked_columns
from hierbench.leaderboard.formats import Format, html, render
from hierbench.leaderboard.paired import Comparison, Difference, compare_rows, named_rows
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.tables.board import board_table, metric_columns
from hierbench.leaderboard.tables.differences import difference_records, differences_table
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.text import one_line

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False, eq=False)
class Board:
    """A leaderboard. A notebook shows it as a table, `print` as markdown; iterating gives its rows in that order.

    `board["haframe", "type-II"]` is a row, `board["crm"]` the only one of a method. A row has `metrics`, {name: cell}
    with `mean`, `ci95` (half-width of the 95% interval) and `values` by seed, and the `seeds` and `runs` behind them.

    Attributes:
        table: what it shows, see `hierbench.leaderboard.board.Board`.
        dataset: as it was given, a name or a file.
        store: its verified runs; None for published numbers.
        data_dir: folder of prepared datasets.
        plot: its pictures: `board.plot.tradeoff()`, see `Plots`.
    """

    table: Table
    dataset: str
    store: Store | None
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
        if self.store is None:
            raise UserError("published numbers have no seeds to compare; a board of runs has")
        return Differences(self.table, compare_rows(self.table, self.store, reference, rows))


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
) -> Board:
    """Return the leaderboard of all runs of a dataset, verified first; as `hierbench leaderboard`.

    Args:
        dataset: a name, or the file of a dataset of yours.
        runs: folder of all runs, or a folder of published tables.
        data_dir: folder of prepared datasets, which gives the tree for further columns.
        protocol: of the runs, "paper" or "authors"; by default that of the newest.
        metrics: columns, as "hf_macro,ece" or ["hf_macro", "ece"]; with + before each they are added to the paper's.
        source: "runs", or "paper" for the table printed in Liang & Davis (ICCV 2023) and what others printed.

    Raises:
        UserError: a ValueError: no runs of the dataset, an unknown name, source, protocol or metric.
    """
    if str(source) == "both":
        raise UserError('source "both" is of the command, hierbench leaderboard --numbers both; give "runs" or "paper"')
    check_known("source", source, ("runs", "paper"))
    if protocol is not None:
        check_known("protocol", protocol, PROTOCOLS)
    columns = columns_of(metrics)
    found = open_board(str(dataset), Place(Path(runs), Path(data_dir), protocol), columns, source)
    return Board(found.board, str(dataset), found.store if source == "runs" else None, Path(data_dir))


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
