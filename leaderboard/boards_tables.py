"""The difference of two boards in every format; its markdown is what is posted below a proposed update."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from hierbench.leaderboard.boards import BoardDifference
from hierbench.leaderboard.letters import listed
from hierbench.leaderboard.paired import Difference
from hierbench.leaderboard.paired_tables import EFFECT, cell_of, correction, how_paired, seeds_of
from hierbench.leaderboard.render import csv_text, number, shown_columns
from hierbench.leaderboard.sheet import Sheet
from hierbench.leaderboard.statistics import Row
from hierbench.utils.files import as_json_text
from hierbench.utils.text import one_line

NUMBERS = ("ci95", "effect", "n", "test", "p", "p_holm", "significant")
COLUMNS = ("type", "method", "title", "change", "metric", "old", "new", "difference", *NUMBERS)


def sheet(found: BoardDifference) -> Sheet:
    """Return a table of the rows whose results changed, and below it how, the worse first."""
    new = found.new
    moved = [row for row in found.changed if row.differences or row.row.runs != row.old.runs]
    columns = shown_columns(new)

    def means(row: Row) -> list[str]:
        return [number(row.metrics.get(column.name), digits=column.digits) for column in columns]

    lines = [[row.type, row.title, "added", *means(row), _seeds(row)] for row in found.added]
    lines += [[row.type, row.title, "removed", *means(row), _seeds(row)] for row in found.removed]
    for changed in moved:
        cells = [cell_of(changed.differences.get(column.name), column) for column in columns]
        lines.append([changed.row.type, changed.row.title, "new - old", *cells, seeds_of(changed.differences)])
    head = f"{new.dataset}, protocol {new.protocol}: "
    if found.same:
        runs = sum(row.n for row in new.rows)
        text = f"{head}no difference in {_count(len(new.rows), 'row')} of {_count(runs, 'run')}."
        return Sheet(f"{new.dataset}, no difference", [], [], [text])
    notes = []
    if moved:
        gaps = [row.differences for row in moved]
        notes.append(f"new - old: difference, +/- half-width of its 95% t-interval. {EFFECT}")
        notes.append(f"Bold: p below 0.05 after {correction(gaps)}. {how_paired(gaps)}")
    return Sheet(
        title=f"{new.dataset}, old and new",
        headings=["Model", "Method", "Change", *(column.heading for column in columns), "Seeds"],
        lines=lines,
        notes=notes,
        items=[
            *(f"Worse: {_name(worse.row)}: {'; '.join(worse.reasons)}" for worse in found.worse),
            *(
                f"Seeds: {_name(changed.row)}: {_seeds(changed.old)} -> {_seeds(changed.row)}"
                for changed in moved
                if changed.row.seeds != changed.old.seeds
            ),
            *_specs(found),
        ],
        above=[head + ", ".join(_parts(found)) + "."],
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


def records(found: BoardDifference) -> list[dict[str, Any]]:
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


def as_csv(found: BoardDifference) -> str:
    """Return a line per row and metric, numbers at full precision; only the header for equal boards."""
    lines = records(found)
    return csv_text(lines) if lines else ",".join(COLUMNS) + "\n"


def as_json(found: BoardDifference) -> str:
    """Return all of the difference."""

    def name(row: Row) -> dict[str, Any]:
        return {"type": row.type, "method": one_line(row.method), "title": one_line(row.title), "seeds": row.seeds}

    return as_json_text(
        {
            "schema": 1,
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
    )


FORMATS: dict[str, Callable[[BoardDifference], str]] = {
    "markdown": lambda found: sheet(found).markdown(),
    "latex": lambda found: sheet(found).latex(),
    "csv": as_csv,
    "json": as_json,
    "html": lambda found: sheet(found).html(),
}
