"""The table page: rows of runs with the numbers that were printed elsewhere beside them, in parts where it is long."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.letters import listed
from hierbench.leaderboard.printed import paper_datasets
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Flag, Interval, Number, Text
from hierbench.leaderboard.table import Line as SheetLine
from hierbench.leaderboard.table import Table as Sheet
from hierbench.leaderboard.tables.board import BOLD, STAR, cell_of, units_of
from hierbench.reports.site import svg
from hierbench.reports.site.comparisons import Pair
from hierbench.reports.site.content import Said, Table
from hierbench.reports.site.methods import Known
from hierbench.reports.site.names import name_of
from hierbench.reports.site.pages import Places, shown

Seed = tuple[str, int | None, Said, dict[str, float]]  # id, seed, what is said of a run, its metrics
MOST_CELLS_OF_METHOD = 150
LETTERS = (
    "Letters: rows that share one do not differ significantly in that column (p below 0.05 after Holm's correction "
    "over all comparisons of the table)."
)
MOST_RUNS = 200  # on the page of a row
MOST_LINES = 60  # of a table on one page
MOST_CELLS = 500
PRINTED = "published"  # the protocol of what was printed elsewhere
PAPER = "Liang & Davis, ICCV 2023"


@dataclass(frozen=True)
class Line:
    """A line of the table page.

    Attributes:
        row: of the board, or of what was printed elsewhere.
        protocol: of its runs.
        page: of the row, "" for what was printed elsewhere.
        method: as it is filtered by.
        about: page of the method from the site's root, "" without one.
        source: who printed it, "" for a row of runs.
        verdict: the weakest of its runs, "" for what was printed elsewhere.
    """

    row: Row
    protocol: str
    page: str
    method: str
    about: str
    source: str
    verdict: str


@dataclass(frozen=True)
class Part:
    """The lines that are on one page."""

    page: str
    lines: list[Line]
    first: int
    last: int


def printed_rows(table: Table) -> Sequence[Row]:
    """Return what the paper and other authors printed for a table's dataset, in the paper's order."""
    return Board.paper(table.dataset, others=True).rows if table.dataset in paper_datasets() else ()


def lines_of(table: Table, places: Places, methods: dict[int, Known | None]) -> list[Line]:
    """Return the lines of a table: a printed row follows ours of the same type and method, the others come last."""
    printed = {(row.type, row.method, row.title): row for row in printed_rows(table)}
    lines = []
    for row in table.board.rows:
        known = methods[id(row)]
        about = f"methods/{known.slug}.html" if known else ""
        lines.append(Line(row, table.board.protocol, places.row(row), row.method, about, "", table.verdict_of(row)))
        same = [key for key in printed if key[:2] == (row.type, row.method)]
        lines += [_printed(printed.pop(key), about) for key in same]
    return [*lines, *(_printed(row, "") for row in printed.values())]


def _printed(row: Row, about: str) -> Line:
    source = row.citation["source"] if row.citation else PAPER
    return Line(row, PRINTED, "", row.method, about, source, "")


def parts_of(lines: Sequence[Line], columns: Sequence[Column]) -> list[Part]:
    """Return the lines in parts that keep pages light."""
    size = max(6, min(MOST_LINES, MOST_CELLS // max(1, len(columns))))
    starts = range(0, max(1, len(lines)), size)
    return [
        Part(
            f"page-{number}.html" if start else "index.html",
            list(lines[start : start + size]),
            start + 1,
            min(start + size, len(lines)),
        )
        for number, start in enumerate(starts, 1)
    ]


def page_of(table: Table, part: Part, lines: Sequence[Line], up: str) -> Markup:
    """Return a part of a table: bars of all lines are on the same axes."""
    board, columns = table.board, table.board.shown
    ends = svg.ranges([line.row for line in lines], [column.name for column in columns])
    grouped = any(cell.groups for line in lines for cell in line.row.metrics.values())
    lacks = any(line.row.lacking for line in lines)
    notes = [
        "Bars are 95% intervals, all of a column on the same axis.",
        *([LETTERS] if grouped else []),
        *(["Grey rows lack seeds that the table asks for, so they are shown and not ranked."] if lacks else []),
        *filter(None, [units_of(board)]),
        *(f"As printed: {source}, {setting}" for source, setting in _sources(lines)),
        *([f"Settings: {board.remark}."] if board.remark else []),
    ]
    rows = [_page_line(line, columns, ends, up) for line in part.lines]
    heads = ["Method", "Type", *(column.heading for column in columns), "Seeds", "Evidence"]
    place = f", rows {part.first} to {part.last} of {len(lines)}" if len(part.lines) < len(lines) else ""
    title = f"Results on the test split{place}"
    return shown(Sheet(title, heads, rows, notes=notes, star=STAR, bold=BOLD))


def _page_line(line: Line, columns: Sequence[Column], ends: Mapping[str, svg.Range], up: str) -> SheetLine:
    row, printed = line.row, bool(line.source)
    small = "as printed" if printed else name_of(line.method) if line.about else ""
    about = f"{up}{line.about}" if line.about and not printed else ""
    title = Text(name_of(row.title), small, line.page, about, star=row.competitive and not printed)
    cells = [replace(cell_of(row, column, printed=printed), ends=ends.get(column.name)) for column in columns]
    verdict = Flag("printed" if printed else line.verdict, "printed" if printed else line.verdict)
    return SheetLine(
        [
            title,
            Text(row.type),
            *cells,
            Text(runs_of(row), f"lacks {listed(row.lacking)}" if row.lacking else ""),
            verdict,
        ],
        "printed" if printed else "lacking" if row.lacking else "",
        {"type": row.type, "protocol": line.protocol, "method": f"{name_of(row.title).lower()} {name_of(line.method)}"},
    )


def runs_of(row: Row) -> str:
    """Return how many runs are behind a row, "n of planned" while some are not finished or rejected."""
    if row.citation is not None:
        return row.citation["sample"]
    return f"{row.n} of {row.planned}" if row.n < row.planned else str(row.n)


def seeds_page(table: Table, places: Places, row: Row, runs: Sequence[Seed]) -> Markup:
    """Return the values of a row by seed, and their mean."""
    columns = table.board.shown
    lines = [
        SheetLine(
            [
                Text("–" if seed is None else str(seed)),
                *(Number(values.get(column.name), f".{column.digits}f") for column in columns),
                Text(run_id[:12], link=places.run(run_id)),
                Flag(said.verdict, said.verdict),
            ]
        )
        for run_id, seed, said, values in runs[:MOST_RUNS]
    ]
    mean = SheetLine([Text("Mean"), *(cell_of(row, column) for column in columns), Text(""), Flag("")])
    more = [f"and {len(runs) - MOST_RUNS} more runs"] if len(runs) > MOST_RUNS else []
    heads = ["Seed", *(column.heading for column in columns), "Run", "Evidence"]
    return shown(Sheet("Results by seed", heads, [*lines, mean], notes=more))


def gaps_page(pair: Pair) -> Markup:
    """Return the differences of two rows in each metric, with the values by seed that they are from."""
    lines = []
    for gap in pair.gaps:
        found, seeds, digits = gap.difference, gap.seeds, gap.column.digits
        limit = abs(found.mean) + found.ci95
        how = f"{'paired' if found.test == 'paired' else 'Welch'}, {found.n} seeds"
        bounds = Interval(found.mean, found.ci95, digits, signed=True, strong=found.significant)
        lines.append(
            SheetLine(
                [
                    Text(gap.column.heading, how),
                    bounds,
                    Text("", drawing=svg.difference_bar(found.mean, found.ci95, limit)),
                    Text("", drawing=svg.seeds_apart(gap.row, gap.reference)),
                    Number(found.effect, "+.2f"),
                    Number(found.p, ".2g"),
                    Number(found.p_holm, ".2g", "significant" if found.significant else ""),
                    Text("more than 1,000" if seeds is None else str(seeds)),
                ]
            )
        )
    heads = ["Metric", "Difference", "95% interval and 0", "Values by seed", "Effect size", "p", "p, Holm"]
    holm = (
        f"p below 0.05 after Holm's correction over all {pair.tests:,} tests of the table, every pair of its ranked "
        "rows in every column; these are the columns in which the two rows share no letter"
    )
    nothing = (
        "Nothing is marked: the table compares its ranked rows alone, and one of these two is not among them, or no "
        "rows are, as they have one seed or are more than 100."
    )
    about = (
        "Paired by seed where two or more are shared, Welch's test otherwise. Filled dots are the first row's seeds, "
        "open ones the second's, lines join equal seeds. Seeds for 80% power: of each row, in a two-sided test at "
        "level 0.05, if the true difference and its variation are as seen here."
    )
    notes = [about] if pair.tests else [nothing, about]
    return shown(
        Sheet("Differences", [*heads, "Seeds for 80% power"], lines, notes=notes, bold=holm if pair.tests else "")
    )


def method_page(method: Known, made: Mapping[int, tuple[str, Places]], up: str) -> Markup:
    """Return the rows of a method in all tables."""
    cells = method.cells[:MOST_CELLS_OF_METHOD]
    columns = list(dict.fromkeys(column for table, _ in method.cells for column in table.board.shown))
    lines = []
    for table, row in cells:
        title, places = made[id(table)]
        name = name_of(row.title) if row.title != method.title else ""
        place = f"{up}{places.folder}/{places.row(row)}"
        verdict = table.verdict_of(row)
        lines.append(
            SheetLine(
                [
                    Text(title, name, place, star=row.competitive),
                    Text(row.type),
                    *(cell_of(row, column) for column in columns),
                    Text(runs_of(row)),
                    Flag(verdict, verdict),
                ]
            )
        )
    more = len(method.cells) - len(cells)
    notes = [f"and {more} more rows"] if more else []
    heads = ["Table", "Type", *(column.heading for column in columns), "Seeds", "Evidence"]
    return shown(Sheet("Results", heads, lines, notes=notes, star=STAR, bold=BOLD))


def runs_page(runs: Sequence[tuple[str, Said]], places: Places) -> Markup:
    """Return what verification says of runs."""
    lines = [
        SheetLine(
            [
                Text(run_id[:12], link=places.run(run_id)),
                Text(name_of(said.label)),
                Flag(said.verdict, said.verdict),
                Text(said.reasons[0][:100] if said.reasons else ""),
            ]
        )
        for run_id, said in runs
    ]
    return shown(Sheet("Runs", ["Run", "Label", "Evidence", "Why"], lines))


def content_of(lines: Sequence[Line]) -> dict[str, object]:
    """Return what all parts of a table page filter by."""
    return {
        "types": sorted({line.row.type for line in lines}),
        "protocols": sorted({line.protocol for line in lines}),
    }


def _sources(lines: Sequence[Line]) -> list[tuple[str, str]]:
    return sorted({(line.source, _setting(line.row)) for line in lines if line.source})


def _setting(row: Row) -> str:
    return f"{row.citation['where']}. {row.citation['setting']}." if row.citation else "their Tables 2 to 5."
