"""Tie groups and marks of complete rows: pair by pair, by brute force, on simulated tables and through the command."""

import itertools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from hierbench.leaderboard.board import Board, board_from_paper, board_from_runs
from hierbench.leaderboard.columns import column_of
from hierbench.leaderboard.eligibility import eligible, finished_seeds, table_seeds
from hierbench.leaderboard.paired import difference, holm, values_by_seed
from hierbench.leaderboard.statistics import METRICS, Row, highlight, summarise
from hierbench.leaderboard.ties import letter, pairwise_p, tie_groups, tied_rows, ties_between
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError

PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published/tiny-imagenet-frozen"
TABLES = 1000
MOST_FALSE = 64  # of 1,000 tables at 5 %: 50, and twice the standard deviation of 6.9


def row_of(method, values, metric="mistake_severity", kind="type-I", planned=None):
    cells = {name: summarise([50.0] * len(values)) for name in METRICS} | {metric: summarise(values)}
    return Row(kind, method, method, len(values), planned or len(values), cells)


def test_all_pairs_are_tested_as_one_pair_is():
    rng = np.random.default_rng(0)
    welch = 0
    for _ in range(30):
        rows = []
        for shift in rng.normal(0, 1, 6):
            seeds = rng.choice(9, size=rng.integers(0, 6), replace=False)
            rows.append({int(seed): shift + rng.normal() for seed in seeds})
        rows += [{0: 1.0, 1: math.nan, 2: 2.0}, {0: 1.5, 1: 1.0, 2: 2.5}, {0: 1.0, 1: 2.0, 2: 2.0}, {}]
        p, paired = pairwise_p(rows)
        for i, j in itertools.product(range(len(rows)), repeat=2):
            gap = difference(rows[i], rows[j]) if i != j else None
            if gap is None:
                assert math.isnan(p[i, j])
                continue
            assert p[i, j] == pytest.approx(gap.p, rel=1e-9, abs=1e-300)
            assert paired[i, j] == (gap.test == "paired")
            welch += gap.test == "welch"
    assert welch > 100


def pairs_in(group):
    return set(itertools.combinations(group, 2))


def test_groups_show_exactly_which_rows_differ():
    """Two rows share a group exactly if they do not differ; no group can be extended, and none could be left out."""
    rng = np.random.default_rng(1)
    several = 0
    for _ in range(300):
        size = int(rng.integers(1, 12))
        upper = np.triu(rng.random((size, size)) < rng.random(), 1)
        differ = upper | upper.T
        groups = tie_groups(differ)
        assert groups == sorted(sorted(group) for group in groups)
        tied = {(i, j) for i, j in itertools.combinations(range(size), 2) if not differ[i, j]}
        assert set().union(*map(pairs_in, groups)) == tied
        assert set().union(*groups) == set(range(size))
        for place, group in enumerate(groups):
            others = [row for row in range(size) if row not in group]
            assert all(differ[row, group].any() for row in others)
            rest = groups[:place] + groups[place + 1 :]
            assert len(group) == 1 or not pairs_in(group) <= set().union(*map(pairs_in, rest))
        several += len(groups) > 3
    assert several > 50


def test_groups_of_known_patterns():
    def groups(size, *pairs):
        differ = np.zeros((size, size), dtype=bool)
        for i, j in pairs:
            differ[i, j] = differ[j, i] = True
        return tie_groups(differ)

    assert groups(4, (0, 2), (0, 3), (1, 3)) == [[0, 1], [1, 2], [2, 3]]  # letters a, ab, bc, c
    assert groups(3, (0, 1)) == [[0, 2], [1, 2]]  # the two best differ, the last varies too much to be told from them
    assert groups(3) == [[0, 1, 2]]
    assert groups(2, (0, 1)) == [[0], [1]]
    many = 1 - np.kron(1 - np.eye(7), np.ones((3, 3))) - np.eye(21)  # 3^7 maximal groups
    cover = tie_groups(many > 0)
    assert len(cover) < 100 and all(len(group) == 7 for group in cover)


def test_a_thousand_rows_are_grouped():
    """Rows in the order of their means, each of which differs from those beyond its neighbours."""
    place = np.arange(1000)
    found = tie_groups(np.abs(place[:, None] - place) > 9)
    assert found == [list(range(first, first + 10)) for first in range(991)]


