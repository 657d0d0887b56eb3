"""Aligned columns, to read in a terminal."""

import re

from hierbench.leaderboard.formats._text import Style, legend_lines, tabulate_table
from hierbench.leaderboard.table import Interval, Table
from hierbench.utils.text import one_line

PLAIN_STYLE = Style(one_line)
WIDE = 100  # columns of a terminal from which on there are two blanks between those of a table


def render(table: Table) -> str:
    """Return columns under a line; a column without a heading gets no line."""
    return tabulate_table(table, PLAIN_STYLE, "simple" if table.notes else "plain", "* ", "", "")


def show(table: Table) -> None:
    """Print a table within the width of the terminal, with bold and underlined numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    console = Console(highlight=False)
    grid = Grid(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, console.width > WIDE, 0, 0))
    lines = PLAIN_STYLE.lines(table)
    texts = table.numeric.count(False)
    numbers = sum(
        max((len(cells[place]) for cells in lines), default=0) for place, number in enumerate(table.numeric) if number
    )
    share = max(4, (console.width - numbers - len(table.columns)) // max(1, texts))
    for place, (column, number) in enumerate(zip(table.columns, table.numeric, strict=True)):
        if number:  # numbers are not broken, so their heading is
            head = re.sub(r" (?![↑↓])|(?=@)", "\n", one_line(column)).replace(" ", "")
            grid.add_column(Text(head), justify="right", no_wrap=True)
        else:
            longest = max((len(word) for cells in lines for word in cells[place].split()), default=0)
            grid.add_column(Text(one_line(column)), overflow="fold", min_width=min(longest, share))
    for line, shown in zip(table.rows, lines, strict=True):
        cells = []
        for cell, text in zip(line.cells, shown, strict=True):
            marks = ["dim"] * (line.kind == "lacking")
            if isinstance(cell, Interval):
                text = text.replace(" +/- ", "±").replace(" ▲", "▲").replace(" ▼", "▼")
                marks += ["bold"] * cell.strong + ["underline"] * cell.underlined
            cells.append(Text(text, style=" ".join(marks)))
        grid.add_row(*cells)
    for text in table.above:
        console.print(Text(one_line(text)))
    if table.rows:
        console.print(grid)
    notes = [one_line(text).replace("+/-", "±") for text in table.notes]
    legend = [one_line(text) for text in legend_lines(table, "* ", "Bold: ", "Underlined: ")]
    for text in [*notes[:1], *legend, *notes[1:], *(f"- {one_line(item)}" for item in table.items)]:
        console.print(Text(text))
