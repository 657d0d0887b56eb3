"""The ledger: our runs beside the published numbers, cell by cell, with the known differences that affect each."""

import tomllib
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from hierbench.config.sections import FeatureType
from hierbench.config.spec import Spec
from hierbench.config.validation import Closed
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.settings import NO_VALUE, find_recipe, published_value, recorded_value
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, Summary
from hierbench.leaderboard.table import Flag, Interval, Line, Number, Table, Text
from hierbench.leaderboard.tables.board_table import HEADINGS, MEAN, PRINTED_DIGITS, seeds

BASES = {"crm": "ce"}  # differences of a model affect its re-ranking too
LEDGER_COLUMNS = ("Model", "Method", "Metric", "Published", "Ours", "Gap", "Overlap", "Runs", "Differences")
DECIMAL_ROUNDING = 1e-9  # intervals that touch in decimals may be apart in binary


class KnownDifference(Closed):
    """One entry of differences.toml; an empty key means all."""

    row: int
    summary: str
    datasets: tuple[str, ...] = ()
    types: tuple[FeatureType, ...] = ()
    methods: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    protocols: tuple[Literal["paper", "authors", "none"], ...] = ()
    key: str = ""

    def touches(
        self, dataset: str, feature_type: str, method: str, metric: str, protocol: str, spec: Spec | None = None
    ) -> bool:
        """Whether it makes a published cell differ from ours; with a run's spec, the recorded setting decides."""
        names = {method, BASES.get(method, method)}
        conditions = ((dataset, self.datasets), (feature_type, self.types), (metric, self.metrics))
        is_other = any(accepted and name not in accepted for name, accepted in conditions)
        if is_other or (self.methods and names.isdisjoint(self.methods)):
            return False
        if self.key and spec is not None:
            value = recorded_value(spec, self.key)
            return value is not NO_VALUE and value != published_value(dataset, self.key)
        return not self.protocols or protocol in self.protocols


@dataclass(frozen=True)
class Entry:
    """One metric of one method: published, ours (either may be missing), and the row of ours it comes from."""

    type: str
    method: str
    title: str
    metric: str
    published: Summary | None
    ours: Summary | None
    row: Row | None
    differences: tuple[int, ...]

    @property
    def gap(self) -> float | None:
        """Our mean minus the published mean, None where one is missing."""
        if self.published is None or self.ours is None or self.published.mean is None or self.ours.mean is None:
            return None
        return self.ours.mean - self.published.mean

    @property
    def overlap(self) -> bool | None:
        """Whether the two intervals have a point in common, None where there are not two."""
        widths = [cell.ci95 for cell in (self.published, self.ours) if cell is not None and cell.ci95 is not None]
        return None if self.gap is None or len(widths) < 2 else abs(self.gap) <= sum(widths) + DECIMAL_ROUNDING


@dataclass
class Ledger:
    """All lines of one dataset, and the differences that affect them."""

    ours: Board
    published: Board
    lines: list[Entry]
    differences: list[KnownDifference]


def known_differences() -> list[KnownDifference]:
    """Return the entries of differences.toml, by row."""
    text = (resources.files("hierbench.leaderboard") / "differences.toml").read_text(encoding="utf-8")
    entries = map(KnownDifference.model_validate, tomllib.loads(text)["difference"])
    return sorted(entries, key=lambda difference: difference.row)


