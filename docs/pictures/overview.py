"""Writes what the published tables say together into the pages that show it: `uv run python docs/pictures/overview.py`.

The picture, and between the lines `<!-- overview -->` and `<!-- end -->` of a page the rows of `hierbench overview
leaderboard/published` on networks, claims and agreement. tests/leaderboard/test_overview_table.py compares.
"""

import re
from pathlib import Path

from hierbench.figures.plots.overview_plot import draw
from hierbench.figures.plots.style import house_style, write_figure
from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.open_board import open_boards
from hierbench.leaderboard.overview_table import TableSummary, overview_table, read_claims

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README.md": "Network|Claim", "docs/photographs.md": "Network|Claim|tau-b"}
PICTURE = "docs/pictures/overview.svg"
SEVERITY = PAPER_BY_NAME["mistake_severity"]


def part_of(text: str, rows: str) -> str:
    """Return the heading and those rows of a markdown table that begin with one of these words."""
    table = [line for line in text.splitlines() if line.startswith("|")]
    return "\n".join([*table[:2], *(line for line in table[2:] if re.match(rf"\| ({rows})", line))])


def filled(page: str, part: str) -> str:
    """Return a page with a part between its two lines."""
    return re.sub(r"(?<=<!-- overview -->\n).*?(?=\n<!-- end -->)", lambda _: part, page, flags=re.DOTALL)


def main() -> None:
    """Write picture and pages."""
    boards = open_boards([ROOT / "leaderboard/published"], paper=False)
    text = render(overview_table(boards, SEVERITY.name, read_claims()))
    with house_style():
        write_figure(draw([TableSummary.of(board) for board in boards], SEVERITY), ROOT / PICTURE)
    for page, rows in PAGES.items():
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), part_of(text, rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
