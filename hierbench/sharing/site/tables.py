"""The tables of a site's pages; that of a dataset has the numbers that were printed elsewhere beside its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.letters import listed
from hierbench.leaderboard.paired import values_by_seed
from hierbench.leaderboard.printed import paper_datasets
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Flag, Interval, Line, Number, Text
from hierbench.leaderboard.table import Table as Sheet
from hierbench.leaderboard.tables.board import BOLD, STAR, cell_of, meaning_of, units_of
from hierbench.leaderboard.tables.board import seeds as seeds_of
from hierbench.leaderboard.tables.ties import letters_table
from hierbench.leaderboard.ties import arrows_of
from hierbench.records.findings import Finding
from hierbench.sharing.site import svg
from hierbench.sharing.site.comparisons import Pair
from hierbench.sharing.site.content import Table
from hierbench.sharing.site.methods import Known
from hierbench.sharing.site.names import name_of
from hierbench.sharing.site.pages import Places, shown

MOST_CELLS_OF_METHOD = 150
MOST_RUNS = 200  # on the page of a row
MOST_LINES = 60  # of a table on one page
MOST_CELLS = 500
PRINTED = "published"  # the protocol of what was printed elsewhere
PAPER = "Liang & Davis, ICCV 2023"


@dataclass(frozen=True)
class Part:
    """The lines of a table that are on one page."""

    page: str
    first: int
    last: int
    grid: Markup


def sheet_of(table: Table, places: Places, methods: Mapping[int, Known | None]) -> Sheet:
    """Return a table with all rows: a printed one follows ours of its type and method, the others come last."""
    board, columns = table.board, table.board.shown
    left = list(Board.paper(table.dataset, others=True).rows if table.dataset in paper_datasets() else ())
    rows: list[tuple[Row, Known | None, bool]] = []
    for row in board.rows:
        same = [one for one in left if (one.type, one.method) == (row.type, row.method)]
        left = [one for one in left if one not in same]
        rows += [(row, methods[id(row)], False), *((one, methods[id(row)], True) for one in same)]
    rows += [(one, None, True) for one in left]
    ends = svg.ranges([row for row, _, _ in rows], [column.name for column in columns])
    lines, arrows = [], arrows_of(board)
    for row, known, printed in rows:
        named = name_of(row.method) if known else ""
        verdict = "printed" if printed else table.verdict_of(row)
        title = Text(
            name_of(row.title),
            "as printed" if printed else named,
            "" if printed else places.row(row),
            f"../../methods/{known.slug}.html" if known and not printed else "",
            star=row.competitive and not printed,
        )
        cells = [
            replace(
                cell_of(row, column, arrows.of.get((id(row), column.name), ""), printed=printed),
                ends=ends.get(column.name),
            )
            for column in columns
        ]
        number = Text(seeds_of(row), f"lacks {listed(row.lacking)}" if row.lacking else "")
        protocol = PRINTED if printed else board.protocol
        words = f"{name_of(row.title).lower()} {name_of(row.method)}"
        tags = {"type": row.type, "protocol": protocol, "method": words}
        kind = "printed" if printed else "lacking" if row.lacking else ""
        lines.append(Line([title, Text(row.type), *cells, number, Flag(verdict, verdict)], kind, tags))
    sources = {_source(row) for row, _, printed in rows if printed}
    notes = [
        "Bars are 95% intervals, all of a column on the same axis.",
        *(
            ["Grey rows lack seeds that the table asks for, so they are shown and not ranked."]
            if any(row.lacking for row, _, _ in rows)
            else []
        ),
        *([units] if (units := units_of(board)) else []),
        *(f"As printed: {source}, {setting}" for source, setting in sorted(sources)),
        *([f"Settings: {board.remark}."] if board.remark else []),
    ]
    heads = ["Method", "Type", *(column.heading for column in columns), "Seeds", "Evidence"]
    name = "Results on the test split"
    return Sheet(name, heads, lines, notes=notes, star=STAR, bold=BOLD, arrows=meaning_of(arrows))


def letters_page(board: Board) -> Markup:
    """Return the tie groups of a table's rows in all its columns."""
    return shown(letters_table(board))


def _source(row: Row) -> tuple[str, str]:
    """Return who printed a row, and where and in which setting."""
    about = row.citation
    return (about["source"], f"{about['where']}. {about['setting']}.") if about else (PAPER, "their Tables 2 to 5.")


def parts_of(sheet: Sheet) -> list[Part]:
    """Return a table in parts that keep pages light."""
    size, number = max(6, min(MOST_LINES, MOST_CELLS // max(1, len(sheet.columns) - 4))), len(sheet.rows)
    found = []
    for place, start in enumerate(range(0, max(1, number), size), 1):
        end = min(start + size, number)
        title = f"{sheet.title}, rows {start + 1} to {end} of {number}" if end - start < number else sheet.title
        grid = shown(replace(sheet, title=title, rows=sheet.rows[start:end]))
        found.append(Part(f"page-{place}.html" if start else "index.html", start + 1, end, grid))
    return found


def seeds_page(table: Table, places: Places, row: Row) -> Markup:
    """Return the values of a row by seed, and their mean."""
    columns = table.board.shown
    verdicts = {run: table.runs[run].verdict if run in table.runs else "" for run in row.runs}
    counted = [run for run, verdict in verdicts.items() if verdict not in ("unfinished", "rejected")]
    seeds = dict(zip(counted, row.seeds, strict=True)) if len(counted) == len(row.seeds) else {}
    values = values_by_seed(row, [column.name for column in columns])
    lines = [
        Line(
            [
                Text(str(seeds.get(run_id, "–"))),
                *(Number(values[column.name].get(seeds.get(run_id, -1)), f".{column.digits}f") for column in columns),
                Text(run_id[:12], link=places.run(run_id)),
                Flag(verdict, verdict),
            ]
        )
        for run_id, verdict in list(verdicts.items())[:MOST_RUNS]
    ]
    mean = Line([Text("Mean"), *(cell_of(row, column) for column in columns), Text(""), Flag("")])
    more = [f"and {len(row.runs) - MOST_RUNS} more runs"] if len(row.runs) > MOST_RUNS else []
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
            Line(
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
            Line(
                [
                    Text(title, name, place, star=row.competitive),
                    Text(row.type),
                    *(cell_of(row, column) for column in columns),
                    Text(seeds_of(row)),
                    Flag(verdict, verdict),
                ]
            )
        )
    more = len(method.cells) - len(cells)
    notes = [f"and {more} more rows"] if more else []
    heads = ["Table", "Type", *(column.heading for column in columns), "Seeds", "Evidence"]
    return shown(Sheet("Results", heads, lines, notes=notes, star=STAR, bold=BOLD))


def runs_page(runs: Sequence[Finding], places: Places) -> Markup:
    """Return what verification says of runs."""
    lines = [
        Line(
            [
                Text(said.id[:12], link=places.run(said.id)),
                Text(name_of(said.label)),
                Flag(said.verdict, said.verdict),
                Text(said.reasons[0][:100] if said.reasons else ""),
            ]
        )
        for said in runs
    ]
    return shown(Sheet("Runs", ["Run", "Label", "Evidence", "Why"], lines))
