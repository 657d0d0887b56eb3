"""The folder of one table: its pages, those of its rows, comparisons and runs, and what can be downloaded."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

from pydantic import ValidationError

from hierbench.config.recipe import title_of
from hierbench.config.spec import Spec
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.paired import values_by_seed
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.tables.board import board_table
from hierbench.reports.site import citing, tables
from hierbench.reports.site.comparisons import Pair, best_row, pairs_of
from hierbench.reports.site.content import Card, Command, Said, Table, claimed_counts, read_changes
from hierbench.reports.site.methods import Known, Methods
from hierbench.reports.site.pages import Places, Writer
from hierbench.reports.site.pictures import pictures_of
from hierbench.reports.site.runs import Record, read_record
from hierbench.utils.errors import UserError

PER_LIST = 400  # runs on a page that lists them
FORMATS = {"csv": "table.csv", "json": "table.json", "latex": "table.tex"}


class Folder:
    """A table and the addresses of its pages, as the index and the feed show it.

    Attributes:
        page: of the table, from the site's root.
        title: of its dataset.
        best: the row that the others are compared with, None without a competitive one.
        updated: time of its newest run, "" until the runs are written.
        methods: of its rows, by `id` of the row.
    """

    def __init__(self, table: Table, slug: str, card: Card | None) -> None:
        self.table, self.card, self.places = table, card, Places(table, slug)
        self.page, self.title = f"{self.places.folder}/index.html", _title(table)
        self.best, self.updated = best_row(table.board.rows), ""
        self.methods: dict[int, Known | None] = {}


def _title(table: Table) -> str:
    try:
        title = title_of(table.dataset)
    except (UserError, OSError):
        title = table.dataset
    return f"{table.submission}: {title}" if table.submission else title


def write_table(
    made: Folder, writer: Writer, methods: Methods, *, command: Command | None, caveat: str, base_url: str
) -> Folder:
    """Write all pages of a table and return it, with its methods added to `methods`."""
    _Pages(made, writer, command, caveat).write(methods, base_url)
    return made


class _Pages:
    """Writes the pages of one table."""

    def __init__(self, made: Folder, writer: Writer, command: Command | None, caveat: str) -> None:
        self.made, self.table, self.places = made, made.table, made.places
        self.writer, self.make_command, self.caveat = writer, command, caveat

    def page(self, name: str, template: str, **content: object) -> None:
        """Write a page of the folder."""
        path = f"{self.places.folder}/{name}"
        self.writer.page(path, template, table=self.table, places=self.places, title=self.made.title, **content)

    def write(self, methods: Methods, base_url: str) -> None:
        """Write everything."""
        rows = self.table.board.rows
        self.made.methods = {id(row): methods.add(self.table, row) for row in rows}
        pairs = pairs_of(self.table.board)
        of_row: dict[int, list[Pair]] = {}
        for pair in pairs:
            of_row.setdefault(id(pair.row), []).append(pair)
        said = {run: one for one in self.table.rows for run in one.runs}
        for row in rows:
            self.write_row(row, of_row.get(id(row), []), said)
        for pair in pairs:
            self.page(self.places.pair(pair.row, pair.reference), "comparison", pair=pair, grid=tables.gaps_page(pair))
        shown = {run for row in rows for run in row.runs}
        for run_id in self.table.runs:
            if run_id not in shown:
                self.write_run(run_id, self.record(run_id), None, ("", ""))
        self.write_tables(base_url)
        self.write_checks()

    def record(self, run_id: str) -> Record:
        """Return a run's record, an empty one where it is a link."""
        try:
            return read_record(self.table.store.run(run_id).folder)
        except UserError:
            return read_record(self.table.folder / "")

    def write_row(self, row: Row, pairs: Sequence[Pair], said: Mapping[str, Said]) -> None:
        """Write the page of a row and those of its runs."""
        records = {run_id: self.record(run_id) for run_id in row.runs}
        command = self.command(row, records.values())
        for run_id, record in records.items():
            self.write_run(run_id, record, row, command)
        self.page(
            self.places.row(row),
            "row",
            row=row,
            method=self.made.methods[id(row)],
            grid=tables.seeds_page(self.table, self.places, row, _runs_of(self.table, row)),
            pairs=pairs,
            verdict=self.table.verdict_of(row),
            said=list({id(said[run]): said[run] for run in row.runs if run in said}.values()),
            command=command,
        )

    def write_run(self, run_id: str, record: Record, row: Row | None, command: tuple[str, str]) -> None:
        """Write the page of a run."""
        spec = _spec(record.spec)
        self.made.updated = max(self.made.updated, record.time)
        self.page(
            self.places.run(run_id),
            "run",
            id=run_id,
            row=row,
            record=record,
            label=spec.label if spec else self.said(run_id).label,
            said=self.said(run_id),
            bases=[base for base in (spec.bases if spec else ()) if base in self.table.runs],
            command=command,
            caveat=self.caveat,
        )

    def said(self, run_id: str) -> Said:
        """Return what is said of a run."""
        return self.table.runs.get(run_id, Said(run_id, ""))

    def command(self, row: Row, records: Iterable[Record]) -> tuple[str, str]:
        """Return the command that makes a row's runs again and "", or "" and the reason why there is none."""
        specs = [spec for record in records if (spec := _spec(record.spec))]
        if self.make_command is None or not specs:
            return "", ""
        bases = [self.record(base).spec for spec in specs for base in spec.bases if base in self.table.runs]
        known = self.made.methods[id(row)]
        files = {known.name: known.file} if known and known.file else {}
        try:
            specs += [spec for base in bases if (spec := _spec(base))]
            return shlex.join(self.make_command(specs, self.table.dataset, files)), ""
        except UserError as error:
            return "", str(error)

    def write_tables(self, base_url: str) -> None:
        """Write the table in its parts, its downloads and its pictures."""
        table, board, made = self.table, self.table.board, self.made
        lines = tables.lines_of(table, self.places, made.methods)
        parts = tables.parts_of(lines, board.shown)
        downloads, own = FORMATS if board.rows else {}, board_table(board)
        for name, file in downloads.items():
            self.writer.write(f"{self.places.folder}/{file}", render(own, name))
        bibtex = self.bibtex(base_url)
        self.writer.write(f"{self.places.folder}/table.bib", "\n".join(bibtex))
        for part in parts:
            self.page(
                part.page,
                "table",
                part=part,
                parts_list=parts,
                total=len(lines),
                card=made.card,
                changes=read_changes(table),
                bibtex=bibtex[0],
                grid=tables.page_of(table, part, lines, "../../"),
                downloads=downloads,
                **tables.content_of(lines),
            )
        pictures = pictures_of(table.folder, table.dataset)
        for picture in pictures:
            if picture.content:
                self.writer.write(f"{self.places.folder}/{picture.kind}.svg", picture.content)
        self.page("pictures.html", "pictures", pictures=pictures)

    def bibtex(self, base_url: str) -> list[str]:
        """Return the entries of the table and of its methods."""
        board, card = self.table.board, self.made.card
        own = citing.bibtex_of_table(
            self.table.dataset,
            board.protocol,
            authors=card.authors if card else (),
            year=self.made.updated[:4],
            runs=sum(row.n for row in board.rows),
            link=f"{base_url}{self.made.page}" if base_url else "",
        )
        known = {method.slug: method for method in self.made.methods.values() if method}
        entries = [citing.bibtex_of_method(one.name, one.title, one.about.source) for one in known.values()]
        return [own, *dict.fromkeys(filter(None, entries))]

    def write_checks(self) -> None:
        """Write what verification says: of tables and rows on the first page, of runs on as many as it takes."""
        runs = sorted(self.table.runs.items(), key=lambda one: (one[1].verdict != "rejected", one[1].label, one[0]))
        starts = list(range(0, max(1, len(runs)), PER_LIST))
        names = ["checks.html", *(f"checks-{number}.html" for number in range(2, len(starts) + 1))]
        for name, start in zip(names, starts, strict=True):
            self.page(
                name,
                "checks",
                page=name,
                pages=names,
                grid=tables.runs_page(runs[start : start + PER_LIST], self.places),
                first=start == 0,
                claimed=claimed_counts(self.table),
                caveat=self.caveat,
            )


def _spec(content: object) -> Spec | None:
    try:
        return Spec.model_validate(content)
    except ValidationError:
        return None


def _runs_of(table: Table, row: Row) -> list[tables.Seed]:
    """Return (id, seed, what is said, metrics) of a row's runs; seed and metrics of those that count."""
    said = {run: table.runs.get(run, Said(run, "")) for run in row.runs}
    counted = [run for run in row.runs if said[run].verdict not in ("unfinished", "rejected")]
    seeds = dict(zip(counted, row.seeds, strict=True)) if len(counted) == len(row.seeds) else {}
    values = values_by_seed(row, list(row.metrics))
    return [
        (run, seeds.get(run), said[run], {name: of[seeds[run]] for name, of in values.items() if run in seeds and of})
        for run in row.runs
    ]
