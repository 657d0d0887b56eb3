"""A leaderboard: rows of one dataset and one protocol, made from run records or from the published tables.

Commands, Python programs and notebooks have the same object; its statistics are computed once, when first asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from hierbench.config.recipe import dataset_name, recipe_names
from hierbench.config.sections import Protocol
from hierbench.leaderboard.board_data import PUBLISHED, SCORED, BoardData
from hierbench.leaderboard.differences import Differences, compare_rows
from hierbench.leaderboard.formats import Format, html, render
from hierbench.leaderboard.paired import named_rows
from hierbench.leaderboard.paper_tables import PAPER_RUNS, other_rows, paper_datasets, paper_distance, paper_lines
from hierbench.leaderboard.ranking import rank
from hierbench.leaderboard.request_choice import (
    OTHER_SETTINGS,
    choose,
    comparable,
    newest_finished,
    no_runs,
    tested_runs,
)
from hierbench.leaderboard.rows import count_states, make_rows
from hierbench.leaderboard.scored_rows import scored_rows
from hierbench.leaderboard.settings import find_recipe, remarks_on
from hierbench.leaderboard.statistics import Row
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.utils.console import say
from hierbench.utils.errors import UserError, unknown_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from hierbench.leaderboard.table import Table


@dataclass(frozen=True, repr=False)
class Board(BoardData):
    """Rows that may be ranked together, in the order of a table; made by `of` or `paper`, and never changed.

    A notebook shows it as a table, `print` as markdown; iterating gives its rows. `board["haframe", "type-II"]` is a
    row, `board["crm"]` the only one of a method: it has `metrics`, {name: cell} with `mean`, `ci95` (half-width of the
    95% interval) and `values` by seed, and the `seeds` and `runs` behind them.
    """

    @classmethod
    def paper(cls, dataset: str, *, others: bool = False) -> Board:
        """Return the published table of a dataset (Liang & Davis, ICCV 2023, Tables 2 to 5): five runs a row.

        With `others`, the numbers of other authors are below it: cited, never ranked nor counted as runs.
        """
        if dataset not in paper_datasets():
            raise unknown_name("table of the paper for dataset", dataset, paper_datasets())
        rows = [
            Row(line["type"], line["method"], line["title"], PAPER_RUNS, PAPER_RUNS, cells)
            for line, cells in paper_lines(dataset)
        ]
        ranked, _ = rank(rows)
        cited = tuple(other_rows(dataset)) if others else ()
        return cls(dataset, PUBLISHED, paper_distance(dataset), ranked, cited=cited)

    @classmethod
    def of(
        cls,
        dataset: str,
        records: Records,
        ids: Sequence[str] | None = None,
        protocol: Protocol | None = None,
        *,
        scored: bool = True,
        request: str | None = None,
    ) -> Board:
        """Return the table of runs, and below them the predictions made elsewhere that were scored here.

        Scored rows are marked in title and type, and not highlighted beside runs. Runs that are rejected or damaged
        count as planned and not as finished, and each row has the weakest state of its runs.

        Args:
            dataset: its name, or the file of a user's dataset.
            records: the runs.
            ids: only these runs, and no scored rows; by default all that have the settings of the last comparison.
            protocol: only runs under it; None takes that of the last comparison.
            scored: whether with the scored rows.
            request: the beginning of a comparison's id, to use its settings in place of the last one's.

        Raises:
            NoRunsError: no runs of the dataset under the protocol, or no such dataset.
            UserError: `ids` of more than one protocol, re-ranked runs without their bases, or no such request.
        """
        name = dataset_name(dataset)
        tested = tested_runs(name, records, ids)
        protocols = sorted({record.job.protocol for record in tested})
        if ids is not None and len(protocols) > 1:
            raise UserError(f"runs of {name} under two protocols ({', '.join(protocols)}) are never ranked together")
        same_protocol = [record for record in tested if protocol in (None, record.job.protocol)]
        if not same_protocol:
            alone = scored and ids is None and protocol is None and request is None
            rows, data, remarks = scored_rows(name, records, None) if alone else ([], None, [])
            if not rows or data is None:
                raise no_runs(dataset, records, protocol)
            ranked, _ = rank(rows)
            remarks += _remark_on_few_seeds(rows)
            evidence = count_states(rows, records)
            file = dataset if dataset != name else ""
            return cls(
                name, SCORED, data.distance, ranked, tuple(remarks), evidence=evidence, records=records, file=file
            )
        board = cls._of_runs(dataset, records, ids, same_protocol, protocols, request)
        if ids is not None or not scored:
            return board
        more, _, remarks = scored_rows(name, records, records[board.rows[0].runs[0]].job)
        rows = [*board.rows, *more]
        remarks = [*board.remarks, *remarks]
        return replace(board, rows=tuple(rows), remarks=tuple(remarks), evidence=count_states(rows, records))

    @classmethod
    def _of_runs(
        cls,
        dataset: str,
        records: Records,
        ids: Sequence[str] | None,
        candidates: list[Record],
        protocols: Sequence[str],
        request: str | None,
    ) -> Board:
        name = dataset_name(dataset)
        if ids is None:
            candidates, last, left_out_note = choose(candidates, records.requests, request)
        else:
            last = newest_finished(candidates)
            left_out_note = ""
            candidates = comparable(candidates, last, with_bases=False)
        newest = last.job
        if not candidates:
            raise UserError(
                f"the re-ranked runs of {name} in {records.root} have lost their bases; run the command again"
            )
        recipe = find_recipe(dataset, newest.protocol)
        rows = make_rows(candidates, records, recipe)
        if ids is None:  # a base that is no method of its own is no row of its own
            rows = [row for row in rows if not row.method.startswith("_")] or rows
        planned = planned_seeds(name, newest.protocol) if ids is None else None  # a command has its own number
        ranked, seeds = rank(rows, planned)
        remarks = remarks_on(dataset, newest, candidates, recipe, records)
        remarks += sorted({record.remark for record in candidates if record.done} - {""})
        other = next((name for name in protocols if name != newest.protocol), None)
        if ids is None and other is not None:
            remarks.append(f"there are runs under protocol {other}, in a table of their own: --protocol {other}")
        remarks += [left_out_note] if left_out_note else []
        if planned is not None and len(seeds) < planned:
            remarks.append(f"the recipe plans {planned} seeds")
        remarks += _remark_on_few_seeds(rows)
        return cls(
            name,
            newest.protocol,
            newest.dataset.distance,
            ranked,
            tuple(remarks),
            evidence=count_states(rows, records),
            seeds=seeds,
            records=records,
            file=dataset if dataset != name else "",
        )

    def __repr__(self) -> str:
        """Return the dataset, the protocol and the numbers of rows and runs."""
        runs, planned = (sum(getattr(row, name) for row in self.rows) for name in ("n", "planned"))
        return f"<Board {self.dataset}, protocol {self.protocol}: {len(self.rows)} rows, {runs} of {planned} runs>"

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str | tuple[str, str]) -> Row:
        """Return the row of a method, or of a method and a type; a UserError unless there is exactly one."""
        parts = name if isinstance(name, tuple) else (name,)
        if len(parts) > 2 or not all(isinstance(part, str) for part in parts):
            raise UserError(f"a row is board[METHOD] or board[METHOD, TYPE], not board[{name!r}]; see also board.rows")
        shown = ":".join(parts)
        rows = named_rows(self.rows, shown)
        if len(rows) > 1:
            names = ", ".join(f"{row.title} {row.type}" for row in rows)
            raise UserError(f"{shown} has {len(rows)} rows: {names}; name the type, or choose from board.rows")
        return rows[0]

    def __str__(self) -> str:
        """Return the table as markdown."""
        return self.render()

    def _repr_html_(self) -> str:
        return html.notebook(self.table)

    @cached_property
    def table(self) -> Table:
        """The table that every format shows."""
        from hierbench.leaderboard.tables.board_table import board_table

        return board_table(self)

    def render(self, format: Format = "markdown") -> str:
        """Return the table as a text: "markdown", "latex", "csv", "json" or "html"."""
        return render(self.table, format)

    def frame(self, by: Literal["row", "seed"] = "row") -> pd.DataFrame:
        """Return the numbers for pandas.

        Args:
            by: "row", a line per row of the table: type, method, title, finished and planned runs, and of each metric
                the mean, the half-width of its interval ("top1 ci95") and whether it is best (1 or 0); or "seed", a
                line per finished run and metric: type, method, title, metric, seed, value; not for printed numbers.
        """
        import pandas as pd

        from hierbench.leaderboard.tables.board_table import SEED_KEYS, row_records, seed_records

        if by not in ("row", "seed"):
            raise unknown_name("frame", by, ("row", "seed"))
        lines, columns = (row_records(self), None) if by == "row" else (seed_records(self), SEED_KEYS)
        return pd.DataFrame(lines, columns=columns).replace({None: math.nan}).infer_objects()

    def compare(self, reference: str, *rows: str) -> Differences:
        """Return the differences of rows from a reference in every column, paired by seed; as `hierbench compare`.

        Args:
            reference: METHOD:TYPE, or METHOD, whose row of the same type each row is compared with.
            rows: METHOD or METHOD:TYPE; by default all other rows of the table.

        Raises:
            UserError: no such row, or nothing to compare; or the numbers are published ones, without runs.
        """
        if not self.records:
            raise UserError("published numbers have no seeds to compare; a board of runs has")
        return Differences(self, compare_rows(self, reference, rows))

    def plot(self, kind: str) -> Figure:
        """Draw a picture of the rows; remarks on rows that are not in it go to standard error.

        Args:
            kind: "tradeoff", accuracy against mistake severity; "severity", mistakes at each distance; "curves", loss
                and validation metrics over the epochs; or "answers", what decision rules gain, once `answers` kept it.

        Returns:
            A figure, which a notebook shows; `figure.savefig("tradeoff.svg")` saves it.
        """
        from hierbench.leaderboard.pictures.figure_data import draw

        if not self.records and kind != "tradeoff":
            raise UserError(f"published numbers have no runs to draw {kind} from; they have tradeoff")
        if not self.of_runs.rows:
            raise UserError(f"the board of {self.dataset} has only predictions made elsewhere, which have no picture")
        drawing = draw(kind, self)
        for remark in drawing.remarks:
            say(f"note: {remark}")
        return drawing.figure


def planned_seeds(dataset: str, protocol: str) -> int | None:
    """Return how many seeds a shipped recipe plans, which a row needs to be ranked.

    None for a user's dataset, whose recipe may be missing where the table is verified: there it is the number that most
    rows have planned.
    """
    recipe = find_recipe(dataset, protocol) if dataset in recipe_names() else None
    return None if recipe is None else recipe.seeds


def _remark_on_few_seeds(rows: Sequence[Row]) -> list[str]:
    """Return the remark on a table with at most two seeds, else []."""
    two = "two seeds say little: a 95% interval of two values is 12.7 standard errors to each side"
    remark = {1: "no intervals (one seed)", 2: two}.get(max((row.n for row in rows), default=0))
    return [remark] if remark else []


def mentions_other_runs(remark: str) -> bool:
    """Return whether a part of a table's remark says that there are runs which it does not have."""
    return OTHER_SETTINGS in remark
