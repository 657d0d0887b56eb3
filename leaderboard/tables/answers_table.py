"""Tables of answers: a line per method and rule, and what follows from all scores: calibration and sets."""

from collections.abc import Mapping, Sequence
from typing import Any

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.statistics import Row, summarise
from hierbench.leaderboard.table import Cell, Interval, Line, Table, Text
from hierbench.leaderboard.tables.board_table import explain_arrows, lacking, make_arrows, make_cell, named, seeds

NOTE = (
    "Mean +/- half-width of the 95% t-interval over runs. Answers are nodes; probabilities have the temperature that "
    "half of the validation images give, unless a rule is uncalibrated. A rule with a share in brackets reaches this "
    "share of correct answers on validation."
)


def answers_table(boards: Mapping[str, Board], areas: Mapping[tuple[str, Any], Sequence[float]]) -> Table:
    """Return a line per rule and row.

    Args:
        boards: {title of a rule: the table of its answers}.
        areas: {(title of a rule, key of a row): area under correct answers over coverage, one per run}.
    """
    first = next(iter(boards.values()))
    with_areas = bool(areas)
    lines = []
    records = []
    for rule, board in boards.items():
        arrows = make_arrows(board)
        for row in board.rows:
            cells: list[Cell] = [Text(rule), Text(row.type), Text(row.title, small=lacking(row))]
            cells += [make_cell(row, column, arrows.get((row.key, column.name), "")) for column in board.columns]
            area = summarise(areas.get((rule, row.key), ()))
            if with_areas:
                cells.append(Interval(area.mean, area.ci95, 4))
            lines.append(Line([*cells, Text(seeds(row))]))
            records.append({"rule": rule, **named(row), "n": row.n, **_values(row, board), "area": area.mean})
    return Table(
        title=f"{first.dataset}, answers",
        columns=[
            *("Rule", "Model", "Method"),
            *(column.heading for column in first.columns),
            *(["Area ↑"] if with_areas else []),
            "Runs",
        ],
        rows=lines,
        notes=[f"{first.dataset}, protocol {first.protocol}, distance {first.distance}. {NOTE}"],
        bold="best of the competitive rows under this rule",
        arrows=explain_arrows(len(first.tests)).replace("comparisons", "comparisons per rule"),
        merged=2,
        records=records,
        content={"dataset": first.dataset, "protocol": first.protocol, "rows": records},
    )


def _values(row: Row, board: Board) -> dict[str, Any]:
    return {
        key: value
        for column in board.columns
        for key, value in (
            (column.name, row.metrics[column.name].mean),
            (f"{column.name} ci95", row.metrics[column.name].ci95),
        )
    }


def runs_table(
    board: Board,
    title: str,
    columns: Mapping[str, int],
    rows: Sequence[tuple[Row, str, Sequence[Mapping[str, float]]]],
    note: str,
) -> Table:
    """Return a table of numbers that each run has.

    Args:
        board: of the rows.
        title: of the table.
        columns: {heading: digits}.
        rows: (row, name of the line within it, {heading: value} per run).
        note: below the table.
    """
    lines = []
    records = []
    for row, name, values in rows:
        cells = [summarise([value[heading] for value in values]) for heading in columns]
        named_cells: list[Cell] = [Text(row.type), Text(row.title), *([Text(name)] if name else [])]
        numbers = [Interval(cell.mean, cell.ci95, digits) for cell, digits in zip(cells, columns.values(), strict=True)]
        lines.append(Line([*named_cells, *numbers, Text(seeds(row))]))
        means = {heading: cell.mean for heading, cell in zip(columns, cells, strict=True)}
        records.append({**named(row), **({"of": name} if name else {}), **means})
    has_names = any(name for _, name, _ in rows)
    return Table(
        title=f"{board.dataset}, {title}",
        columns=["Model", "Method", *(["Of"] if has_names else []), *columns, "Runs"],
        rows=lines,
        notes=[f"{board.dataset}, protocol {board.protocol}. {note}"],
        merged=1,
        records=records,
    )
