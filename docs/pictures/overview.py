"""Writes what the published tables say together into the pages that show it: `uv run python docs/pictures/overview.py`.

The picture, and between the lines `<!-- overview -->` and `<!-- end -->` of a page the rows of `hierbench overview
leaderboard/published` on networks, claims and agreement, in the README as symbols.
tests/leaderboard/test_overview_table.py compares.
"""

import re
from pathlib import Path

from hierbench.figures.plots.overview_plot import draw
from hierbench.figures.plots.style import house_style, write_figure
from hierbench.leaderboard.claims import read_claims
from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.open_board import open_boards
from hierbench.leaderboard.overview_table import TableSummary, overview_table
from hierbench.leaderboard.table import Table

ROOT = Path(__file__).resolve().parents[2]
ROWS = "Network|Claim|tau-b"  # of the page on photographs
SYMBOLS = {"yes": "✓", "no": "✗", "open": "·", "tie": "=", "-": " "}
PICTURE = "docs/pictures/overview.svg"
NO_VERDICT = ("Effect", "Mean rank", "Wins")  # columns
SEVERITY = PAPER_BY_NAME["mistake_severity"]


def part_of(text: str, rows: str) -> str:
    """Return the heading and those rows of a markdown table that begin with one of these words."""
    table = [line for line in text.splitlines() if line.startswith("|")]
    return "\n".join([*table[:2], *(line for line in table[2:] if re.match(rf"\| ({rows})", line))])


def matrix_of(table: Table) -> str:
    """Return a markdown table of the claims as symbols: over the sets of images, then over all tables, then each."""
    places = [place for place, head in enumerate(table.columns) if place > 1 and head not in NO_VERDICT]
    heads = ["Claim", *(table.columns[place].replace("-", " ") for place in places)]
    lines = [
        [line.cells[1].text, *(SYMBOLS[line.cells[place].text.partition(",")[0]] for place in places)]
        for line in table.rows
        if line.cells[0].text == "Claim"
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, [":--", *[":-:"] * len(places)], *lines])


def filled(page: str, part: str) -> str:
    """Return a page with a part between its two lines."""
    return re.sub(r"(?<=<!-- overview -->\n).*?(?=\n<!-- end -->)", lambda _: part, page, flags=re.DOTALL)


def parts_of(table: Table) -> dict[str, str]:
    """Return what each page shows."""
    return {"README.md": matrix_of(table), "docs/photographs.md": part_of(render(table), ROWS)}


def main() -> None:
    """Write picture and pages."""
    boards = open_boards([ROOT / "leaderboard/published"], paper=False)
    parts = parts_of(overview_table(boards, SEVERITY.name, read_claims()))
    with house_style():
        write_figure(draw([TableSummary.of(board) for board in boards], SEVERITY), ROOT / PICTURE)
    for page, part in parts.items():
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), part), encoding="utf-8")


if __name__ == "__main__":
    main()
