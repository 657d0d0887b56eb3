"""The overview of two published tables and the paper's, against the same numbers computed here from their JSON."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.open_board import open_boards
from hierbench.leaderboard.overview_table import overview_table
from hierbench.leaderboard.paper_tables import paper_datasets
from hierbench.leaderboard.protocol import read_protocol
from hierbench.leaderboard.table import Interval

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "leaderboard/published"
NAMES = ("cifar100-small", "grocery-finetuned")
METRIC = "mistake_severity"


@pytest.fixture(scope="module")
def tables():
    """The values [seeds] of both tables by row and metric."""
    all_rows = []
    for name in NAMES:
        rows = {}
        for row in json.loads((PUBLISHED / f"{name}.json").read_text())["rows"]:
            values = {metric: np.array(cell["values"]) for metric, cell in row["metrics"].items()}
            rows[f"{row['method']}:{row['type']}"] = values
        all_rows.append(rows)
    return all_rows


@pytest.fixture(scope="module")
def overview(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    for name in NAMES:
        for suffix in ("", ".json"):
            (folder / f"{name}{suffix}").symlink_to(PUBLISHED / f"{name}{suffix}")
    table = overview_table(open_boards([folder]))
    assert table.content is None and not table.above  # no table of the protocol
    return {line.cells[0].text: line.cells[1:] for line in table.rows}


def by_hand(rows):
    """{(row, metric): (difference, half-width, adjusted p)} of all rows from cross-entropy of their type, by seed."""
    gaps = {}
    for name, metrics in rows.items():
        method, kind = name.split(":")
        for metric, values in metrics.items() if method != "ce" else ():
            gap = values - rows[f"ce:{kind}"][metric]
            width = stats.t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / len(gap) ** 0.5
            gaps[name, metric] = [gap.mean(), width, stats.ttest_1samp(gap, 0).pvalue]
    order = sorted(gaps, key=lambda key: gaps[key][2])
    largest = 0.0
    for place, key in enumerate(order):
        largest = max(largest, (len(order) - place) * gaps[key][2])
        gaps[key][2] = min(1.0, largest)
    return gaps


def test_differences_are_those_computed_by_hand(overview, tables):
    gaps = [by_hand(rows) for rows in tables]
    titles = {f"{title.lower()}:type-II": f"{title}, type-II" for title in ("HAFrame", "CRM", "Flamingo")}
    for name, title in titles.items():
        for cell, gaps_of_row in zip(overview[title], gaps, strict=True):
            mean, width, p = gaps_of_row[name, METRIC]
            assert isinstance(cell, Interval) and (cell.mean, cell.ci95) == (pytest.approx(mean), pytest.approx(width))
            assert cell.versus == ("" if p >= 0.05 else "better" if mean < 0 else "worse")
    assert [cell.text for cell in overview["training"]] == ["from scratch", "fine-tuned"]


def test_printed_differences_are_welchs_of_the_printed_numbers():
    """Of five runs a row; the printed half-widths have the deviation over n."""
    table = overview_table([Board.paper(name) for name in paper_datasets()])
    (line,) = [line for line in table.rows if line.cells[0].text == "HAFrame, type-II"]
    cell = line.cells[table.columns.index("fgvc (paper)")]
    ours, base = (2.02, 0.0381), (2.15, 0.0159)
    deviations = [width / stats.t.ppf(0.975, 4) * 5**0.5 * (5 / 4) ** 0.5 for _, width in (ours, base)]
    test = stats.ttest_ind_from_stats(ours[0], deviations[0], 5, base[0], deviations[1], 5, equal_var=False)
    assert cell.mean == pytest.approx(ours[0] - base[0])
    error = (deviations[0] ** 2 / 5 + deviations[1] ** 2 / 5) ** 0.5
    assert cell.ci95 / error == pytest.approx(stats.t.ppf(0.975, welch_freedom(deviations)))
    assert test.statistic == pytest.approx(cell.mean / error)


def welch_freedom(deviations):
    parts = [deviation**2 / 5 for deviation in deviations]
    return sum(parts) ** 2 / sum(part**2 / 4 for part in parts)


def test_the_pages_have_the_verdict_of_the_tables():
    """README and docs/verdict.md, as docs/pictures/verdict.py writes them, with a sentence and a line per claim."""
    pages = runpy.run_path(str(ROOT / "docs/pictures/verdict.py"))
    for page, part in pages["parts_of"](open_boards([PUBLISHED])).items():
        shown = (ROOT / page).read_text(encoding="utf-8")
        assert pages["filled"](shown, part) == shown, page
        if page in ("README.md", "docs/verdict.md"):
            assert "every claim is open" in part or all(claim.claim in part for claim in read_protocol().claims)


def test_no_page_says_more_than_the_verdict():
    """Outside the generated part no sentence says that a method is better, or costs at most something."""
    for page in ("README.md", "docs/verdict.md", "docs/answers.md", "docs/index.md"):
        text = re.sub(
            r"<!-- verdict -->.*?<!-- end of the verdict -->", "", (ROOT / page).read_text("utf-8"), flags=re.S
        )
        sentences = re.findall(r"[^.|]*\b(?:HAFrame|CRM|Flamingo|HAFeature|HiE|Hier-COS)\b[^.|]*", text)
        claims = [line for line in sentences if re.search(r"\b(?:better|milder|lower|less severe|at most)\b", line)]
        assert not claims, (page, claims)
