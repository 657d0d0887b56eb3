"""The content of a leaderboard: rows of one dataset and one protocol, in the order of a table, and their tests.

Tables, comparisons and statistics are functions of it; `hierbench.leaderboard.board` makes it and has them as methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from hierbench.config.sections import PAPER_METHODS
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column
from hierbench.leaderboard.paired import Difference, baseline_tests
from hierbench.leaderboard.protocol import read_protocol
from hierbench.leaderboard.scored_rows import is_scored_row
from hierbench.leaderboard.statistics import CitedRow, Row, RowKey
from hierbench.runs.records import Records
from hierbench.utils.errors import UserError

PUBLISHED = "published"  # in place of a protocol: printed tables
SCORED = "scored"  # likewise: only scored rows


@dataclass(frozen=True, repr=False)
class BoardData:
    """Rows that may be ranked together; never changed.

    Attributes:
        dataset, protocol, distance: of all rows.
        rows: ranked and marked; type I before type II, the paper's methods before others, by name; scored rows last.
        remarks: about data and settings; printed below the table, not part of the JSON contract.
        columns: of tables; JSON has all cells that the rows have, and names the columns unless they are the paper's.
        evidence: how many runs have which verdict, where they were verified; printed below the table.
        seeds: that a row needs to be ranked; () where rows have no runs.
        records: of the runs behind the rows, and of all others beside them; empty for a printed table.
        cited: lines that other authors printed, below the rows of a printed table.
        file: of a user's dataset, "" for a name; with it and `data_dir`, prepared data, pictures find the tree.
        examples: {row: {metric: values [S, N] by seed and image}} where they were read.
        intervals: what the half-widths are over, "seeds", or seeds and "images".
        family: the rows that are tested together, of which the table shows some; by default those of the table.
    """

    dataset: str
    protocol: str
    distance: str
    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = ()
    columns: tuple[Column, ...] = PAPER_COLUMNS
    evidence: str = ""
    seeds: tuple[int, ...] = ()
    records: Records = field(default=Records(Path()), compare=False)
    cited: tuple[CitedRow, ...] = ()
    file: str = field(default="", compare=False)
    data_dir: Path = field(default=Path("data"), compare=False)
    examples: Mapping[RowKey, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    intervals: Literal["seeds", "images"] = "seeds"
    family: tuple[Row, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Put the rows into the order of a table."""
        object.__setattr__(self, "rows", tuple(sorted(self.rows, key=lambda row: (row.scored, *_place(row)))))
        object.__setattr__(self, "cited", tuple(sorted(self.cited, key=_place)))

    @property
    def settings(self) -> str:
        """The remarks in a line."""
        return "; ".join(self.remarks)

    @property
    def of_runs(self) -> Self:
        """The board without the rows that were scored or cited, which were not trained here."""
        return replace(self, rows=tuple(row for row in self.rows if not row.scored), cited=())

    def refuse_scored(self, names: Sequence[str]) -> None:
        """Raise a UserError for a name that is not a row of runs, or names a scored row."""
        methods = {row.method for row in self.rows if not row.scored}
        for name in names:
            if name.partition(":")[0] not in methods and is_scored_row(name, self.records, self.dataset):
                raise UserError(f"{name!r} is a scored row; only rows of runs are compared")

    @property
    def printed_rows(self) -> tuple[Row | CitedRow, ...]:
        """The lines of a table: the rows, then the lines of other authors."""
        return (*self.rows, *self.cited)

    @cached_property
    def tests(self) -> dict[tuple[RowKey, str], Difference]:
        """The tests of the table, see `baseline_tests`: over seeds and images in a table of the protocol's."""
        names = [column.name for column in self.shown]
        return baseline_tests(self.family or self.rows, names, self.seeds, self.examples if self.tests_images else None)

    @property
    def tests_images(self) -> bool:
        """Whether its tests are over images, too."""
        return bool(self.examples) and bool(read_protocol().network_of(self.dataset))

    @property
    def shown(self) -> list[Column]:
        """The columns with a cell in at least one row.

        Rows without a finished run have an empty cell of every metric, also of HierDist@20 on a tree of fewer classes:
        they count only where there are no others.
        """
        rows = [row for row in self.printed_rows if row.n or isinstance(row, CitedRow)] or self.rows
        return [column for column in self.columns if any(column.name in row.metrics for row in rows)]


def _place(row: Row | CitedRow) -> tuple[str, bool, str]:
    return row.type, row.method not in PAPER_METHODS, row.method
