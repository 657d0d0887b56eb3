"""A board as a table, and what tables of boards print alike."""

from collections.abc import Sequence
from typing import Any

from hierbench.leaderboard.arrows import Arrows, Versus, arrows_of
from hierbench.leaderboard.board import PUBLISHED, Board
from hierbench.leaderboard.columns import PAPER, PAPER_BY_NAME, Column
from hierbench.leaderboard.statistics import Cell as Value
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Cell, Interval, Line, Table, Text
from hierbench.utils.text import listed, one_line

HEADINGS = {column.name: column.heading for column in PAPER}
PRINTED_DIGITS = 4  # of the half-widths in the paper's tables
STAR = "competitive: mistake severity at most 0.05 above the smallest"
BOLD = "best of the competitive"
UNDERLINE = "best of all, where that is another"
MEAN = "Mean +/- half-width of the 95% t-interval over runs."
CITED = (
    "Rows with a number in brackets were printed by other authors, who trained in other settings. They are neither "
    "ranked nor counted as runs; in place of a number of runs it is said what each is the mean of."
)


def board_table(board: Board) -> Table:
    """Return a leaderboard: a line per row, with how many runs are behind it."""
    columns, tuned, sources = board.shown, any(row.tuning for row in board.rows), cited_sources(board)
    arrows = arrows_of(board)
    lines = []
    for row in board.rows:
        title = f"{row.title} [{sources[row.citation['source']]}]" if row.citation else row.title
        budget = f"{row.tuning['trials']} x {row.tuning['runs']}" if row.tuning else "-"
        cells: list[Cell] = [
            Text(row.type),
            Text(title, small=lacking(row), star=row.competitive),
            *(
                cell_of(row, column, arrows.of.get((id(row), column.name), ""), printed=board.protocol == PUBLISHED)
                for column in columns
            ),
            Text(seeds(row)),
            *([Text(budget)] if tuned else []),
        ]
        lines.append(Line(cells, "printed" if row.citation else "lacking" if row.lacking else ""))
    notes = [f"{board.dataset}, protocol {board.protocol}, distance {board.distance}. {MEAN}", *notes_of(board)]
    cited = [
        f"[{sources[name]}] {name}; {about['where']}. {about['setting']}."
        for name in sources
        if (about := next(row.citation for row in board.rows if row.citation and row.citation["source"] == name))
    ]
    return Table(
        title=f"{board.dataset}, protocol {board.protocol}",
        columns=["Model", "Method", *(column.heading for column in columns), "Runs", *(["Tuning"] if tuned else [])],
        rows=lines,
        notes=[*notes, CITED] if cited else notes,
        items=cited,
        star=STAR,
        bold=BOLD,
        underline=UNDERLINE
        * any(cell.underlined for line in lines for cell in line.cells if isinstance(cell, Interval)),
        arrows=meaning_of(arrows),
        merged=1,
        floats=True,
        records=records(board, arrows),
        content=board.as_json(),
    )


def notes_of(board: Board) -> list[str]:
    """Return the sentences on tuning, units, settings and evidence that a board's table needs."""
    found = []
    budgets = {row.tuning and (row.tuning["trials"], row.tuning["runs"]) for row in board.rows if row.runs}
    if budgets - {None}:
        differ = "; rows differ in it, and - is none" if len(budgets) > 1 else ""
        found.append(f"Tuning: configurations tried on validation data x runs of each{differ}.")
    ends = [
        f"{row.title} {row.type} {one_line(end)}"
        for row in board.rows
        if row.tuning and not board.records[row.runs[0]].bases
        for end in row.tuning.get("ends", ())
    ]
    if ends:
        found.append(f"Tuned to an end of the range that was searched: {'; '.join(ends)}.")
    if units := units_of(board):
        found.append(units)
    if board.remark:
        found.append(f"Settings: {board.remark}.")
    if board.evidence:
        found.append(f"Evidence: {board.evidence}.")
    return found


