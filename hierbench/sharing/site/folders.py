"""The folder of one table: its pages, those of its rows, comparisons and runs, and what can be downloaded."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hierbench.config.spec import Spec
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.tables.board import board_table
from hierbench.records.findings import CAVEAT, Finding
from hierbench.records.record import Record
from hierbench.reproduction import command_of
from hierbench.sharing.pictures import draw_one
from hierbench.sharing.place import SUFFIXES
from hierbench.sharing.site import citing, tables
from hierbench.sharing.site.comparisons import Pair, leaders_of, pairs_of
from hierbench.sharing.site.content import Table
from hierbench.sharing.site.methods import Known, Methods
from hierbench.sharing.site.pages import Places, Writer
from hierbench.sharing.site.runs import page_of
from hierbench.utils.errors import UserError

DOWNLOADS = ("csv", "json", "latex")
PER_LIST = 400  # runs on a page that lists them
MOST_DRAWN = 50  # rows of a table that has pictures: the legend of 60 leaves no room for the axes
TITLES = {"tradeoff": "Accuracy over mistake severity", "severity": "Mistakes by their severity"}
Command = tuple[str, str]  # that makes runs again and "", or "" and the reason why there is none


class Folder:
    """A table and the addresses of its pages, as the index and the feed show it.

    Attributes:
        page: of the table, from the site's root.
        leaders: of each column, see `leaders_of`.
        updated: time of its newest run, "" until the runs are written.
        methods: of its rows, by `id` of the row.
    """

    def __init__(self, table: Table, slug: str, writer: Writer, methods: Methods) -> None:
        self.table, self.places, self.writer = table, Places(table, slug), writer
        self.page, self.leaders, self.updated = f"{self.places.folder}/index.html", leaders_of(table.board), ""
        self.methods: dict[int, Known | None] = {id(row): methods.add(table, row) for row in table.board.rows}

    def write(self, base_url: str) -> None:
        """Write all pages; `base_url` is that of the site, "" if it is not known."""
        rows, pairs = self.table.board.rows, pairs_of(self.table.board)
        of_row: dict[int, list[Pair]] = {}
        for pair in pairs:
            of_row.setdefault(id(pair.row), []).append(pair)
        said = {run: one for one in self.table.report.rows for run in one.runs}
        for row in rows:
            self._write_row(row, of_row.get(id(row), []), said)
        for pair in pairs:
            self._page(self.places.pair(pair.row, pair.reference), "comparison", pair=pair, grid=tables.gaps_page(pair))
        for run_id in sorted(self.table.runs.keys() - {run for row in rows for run in row.runs}):
            self._write_run(run_id, self.table.board.records.get(run_id), None, ("", ""))
        self._write_table(base_url)
        self._page("statistics.html", "statistics", grid=tables.letters_page(self.table.board), pairs=pairs)
        self._write_pictures()
        self._write_checks()

    def _page(self, name: str, template: str, **content: object) -> None:
        path = f"{self.places.folder}/{name}"
        content |= {"table": self.table, "places": self.places, "title": self.table.title, "caveat": CAVEAT}
        self.writer.page(path, template, **content)

    def _write_row(self, row: Row, pairs: Sequence[Pair], said: Mapping[str, Finding]) -> None:
        """Write the page of a row and those of its runs."""
        records = [self.table.board.records[run_id] for run_id in row.runs]
        command = self._command(row, [record.spec for record in records if record.spec])
        for record in records:
            self._write_run(record.id, record, row, command)
        self._page(
            self.places.row(row),
            "row",
            row=row,
            method=self.methods[id(row)],
            grid=tables.seeds_page(self.table, self.places, row),
            pairs=pairs,
            verdict=self.table.verdict_of(row),
            said=list({id(said[run]): said[run] for run in row.runs if run in said}.values()),
            command=command,
        )

    def _write_run(self, run_id: str, record: Record | None, row: Row | None, command: Command) -> None:
        said, shown = self.table.runs.get(run_id, Finding(run_id, run_id)), page_of(record, self._tuning_of(record))
        self.updated = max(self.updated, shown.time)
        self._page(
            self.places.run(run_id),
            "run",
            row=row,
            record=shown,
            label=said.label if record is None or record.spec is None else record.label,
            said=said,
            bases=[base for base in (() if record is None else record.bases) if base in self.table.runs],
            command=command,
        )

    def _tuning_of(self, record: Record | None) -> Mapping[str, Any] | None:
        return None if record is None or record.spec is None else self.table.board.records.budget_of(record)

    def _command(self, row: Row, specs: Sequence[Spec]) -> Command:
        if not specs:
            return "", ""
        known = self.table.board.records
        bases = [known[base].spec for spec in specs for base in spec.bases if base in known]
        method = self.methods[id(row)]
        files = {method.name: method.file} if method and method.file else {}
        try:
            return shlex.join(command_of([*specs, *filter(None, bases)], self.table.dataset, files)), ""
        except UserError as error:
            return "", str(error)

    def _write_table(self, base_url: str) -> None:
        """Write the table in its parts, and its downloads."""
        table, board = self.table, self.table.board
        sheet = tables.sheet_of(table, self.places, self.methods)
        parts = tables.parts_of(sheet)
        downloads, own = DOWNLOADS if board.rows else (), board_table(board)
        for name in downloads:
            self.writer.write(f"{self.places.folder}/table{SUFFIXES[name]}", render(own, name))
        bibtex = self._bibtex(base_url)
        self.writer.write(f"{self.places.folder}/table.bib", "\n".join(bibtex))
        for part in parts:
            self._page(
                part.page,
                "table",
                part=part,
                parts_list=parts,
                total=len(sheet.rows),
                bibtex=bibtex[0],
                downloads=downloads,
                types=sorted({line.tags["type"] for line in sheet.rows}),
                protocols=sorted({line.tags["protocol"] for line in sheet.rows}),
            )

    def _write_pictures(self) -> None:
        """Draw the pictures, as far as the records give them; none of a table with very many rows."""
        table, drawn = self.table, []
        for kind in TITLES if 0 < len(table.board.rows) <= MOST_DRAWN else ():
            path = f"{self.places.folder}/{kind}.svg"
            with suppress(UserError):
                draw_one(kind, table.board, table.dataset, table.folder, self.writer.root / path)
                self.writer.files.append(path)
                drawn.append((kind, TITLES[kind]))
        self._page("pictures.html", "pictures", pictures=drawn)

    def _bibtex(self, base_url: str) -> list[str]:
        """Return the entries of the table and of its methods."""
        board, card = self.table.board, self.table.card
        own = citing.bibtex_of_table(
            self.table.dataset,
            board.protocol,
            authors=card.authors if card else (),
            year=self.updated[:4],
            runs=sum(row.n for row in board.rows),
            link=f"{base_url}{self.page}" if base_url else "",
        )
        known = {method.slug: method for method in self.methods.values() if method}
        entries = [citing.bibtex_of_method(one.name, one.title, one.about.source) for one in known.values()]
        return [own, *dict.fromkeys(filter(None, entries))]

    def _write_checks(self) -> None:
        """Write what verification says: of tables and rows on the first page, of runs on as many as it takes."""
        runs = sorted(self.table.report.runs, key=lambda run: (not run.rejected, run.label, run.id))
        starts = list(range(0, max(1, len(runs)), PER_LIST))
        names = ["checks.html", *(f"checks-{number}.html" for number in range(2, len(starts) + 1))]
        for name, start in zip(names, starts, strict=True):
            grid = tables.runs_page(runs[start : start + PER_LIST], self.places)
            self._page(name, "checks", page=name, pages=names, grid=grid, first=start == 0)
