"""Rows that lack seeds of a table: shown in every format, and neither marked nor grouped."""

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hierbench.config.options import RunSelection
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER_COLUMNS
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.ranking import mark_rows, rank, table_seeds
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, pareto_front, summarise
from hierbench.leaderboard.tables.board_table import board_table
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from hierbench.sharing.site.pages import best_rows
from hierbench.sharing.verification.checked_board import checked_board
from tests.support.made_runs import without

PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published/grocery-finetuned"


def row_of(method, values, seeds=None, planned=3):
    cells = {name: summarise([50.0 + value for value in values]) for name in PAPER_METRICS}
    cells["mistake_severity"] = summarise(values)
    seeds = list(range(len(values)) if seeds is None else seeds)
    return Row("type-I", method, method, len(values), planned, cells, ["id"] * planned, seeds=seeds)


def of_type_two(spec, kept):
    """Whether a run of type II is of a kept seed of its method."""
    return spec["type"] == "type-II" and spec["seed"] in kept.get(spec["method"]["name"], ())


def test_seeds_of_a_table():
    for seeds_of_rows, planned, seeds in (
        ([range(5), range(3), range(20)], 5, (0, 1, 2, 3, 4)),
        ([range(3), range(2)], 5, (0, 1, 2)),  # none has all that are planned
        ([[0, 1, 3], [0, 1, 2], [0, 1, 3]], 5, (0, 1, 3)),
        ([[7, 8, 9], [0]], 3, (0,)),
        ([[], []], 3, ()),
        ([], 3, ()),
    ):
        assert table_seeds(seeds_of_rows, planned=planned) == seeds
    rows = [row_of("a", [2.0, 2.1], planned=2), row_of("b", [2.0, 2.1], planned=2), row_of("c", [2.0] * 9, planned=9)]
    ranked, seeds = rank(rows)  # without a recipe most rows decide
    assert seeds == (0, 1) and not any(row.lacking for row in ranked)


@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 5))), max_size=8))
def test_the_pareto_front_by_hand(points):
    rows = [row_of(f"m{number}", [float(top1)]) for number, (top1, _) in enumerate(points)]
    severities = [summarise([] if severity is None else [severity]) for _, severity in points]
    rows = [
        replace(row, metrics={**row.metrics, "mistake_severity": cell})
        for row, cell in zip(rows, severities, strict=True)
    ]
    placed = {(severity, -top1) for top1, severity in points if severity is not None}
    unbeaten = {(x, y) for x, y in placed if not any((a, b) != (x, y) and a <= x and b <= y for a, b in placed)}
    front = [(row.metrics["mistake_severity"].mean, 50.0 - row.metrics["top1"].mean) for row in pareto_front(rows)]
    assert front == sorted(unbeaten)


def test_the_best_of_all_rows_is_shown_beside_the_best_of_the_competitive():
    best = best_rows(Board.of("grocery-finetuned", read_records(PUBLISHED)))
    named = [(column.name, first.method, first.type, star and star.method) for column, first, star in best]
    assert named == [
        ("top1", "haframe", "type-II", None),
        ("mistake_severity", "flamingo", "type-II", None),
        ("hierdist@1", "haframe", "type-II", None),
        ("hierdist@5", "crm", "type-II", "haframe"),
        ("hierdist@20", "crm", "type-II", "haframe"),
    ]


@given(st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=8), st.integers(0, 6))
def test_a_row_is_ranked_exactly_if_it_has_all_seeds_of_the_table(seeds_of_rows, planned):
    plain = [
        row_of(f"m{n}", [2.0 + 0.1 * seed for seed in sorted(of_row)], sorted(of_row))
        for n, of_row in enumerate(seeds_of_rows)
    ]
    rows, seeds = rank(plain, planned)
    assert set(seeds) <= set(range(planned))
    for row in rows:
        assert row.lacking == tuple(seed for seed in seeds if seed not in row.seeds)
        assert not (row.lacking and (row.competitive or any(cell.best for cell in row.metrics.values())))
    complete = [row for row in rows if not row.lacking]
    assert complete and max(len(set(row.seeds) & set(range(planned))) for row in rows) == len(seeds)
    more = [[*row.metrics["mistake_severity"].values, 2.0] for row in rows]
    beyond = [row_of(row.method, values, [*row.seeds, 11]) for row, values in zip(rows, more, strict=True)]
    again, same = rank(beyond, planned)
    assert same == seeds and [row.lacking for row in again] == [row.lacking for row in rows]