def cell_of(row: Row, column: Column, versus: Versus = "", *, printed: bool = False) -> Interval:
    """Return a row's cell in a column; `printed` for the paper's, whose half-widths have four digits."""
    cell = row.metrics.get(column.name, Value(None, None))
    return Interval(
        cell.mean,
        cell.ci95,
        column.digits,
        PRINTED_DIGITS if printed or row.citation else None,
        strong=cell.best,
        underlined=cell.leads and not cell.best,
        versus=versus,
        bounds=cell.interval,
    )


def cited_sources(board: Board) -> dict[str, int]:
    """Return the number in brackets of each source that the board's rows cite, from 1 in the order of the table."""
    sources = dict.fromkeys(row.citation["source"] for row in board.rows if row.citation)
    return {source: number for number, source in enumerate(sources, 1)}


def seeds(row: Row) -> str:
    """Return how many runs are finished, "n of planned" while some are not; for a cited row what its numbers are of."""
    if row.citation is not None:
        return row.citation["sample"]
    number = f"{row.n} of {row.planned}" if row.n < row.planned else str(row.n)
    return f"{number}, {row.state.mark}" if row.state and row.state.mark else number


def lacking(row: Row) -> str:
    """Return which seeds of the table a row lacks, "" for a row that has all."""
    if not row.lacking:
        return ""
    return f"lacks seed{'s' if len(row.lacking) > 1 else ''} {listed(row.lacking)}; not ranked"


def named(row: Row) -> dict[str, str]:
    """Return the type, the method and the title of a row."""
    return {"type": row.type, "method": one_line(row.method), "title": one_line(row.title)}


def records(board: Board, arrows: Arrows) -> list[dict[str, Any]]:
    """Return the lines of a board's CSV.

    A table of runs has the seeds that a row lacks, separated by blanks, and whether a value is better or worse than
    cross-entropy of its type; one of verified runs a column verdict; one with rows of other
    authors the columns sample and source.
    """
    metrics, cited = [column.name for column in board.shown], bool(cited_sources(board))
    verified = any(row.state for row in board.rows)
    return [
        {
            **named(row),
            "n": row.n,
            "planned": row.planned,
            "competitive": int(row.competitive),
            **({"lacking": " ".join(map(str, row.lacking))} if board.seeds else {}),
            **metric_columns(row, metrics, arrows if board.seeds else None),
            **({name: (row.citation or {}).get(name) for name in ("sample", "source")} if cited else {}),
            **({"verdict": row.state or ""} if verified else {}),
        }
        for row in board.rows
    ]


def metric_columns(row: Row, metrics: Sequence[str], arrows: Arrows | None = None) -> dict[str, Any]:
    """Return a row's CSV columns: of each metric its mean, its half-width, whether it is best, or leads, and arrow."""
    found: dict[str, Any] = {}
    for metric in metrics:
        cell = row.metrics.get(metric, Value(None, None))
        found |= {metric: cell.mean, f"{metric} ci95": cell.ci95, f"{metric} best": int(cell.best)}
        found[f"{metric} leads"] = int(cell.leads)
        if arrows is not None:
            found[f"{metric} versus ce"] = arrows.of.get((id(row), metric), "")
    return found


def meaning_of(arrows: Arrows) -> str:
    """Return the end of the sentence that explains the arrows, "" for a table without tests."""
    if not arrows.number:
        return ""
    tests = "1 comparison" if arrows.number == 1 else f"{arrows.number:,} comparisons"
    return f"worse than cross-entropy of its type: p below 0.05 after Holm's correction over {tests}"


def units_of(board: Board) -> str:
    """Return a sentence on the units of the columns that are not the paper's, "" where there are none."""
    titles: dict[str, list[str]] = {}
    for column in board.shown:
        if column.name not in PAPER_BY_NAME:
            titles.setdefault(f"in {column.unit}" if column.unit else "between 0 and 1", []).append(column.title)
    parts = [f"{', '.join(of)} {unit}" for unit, of in titles.items()]
    return f"{'; '.join(parts)}." if parts else ""