def test_letters():
    assert [letter(number) for number in (0, 1, 25, 26, 27, 701, 702)] == ["a", "b", "z", "aa", "ab", "zz", "aaa"]


def table_of(values, metric="mistake_severity"):
    rows = [row_of(name, list(of_row.values()), metric) for name, of_row in values.items()]
    return ties_between(rows, list(values.values()), column_of(metric))


def test_the_best_row_is_in_the_first_group():
    rng = np.random.default_rng(2)
    seeds, means = rng.normal(0, 1, 5), {"far": 9.0, "good": 1.01, "best": 1.0, "middle": 4.0}
    values = {name: dict(enumerate(seeds + mean + rng.normal(0, 0.1, 5))) for name, mean in means.items()}
    values["once"] = {0: 0.0}
    ties = table_of(values)
    assert [row.method for row in ties.rows[2:]] == ["middle", "far", "once"]
    assert ties.groups == [("a",), ("a",), ("b",), ("c",), ()] and (ties.num_pairs, ties.num_welch) == (6, 0)
    higher = table_of(values, "top1")
    assert [row.method for row in higher.rows[:2]] == ["far", "middle"] and higher.groups[0] == ("a",)
    with pytest.raises(UserError, match="fewer than two rows have two runs with a value of mistake_severity"):
        table_of({"one": {0: 1.0, 1: 2.0}, "other": {0: 1.0, 1: math.nan}})


@pytest.mark.parametrize("shared", [True, False])
def test_equal_rows_are_rarely_told_apart(shared):
    """Of tables of nine equal methods at most one in twenty shows any difference, from a reference or between two."""
    rng = np.random.default_rng(3)
    compared = tied = 0
    for _ in range(TABLES):
        effects = rng.normal(0, 2, 5) if shared else np.zeros(5)
        rows = [dict(enumerate(effects + rng.normal(0, 1, 5), 0 if shared else 5 * number)) for number in range(9)]
        compared += min(holm([difference(row, rows[0]).p for row in rows[1:]])) < 0.05
        p, paired = pairwise_p(rows)
        upper = np.triu_indices(9, 1)
        assert (paired[upper] == shared).all()
        tied += min(holm(p[upper])) < 0.05
    assert 8 < compared <= MOST_FALSE and 8 < tied <= MOST_FALSE


