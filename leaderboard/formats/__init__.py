"""One renderer per format, of a `Table` alone; each escapes what data may hold in one place."""

from collections.abc import Callable
from typing import Literal, get_args

from hierbench.leaderboard.table import Table
from hierbench.utils.errors import unknown_name

Format = Literal["markdown", "latex", "csv", "json", "html", "terminal"]
FORMATS: tuple[Format, ...] = get_args(Format)


def render(table: Table, format: str = "markdown") -> str:
    """Return a table as text in one of FORMATS; a UserError for another."""
    from hierbench.leaderboard.formats import html, latex, text

    renderers: dict[str, Callable[[Table], str]] = {
        "markdown": text.markdown,
        "latex": latex.render,
        "csv": text.as_csv,
        "json": text.as_json,
        "html": html.render,
        "terminal": text.terminal,
    }
    if format not in renderers:
        raise unknown_name("format", format, FORMATS)
    return renderers[format](table)
