"""The difference of two boards; its markdown is what is posted below a proposed update."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from hierbench.leaderboard.boards import BoardDifference
from hierbench.leaderboard.letters import listed
from hierbench.leaderboard.paired import Difference
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Line, Table, Text
from hierbench.leaderboard.tables.board import cell_of, named
from hierbench.leaderboard.tables.differences import EFFECT, as_numbers, correction, gap_of, how_paired, seeds_of

NUMBERS = ("ci95", "effect", "n", "test", "p", "p_holm", "significant")


def boards_table(found: BoardDifference) -> Table:
    """Return the rows whose results changed, and below them how, the worse first."""
    new = found.new
    moved = [row for row in found.changed if row.differences or row.row.runs != row.reference.runs]
    columns, gaps = new.shown, [row.differences for row in moved]
    head = f"{new.dataset}, protocol {new.protocol}: "
    if found.same:
        runs = sum(row.n for row in new.rows)
        above = f"{head}no difference in {_count(len(new.rows), 'row')} of {_count(runs, 'run')}."
    else:
        above = head + ", ".join(_parts(found)) + "."
    rows = [
        Line(
            [
                Text(row.type),
                Text(row.title),
                Text(what),
                *(replace(cell_of(row, column), strong=False) for column in columns),
                Text(_seeds(row)),
            ]
        )
        for what, of in (("added", found.added), ("removed", found.removed))
        for row in of
    ]
    for changed in moved:
        cells = [gap_of(changed.differences.get(column.name), column) for column in columns]
        names = [Text(changed.row.type), Text(changed.row.title), Text("new - old")]
        rows.append(Line([*names, *cells, Text(seeds_of(changed.differences))]))
    return Table(
        title=f"{new.dataset}, {'no difference' if found.same else 'old and new'}",
        columns=["Model", "Method", "Change", *(column.heading for column in columns), "Seeds"],
        rows=rows,
        above=[above],
        notes=[f"new - old: difference, +/- half-width of its 95% t-interval. {EFFECT}", how_paired(gaps)]
        if moved
        else [],
        items=[
            *(f"Worse: {_name(row)}: {'; '.join(reasons)}" for row, reasons in found.worse),
            *(
                f"Seeds: {_name(pair.row)}: {_seeds(pair.reference)} -> {_seeds(pair.row)}"
                for pair in moved
                if pair.row.seeds != pair.reference.seeds
            ),
            *_specs(found),
        ],
        merged=1,
        bold=f"p below 0.05 after {correction(gaps)}" if moved else "",
        records=_records(found),
        keys=("type", "method", "title", "change", "metric", "old", "new", "difference", *NUMBERS),
        content=_content(found),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _parts(found: BoardDifference) -> Iterable[str]:
    """Yield how many rows came, went, changed, stayed and got worse."""
    same = len(found.new.rows) - len(found.added) - len(found.changed)
    counts = {"added": found.added, "removed": found.removed, "changed": found.changed, "worse": found.worse}
    for name, rows in counts.items():
        if rows:
            yield f"{_count(len(rows), 'row')} {name}"
    if same:
        yield f"{same} unchanged"


def _seeds(row: Row) -> str:
    return listed(row.seeds) or "-"


def _name(row: Row) -> str:
    return f"{row.title} {row.type}"


def _specs(found: BoardDifference) -> Iterable[str]:
    """Yield each change of specs and environments with the rows that it is of."""
    rows_of: dict[str, list[str]] = {}
    for changed in found.changed:
        for change in changed.changes:
            rows_of.setdefault(str(change), []).append(_name(changed.row))
    for text, rows in rows_of.items():
        every = len(rows) == len(found.new.rows) - len(found.added) and len(rows) > 1
        yield f"{text} ({'all rows' if every else ', '.join(rows)})"


def _records(found: BoardDifference) -> list[dict[str, Any]]:
    """Return a record per metric of each row that came, went or has other results."""
    sides: list[tuple[str, Row, Row | None, Row | None, dict[str, Difference]]] = [
        *(("added", row, None, row, {}) for row in found.added),
        *(("removed", row, row, None, {}) for row in found.removed),
        *(("changed", pair.row, pair.reference, pair.row, pair.differences) for pair in found.changed),
    ]
    return [
        {
            **named(row),
            "change": change,
            "metric": metric,
            "old": _mean(old, metric),
            "new": _mean(new, metric),
            "difference": numbers.get("mean"),
            **{name: numbers.get(name) for name in NUMBERS},
        }
        for change, row, old, new, gaps in sides
        for metric in row.metrics
        for numbers in [as_numbers(gaps[metric]) if metric in gaps else {}]
    ]


def _mean(row: Row | None, metric: str) -> float | None:
    return row.metrics[metric].mean if row is not None and metric in row.metrics else None


def _content(found: BoardDifference) -> dict[str, Any]:
    """Return all of the difference."""

    def name(row: Row) -> dict[str, Any]:
        return {**named(row), "seeds": row.seeds}

    return {
        "dataset": found.new.dataset,
        "protocol": found.new.protocol,
        "added": [name(row) for row in found.added],
        "removed": [name(row) for row in found.removed],
        "changed": [
            name(pair.row)
            | {
                "old seeds": pair.reference.seeds,
                "metrics": {metric: as_numbers(gap) for metric, gap in pair.differences.items()},
                "specs": [asdict(change) for change in pair.changes],
            }
            for pair in found.changed
        ],
        "worse": [name(row) | {"reasons": list(reasons)} for row, reasons in found.worse],
    }
