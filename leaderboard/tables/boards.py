"""The difference of two boards; its markdown is what is posted below a proposed update."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from hierbench.leaderboard.boards import BoardDifference
from hierbench.leaderboard.letters import listed
from hierbench.leaderboard.paired import Difference
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Line, Table, Text
from hierbench.leaderboard.tables.board import cell_of
from hierbench.leaderboard.tables.differences import EFFECT, correction, gap_of, how_paired, seeds_of
from hierbench.utils.text import one_line

NUMBERS = ("ci95", "effect", "n", "test", "p", "p_holm", "significant")


def boards_table(found: BoardDifference) -> Table:
    """Return the rows whose results changed, and below them how, the worse first."""
    new = found.new
    moved = [row for row in found.changed if row.differences or row.row.runs != row.old.runs]
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
                *(replace(cell_of(row, column), letters="", strong=False) for column in columns),
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
            *(f"Worse: {_name(worse.row)}: {'; '.join(worse.reasons)}" for worse in found.worse),
            *(
                f"Seeds: {_name(changed.row)}: {_seeds(changed.old)} -> {_seeds(changed.row)}"
                for changed in moved
                if changed.row.seeds != changed.old.seeds
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
        for change in changed.specs:
            rows_of.setdefault(str(change), []).append(_name(changed.row))
    for text, rows in rows_of.items():
        every = len(rows) == len(found.new.rows) - len(found.added) and len(rows) > 1
        yield f"{text} ({'all rows' if every else ', '.join(rows)})"


def _records(found: BoardDifference) -> list[dict[str, Any]]:
    """Return a record per metric of each row that came, went or has other results."""
    lines = [line for row in found.added for line in _lines("added", None, row, {})]
    lines += [line for row in found.removed for line in _lines("removed", row, None, {})]
    for changed in found.changed:
        lines += _lines("changed", changed.old, changed.row, changed.differences)
    return lines


def _lines(change: str, old: Row | None, new: Row | None, gaps: dict[str, Difference]) -> Iterable[dict[str, Any]]:
    row = new or old
    assert row is not None
    for metric in row.metrics:
        gap = gaps.get(metric)
        numbers = asdict(gap) | {"significant": gap.significant} if gap else {}
        yield {
            "type": row.type,
            "method": one_line(row.method),
            "title": one_line(row.title),
            "change": change,
            "metric": metric,
            "old": _mean(old, metric),
            "new": _mean(new, metric),
            "difference": numbers.get("mean"),
            **{name: numbers.get(name) for name in NUMBERS},
        }


def _mean(row: Row | None, metric: str) -> float | None:
    return row.metrics[metric].mean if row is not None and metric in row.metrics else None


def _content(found: BoardDifference) -> dict[str, Any]:
    """Return all of the difference."""

    def name(row: Row) -> dict[str, Any]:
        return {"type": row.type, "method": one_line(row.method), "title": one_line(row.title), "seeds": row.seeds}

    return {
        "dataset": found.new.dataset,
        "protocol": found.new.protocol,
        "added": [name(row) for row in found.added],
        "removed": [name(row) for row in found.removed],
        "changed": [
            name(changed.row)
            | {
                "old seeds": changed.old.seeds,
                "metrics": {
                    metric: asdict(gap) | {"significant": gap.significant}
                    for metric, gap in changed.differences.items()
                },
                "specs": [asdict(change) for change in changed.specs],
            }
            for changed in found.changed
        ],
        "worse": [name(worse.row) | {"reasons": list(worse.reasons)} for worse in found.worse],
    }
