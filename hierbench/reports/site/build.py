"""Builds the site: pages of runs, rows, comparisons and tables, then of methods, then what lists them all."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from hierbench.config.recipe import title_of
from hierbench.config.spec import Spec
from hierbench.leaderboard import render
from hierbench.leaderboard.statistics import Row
from hierbench.reports.site import citing, tables
from hierbench.reports.site.comparisons import Pair, best_row, pairs_of, values_of
from hierbench.reports.site.content import VERDICTS, Command, Said, Table, claimed_counts, read_card, read_changes
from hierbench.reports.site.feed import EPOCH, Entry, atom
from hierbench.reports.site.methods import Known, Methods
from hierbench.reports.site.names import Slugs
from hierbench.reports.site.pages import Places, Writer
from hierbench.reports.site.pictures import pictures_of
from hierbench.reports.site.place import check_place, replacing_folder, write_marker
from hierbench.reports.site.runs import moment_of, read_record
from hierbench.reports.site.sources import highlighted
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError

PER_LIST = 400  # runs on a page that lists them
FORMATS = {"csv": "table.csv", "json": "table.json", "latex": "table.tex"}


@dataclass(frozen=True)
class Site:
    """What is built.

    Attributes:
        title: of the site.
        base_url: where it will be, ending in "/"; "" if that is not known. Only the feed and BibTeX name it.
        tables: in the order of the index.
        command: returns the arguments of the command that makes runs again, or raises a UserError.
        caveat: what no verification can know.
    """

    title: str
    base_url: str
    tables: Sequence[Table]
    command: Command | None
    caveat: str


@dataclass
class _Made:
    """A table whose pages are written, as the index and the feed show it."""

    table: Table
    places: Places
    page: str
    title: str
    best: Row | None
    updated: str = ""
    methods: dict[int, Known | None] = field(default_factory=dict)


def write_site(site: Site, target: Path) -> int:
    """Write a site in the place of `target`; return the number of its files.

    Raises:
        UserError: `target` is not free and not a site that this function wrote, or cannot be written.
    """
    check_place(target)
    work = sum(len(table.runs) + 3 * len(table.board.rows) + 5 for table in site.tables)
    with Meter("site", work) as meter, replacing_folder(target) as folder:
        writer = Writer(folder, site.title, lambda: meter.end_part("", 1))
        methods, slugs = Methods(), Slugs()
        made = [_write_table(site, table, writer, methods, slugs) for table in site.tables]
        _write_methods(writer, methods, made)
        cards = [(one, read_card(one.table.folder)) for one in made]
        changes = [(one, change) for one in made for change in read_changes(one.table)]
        changes.sort(key=lambda pair: pair[1].date, reverse=True)
        known = sorted(methods.known.values(), key=lambda method: method.slug)
        writer.page("index.html", "index", tables=cards, methods=known, changes=changes[:5], verdicts=VERDICTS)
        writer.page("changes.html", "changes", changes=changes[:200])
        writer.write("feed.xml", _feed(site, made))
        writer.write(".nojekyll", "")  # GitHub's pages otherwise leave some names out
        write_marker(folder, writer.files)
    return len(writer.files)


def _write_table(site: Site, table: Table, writer: Writer, methods: Methods, slugs: Slugs) -> _Made:
    """Write all pages of a table."""
    places = Places(table, slugs.of(table.name if table.submission else table.dataset))
    made = _Made(table, places, f"{places.folder}/index.html", _title(table), best_row(table.board.rows))
    made.methods = {id(row): methods.add(table, row) for row in render.ordered_rows(table.board)}
    pairs = pairs_of(table.board)
    by_row: dict[int, list[Pair]] = {}
    for pair in pairs:
        by_row.setdefault(id(pair.row), []).append(pair)
    said = {run: one for one in table.rows for run in one.runs}
    shared = {"table": table, "places": places, "title": made.title}
    for row in render.ordered_rows(table.board):
        specs = _write_runs(site, made, row, row.runs, writer)
        known = made.methods[id(row)]
        writer.page(
            f"{places.folder}/{places.row(row)}",
            "row",
            row=row,
            method=known,
            columns=render.shown_columns(table.board),
            runs=_runs_of(table, row),
            pairs=by_row.get(id(row), []),
            verdict=table.verdict_of(row),
            said=list({id(said[run]): said[run] for run in row.runs if run in said}.values()),
            command=_command(site, specs, table.dataset),
            **shared,
        )
    shown = {run for row in table.board.rows for run in row.runs}
    _write_runs(site, made, None, [run for run in table.runs if run not in shown], writer)
    for pair in pairs:
        writer.page(f"{places.folder}/{places.pair(pair.row, pair.reference)}", "comparison", pair=pair, **shared)
    _write_table_pages(site, made, writer, shared)
    _write_checks(site, made, writer, shared)
    return made


def _title(table: Table) -> str:
    try:
        title = title_of(table.dataset)
    except (UserError, OSError):
        title = table.dataset
    return f"{table.submission}: {title}" if table.submission else title


def _runs_of(table: Table, row: Row) -> list[tuple[str, int | None, Said, dict[str, float]]]:
    """Return (id, seed, what is said, metrics) of a row's runs; seed and metrics of those that count."""
    said = {run: table.runs.get(run, Said(run, "")) for run in row.runs}
    counted = [run for run in row.runs if said[run].verdict not in ("unfinished", "rejected")]
    seeds = dict(zip(counted, row.seeds, strict=True)) if len(counted) == len(row.seeds) else {}
    values = {name: values_of(row, name) for name in row.metrics}
    return [
        (run, seeds.get(run), said[run], {name: of[seeds[run]] for name, of in values.items() if run in seeds and of})
        for run in row.runs
    ]


