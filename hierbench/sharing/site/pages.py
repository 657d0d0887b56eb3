"""The pages of a site: templates in which every expression is cleaned and escaped, and their values."""

import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from shutil import copyfileobj
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hierbench.leaderboard import verdict_chart
from hierbench.leaderboard.answers_table import answers_tables
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.formats import html, render
from hierbench.leaderboard.paired import BASELINE
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.pictures.answers_plot import draw_answers
from hierbench.leaderboard.pictures.figure_data import draw
from hierbench.leaderboard.statistics import AXES, Row, ranked_rows, with_best
from hierbench.leaderboard.table import Flag, Line, Table, Text
from hierbench.leaderboard.tables.board_table import BOLD, STAR, make_cell
from hierbench.leaderboard.tables.board_table import seeds as seeds_of
from hierbench.leaderboard.verdict import VerdictRows
from hierbench.leaderboard.verdict_table import verdict_table
from hierbench.runs import answer_file, compact, further_metrics, requests
from hierbench.runs.findings import CAVEAT
from hierbench.runs.method_files import PYTHON, source_folders, source_name
from hierbench.runs.store import RUN_ID
from hierbench.sharing import published_tree
from hierbench.sharing.bundle import PUBLISHED_FILES
from hierbench.sharing.publication_folder import ANSWERS_PICTURE, SUFFIXES
from hierbench.sharing.site.content import SiteTable
from hierbench.sharing.site.file_names import block, clean, short_name
from hierbench.sharing.site.method_pages import MethodPage, Methods, highlighted
from hierbench.sharing.table_page import CLAIMED_NODES, table_commands, table_page
from hierbench.utils.errors import UserError
from hierbench.utils.files import open_regular

ASSETS = ("style.css", "tables.js", "icon.svg")
INDEX_PICTURE = "tradeoff"
MOST_DRAWN = 50  # rows of a table that has a picture: the legend of 60 leaves no room for the axes
DOWNLOADS = {"csv": "CSV", "json": "JSON", "latex": "LaTeX"}
RECORDS_ARCHIVE = "records.zip"
EPOCH = (1980, 1, 1, 0, 0, 0)  # of the files in the archive: two sites of the same records are equal
FILES_BESIDE_RUNS = (compact.TARGETS, published_tree.TREE_FILE, requests.REQUESTS_FILE)
OF_RUN = (*PUBLISHED_FILES, further_metrics.FURTHER_FILE, compact.COMPACT_FILE, answer_file.ANSWERS_FILE)
MOST_RESULTS = 150  # rows on the page of a method


@lru_cache
def environment() -> Environment:
    """Return the templates; compiled once in a process."""
    made = Environment(
        loader=ChoiceLoader(
            [PackageLoader("hierbench.sharing.site", "templates"), PackageLoader("hierbench.leaderboard.formats", "")]
        ),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=clean,
        auto_reload=False,
    )
    made.filters |= {"block": block, "name": short_name}
    return made


def table_markup(table: Table) -> Markup:
    """Return a table as a part of a page."""
    return Markup(html.fragment(table, table.title))


class Writer:
    """Writes the files of a site below a folder.

    Attributes:
        files: written, relative to the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = list[str]()
        package = resources.files("hierbench.sharing.site") / "templates"
        tables = html.style()
        for name in ASSETS:
            self.write(name, (tables if name == "style.css" else "").encode() + (package / name).read_bytes())

    def page(self, path: str, template: str, **content: Any) -> None:
        """Render a page."""
        up = "../" * path.count("/")
        self.write(path, environment().get_template(f"{template}.html.j2").render(up=up, **content))

    def write(self, path: str, content: str | bytes) -> None:
        """Write a file."""
        target = self.add(path)
        target.write_bytes(content if isinstance(content, bytes) else content.encode(errors="replace"))

    def add(self, path: str) -> Path:
        """Return where a file of the site is written by others."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        self.files.append(path)
        return target


