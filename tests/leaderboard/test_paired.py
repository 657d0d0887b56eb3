"""Differences between rows: by hand, against SciPy's tests, and as printed by the command."""

import json
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.changes import different_keys
from hierbench.leaderboard.columns import PAPER_COLUMNS
from hierbench.leaderboard.paired import difference, holm
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from hierbench.studies.comparison import leaderboard_rows
from tests.support import made_runs


def test_paired_by_hand():
    gap = difference({0: 3.0, 1: 5.0, 2: 4.0, 7: 100.0}, {0: 1.0, 1: 2.0, 2: 3.0, 8: -100.0})
    assert (gap.test, gap.n, gap.mean) == ("paired", 3, 2.0)  # 2, 3 and 1; seeds 7 and 8 are not shared
    assert gap.ci95 == pytest.approx(4.302652729749462 / math.sqrt(3))
    assert gap.effect == pytest.approx(2.0)


def test_equal_to_scipy():
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, second = rng.normal(0, 1, 5), rng.normal(0.5, 3, 5)
        gap = difference(dict(enumerate(first)), dict(enumerate(second)))
        expected = scipy.stats.ttest_rel(first, second)
        interval = expected.confidence_interval()
        assert gap.p == pytest.approx(expected.pvalue)
        assert (gap.mean - gap.ci95, gap.mean + gap.ci95) == pytest.approx((interval.low, interval.high))
        apart = difference(dict(enumerate(first)), dict(enumerate(second[:4], start=100)))
        expected = scipy.stats.ttest_ind(first, second[:4], equal_var=False)
        interval = expected.confidence_interval()
        assert (apart.test, apart.n) == ("welch", 4)
        assert apart.p == pytest.approx(expected.pvalue)
        assert (apart.mean - apart.ci95, apart.mean + apart.ci95) == pytest.approx((interval.low, interval.high))


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_differences_without_variation_are_not_certain():
    """Accuracies on few images are often equally far apart: p is what the signs or the order of the values allow."""
    assert difference({0: 1.0}, {0: 2.0}) is None
    assert difference({0: 1.0, 1: math.nan}, {0: 2.0, 1: 3.0}) is None
    same = difference({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0})
    assert (same.mean, same.ci95, same.p, same.effect) == (0.0, 0.0, 1.0, None)
    for n in (2, 3, 10):
        shifted = difference({seed: 0.1 + seed / 7 for seed in range(n)}, {seed: seed / 7 for seed in range(n)})
        assert (shifted.mean, shifted.p) == (pytest.approx(0.1), 2.0 ** (1 - n))
    apart = difference({0: 3.0, 1: 3.0, 2: 3.0}, {7: 1.0, 8: 1.0})
    assert (apart.test, apart.mean, apart.p) == ("welch", 2.0, 0.2)  # the least of 10 ways to choose two of five
    rounded = difference({0: 0.1 + 0.2, 1: 0.1 + 0.7}, {0: 0.3, 1: 0.8})
    assert rounded.p == 1.0 and abs(rounded.mean) < 1e-15


