"""Builds the site of a folder of published tables: their pages, those of the methods, and the index."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hierbench.sharing.publication_folder import replaced
from hierbench.sharing.received_files import Received
from hierbench.sharing.site.content import SiteTable, find_tables, read_table
from hierbench.sharing.site.file_names import Slugs
from hierbench.sharing.site.method_pages import Methods
from hierbench.sharing.site.pages import TablePage, Writer, write_index, write_method
from hierbench.utils.console import Meter, say
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_json
from hierbench.utils.text import one_line

MARKER = ".hierbench-site"  # lists the files of a site, so that no other file is replaced


class _BuiltSite(Received):
    """The marker of a site."""

    files: tuple[str, ...]


def build_site(folder: Path, target: Path, data_dir: Path) -> tuple[int, Sequence[SiteTable]]:
    """Build the site of a folder in the place of `target`; return its number of files and its tables.

    Args:
        folder: of published tables.
        target: free, or a site that this function made.
        data_dir: prepared data, which gives verification the targets where it is that of the runs.

    Raises:
        UserError: there are no tables, or `target` is not free.
    """
    datasets = find_tables(folder)
    if folder.resolve().is_relative_to(target.resolve()):
        raise UserError(f"{folder} lies in --output {target}, which is replaced as a whole; give another folder")
    check_place(target)
    with replaced(target, None) as staging, Meter("site", len(datasets)) as meter:
        return write_site(_read_tables(folder, datasets, data_dir, meter), staging)


def _read_tables(folder: Path, datasets: Sequence[str], data_dir: Path, meter: Meter) -> Iterator[SiteTable]:
    """Yield each table as verification leaves it; it is done when the next one is asked for."""
    for dataset in datasets:
        say(one_line(f"verifying {folder / dataset}"))
        yield read_table(folder, dataset, data_dir)
        meter.end_part(dataset, 1.0)


def check_place(target: Path) -> None:
    """Raise a UserError unless `target` is free, an empty folder, or a site that this command wrote and no more."""
    if target.is_symlink():
        raise UserError(f"--output {target} is a symbolic link, which is not followed")
    if target.exists() and not target.is_dir():
        raise UserError(f"--output {target} is not a folder")
    files = {os.path.relpath(os.path.join(path, name), target) for path, _, names in os.walk(target) for name in names}
    if not files:
        return
    made = _BuiltSite.if_readable(target / MARKER)
    if made is None:
        raise UserError(f"--output {target} was not made by hierbench site build; give a new folder")
    foreign = sorted(files - {*made.files, MARKER})
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise UserError(f"--output {target} holds {foreign[0]}{more}, which is not of the site; move it away")


def write_site(tables: Iterable[SiteTable], target: Path) -> tuple[int, Sequence[SiteTable]]:
    """Write the pages of tables, in the order of the index, into a new folder.

    Returns:
        the number of files, and the tables.
    """
    writer = Writer(target)
    methods = Methods()
    slugs = Slugs()
    pages = list[TablePage]()
    for table in tables:
        pages.append(TablePage(table, slugs.of(table.dataset), writer, methods))
        pages[-1].write()
    for method in methods.known.values():
        write_method(writer, method)
    in_order = sorted(methods.known.values(), key=lambda method: method.slug)
    write_index(writer, pages, in_order)
    writer.write(".nojekyll", "")  # GitHub's pages otherwise leave some names out
    about = "made by hierbench site build, which replaces it"
    write_json(target / MARKER, {"about": about, "files": sorted(writer.files)})
    return len(writer.files), [page.table for page in pages]