class TablePage:
    """The page of a table, and its entry in the index.

    Attributes:
        folder: of its files, relative to the site's root.
        picture: name of its picture, "" if it cannot be drawn.
        best: of each column, see `best_rows`.
    """

    def __init__(self, table: SiteTable, slug: str, writer: Writer, methods: Methods) -> None:
        self.table = table
        self.folder = f"tables/{slug}"
        self.writer = writer
        self.methods = {row.key: methods.add(table, row, self.folder) for row in table.board.rows}
        self.best = best_rows(table.board)
        self.picture = ""

    def write(self) -> None:
        """Write the page with its picture and downloads."""
        table = self.table
        board = self.table.board
        self.picture = self._draw()
        report = table.report
        self.writer.page(
            f"{self.folder}/index.html",
            "table",
            table=table,
            picture=self.picture,
            grid=table_markup(self._grid()) if board.rows else "",
            differences=self._differences(),
            has_answers=self._write_answers(),
            commands=table_commands(board),
            found=[
                *((row.label, "", row.reasons, row.notes) for row in report.rows if row.rejected),
                *((run.label, run.id, run.findings, run.notes) for run in report.runs if run.rejected),
                *((row.label, "", (), row.notes) for row in report.rows if row.notes and not row.rejected),
            ],
            downloads=self._downloads(),
            caveat=CAVEAT,
        )

    def _grid(self) -> Table:
        """Return the table with links from its rows to their methods."""
        sheet = self.table.board.table
        lines = []
        for row, line in zip(self.table.board.rows, sheet.rows, strict=True):
            method = self.methods[row.key]
            kind, title, *cells = line.cells
            assert isinstance(title, Text)
            link = f"../../methods/{method.slug}.html" if method else ""
            lines.append(replace(line, cells=[kind, replace(title, text=short_name(title.text), link=link), *cells]))
        return replace(sheet, title="Results on the test split", rows=lines)

    def _differences(self) -> Markup | None:
        if not self.table.board.tests:  # no cross-entropy, or one seed
            return None
        sheet = self.table.board.compare(BASELINE).table
        return table_markup(replace(sheet, title="Differences from cross-entropy"))

    def _write_answers(self) -> bool:
        """Write the page of the answers that are kept with the runs; return whether there is one."""
        answers = self.table.answers
        if answers is None:
            return False
        self.table.answers = None
        pictures = {}
        with suppress(UserError):  # of answers of a few rules
            style.write_figure(draw_answers(answers).figure, self._file(f"{ANSWERS_PICTURE}.svg"))
            pictures = {f"{ANSWERS_PICTURE}.svg": "Information given against correct answers"}
        tables = [table_markup(table) for table in answers_tables(answers)]
        name = f"{self.folder}/answers.html"
        notes = [*answers.notes, CLAIMED_NODES.replace("*", "")]
        self.writer.page(name, "answers", table=self.table, pictures=pictures, tables=tables, notes=notes)
        return True

    def _file(self, name: str) -> Path:
        """Return where a file beside the page is written by others; its folder is there."""
        return self.writer.add(f"{self.folder}/{name}")

    def _draw(self) -> str:
        """Draw the picture if the records suffice and the table does not have very many rows."""
        name = f"{INDEX_PICTURE}.svg"
        rows = self.table.board.rows
        is_drawable = any(all(row.metrics[axis].mean is not None for axis in AXES) for row in rows)
        if not is_drawable or len(rows) > MOST_DRAWN:
            return ""
        style.write_figure(draw(INDEX_PICTURE, self.table.board).figure, self._file(name))
        return name

    def _downloads(self) -> dict[str, str]:
        """Write the table in other formats and the archive of its records; return the title of each file by name."""
        if not self.table.board.rows:
            return {}
        sheet = self.table.board.table
        titles = dict[str, str]()
        for kind, title in DOWNLOADS.items():
            name = f"table{SUFFIXES[kind]}"
            self.writer.write(f"{self.folder}/{name}", render(sheet, kind))
            titles[name] = title
        with zipfile.ZipFile(self.writer.add(f"{self.folder}/{RECORDS_ARCHIVE}"), "w", zipfile.ZIP_DEFLATED) as archive:
            page = table_page(self.table.board, self.table.records)  # without links: no pictures are beside it
            for kind, text in (("json", render(sheet, "json")), ("markdown", page)):
                info = zipfile.ZipInfo(f"{self.table.dataset}{SUFFIXES[kind]}", EPOCH)
                archive.writestr(info, text, zipfile.ZIP_DEFLATED)
            for path in records_in(self.table):
                name = path.relative_to(self.table.folder).as_posix()
                with suppress(OSError), open_regular(path) as source:
                    with archive.open(zipfile.ZipInfo(name, EPOCH), "w") as target:
                        copyfileobj(source, target)
        return titles | {RECORDS_ARCHIVE: "Records of all runs"}