def test_rows_that_lack_seeds_take_no_marks():
    rows = [
        row_of("lucky", [1.0, 1.1]),  # the best numbers
        row_of("whole", [2.0, 2.1, 2.2]),
        row_of("near", [2.0, 2.1, 2.3]),
        row_of("chosen", [0.5, 0.6, 0.7], [0, 1, 5]),
        row_of("more", [2.04, 2.1, 2.2, 2.3], planned=4),
        row_of("far", [9.0, 9.1, 9.2001]),
        row_of("none", []),
    ]
    ranked, seeds = rank(rows, 3)
    assert seeds == (0, 1, 2) and [row.lacking for row in ranked] == [(2,), (), (), (2,), (), (), (0, 1, 2)]
    assert [row.method for row in ranked if row.competitive] == ["whole", "near"]
    assert [row.method for row in ranked if row.metrics["mistake_severity"].best] == ["whole"]
    lucky, complete = mark_rows([replace(ranked[0], competitive=True), ranked[1]], PAPER_COLUMNS)
    assert not lucky.competitive and complete.metrics["top1"].best  # marks of before are removed


def test_two_seeds_do_not_take_the_marks_of_three(tmp_path, copied):
    """A copy of published runs: a method that keeps its two best seeds of five has the smallest severity."""
    note = "the recipe plans 5 seeds"
    kept = dict.fromkeys(("ce", "haframe", "hafeature"), range(5)) | {"flamingo": (0, 3)}
    store = Store(copied(tmp_path, lambda spec: of_type_two(spec, kept)))
    board = Board.of("grocery-finetuned", read_records(store.root))
    rows = {row.method: row for row in board.rows}
    assert board.seeds == (0, 1, 2, 3, 4) and rows["flamingo"].lacking == (1, 2, 4) and rows["flamingo"].n == 2
    assert rows["flamingo"].planned == 2  # its missing seeds are unknown to its own records
    least = min(rows.values(), key=lambda row: row.metrics["mistake_severity"].mean)
    assert least.method == "flamingo" and not least.competitive
    severities = {name: round(row.metrics["mistake_severity"].mean, 2) for name, row in rows.items() if not row.lacking}
    near = {name for name, severity in severities.items() if severity <= round(min(severities.values()) + 0.05, 2)}
    assert {row.method for row in board.rows if row.competitive} == near and "haframe" in near
    # In the table of one command, the seeds are those that it planned.
    of_command = Board.of("grocery-finetuned", read_records(store.root), rows["flamingo"].runs)
    assert of_command.seeds == (0,) and of_command.rows[0].competitive
    assert note not in of_command.settings and note not in board.settings  # a command says itself how many
    rejected = Board.of("grocery-finetuned", without(store.root, rows["ce"].runs[:1]))
    ce = next(row for row in rejected.rows if row.method == "ce")
    assert (ce.n, ce.planned, ce.lacking, ce.competitive) == (4, 5, (0,), False)


def test_rows_that_are_not_of_runs_and_a_table_of_one_seed():
    """Beside runs they are not marked and lack nothing; alone, scored rows are marked as ever."""
    scored = replace(row_of("mine", [0.1]), scored=True)
    (ce, beside), seeds = rank([row_of("ce", [2.0, 2.1, 2.2]), scored], 3)
    assert seeds == (0, 1, 2) and not beside.lacking and not beside.competitive and ce.competitive
    (alone,), seeds = rank([scored], 3)
    assert seeds == () and alone.competitive
    paper = Board.paper("cifar100")
    assert paper.seeds == () and not any(row.lacking for row in paper.rows)
    rows, seeds = rank([row_of("a", [2.0], planned=1), row_of("b", [2.1], planned=1)], planned=1)
    assert seeds == (0,) and rows[0].competitive


def test_rows_rejected_for_a_gap_or_only_claimed_are_not_ranked_and_do_not_set_the_seeds_of_others(tmp_path, copied):
    """Seeds 0, 1, 3 and 4 of a row, and five of one without predictions, are no reason to exclude rows with 0 to 2."""
    kept = {"ce": (0, 1, 3, 4), "flamingo": (0, 1, 2), "hafeature": (0, 1, 2), "haframe": range(5)}
    for path in copied(tmp_path, lambda spec: of_type_two(spec, kept)).glob("*/spec.json"):
        if json.loads(path.read_text())["method"]["name"] == "haframe":
            path.with_name("predictions-compact.npz").unlink()
    opened = checked_board("grocery-finetuned", RunSelection(tmp_path, tmp_path / "no-data"))
    board, report = opened.board, opened.report
    rows = {row.method: row for row in board.rows}
    assert [row.label for row in report.rows if row.rejected] == ["grocery-finetuned ce type-II"]
    assert board.seeds == (0, 1, 2) and rows["ce"].state == "rejected"
    assert not rows["flamingo"].lacking and not rows["hafeature"].lacking
    assert rows["haframe"].state == "claimed" and rows["haframe"].n == 5 and not rows["haframe"].lacking
    for row in (rows["ce"], rows["haframe"]):
        assert not row.competitive and not any(cell.best for cell in row.metrics.values())
    assert any(rows[name].competitive for name in ("flamingo", "hafeature"))
    assert board.settings.split("; ").count("the recipe plans 5 seeds") == 1
    assert "the recipe plans 5 seeds" in render(board_table(board))
