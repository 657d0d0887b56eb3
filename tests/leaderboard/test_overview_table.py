"""The overview of two published tables and the paper's, against the same numbers computed here from their JSON."""

import json
import re
import runpy
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hierbench.config.sections import PAPER_METHODS
from hierbench.figures.plots import overview_plot
from hierbench.leaderboard.claims import Claim, claim_tests, named_rows, read_claims
from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.open_board import open_boards
from hierbench.leaderboard.overview_table import TableSummary, overview_table
from hierbench.leaderboard.paired import differences, matched_rows
from hierbench.leaderboard.table import Interval
from hierbench.runs.compact import read_compact, read_targets
from hierbench.sharing.published_tree import shipped_tree

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "leaderboard/published"
NAMES = ("cifar100-frozen", "cifar100-small")
METRIC = "hierdist@1"


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
    table = overview_table(open_boards([folder], paper=False), METRIC, read_claims())
    return {(line.cells[0].text, line.cells[1].text): line.cells[2:] for line in table.rows}


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


def test_differences_ranks_and_agreement_are_those_computed_by_hand(overview, tables):
    gaps = [by_hand(rows) for rows in tables]
    titles = {f"{title.lower()}:type-II": f"{title}, type-II" for title in ("HAFrame", "CRM", "Flamingo")}
    common = [name for name in tables[0] if name in tables[1]]
    means = np.array([[rows[name][METRIC].mean() for name in common] for rows in tables])
    ranks = stats.rankdata(means, axis=1)
    for name, title in titles.items():
        *cells, rank, wins = overview["HierDist@1", title][3:]
        for cell, gaps_of_row in zip(cells, gaps, strict=True):
            mean, width, p = gaps_of_row[name, METRIC]
            assert isinstance(cell, Interval) and (cell.mean, cell.ci95) == (pytest.approx(mean), pytest.approx(width))
            assert cell.versus == ("" if p >= 0.05 else "better" if mean < 0 else "worse")
        ranks_of_row = ranks[:, common.index(name)]
        assert (rank.value, wins.value) == (ranks_of_row.mean(), (ranks_of_row == 1).sum())
    tau = stats.kendalltau(*means).statistic
    assert overview["tau-b, HierDist@1", NAMES[0]][4].text == f"{tau:.2f} ({len(common)} rows)"
    assert (
        overview["Network", "training"][3].text == "frozen"
        and overview["Network", "training"][4].text == "from scratch"
    )


def test_printed_differences_are_welchs_of_the_printed_numbers(tmp_path):
    """Of five runs a row; the printed half-widths have the deviation over n."""
    claim = Claim.model_validate({"says": "x", "row": "haframe:type-II", "metric": "top1", "is": "better"})
    table = overview_table(open_boards([], paper=True), "top1", [claim])
    (line,) = [line for line in table.rows if line.cells[1].text == "HAFrame, type-II"]
    cell = line.cells[2:][table.columns[2:].index("fgvc (paper)")]
    ours, base = (80.49, 0.4692), (79.58, 0.2727)
    deviations = [width / stats.t.ppf(0.975, 4) * 5**0.5 * (5 / 4) ** 0.5 for _, width in (ours, base)]
    test = stats.ttest_ind_from_stats(ours[0], deviations[0], 5, base[0], deviations[1], 5, equal_var=False)
    assert cell.mean == pytest.approx(ours[0] - base[0])
    error = (deviations[0] ** 2 / 5 + deviations[1] ** 2 / 5) ** 0.5
    assert cell.ci95 / error == pytest.approx(stats.t.ppf(0.975, welch_freedom(deviations)))
    assert test.statistic == pytest.approx(cell.mean / error)


def welch_freedom(deviations):
    parts = [deviation**2 / 5 for deviation in deviations]
    return sum(parts) ** 2 / sum(part**2 / 4 for part in parts)


def test_the_pages_agree_with_the_tables():
    """README and the page on photographs have the rows that `hierbench overview leaderboard/published` prints."""
    pages = runpy.run_path(str(ROOT / "docs/pictures/overview.py"))
    boards = open_boards([PUBLISHED], paper=False)
    table = overview_table(boards, "mistake_severity", read_claims())
    for (page, mark), part in pages["parts_of"](table, boards).items():
        shown = (ROOT / page).read_text(encoding="utf-8")
        assert pages["filled"](shown, part, mark) == shown, page
        assert mark != "overview" or all(claim.says in part for claim in read_claims())


def test_the_lists_of_the_page_have_numbers_of_their_tables():
    """Differences from cross-entropy of either type, with their half-widths, or means of a row."""
    boards = {board.dataset: board for board in open_boards([PUBLISHED], paper=False)}
    table, checked = "", set()
    for section in re.split("^#{2,3} ", (ROOT / "docs/photographs.md").read_text(encoding="utf-8"), flags=re.M):
        linked = re.search(r"\[[Tt]he table\]\(\.\./leaderboard/published/([\w-]+)\.md\)", section)
        table = linked[1] if linked else table if section.startswith("Differences") else ""
        items = re.findall(r"^- (.*(?:\n  .*)*)", section, flags=re.M)
        if table and items:
            numbers = re.findall(r"[+-]?\d+\.\d+(?: \+/- \d+\.\d+)?", " ".join(" ".join(items).split()))
            assert set(numbers) <= printed_numbers(boards[table].rows) | {"2.18"}, table  # HACE's paper
            checked.add(table)
    assert checked == set(boards)


