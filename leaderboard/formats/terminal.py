"""Aligned columns, to read in a terminal."""

from hierbench.leaderboard.formats._text import Style, text_of
from hierbench.leaderboard.table import Table
from hierbench.utils.text import one_line


def render(table: Table) -> str:
    """Return columns under a line, without a line where nothing is said of them."""
    return text_of(table, Style(one_line), "simple" if table.notes else "plain", "* ", "", "")