def test_tables_of_equal_methods_have_one_group():
    rng = np.random.default_rng(4)
    several = 0
    for _ in range(TABLES):
        effects = rng.normal(0, 2, 4)
        ties = table_of({f"m{number}": dict(enumerate(effects + rng.normal(0, 1, 4))) for number in range(5)})
        several += {group for groups in ties.groups for group in groups} != {"a"}
    assert 8 < several <= MOST_FALSE


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The published runs of a table, copied: what reads them may write beside them."""
    return shutil.copytree(PUBLISHED, tmp_path_factory.mktemp("published") / "runs")


def test_two_rows_share_a_letter_exactly_if_they_do_not_differ(published):
    store = Store(published)
    board = board_from_runs("tiny-imagenet-frozen", store)
    for column in board.columns:
        ties = tied_rows(board, store, column)
        values = [values_by_seed(row, store, [column.name])[column.name] for row in ties.rows]
        pairs = list(itertools.combinations(range(len(values)), 2))
        adjusted = holm([difference(values[i], values[j]).p for i, j in pairs])
        for (i, j), p in zip(pairs, adjusted, strict=True):
            assert (p >= 0.05) == bool(set(ties.groups[i]) & set(ties.groups[j])), (column.name, i, j)
        means = [row.metrics[column.name].mean for row in ties.rows]
        assert means == sorted(means, reverse=column.higher) and ties.groups[0][0] == "a"
        assert 1 < len({group for groups in ties.groups for group in groups}) < len(means) + 2


def test_the_command(cli, tmp_path, published):
    where = ["--dataset", "tiny-imagenet-frozen", "--runs", published]
    table = cli(tmp_path, "compare", "--ties", "mistake_severity", *where).ok().out
    found = json.loads(cli(tmp_path, "compare", "--ties", "mistake_severity", "--format", "json", *where).ok().out)
    assert (found["metric"], found["welch"]) == ("mistake_severity", 0)
    assert found["pairs"] == math.comb(len(found["rows"]), 2)
    lines = [line for line in table.splitlines() if line.startswith("| type")]
    assert [line.split("|")[-2].strip() for line in lines] == ["".join(row["groups"]) for row in found["rows"]]
    assert f"over {found['pairs']} pairs" in table
    csv = cli(tmp_path, "compare", "--ties", "mistake_severity", "--format", "csv", *where).ok().out.splitlines()
    assert csv[0] == "type,method,title,mean,ci95,n,groups" and len(csv) == len(lines) + 1
    two = cli(tmp_path, "compare", "ce:type-I", "crm:type-I", "--ties", "top1", "--format", "json", *where).ok().out
    assert [row["method"] for row in json.loads(two)["rows"]] == ["ce", "crm"] and json.loads(two)["pairs"] == 1
    cli(tmp_path, "compare", "ce:type-I", "--ties", "top1", *where).one_line("fewer than two rows")
    cli(tmp_path, "compare", "cee", "--ties", "top1", *where).one_line("unknown row 'cee'")
    cli(tmp_path, "compare", "--ties", "topp1", *where).one_line("topp1")
    cli(tmp_path, "compare", "--ties", "top1", "--metrics", "ece", *where).one_line("--metrics is for differences")
    cli(tmp_path, "compare", *where).one_line("REFERENCE", "--ties METRIC")


def test_seeds_of_a_table():
    assert table_seeds([range(5), range(3), range(20)], planned=5) == (0, 1, 2, 3, 4)
    assert table_seeds([range(3), range(2)], planned=5) == (0, 1, 2)  # none has all that are planned
    assert table_seeds([[0, 1, 3], [0, 1, 2], [0, 1, 3]], planned=5) == (0, 1, 3)
    assert table_seeds([[0, 1, 3], [0, 1, 2]], planned=5) == (0, 1, 2)
    assert table_seeds([[7, 8, 9], [0]], planned=3) == (0,)
    assert table_seeds([[], []], planned=3) == table_seeds([], planned=3) == ()


def test_rows_that_lack_seeds_take_no_marks():
    rows = [row_of("lucky", [1.0, 1.1], planned=3), row_of("whole", [2.0, 2.1, 2.2]), row_of("near", [2.0, 2.1, 2.3])]
    rows += [row_of("chosen", [0.5, 0.6, 0.7]), row_of("more", [2.04, 2.1, 2.2, 2.3]), row_of("far", [5.0, 5.1, 5.2])]
    highlight(rows)
    board = Board("shapes", "paper", "height", rows)
    assert [row.competitive for row in rows] == [False, False, False, True, False, False]
    fair = eligible(board, planned=3, held=[[0, 1], range(3), range(3), [0, 1, 5], range(4), range(3)])
    assert fair.seeds == (0, 1, 2) and fair.lacking == [(2,), (), (), (2,), (), ()]
    assert [row.method for row in fair.board.rows if row.competitive] == ["whole", "near"]
    assert [row.method for row in fair.board.rows if row.metrics["mistake_severity"].best] == ["whole"]
    assert rows[3].competitive and rows[3].metrics["mistake_severity"].best  # the board itself is as it was


def test_marks_stay_where_no_row_lacks_seeds(published):
    board = board_from_paper("cifar100")
    assert eligible(board, planned=5).board == board
    store = Store(published)
    board = board_from_runs("tiny-imagenet-frozen", store)
    held = [finished_seeds(row, store) for row in board.rows]
    assert eligible(board, 5, held).board == board and held[0] == [0, 1, 2, 3, 4]


def test_rows_that_are_not_of_runs_keep_their_marks():
    scored = row_of("mine", [0.1])
    scored.scored = scored.competitive = True
    rows = [row_of("ce", [2.0, 2.1, 2.2]), scored]
    fair = eligible(Board("shapes", "paper", "height", rows), planned=3)
    assert fair.lacking == [(), ()] and fair.board.rows[1] is scored and fair.board.rows[0].competitive
