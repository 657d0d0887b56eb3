"""Tie groups: pair by pair, by brute force and through the command."""

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import column_of
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.letters import MOST_ROWS, compact, letter, listed, number_of, tie_groups
from hierbench.leaderboard.paired import compare_rows, difference, holm, values_by_seed
from hierbench.leaderboard.statistics import METRICS, Row, summarise
from hierbench.leaderboard.tables.differences import differences_table
from hierbench.leaderboard.tables.ties import letters_table
from hierbench.leaderboard.ties import Arrows, arrows_of, pairwise_p, tied_rows, with_letters
from hierbench.records.reading import read_records
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from tests.mistake_runs import without

NAME = "tiny-imagenet-frozen"
SHIPPED = Path(__file__).resolve().parents[2] / f"leaderboard/published/{NAME}"


def array_of(rows):
    """Rows {seed: value} as an array [1, R, S]."""
    seeds = sorted({seed for row in rows for seed in row})
    return np.array([[[row.get(seed, math.nan) for seed in seeds] for row in rows]]).reshape(1, len(rows), len(seeds))


def test_all_pairs_are_tested_as_one_pair_is():
    rng = np.random.default_rng(0)
    welch = flat = 0
    for _ in range(30):
        rows = []
        for shift in rng.normal(0, 1, 6):
            seeds = rng.choice(9, size=rng.integers(0, 6), replace=False)
            rows.append({int(seed): shift + rng.normal() for seed in seeds})
        rows += [{0: 1.0, 1: math.nan, 2: 2.0}, {0: 1.5, 1: 1.0, 2: 2.5}, {0: 1.0, 1: 2.0, 2: 2.0}, {}]
        rows += [{0: 0.1, 1: 0.1}, {7: 0.3, 8: 0.3, 9: 0.3}, {0: 0.1 + 1e-16, 1: 0.1}]  # nothing varies
        p, paired = (found[0] for found in pairwise_p(array_of(rows)))
        for i, j in itertools.product(range(len(rows)), repeat=2):
            gap = difference(rows[i], rows[j]) if i != j else None
            if gap is None:
                assert math.isnan(p[i, j])
                continue
            assert p[i, j] == pytest.approx(gap.p, rel=1e-9, abs=1e-300)
            assert paired[i, j] == (gap.test == "paired")
            welch += gap.test == "welch"
            flat += gap.p in (0.2, 0.5, 1.0)
    assert welch > 100 and flat > 100


@st.composite
def relations(draw):
    """Which of up to twelve rows differ from which: symmetric, by chance."""
    size = draw(st.integers(1, 12))
    upper = np.triu(np.array(draw(st.lists(st.booleans(), min_size=size**2, max_size=size**2))).reshape(size, size), 1)
    return upper | upper.T


def pairs_in(group):
    return set(itertools.combinations(group, 2))


@given(relations())
def test_groups_show_exactly_which_rows_differ(differ):
    """Two rows share a group exactly if they do not differ; no group can be extended, and none could be left out."""
    size, groups = len(differ), tie_groups(differ)
    assert groups == sorted(sorted(group) for group in groups)
    tied = {(i, j) for i, j in itertools.combinations(range(size), 2) if not differ[i, j]}
    assert set().union(*map(pairs_in, groups)) == tied
    assert set().union(*groups) == set(range(size))
    for place, group in enumerate(groups):
        others = [row for row in range(size) if row not in group]
        assert all(differ[row, group].any() for row in others)
        rest = groups[:place] + groups[place + 1 :]
        assert len(group) == 1 or not pairs_in(group) <= set().union(*map(pairs_in, rest))


def test_many_maximal_groups_are_covered_by_few():
    many = 1 - np.kron(1 - np.eye(7), np.ones((3, 3))) - np.eye(21)  # 3^7 maximal groups
    cover = tie_groups(many > 0)
    assert len(cover) < 100 and all(len(group) == 7 for group in cover)


