"""Builds the site: the pages of each table, of the methods, and what lists them all."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hierbench.reports.site import citing, tables
from hierbench.reports.site.content import Command, Table, read_card, read_changes
from hierbench.reports.site.feed import EPOCH, Entry, atom
from hierbench.reports.site.folders import Folder, write_table
from hierbench.reports.site.methods import Methods
from hierbench.reports.site.names import Slugs
from hierbench.reports.site.pages import Writer
from hierbench.reports.site.place import check_place, replacing_folder, write_marker
from hierbench.reports.site.runs import moment_of
from hierbench.reports.site.sources import highlighted
from hierbench.utils.console import Meter


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


def write_site(site: Site, target: Path) -> int:
    """Write a site in the place of `target`; return the number of its files.

    Raises:
        UserError: `target` is not free and not a site that this function wrote, or cannot be written.
    """
    check_place(target)
    work = 30 + sum(len(table.runs) * 1.01 + 4 * len(table.board.rows) + 20 for table in site.tables)  # at most
    with Meter("site", work) as meter, replacing_folder(target) as folder:
        writer = Writer(folder, site.title, lambda: meter.end_part("", 1))
        methods, slugs = Methods(), Slugs()
        made = [
            write_table(
                Folder(table, slugs.of(table.name if table.submission else table.dataset), read_card(table.folder)),
                writer,
                methods,
                command=site.command,
                caveat=site.caveat,
                base_url=site.base_url,
            )
            for table in site.tables
        ]
        _write_methods(writer, methods, made)
        changes = [(one, change) for one in made for change in read_changes(one.table)]
        changes.sort(key=lambda pair: pair[1].date, reverse=True)
        known = sorted(methods.known.values(), key=lambda method: method.slug)
        writer.page("index.html", "index", tables=made, methods=known, changes=changes[:5])
        writer.page("changes.html", "changes", changes=changes[:200])
        writer.write("feed.xml", _feed(site, made))
        writer.write(".nojekyll", "")  # GitHub's pages otherwise leave some names out
        write_marker(folder, writer.files)
    return len(writer.files)


def _write_methods(writer: Writer, methods: Methods, made: Sequence[Folder]) -> None:
    places = {id(one.table): (one.title, one.places) for one in made}
    for method in methods.known.values():
        bibtex = citing.bibtex_of_method(method.name, method.title, method.about.source)
        found = method.about.hyperparameters
        content = {
            "hyperparameters": [(one.name, one.kind, one.default, one.bounds or "–", one.grid or "–") for one in found],
            "grid": tables.method_page(method, places, "../"),
            "bibtex": bibtex,
            "code": highlighted(method.text),
        }
        writer.page(f"methods/{method.slug}.html", "method", method=method, **content)


def _feed(site: Site, made: Sequence[Folder]) -> str:
    entries = []
    for one in made:
        counts = ", ".join(f"{number} {verdict}" for verdict, number in one.table.counts().items())
        text = f"{len(one.table.board.rows)} rows, {len(one.table.runs)} runs: {counts}"
        updated = one.updated or EPOCH
        authors = one.card.authors if one.card else ()
        entries.append(Entry(one.page, one.title, one.page, updated, text, authors))
        for number, change in enumerate(reversed(read_changes(one.table))):  # from the oldest: ids stay
            when = moment_of(change.date) or updated
            what = "; ".join(filter(None, [change.because, *change.lines])) or "published"
            entries.append(
                Entry(f"{one.page} {change.date} {number}", f"{one.title}: changed", one.page, when, what, authors)
            )
    return atom(site.title, site.base_url, entries)
