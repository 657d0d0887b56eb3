"""Writes pages: templates in which every expression is cleaned and escaped, and the addresses of everything."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hierbench.leaderboard.formats import html
from hierbench.leaderboard.letters import listed
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Line, Text
from hierbench.leaderboard.table import Table as Sheet
from hierbench.runs.store import RUN_ID
from hierbench.sharing.site import svg
from hierbench.sharing.site.content import Table
from hierbench.sharing.site.names import Slugs, block, clean, name_of, slug_of

ASSETS = ("style.css", "tables.js", "icon.svg")


@lru_cache
def environment() -> Environment:
    """Return the templates; compiled once in a process."""
    made = Environment(
        loader=PackageLoader("hierbench.sharing.site", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=clean,
        auto_reload=False,
    )
    made.filters |= {"block": block, "name": name_of}
    made.filters["listed"] = listed
    made.globals["svg"] = svg
    return made


def shown(table: Sheet) -> Markup:
    """Return a table as a part of a page."""
    return Markup(html.fragment(table, table.title))


def plain(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    """Return a table of texts."""
    return shown(Sheet(title, heads, [Line([Text(clean(str(value))) for value in row]) for row in rows]))


class Places:
    """The addresses of a table's pages, within the table's folder.

    Attributes:
        folder: of the table, relative to the site's root.
    """

    def __init__(self, table: Table, slug: str) -> None:
        self.folder = f"tables/{slug}"
        self._runs, self._rows = Slugs(), Slugs()
        self._of_run: dict[str, str] = {}
        self.rows = {id(row): self._rows.of(slug_of(f"{row.type.lower()}-{row.method}")) for row in table.board.rows}

    def row(self, row: Row) -> str:
        """Return the page of a row."""
        return f"row-{self.rows[id(row)]}.html"

    def pair(self, row: Row, reference: Row) -> str:
        """Return the page of a comparison."""
        return f"{self.rows[id(row)]}-minus-{self.rows[id(reference)]}.html"

    def run(self, run_id: str) -> str:
        """Return the page of a run, whose folder may have any name."""
        if run_id not in self._of_run:
            self._of_run[run_id] = self._runs.of(run_id[:16] if RUN_ID.fullmatch(run_id) else run_id)
        return f"run-{self._of_run[run_id]}.html"


class Writer:
    """Writes the files of a site below a folder.

    Attributes:
        files: what was written, relative to the folder.
    """

    def __init__(self, root: Path, title: str, wrote: Callable[[], None] = lambda: None) -> None:
        self.root, self.title, self.files, self._wrote = root, title, list[str](), wrote
        package, own = resources.files("hierbench.sharing.site") / "templates", html.style()
        for name in ASSETS:
            self.write(name, (own if name == "style.css" else "").encode() + (package / name).read_bytes())

    def page(self, path: str, template: str, **content: Any) -> None:
        """Render a page."""
        up = "../" * path.count("/")
        made = environment().get_template(f"{template}.html.j2")
        text = made.render(site=self.title, up=up, plain=plain, **content)
        self.write(path, text)

    def write(self, path: str, content: str | bytes) -> None:
        """Write a file."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode(errors="replace"))
        self.files.append(path)
        self._wrote()
