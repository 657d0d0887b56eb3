"""Writes what the published tables say together into the pages that show it: `uv run python docs/pictures/overview.py`.

The picture, and between the lines `<!-- overview -->` and `<!-- end -->` of a page the rows of `hierbench overview
leaderboard/published` on networks, claims and agreement, in the README as symbols.
tests/leaderboard/test_overview_table.py compares.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill

import numpy as np

from hierbench.config.recipe import image_dataset
from hierbench.figures.plots.overview_plot import draw
from hierbench.figures.plots.style import house_style, write_figure
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.claims import ClaimTest, claim_tests, claims_over_tables, named_rows, read_claims
from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.extra_columns import counted_runs
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.open_board import open_boards
from hierbench.leaderboard.overview_table import TableSummary, overview_table
from hierbench.leaderboard.paired import differences
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Table
from hierbench.runs.compact import read_compact, read_targets
from hierbench.sharing.published_tree import shipped_tree

ROOT = Path(__file__).resolve().parents[2]
ROWS = "Network|Claim|tau-b"  # of the page on photographs
SYMBOLS = {"yes": "✓", "no": "✗", "open": "·", "tie": "=", "-": "-"}
PICTURE = "docs/pictures/overview.svg"
NO_VERDICT = ("Effect", "Mean rank", "Wins")  # columns
SEVERITY = PAPER_BY_NAME["mistake_severity"]


def part_of(text: str, rows: str) -> str:
    """Return the heading and those rows of a markdown table that begin with one of these words."""
    table = [line for line in text.splitlines() if line.startswith("|")]
    return "\n".join([*table[:2], *(line for line in table[2:] if re.match(rf"\| ({rows})", line))])


def matrix_of(table: Table) -> str:
    """Return a markdown table of the claims as symbols: over datasets, over tables, then a symbol per table.

    The tables of the same images share a column. Below stand their names, and how many claims hold over all.
    """
    images: dict[str, list[int]] = {}
    for place, head in enumerate(table.columns):
        if place > 3 and head not in NO_VERDICT:
            images.setdefault(image_dataset(head), []).append(place)
    columns = [[2], [3], *images.values()]
    heads = ["Claim", "Over datasets", "Over tables", *images]
    lines = [heads, [":--", *[":-:"] * len(columns)]]
    for row in table.rows:
        if row.cells[0].text == "Claim":
            verdicts = [[row.cells[place].text.partition(",")[0] for place in places] for places in columns]
            lines.append([row.cells[1].text, *(" ".join(SYMBOLS[word] for word in words) for words in verdicts)])
    names = [
        f"{name} {', '.join(table.columns[place].rpartition('-')[2] for place in places)}"
        for name, places in images.items()
    ]
    rows = [f"| {' | '.join(cells)} |" for cells in lines]
    num_yes = [sum(row[place] == SYMBOLS["yes"] for row in lines[2:]) for place in (1, 2)]
    remarks = (
        f"Over the {sum(map(len, images.values()))} tables, which share images and networks, {num_yes[1]} of "
        f"{len(lines) - 2} claims hold. Over the {len(images)} sets of images {num_yes[0]}: the least p of so few is "
        f"{2 / 2 ** len(images):.2g}, before any correction. "
        f"A sign per table: {'; '.join(names)}."
    )
    return "\n".join([*rows, "", fill(remarks, 130)])


def image_table(boards: Sequence[Board]) -> str:
    """Return a markdown table of HAFrame minus cross-entropy on type II: half-widths over seeds and over images."""
    lines = ["| Table | Metric | HAFrame minus cross-entropy | over seeds | over images |", "|---|---|---|---|---|"]
    for board in sorted(boards, key=lambda each: each.dataset):
        rows = named_rows(board)
        row = rows["haframe:type-II"]
        reference = rows["ce:type-II"]
        images = [influences(each, board) for each in (row, reference)]
        for column in (SEVERITY, PAPER_BY_NAME["top1"]):
            gap = differences(row, reference, [column.name], board.seeds)[column.name]
            values = images[0][column.name] - images[1][column.name]
            half = 1.96 * values.std(ddof=1) / len(values) ** 0.5
            numbers = (f"{gap.mean:+.{column.digits}f}", f"{gap.ci95:.{column.digits}f}", f"{half:.{column.digits}f}")
            lines.append(f"| {board.dataset} | {column.title} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def variant_table(boards: Sequence[Board]) -> str:
    """Return a markdown table of HAFrame searched and set by hand, and the fixed ETF, minus cross-entropy, type II."""
    columns = [PAPER_BY_NAME[name] for name in ("top1", "mistake_severity", "hierdist@1", "hierdist@5")]
    lines = [
        f"| Table | Row, type II | {' | '.join(column.heading for column in columns)} |",
        "|" + "---|" * (2 + len(columns)),
    ]
    searched = {board.dataset: named_rows(board) for board in boards}
    for board in boards_in("variants"):
        rows = searched[board.dataset]
        named = [rows[name] for name in ("haframe:type-II", "etf:type-II") if name in rows]
        for row in [named[0], *board.rows, *named[1:]]:
            gaps = differences(row, rows["ce:type-II"], [column.name for column in columns])
            cells = [f"{gap.mean:+.2f} +/- {gap.ci95:.2f}" for gap in gaps.values()]
            lines.append(f"| {board.dataset} | {row.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def boards_in(folder: str) -> list[Board]:
    """Return the tables of a folder of rows that were set by hand, which are published by themselves."""
    return sorted(open_boards([ROOT / "leaderboard/published" / folder], paper=False), key=lambda each: each.dataset)


def by_severity(boards: Sequence[Board]) -> list[Board]:
    """Return the boards with the trained rows that severity would have selected in place of the searched ones."""
    others = {board.dataset: {(row.method, row.type): row for row in board.rows} for board in boards_in("selection")}
    return [
        replace(board, rows=tuple(others.get(board.dataset, {}).get((row.method, row.type), row) for row in board.rows))
        for board in boards
    ]


def selection_tables(boards: Sequence[Board]) -> tuple[str, str]:
    """Return markdown tables of claims with rows selected by HierDist@1 and by severity: in tables, and over them."""
    claims = read_claims()
    over = [list[str](), list[str]()]
    tests = [[claim_tests(claims, board, PAPER_BY_NAME) for board in each] for each in (boards, by_severity(boards))]
    for verdicts, each in zip(over, tests, strict=True):
        for claim, test in zip(
            claims, claims_over_tables(claims, boards, each, PAPER_BY_NAME, by_images=False), strict=True
        ):
            assert test is not None, claim.says
            gain = f"{test.gain:+.2f} +/- {test.ci95:.2f}"
            verdicts.append(f"{test.verdict}, gain {gain}, p {test.wilcoxon:.2g}, corrected {test.p_holm:.2g}")
    selected = {board.dataset for board in boards_in("selection")}
    lines = [
        f"| {board.dataset} | {claim.says} | {' | '.join(_shown(table[place]) for table in pair)} |"
        for board, *pair in sorted(zip(boards, *tests, strict=True), key=lambda each: each[0].dataset)
        if board.dataset in selected
        for place, claim in enumerate(claims)
    ]
    head = "Claim | Selected by HierDist@1 | Selected by severity |\n|---|---|---|"
    over_lines = [f"| {claim.says} | {' | '.join(pair)} |" for claim, *pair in zip(claims, *over, strict=True)]
    return "\n".join([f"| Table | {head}---|", *lines]), "\n".join([f"| {head}", *over_lines])


def _shown(test: ClaimTest) -> str:
    return f"{test.verdict}, {test.gap.mean:+.2f} +/- {test.gap.ci95:.2f}" if test.gap else "-"


def influences(row: Row, board: Board) -> dict[str, np.ndarray]:
    """Return {metric: [N]} what each test image adds to a row's mean over seeds, from its predictions.

    Of accuracy (%), a mean over images, it is the image's own; of severity, a ratio of the sums of distances and of
    mistakes, it is (distance - severity * is_mistake) / error rate (the delta method).
    """
    runs = counted_runs(row, board.records)
    tree = shipped_tree(runs[0].data)
    targets = read_targets(board.records.root)
    severities, tops = [], []
    for run in runs:
        best = read_compact(run.folder).ranked[:, 0]
        wrong = best != targets
        distances = tree.distances[targets, best]
        severities.append((distances - distances.sum() / wrong.sum() * wrong) / wrong.mean())
        tops.append(100.0 * ~wrong)
    return {SEVERITY.name: np.mean(severities, axis=0), "top1": np.mean(tops, axis=0)}


def filled(page: str, part: str, mark: str = "overview") -> str:
    """Return a page with a part between its two lines."""
    return re.sub(rf"(?<=<!-- {mark} -->\n).*?(?=\n<!-- end -->)", lambda _: part, page, flags=re.DOTALL)


def parts_of(table: Table, boards: Sequence[Board]) -> dict[tuple[str, str], str]:
    """Return what each page shows, by page and mark."""
    selection, over = selection_tables(boards)
    return {
        ("README.md", "overview"): matrix_of(table),
        ("docs/photographs.md", "overview"): part_of(render(table), ROWS),
        ("docs/photographs.md", "images"): image_table(boards),
        ("docs/photographs.md", "variants"): variant_table(boards),
        ("docs/photographs.md", "selection"): selection,
        ("docs/photographs.md", "selection over tables"): over,
    }


def main() -> None:
    """Write picture and pages."""
    boards = open_boards([ROOT / "leaderboard/published"], paper=False)
    parts = parts_of(overview_table(boards, SEVERITY.name, read_claims()), boards)
    with house_style():
        write_figure(draw([TableSummary.of(board) for board in boards], SEVERITY), ROOT / PICTURE)
    for (page, mark), part in parts.items():
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), part, mark), encoding="utf-8")


if __name__ == "__main__":
    main()