def build_ledger(ours: Board, published: Board) -> Ledger:
    """Return a line per metric of every row that either board has.

    Of several variants of a method, only those with the recipe's hyperparameters are compared with the published row.
    """
    table_entries = known_differences()
    recipe = find_recipe(ours.dataset, ours.protocol)
    printed = {(row.type, row.method): row for row in published.rows}
    variants = Counter((row.type, row.method) for row in ours.rows)
    rows: list[tuple[Row, Row | None, Row | None]] = [
        (row, row, None) for key, row in printed.items() if not variants[key]
    ]
    specs = {row.key: record.job for row in ours.rows for record in map(ours.records.get, row.runs[:1]) if record}
    for row in ours.rows:
        spec = specs.get(row.key)
        values = recipe.params_for(row.method) if recipe else {}
        as_published = spec is None or values.items() <= spec.method.params.items()
        key = (row.type, row.method)
        rows.append((row, printed.get(key) if as_published or variants[key] == 1 else None, row))
    lines = []
    for row, theirs, our_row in sorted(rows, key=lambda entry: (entry[0].type, entry[0].method)):
        for metric in PAPER_METRICS:
            cell, our_cell = (side.metrics.get(metric) if side else None for side in (theirs, our_row))
            if cell is None and our_cell is None:
                continue
            place = (ours.dataset, row.type, row.method, metric, ours.protocol)
            spec = None if our_row is None else specs.get(our_row.key)
            touching = tuple(entry.row for entry in table_entries if cell is not None and entry.touches(*place, spec))
            lines.append(Entry(row.type, row.method, row.title, metric, cell, our_cell, our_row, touching))
    occurring = {number for line in lines for number in line.differences}
    differences = [entry for entry in table_entries if entry.row in occurring]
    return Ledger(ours, published, lines, differences)


def ledger_table(ledger: Ledger) -> Table:
    """Return a line per metric, and the known differences below."""
    ours = ledger.ours
    distance = f"distance {ledger.ours.distance}"
    if ledger.published.distance != ours.distance:
        distance += f" (published: {ledger.published.distance})"
    notes = [
        f"{ours.dataset}, protocol {ours.protocol}, {distance}, beside the tables of Liang & Davis (ICCV 2023). {MEAN}",
        "Gap: ours minus published. Overlap: whether the two intervals meet.",
    ]
    if ours.remarks:
        notes.append(f"Settings: {ours.settings}.")
    notes.append("Known differences:" if ledger.differences else "No known difference affects these cells.")
    records = list(map(_record, ledger.lines))
    return Table(
        title=f"{ours.dataset}, beside the paper",
        columns=LEDGER_COLUMNS,
        rows=[Line(_cells(line)) for line in ledger.lines],
        notes=notes,
        items=[f"{entry.row}: {entry.summary}" for entry in ledger.differences],
        merged=2,
        records=[
            _record(line)
            | {"overlap": line.overlap if line.overlap is None else int(line.overlap), "differences": _numbers(line)}
            for line in ledger.lines
        ],
        content={"dataset": ours.dataset, "protocol": ours.protocol, "distance": ours.distance, "rows": records},
    )


def _cells(line: Entry) -> list[Text | Interval | Number | Flag]:
    def interval(cell: Summary | None, digits: int | None = None) -> Interval:
        return Interval(None, None) if cell is None else Interval(cell.mean, cell.ci95, ci_digits=digits)

    overlap = {None: Flag("-"), True: Flag("yes"), False: Flag("no")}[line.overlap]
    return [
        Text(line.type),
        Text(line.title),
        Text(HEADINGS[line.metric]),
        interval(line.published, PRINTED_DIGITS),
        interval(line.ours),
        Number(line.gap, "+z.2f"),
        overlap,
        Text("-" if line.row is None else seeds(line.row)),
        Text(_numbers(line) or "-"),
    ]


def _numbers(line: Entry) -> str:
    return ", ".join(map(str, line.differences))


def _record(line: Entry) -> dict[str, Any]:
    """Return a line as JSON types, at full precision; unknown values are None."""
    return {
        "type": line.type,
        "method": line.method,
        "title": line.title,
        "metric": line.metric,
        "published": line.published and line.published.mean,
        "published_ci95": line.published and line.published.ci95,
        "ours": line.ours and line.ours.mean,
        "ours_ci95": line.ours and line.ours.ci95,
        "gap": line.gap,
        "overlap": line.overlap,
        "n": line.row and line.row.n,
        "planned": line.row and line.row.planned,
        "differences": list(line.differences),
    }