def _write_runs(site: Site, made: _Made, row: Row | None, ids: Sequence[str], writer: Writer) -> list[Spec]:
    """Write the pages of runs; return the specs of those that can be read."""
    specs, table, places = [], made.table, made.places
    for run_id in ids:
        try:
            record = read_record(table.store.run(run_id).folder)
        except UserError:  # it is a link
            record = read_record(table.folder / "nothing")
        spec = _spec(record.spec)
        specs += [spec] if spec else []
        made.updated = max(made.updated, record.time)
        writer.page(
            f"{places.folder}/{places.run(run_id)}",
            "run",
            table=table,
            places=places,
            title=made.title,
            id=run_id,
            row=row,
            record=record,
            spec=spec,
            said=table.runs.get(run_id, Said(run_id, "")),
            bases=[base for base in (spec.bases if spec else ()) if base in table.runs],
            command=_command(site, [spec] if spec else [], table.dataset),
            caveat=site.caveat,
        )
    return specs


def _spec(content: object) -> Spec | None:
    try:
        return Spec.model_validate(content)
    except ValidationError:
        return None


def _command(site: Site, specs: Sequence[Spec], dataset: str) -> tuple[str, str]:
    """Return the command that makes runs again, or the reason why there is none."""
    if site.command is None or not specs:
        return "", ""
    try:
        return shlex.join(site.command(specs, dataset)), ""
    except UserError as error:
        return "", str(error)


def _write_table_pages(site: Site, made: _Made, writer: Writer, shared: dict[str, object]) -> None:
    """Write the table in its parts, its downloads, pictures and BibTeX."""
    table, places, board = made.table, made.places, made.table.board
    lines = tables.lines_of(table, places, made.methods)
    pictures = pictures_of(table.folder, table.dataset)
    for picture in pictures:
        if picture.content:
            writer.write(f"{places.folder}/{picture.kind}.svg", picture.content)
    if board.rows:
        for name, file in FORMATS.items():
            writer.write(f"{places.folder}/{file}", render.FORMATS[name](board))
    card = read_card(table.folder)
    own = citing.bibtex_of_table(
        table.dataset,
        board.protocol,
        authors=card.authors if card else (),
        year=made.updated[:4],
        runs=sum(row.n for row in board.rows),
        link=f"{site.base_url}{made.page}" if site.base_url else "",
    )
    known = {method.slug: method for method in made.methods.values() if method}
    entries = [citing.bibtex_of_method(m.name, m.title, m.about.source) for m in known.values()]
    bibtex = "\n".join([own, *dict.fromkeys(filter(None, entries))])
    writer.write(f"{places.folder}/table.bib", bibtex)
    columns = render.shown_columns(board)
    parts = tables.parts_of(lines, columns)
    content = tables.content_of(table, lines)
    for part in parts:
        writer.page(
            f"{places.folder}/{part.page}",
            "table",
            part=part,
            parts_list=parts,
            total=len(lines),
            card=card,
            changes=read_changes(table),
            bibtex=own,
            units=render.units_of(board),
            downloads=FORMATS if board.rows else {},
            **content,
            **shared,
        )
    writer.page(f"{places.folder}/pictures.html", "pictures", pictures=pictures, **shared)


def _write_checks(site: Site, made: _Made, writer: Writer, shared: dict[str, object]) -> None:
    """Write what verification says: of tables and rows on the first page, of all runs on as many as it takes."""
    runs = sorted(made.table.runs.items(), key=lambda one: (one[1].verdict != "rejected", one[1].label, one[0]))
    starts = list(range(0, max(1, len(runs)), PER_LIST))
    names = ["checks.html", *(f"checks-{number}.html" for number in range(2, len(starts) + 1))]
    for name, start in zip(names, starts, strict=True):
        writer.page(
            f"{made.places.folder}/{name}",
            "checks",
            page=name,
            pages=names,
            runs=runs[start : start + PER_LIST],
            first=start == 0,
            claimed=claimed_counts(made.table),
            caveat=site.caveat,
            **shared,
        )


def _write_methods(writer: Writer, methods: Methods, made: Sequence[_Made]) -> None:
    of_table = {id(one.table): one for one in made}
    for method in methods.known.values():
        cells = [(of_table[id(table)], row) for table, row in method.cells]
        bibtex = citing.bibtex_of_method(method.name, method.title, method.about.source)
        code = highlighted(method.text)
        writer.page(f"methods/{method.slug}.html", "method", method=method, cells=cells, bibtex=bibtex, code=code)


def _feed(site: Site, made: Sequence[_Made]) -> str:
    entries = []
    for one in made:
        card = read_card(one.table.folder)
        counts = ", ".join(f"{number} {verdict}" for verdict, number in one.table.counts().items())
        text = f"{len(one.table.board.rows)} rows, {len(one.table.runs)} runs: {counts}"
        updated = one.updated or EPOCH
        authors = card.authors if card else ()
        entries.append(Entry(one.page, one.title, one.page, updated, text, authors))
        for number, change in enumerate(reversed(read_changes(one.table))):  # from the oldest: ids stay
            when = moment_of(change.date) or updated
            what = "; ".join(filter(None, [change.because, *change.lines])) or "published"
            entries.append(
                Entry(f"{one.page} {change.date} {number}", f"{one.title}: changed", one.page, when, what, authors)
            )
    return atom(site.title, site.base_url, entries)