@given(st.sets(st.integers(0, 800)))
def test_letters_and_ranges_can_be_read_back(numbers):
    def read(text, of):
        for part in text:
            first, _, last = part.partition("-")
            yield from range(of(first), of(last or first) + 1)

    names = [letter(number) for number in sorted(numbers)]
    assert [number_of(name) for name in names] == sorted(numbers)
    printed = listed(sorted(numbers))
    assert list(read(printed.split(", ") if printed else [], int)) == sorted(numbers)
    text = compact(names)
    few = all(number < 26 for number in numbers)
    parts = re.findall(r"[a-z](?:-[a-z])?", text) if few else text.split(",")
    assert list(read(parts if text else [], number_of)) == sorted(numbers)
    assert [letter(number) for number in (0, 25, 26, 701, 702)] == ["a", "z", "aa", "zz", "aaa"]
    assert [compact(text) for text in ("ab", "abc", "acdef")] == ["ab", "a-c", "ac-f"]


def board_of(values, seeds=range(5)):
    """A board from {name: {metric: {seed: value}}}."""
    rows = []
    for name, metrics in values.items():
        cells = {metric: summarise(list(of_seed.values())) for metric, of_seed in metrics.items()}
        held = list(next(iter(metrics.values())))
        rows.append(Row("type-I", name, name, len(held), 5, cells, ["id"], seeds=held))
    columns = tuple(map(column_of, dict.fromkeys(name for row in rows for name in row.metrics)))
    return Board("shapes", "paper", "height", tuple(rows), columns=columns, seeds=tuple(seeds))


def test_too_few_and_too_many_rows():
    few = board_of({"one": {"top1": {0: 1.0, 1: 2.0}}, "other": {"top1": {0: 1.0, 1: math.nan}}}, range(2))
    with pytest.raises(UserError, match="fewer than two rows have two seeds of the table with top1"):
        tied_rows(few, column_of("top1"))
    same = [f"m{number}" for number in range(MOST_ROWS + 1)]
    many = board_of({name: {"top1": {0: 1.0, 1: 2.0}} for name in same}, range(2))
    with pytest.raises(UserError, match="more than the 100 that are compared"):
        tied_rows(many, column_of("top1"))
    assert with_letters(many.rows, many.columns, many.seeds)[1] is None
    assert letters_table(many).rows == [] and "at most 100 ranked rows" in letters_table(many).notes[0]
    assert tied_rows(many, column_of("top1"), same[:3]).groups == [("a",)] * 3


def test_columns_that_are_shown_and_further_seeds():
    """A further column makes the family larger; seeds beyond the table's change no letter, one seed alone has none."""
    rng = np.random.default_rng(5)
    values = {
        name: {"top1": dict(enumerate(mean + rng.normal(0, 1, 9))), "ece": dict(enumerate(rng.normal(0, 1, 9)))}
        for name, mean in (("a", 0.0), ("b", 3.0), ("c", 6.0))
    }
    values["d"] = {"top1": {0: 9.0}, "ece": {0: 9.0}}
    cut = {name: {m: dict(list(of.items())[:5]) for m, of in of_row.items()} for name, of_row in values.items()}
    one = board_of({name: {"top1": of["top1"]} for name, of in values.items()})
    found = tied_rows(board_of(values), column_of("top1"))
    assert found.family.number == 6 and tied_rows(one, column_of("top1")).family.number == 3
    assert [row.n for row in found.rows] == [9, 9, 9, 1] and found.groups[-1] == ()
    assert found.groups == tied_rows(board_of(cut), column_of("top1")).groups


@pytest.fixture(scope="module")
def published(copied, tmp_path_factory):
    """Published runs of three methods."""
    methods = ("ce", "crm", "soft_labels")
    return copied(tmp_path_factory.mktemp("published"), lambda spec: spec["method"]["name"] in methods)


def test_an_arrow_is_where_a_row_differs_from_cross_entropy_of_its_type():
    board = Board.of(NAME, read_records(SHIPPED))
    bases = {row.type: values_by_seed(row, METRICS) for row in board.rows if row.method == "ce"}
    rows = [row for row in board.rows if row.method != "ce"]
    pairs = [(row, name) for row in rows for name in METRICS]
    gaps = [difference(values_by_seed(row, METRICS)[name], bases[row.type][name]) for row, name in pairs]
    arrows, adjusted = arrows_of(board), holm([gap.p for gap in gaps])
    assert arrows.number == len(gaps) == 25 * 5
    for (row, name), gap, p in zip(pairs, gaps, adjusted, strict=True):
        better = "better" if (gap.mean > 0) == (name == "top1") else "worse"
        assert arrows.of.get((id(row), name), "") == (better if p < 0.05 else ""), (row.method, name)
    assert set(arrows.of.values()) == {"better", "worse"}
    without = replace(board, rows=tuple(rows))
    assert arrows_of(without) == arrows_of(replace(board, seeds=(0,))) == Arrows({}, 0)