@pytest.fixture
def compare(cli, trained, data_dir, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    return lambda *words: cli(tmp_path, "compare", "--dataset", "shapes", "--data-dir", data_dir, *words)


def test_the_command_shows_a_row_and_the_settings_that_differ(compare):
    table = compare("ce:type-I", "crm").ok().out
    assert "| type-I  | CRM      | cross-entropy |" in table and table.count("\n| type-I") == 1
    assert "method.name: ce -> crm" in table and "none -> none" not in table


def test_the_command_has_the_differences_of_the_leaderboard(cli, compare, data_dir, tmp_path):
    options = ("--metrics", "+ece", "--format", "json")
    gaps = {gap["metric"]: gap for gap in json.loads(compare("ce", "crm", *options).ok().out)["differences"]}
    where = ("--dataset", "shapes", "--data-dir", data_dir)
    board = json.loads(cli(tmp_path, "leaderboard", *where, *options).ok().out)
    metrics = {row["method"]: row["metrics"] for row in board["rows"]}
    for name, gap in gaps.items():
        assert gap["mean"] == pytest.approx(metrics["crm"][name]["mean"] - metrics["ce"][name]["mean"])
    assert set(gaps) == set(metrics["ce"]) and gaps["top1"]["n"] == 3


def test_the_command_writes_a_line_per_metric(compare):
    lines = compare("ce", "crm", "--format", "csv").ok().out.splitlines()
    assert lines[0].startswith("type,method,reference,metric,mean,") and len(lines) == 6


def test_the_command_names_rows_that_it_cannot_compare(compare, tmp_path):
    compare("cee").one_line("unknown row 'cee'", "ce:type-I")
    compare("ce", "ce").one_line("nothing to compare with ce")
    for spec in (tmp_path / "runs").glob("*/spec.json"):  # one seed of each row is left
        if json.loads(spec.read_text())["seed"]:
            shutil.rmtree(spec.parent)
    compare("ce", "crm").one_line("there are 1 of ce:type-I and 1")


def test_an_empty_section_is_not_a_difference():
    """Of a method without hyperparameters the section is there and empty, of another its keys are there."""
    old, new = ({"method.params": {}, "epochs": 1}, {"method.params.gamma": 0.5, "epochs": None})
    assert different_keys(old, new) == ["epochs", "method.params.gamma"]


TABLES = 300
MOST_FALSE = 23  # of 300 tables at 5 %: 15, and twice the standard deviation of 3.8


def simulated(kind, tables, num_rows, num_seeds, counts=None):
    """Tables of equal methods [T, C, R, S] with five metrics; of `counts` each row has so many seeds by chance."""
    rng = np.random.default_rng(6)
    shape = (tables, 5, num_rows, num_seeds)
    if kind == "correlated":  # metrics of one run, and what the runs of one seed share
        one_run, one_seed = rng.normal(0, 1, (tables, 1, *shape[2:])), rng.normal(0, 2, (tables, 1, 1, num_seeds))
        values = 0.95 * one_run + one_seed + 0.3 * rng.normal(0, 1, shape)
    else:  # accuracies on 480 images, which are often equal
        values = rng.binomial(480, 0.6, shape) / 4.8
    if counts is not None:
        num_held = rng.choice(counts, (tables, 1, num_rows, 1))
        values = np.where(
            rng.permuted(np.broadcast_to(np.arange(num_seeds), values[:, :1].shape), axis=3) < num_held, values, np.nan
        )
    return values


@pytest.mark.parametrize(
    ("kind", "num_rows", "num_seeds", "counts"),
    [("correlated", 9, 5, None), ("correlated", 27, 3, None), ("correlated", 9, 8, (2, 3, 5)), ("images", 9, 3, None)],
)
def test_tables_of_equal_methods_show_no_arrow(kind, num_rows, num_seeds, counts):
    """At most one table in twenty shows any significant difference from the first row, in any of its columns."""
    significant = 0
    for table in simulated(kind, TABLES, num_rows, num_seeds, counts):
        of_seed = [[dict(enumerate(row)) for row in column] for column in table]
        gaps = [difference(row, column[0]) for column in of_seed for row in column[1:]]
        significant += min(holm([gap.p for gap in gaps if gap is not None])) < 0.05
    assert significant <= MOST_FALSE
    assert significant > 2 or kind == "images" or counts  # Welch's and those of few images are cautious


def test_a_run_of_few_rows_has_the_tests_of_the_leaderboard(tmp_path):
    prepared = made_runs.prepare(tmp_path / "data", per_class=10)
    targets = prepared.arrays("test")[1]
    store = Store(tmp_path / "runs")
    ids = {
        method: [
            made_runs.store_run(
                store, prepared, method, "type-II", made_runs.random_scores(targets, 6, seed, skill), targets, seed
            )
            for seed in range(3)
        ]
        for method, skill in [("ce", 1.0), ("haframe", 2.0), ("soft_labels", 3.0)]
    }
    records = read_records(tmp_path / "runs")
    whole = Board.of("shapes", records)
    some = Board.of("shapes", records, ids["ce"] + ids["haframe"])
    options = SimpleNamespace(dataset="shapes", runs=tmp_path / "runs", protocol="paper", data_dir=tmp_path / "data")
    shown = replace(some, family=leaderboard_rows(some, PAPER_COLUMNS, options))
    assert shown.tests == whole.tests != some.tests and len(shown.rows) == 2
    fewer = Board.of("shapes", records, ids["ce"][:2] + ids["haframe"][:2])
    assert leaderboard_rows(fewer, PAPER_COLUMNS, options) == ()