def records_in(table: SiteTable) -> Iterator[Path]:
    """Yield the files of a table's records that publishing writes, in order."""
    for name in FILES_BESIDE_RUNS:
        yield table.records / name
    for name in sorted({source_name(run) for run in table.board.records if run.spec is not None}):
        if re.fullmatch(PYTHON, name):
            yield from (folder / name for folder in source_folders(table.records))
    for run in sorted(filter(RUN_ID.fullmatch, (run.id for run in table.board.records))):
        for name in OF_RUN:
            yield table.records / run / name


def write_method(writer: Writer, method: MethodPage) -> None:
    """Write the page of a method."""
    heads = ["Name", "Type", "Default", "Bounds", "Tuned over"]
    lines = [Line([Text(clean(str(value))) for value in line]) for line in method.about.hyperparameters]
    writer.page(
        f"methods/{method.slug}.html",
        "method",
        method=method,
        hyperparameters=table_markup(Table("Hyperparameters", heads, lines)) if lines else "",
        results=table_markup(method_results(method)),
        code=highlighted(method.text),
    )


def write_index(writer: Writer, pages: Sequence[TablePage], methods: Sequence[MethodPage]) -> None:
    """Write the page that lists all; where there are tables of the protocol, their verdict comes first."""
    boards = [page.table.board for page in pages if page.table.board.rows]
    picture = ""
    across = Markup()
    evidence = VerdictRows.of(boards)
    if any(evidence.rows.values()):
        across = table_markup(verdict_table(evidence))
        picture = "verdict.svg"
        with style.house_style():
            style.write_figure(verdict_chart.draw(evidence), writer.add(picture))
    writer.page("index.html", "index", tables=pages, methods=methods, picture=picture, across=across)


def method_results(method: MethodPage) -> Table:
    """Return the rows of a method in all tables."""
    columns = list(dict.fromkeys(column for table, _, _ in method.cells for column in table.board.shown))
    lines = [
        Line(
            [
                Text(
                    table.title,
                    short_name(row.title) if row.title != method.title else "",
                    f"../{folder}/index.html",
                    star=row.competitive,
                ),
                Text(row.type),
                *(make_cell(row, column) for column in columns),
                Text(seeds_of(row)),
                Flag(verdict := table.row_verdict(row), verdict),
            ]
        )
        for table, row, folder in method.cells[:MOST_RESULTS]
    ]
    more = len(method.cells) - len(lines)
    heads = ["Table", "Type", *(column.heading for column in columns), "Seeds", "Verdict"]
    return Table("Results", heads, lines, notes=[f"and {more} more rows"] if more else [], star=STAR, bold=BOLD)


def best_rows(board: Board) -> list[tuple[Column, Row, Row | None]]:
    """Return the best ranked row of each column, and the best competitive row, None if it is the same."""
    rows = ranked_rows(board.rows)
    leaders = list[tuple[Column, Row, Row | None]]()
    marked = with_best(rows, board.shown)
    for column in board.shown:
        first = [row for row, overall in zip(rows, marked, strict=True) if _is_best(overall, column)]
        competitive = next((row for row in rows if _is_best(row, column)), None)
        if first:
            both = competitive is not None and any(row is competitive for row in first)
            leaders.append((column, competitive, None) if both and competitive else (column, first[0], competitive))
    return leaders


def _is_best(row: Row, column: Column) -> bool:
    return column.name in row.metrics and row.metrics[column.name].best