def printed_numbers(rows):
    """As texts, differences with and without their sign and half-width."""
    references = ["ce", *(f"ce:{row.type}" for row in rows if row.method == "ce")]
    pairs = [pair for reference in references for pair in matched_rows(rows, reference)]
    texts = {f"{summary.mean:.{digits}f}" for row in rows for summary in row.metrics.values() for digits in (1, 2)}
    for gap in (gap for pair in pairs for gap in differences(*pair, list(PAPER_BY_NAME)).values()):
        for digits in (1, 2):
            mean, width = f"{gap.mean:+.{digits}f}", f"{gap.ci95:.{digits}f}"
            texts |= {mean, mean[1:], f"{mean} +/- {width}", f"{mean[1:]} +/- {width}"}
    return texts


def test_what_the_pages_say_of_all_tables():
    """CRM orders the other classes best, then HAFrame, of the paper's on type II, and HAFrame's rare verdict."""
    boards = open_boards([PUBLISHED], paper=False)
    claims = read_claims()
    index = [claim.says for claim in claims].index("HAFrame loses no accuracy against the plain network")
    verdicts = {board.dataset: claim_tests(claims, board, PAPER_BY_NAME)[index].verdict for board in boards}
    held = {dataset for dataset, verdict in verdicts.items() if verdict == "yes"}
    assert held == {"grocery-lite2", "cifar100-frozen"}
    page = " ".join((ROOT / "docs/photographs.md").read_text(encoding="utf-8").split())
    assert "Only here and on CIFAR-100 with Lite0, frozen, it loses no accuracy against the plain network" in page
    assert f"**In all {len(boards)} tables** CRM orders" in (ROOT / "README.md").read_text(encoding="utf-8")
    for board in boards:
        rows = named_rows(board)
        means = {method: rows[f"{method}:type-II"].metrics["hierdist@5"].mean for method in PAPER_METHODS}
        assert sorted(means, key=means.__getitem__)[:2] == ["crm", "haframe"], board.dataset


def test_the_picture_has_every_table():
    """However many: more than there are looks of lines."""
    tables = [TableSummary.of(board) for board in open_boards([PUBLISHED], paper=False)] * 3
    figure = overview_plot.draw(tables, PAPER_BY_NAME["mistake_severity"])
    assert len(figure.legends[0].get_texts()) == len(tables) > 30


def test_rows_that_severity_would_have_selected():
    """Those that differ from the searched rows have been trained, but for some that docs/photographs.md names."""
    differing = set()
    for table in (
        "cifar100-finetuned",
        "cifar100-frozen",
        "cifar100-lite2",
        "cifar100-small",
        "cub-frozen",
        "cub-lite2",
        "cub-finetuned",
        "grocery-finetuned",
        "grocery-frozen",
        "grocery-lite2",
        "tiny-imagenet-frozen",
        "tiny-imagenet-lite2",
        "tiny-imagenet-small",
    ):
        tuned = tomllib.loads((ROOT / f"benchmarks/tuned/{table}.toml").read_text())["paper"]
        for method in tuned.keys() & set(PAPER_METHODS):
            for kind, row in tuned[method].items():
                if row["others"]["mistake_severity within 0.5 of top1"] != row["params"]:
                    differing.add((table, method, kind))
    boards = open_boards([PUBLISHED / "selection"], paper=False)
    trained = {(board.dataset, row.method, row.type) for board in boards for row in board.rows if row.method != "crm"}
    untrained = {("grocery-lite2", "flamingo", "type-I"), ("tiny-imagenet-lite2", "ce", "type-I")}
    untrained |= {("cifar100-lite2", "ce", "type-I"), ("cifar100-lite2", "flamingo", "type-II")}
    untrained |= {("cifar100-frozen", "hafeature", "type-I"), ("cifar100-frozen", "flamingo", "type-II")}
    untrained |= {("tiny-imagenet-lite2", method, "type-II") for method in ("flamingo", "hafeature")}
    untrained |= {("grocery-finetuned", "hafeature", "type-II"), ("tiny-imagenet-small", "ce", "type-II")}
    untrained |= {("tiny-imagenet-frozen", method, "type-I") for method in ("ce", "flamingo", "hafeature")}
    untrained |= {("tiny-imagenet-frozen", method, "type-II") for method in ("flamingo", "hafeature")}
    assert differing == trained | untrained


def test_half_widths_over_images_are_those_of_a_bootstrap():
    """Of the severity of one run, a ratio of two sums."""
    pages = runpy.run_path(str(ROOT / "docs/pictures/overview.py"))
    (board,) = (board for board in open_boards([PUBLISHED], paper=False) if board.dataset == "cifar100-frozen")
    row = next(row for row in board.rows if (row.method, row.type) == ("haframe", "type-II"))
    run = replace(row, runs=row.runs[:1], seeds=row.seeds[:1])
    values = pages["influences"](run, board)["mistake_severity"]
    record = board.records[row.runs[0]]
    best, targets = read_compact(record.folder).ranked[:, 0], read_targets(PUBLISHED / board.dataset)
    distances = shipped_tree(record.data).distances[targets, best]
    drawn = np.random.default_rng(0).integers(len(targets), size=(400, len(targets)))
    severities = distances[drawn].sum(axis=1) / (distances > 0)[drawn].sum(axis=1)
    assert values.std() / len(values) ** 0.5 == pytest.approx(severities.std(), rel=0.1)
