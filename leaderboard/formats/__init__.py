"""One file per format, named as the format; each renders a `Table`, and escapes its data in one place."""

from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

from hierbench.leaderboard.table import Table
from hierbench.utils.errors import unknown_name

TABLE_FORMATS = tuple(
    sorted(
        file.name.removesuffix(".py")
        for file in files(__name__).iterdir()
        if file.name.endswith(".py") and not file.name.startswith("_")
    )
)
if TYPE_CHECKING:
    Format = str
else:
    Format = Literal[TABLE_FORMATS]


def render(table: Table, format: str = "markdown") -> str:
    """Return a table as text in one of TABLE_FORMATS; a UserError for another."""
    if format not in TABLE_FORMATS:
        raise unknown_name("format", format, TABLE_FORMATS)
    text: str = import_module(f"{__name__}.{format}").render(table)
    return text
