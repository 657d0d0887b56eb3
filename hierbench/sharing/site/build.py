"""Builds the site of a folder of published tables: their pages, those of the methods, and what lists them all."""

import os
from collections.abc import Sequence
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from markupsafe import escape

from hierbench.sharing.place import replaced
from hierbench.sharing.received import Received
from hierbench.sharing.site import citing, tables
from hierbench.sharing.site.content import Table, find_tables, read_table
from hierbench.sharing.site.folders import Folder
from hierbench.sharing.site.methods import Methods, highlighted
from hierbench.sharing.site.names import Slugs, clean, name_of
from hierbench.sharing.site.pages import Writer, environment
from hierbench.sharing.site.runs import moment_of
from hierbench.utils.console import Meter, say
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_json
from hierbench.utils.text import one_line

EPOCH = "1970-01-01T00:00:00Z"  # of a table whose records name no time
LONGEST = 4000  # characters of an entry of the feed
MARKER = ".hierbench-site"  # lists the files of a site, so that none of anybody else's is replaced


class _Made(Received):
    """The marker of a site."""

    files: tuple[str, ...]


def build_site(folder: Path, target: Path, title: str, base_url: str, data_dir: Path) -> tuple[int, Sequence[Table]]:
    """Build the site of a folder in the place of `target`; return its number of files and its tables.

    Args:
        folder: of published tables, or a repository of results: `submissions/<name>/` and `boards/` are such folders.
        target: free, or a site that this function made.
        title: of the site.
        base_url: where it will be, "" if that is not known. Only the feed and BibTeX name it.
        data_dir: prepared data, which gives verification the targets where it is that of the runs.

    Raises:
        UserError: there are no tables, or `target` is not free.
    """
    found = find_tables(folder)
    if folder.resolve().is_relative_to(target.resolve()):
        raise UserError(f"{folder} lies in --output {target}, which is replaced as a whole; give another folder")
    check_place(target)
    made = []
    for submission, place, dataset in found:
        say(one_line(f"verifying {place / dataset}"))
        made.append(read_table(place, dataset, submission, data_dir))
    with replaced(target, None) as staging:
        number = write_site(made, staging, title, f"{base_url.rstrip('/')}/" if base_url else "")
    return number, made


def check_place(target: Path) -> None:
    """Raise a UserError unless `target` is free, an empty folder, or a site that this command wrote and no more."""
    if target.is_symlink():
        raise UserError(f"--output {target} is a symbolic link, which is not followed")
    if target.exists() and not target.is_dir():
        raise UserError(f"--output {target} is not a folder")
    found = {os.path.relpath(os.path.join(path, name), target) for path, _, names in os.walk(target) for name in names}
    if not found:
        return
    made = _Made.if_readable(target / MARKER)
    if made is None:
        raise UserError(f"--output {target} was not made by hierbench site build; give a new folder")
    if foreign := sorted(found - {*made.files, MARKER}):
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UserError(f"--output {target} holds {foreign[0]}{more}, which is not of the site; move it away")


def write_site(made: Sequence[Table], target: Path, title: str, base_url: str) -> int:
    """Write the pages of tables, in the order of the index, into a new folder; return the number of files."""
    work = 30 + sum(len(table.runs) * 1.01 + 4 * len(table.board.rows) + 20 for table in made)  # at most
    with Meter("site", work) as meter:
        writer, methods, slugs = Writer(target, title, lambda: meter.end_part("", 1)), Methods(), Slugs()
        folders = []
        for table in made:
            name = name_of(f"{table.submission}: {table.dataset}") if table.submission else table.dataset
            folders.append(Folder(table, slugs.of(name), writer, methods))
            folders[-1].write(base_url)
        _write_methods(writer, methods, folders)
        changes = [(one, change) for one in folders for change in one.table.changes]
        changes.sort(key=lambda pair: pair[1].date, reverse=True)
        known = sorted(methods.known.values(), key=lambda method: method.slug)
        writer.page("index.html", "index", tables=folders, methods=known, changes=changes[:5])
        writer.page("changes.html", "changes", changes=changes[:200])
        writer.write("feed.xml", _feed(title, base_url, folders))
        writer.write(".nojekyll", "")  # GitHub's pages otherwise leave some names out
        about = "made by hierbench site build, which replaces it"
        write_json(target / MARKER, {"about": about, "files": sorted(writer.files)})
    return len(writer.files)


def _write_methods(writer: Writer, methods: Methods, made: Sequence[Folder]) -> None:
    places = {id(one.table): (one.table.title, one.places) for one in made}
    for method in methods.known.values():
        writer.page(
            f"methods/{method.slug}.html",
            "method",
            method=method,
            grid=tables.method_page(method, places, "../"),
            bibtex=citing.bibtex_of_method(method.name, method.title, method.about.source),
            code=highlighted(method.text),
        )


def _feed(title: str, base_url: str, made: Sequence[Folder]) -> str:
    """Return the Atom feed (RFC 4287), newest first: an entry per table, and one per change of a table."""

    def identity(key: str) -> str:
        return f"urn:uuid:{uuid5(NAMESPACE_URL, f'{base_url or title}{key}'.encode(errors='replace').decode())}"

    entries = []
    for one in made:
        table, updated = one.table, one.updated or EPOCH
        counts = ", ".join(f"{number} {verdict}" for verdict, number in table.counts().items())
        text = f"{len(table.board.rows)} rows, {len(table.runs)} runs: {counts}"
        shown = [(one.page, table.title, updated, text)]
        for number, change in enumerate(reversed(table.changes)):  # from the oldest: ids stay
            what = "; ".join(filter(None, [change.because, *change.lines])) or "published"
            when = moment_of(change.date) or updated
            shown.append((f"{one.page} {change.date} {number}", f"{table.title}: changed", when, what))
        about = {"page": one.page, "authors": table.card.authors if table.card else ()}
        entries += [
            {"key": key, "title": name, "updated": when, "text": escape(clean(what, LONGEST)), **about}
            for key, name, when, what in shown
        ]
    entries.sort(key=lambda entry: (entry["updated"], entry["key"]), reverse=True)
    content = {"site": title, "base_url": base_url, "entries": entries, "id": identity}
    return environment().get_template("feed.xml.j2").render(content)
