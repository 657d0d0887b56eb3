"""A pipe table of markdown."""

from hierbench.leaderboard.formats._text import Style, tabulate_table
from hierbench.leaderboard.table import Table
from hierbench.utils.text import markdown_escaped


def render(table: Table) -> str:
    """Return a pipe table with sentences around it; characters that markdown acts upon are escaped."""
    return tabulate_table(
        table, Style(markdown_escaped, "**{}**", "<u>{}</u>"), "pipe", r"\* ", "**Bold**: ", "<u>Underlined</u>: "
    )
