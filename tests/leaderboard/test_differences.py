"""Arrows against cross-entropy, and differences from a reference: the tests of a table are one family."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.differences import compare_rows
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.paired import difference, holm, values_by_seed
from hierbench.leaderboard.statistics import PAPER_METRICS
from hierbench.leaderboard.tables.board_table import make_arrows
from hierbench.leaderboard.tables.differences_table import differences_table
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from tests.support.made_runs import without

NAME = "grocery-finetuned"
SHIPPED = Path(__file__).resolve().parents[2] / f"leaderboard/published/{NAME}"


@pytest.fixture(scope="module")
def published(copied, tmp_path_factory):
    """Published runs of four methods."""
    methods = ("ce", "crm", "flamingo", "hafeature")
    return copied(tmp_path_factory.mktemp("published"), lambda spec: spec["method"]["name"] in methods)


def test_an_arrow_is_where_a_row_differs_from_cross_entropy_of_its_type():
    board = Board.of(NAME, read_records(SHIPPED))
    bases = {row.type: values_by_seed(row, PAPER_METRICS) for row in board.rows if row.method == "ce"}
    rows = [row for row in board.rows if row.method != "ce"]
    pairs = [(row, name) for row in rows for name in PAPER_METRICS]
    gaps = [difference(values_by_seed(row, PAPER_METRICS)[name], bases[row.type][name]) for row, name in pairs]
    arrows, adjusted = make_arrows(board), holm([gap.p for gap in gaps])
    assert len(board.tests) == len(gaps) == 4 * 5
    for (row, name), gap, p in zip(pairs, gaps, adjusted, strict=True):
        better = "better" if (gap.mean > 0) == (name == "top1") else "worse"
        assert arrows.get((row.key, name), "") == (better if p < 0.05 else ""), (row.method, name)
    assert "better" in set(arrows.values())
    without = replace(board, rows=tuple(rows))
    assert without.tests == replace(board, seeds=(0,)).tests == {}
    assert board.tests is board.tests and board.table is board.table  # computed once


def test_further_seeds_and_rows_that_are_not_ranked_change_no_arrow():
    board = Board.of(NAME, read_records(SHIPPED))
    fewer = replace(board, seeds=(0, 1, 2))
    rows = [
        replace(row, seeds=row.seeds[:3], metrics={n: replace(c, values=c.values[:3]) for n, c in row.metrics.items()})
        for row in board.rows
    ]
    cut = replace(board, rows=tuple(rows), seeds=(0, 1, 2))

    def named(board):
        arrows = make_arrows(board)
        return {(row.method, row.type, n): arrows.get((row.key, n), "") for row in board.rows for n in PAPER_METRICS}

    assert named(fewer) == named(cut)
    lacks = replace(board, rows=tuple(replace(row, lacking=(4,)) for row in board.rows if row.method != "ce"))
    assert lacks.tests == {}


def test_the_page_of_differences_has_the_tests_of_the_arrows():
    """Also where a row is not ranked and where one has further seeds: bold there is an arrow in the table."""
    board = Board.of(NAME, read_records(SHIPPED))
    lacking = board.rows[3]
    rows = tuple(replace(row, lacking=(4,)) if row is lacking else row for row in board.rows)
    board = replace(board, rows=rows, seeds=(0, 1, 2))
    arrows, pairs = make_arrows(board), compare_rows(board, "ce")
    bold = {(p.row.key, name) for p in pairs for name, gap in p.differences.items() if gap.significant}
    assert bold == arrows.keys() and len(board.tests) == 3 * 5
    text = render(differences_table(board, pairs), "markdown")
    assert "Holm's correction over all 15 differences; those of rows that are not ranked are not tested" in text
    assert len(pairs) == 4


def test_differences_from_a_reference_are_one_family(published):
    store = Store(published)
    board = Board.of(NAME, read_records(store.root))
    pairs = compare_rows(board, "ce")
    gaps = [gap for pair in pairs for gap in pair.differences.values()]
    assert len(pairs) == 3 and len(gaps) == 15 and {gap.test for gap in gaps} == {"paired"}
    assert [gap.p_holm for gap in gaps] == holm([gap.p for gap in gaps])
    text = render(differences_table(board, pairs))
    assert "correction over all 15 differences" in text
    assert 0 < sum(gap.significant for gap in gaps) == text.count(" **")
    content = json.loads(render(differences_table(board, pairs), "json"))
    assert len(content["differences"]) == 15 and len(content["specs"]) == 3
    two = compare_rows(board, "ce:type-II", ["flamingo:type-II"])
    assert {change.key for change in two[0].changes} >= {"method.name", "method.code", "train.lr.backbone"}
    note = "- Flamingo type-II differs from cross-entropy in: method.name: ce -> flamingo"
    assert note in render(differences_table(board, two))
    fewer = compare_rows(Board.of(NAME, without(store.root, board["flamingo"].runs[:4])), "ce")
    assert len(fewer) == 3 and {len(pair.differences) for pair in fewer} == {0, 5}  # one seed is no difference