def test_two_rows_share_a_letter_exactly_if_they_do_not_differ():
    board = Board.of(NAME, read_records(SHIPPED))
    values = [values_by_seed(row, METRICS) for row in board.rows]
    pairs = list(itertools.combinations(range(len(values)), 2))
    gaps = {(name, i, j): difference(values[i][name], values[j][name]) for name in METRICS for i, j in pairs}
    adjusted = dict(zip(gaps, holm([gap.p for gap in gaps.values()]), strict=True))
    assert board.seeds == (0, 1, 2, 3, 4) and len(gaps) == 5 * 351
    for (name, i, j), p in adjusted.items():
        letters = [set(board.rows[place].metrics[name].groups) for place in (i, j)]
        assert (p >= 0.05) == bool(letters[0] & letters[1]), (name, i, j)
    for column in board.columns:
        ties = tied_rows(board, column)
        means = [row.metrics[column.name].mean for row in ties.rows]
        assert means == sorted(means, reverse=column.higher) and ties.groups[0][0] == "a"
        assert ties.groups == [row.metrics[column.name].groups for row in ties.rows]  # as the table has them
        assert ties.family.number == len(gaps)


def test_the_command(cli, tmp_path, published):
    where = ["--dataset", NAME, "--runs", published]

    def of_form(form, *words):
        return cli(tmp_path, "compare", *words, "--ties", "mistake_severity", "--format", form, *where).ok().out

    table, found = of_form("markdown"), json.loads(of_form("json"))
    assert (found["metric"], found["welch"], found["columns"]) == ("mistake_severity", 0, 5)
    assert found["tests"] == 5 * math.comb(len(found["rows"]), 2) and found["seeds"] == [0, 1, 2, 3, 4]
    lines = [line for line in table.splitlines() if line.startswith("| type")]
    assert [line.split("|")[-2].strip() for line in lines] == [compact(row["groups"]) for row in found["rows"]]
    assert "over 75 tests, all pairs of these rows in the 5 columns" in table
    csv = of_form("csv").splitlines()
    assert csv[0] == "type,method,title,mean,ci95,n,groups" and len(csv) == len(lines) + 1
    two = json.loads(of_form("json", "ce:type-I", "crm:type-I"))
    assert {row["method"] for row in two["rows"]} == {"ce", "crm"} and two["tests"] == 5
    for words, said in (
        ("ce:type-I --ties top1", "fewer than two rows"),
        ("cee --ties top1", "unknown row 'cee'"),
        ("--ties topp1", "topp1"),
        ("--ties top1 --metrics ece", "--metrics is for differences"),
        ("", "--ties METRIC"),
    ):
        cli(tmp_path, "compare", *words.split(), *where).one_line(said)
    cli(tmp_path, "compare", "ce", "crm").one_line("--dataset", "two boards")


def test_differences_from_a_reference_are_one_family(published):
    store = Store(published)
    board = Board.of(NAME, read_records(store.root))
    pairs = compare_rows(board, "ce")
    gaps = [gap for pair in pairs for gap in pair.differences.values()]
    assert len(pairs) == 4 and len(gaps) == 20 and {gap.test for gap in gaps} == {"paired"}
    assert [gap.p_holm for gap in gaps] == holm([gap.p for gap in gaps])
    text = render(differences_table(board, pairs))
    assert "correction over all 20 differences" in text and "- CRM type-I" not in text
    assert 0 < sum(gap.significant for gap in gaps) == text.count(" **")
    content = json.loads(render(differences_table(board, pairs), "json"))
    assert len(content["differences"]) == 20 and len(content["specs"]) == 4
    two = compare_rows(board, "ce:type-I", ["soft_labels:type-I"])
    assert {change.key for change in two[0].changes} >= {"method.name", "method.code", "method.params.beta"}
    said = "- soft labels type-I is not cross-entropy in: method.name: ce -> soft_labels"
    assert said in render(differences_table(board, two))
    fewer = compare_rows(Board.of(NAME, without(store.root, board.rows[0].runs[:4])), "ce")
    assert len(fewer) == 4 and {len(pair.differences) for pair in fewer} == {0, 5}  # one seed is no difference
