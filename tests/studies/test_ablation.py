"""The study of an ablation beside a comparison that shares three of its four variants."""

import json

import pytest

from hierbench.leaderboard.board import Board
from hierbench.runs.record_reader import read_record, read_records
from hierbench.studies.ablation import ablate
from hierbench.studies.comparison import compare
from tests.support.studies import call, short_options


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ablation")


@pytest.fixture(scope="module")
def compared(folder, data_dir):
    """When each result of the comparison, and its leaderboard, was written."""
    call(compare, short_options(folder, data_dir, "ce,haframe", seeds=2))
    return times(folder)


def times(folder):
    files = [*(folder / "runs").glob("*/metrics.json"), folder / "runs/leaderboard-shapes.json"]
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.fixture(scope="module")
def options(folder, data_dir):
    return short_options(folder, data_dir, "ce,haframe", seeds=2)


@pytest.fixture(scope="module")
def ablated(options, compared):
    return call(ablate, options)


@pytest.fixture(scope="module")
def new_runs(folder, compared, ablated):
    return [read_record(path.parent) for path in times(folder).keys() - compared]


def test_runs_of_a_comparison_are_reused(folder, compared, ablated):
    assert compared.items() <= times(folder).items()
    assert "8 jobs, 2 to train, 0 to re-rank, 6 cached" in ablated.err


def test_the_variants_that_are_trained_have_their_names(ablated):
    assert ablated.err.count("done: ") == 2 and "done: haframe (alpha = 0) type-II seed 1: top-1" in ablated.err


def test_the_frame_alone_has_the_cosine_loss_without_weight(new_runs):
    assert sorted(run.job.seed for run in new_runs) == [0, 1]
    assert {(run.job.method.params["alpha"], run.job.method.params["gamma"]) for run in new_runs} == {(0.0, 4.0)}
    assert [row["train_cosine"] for run in new_runs for row in run.history()] == [0.0, 0.0]


def test_the_table_marks_the_parts_of_each_variant(ablated):
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ablated.markdown.splitlines() if "✓" in line]
    assert [cells[:6] for cells in rows] == [
        ["Shapes (generated)", "wrn10-1-s4", "✓", "✗", "✗", "✗"],
        ["Shapes (generated)", r"wrn10-1-s4\*", "✓", "✓", "✗", "✗"],
        ["Shapes (generated)", r"wrn10-1-s4\*", "✓", "✓", "✓", "✗"],
        ["Shapes (generated)", "HAFrame", "✓", "✓", "✓", "✓"],
    ]


def test_the_table_holds_the_means_of_the_runs(folder, ablated):
    records = read_records(folder / "runs")
    for row in ablated.content["rows"]:
        tops = [records[run].metrics["top1"] for run in row["runs"]]
        assert len(tops) == row["n"] == 2 and row["metrics"]["top1"]["mean"] == pytest.approx(sum(tops) / 2)
    assert len({run for row in ablated.content["rows"] for run in row["runs"]}) == 8


def test_the_table_is_written_and_named(folder, ablated):
    assert ablated.markdown == (folder / "runs/ablation-shapes.md").read_text()
    assert ablated.content == json.loads((folder / "runs/ablation-shapes.json").read_text())
    assert "ablation-shapes.md" in ablated.lines[0]


def test_the_leaderboard_excludes_the_frame_alone(folder, ablated):
    """It is a variant of the ablation, no method of its own."""
    board = Board.of("shapes", read_records(folder / "runs"))
    assert [(row.type, row.method, row.title) for row in board.rows] == [
        ("type-I", "ce", "cross-entropy"),
        ("type-II", "ce", "cross-entropy"),
        ("type-II", "haframe", "HAFrame"),
    ]


def test_again_it_trains_nothing(folder, options, ablated):
    before = times(folder)
    again = call(ablate, options)
    assert again.content == ablated.content and times(folder) == before
    assert "0 to train, 0 to re-rank, 8 cached" in again.err and "done: " not in again.err


def test_a_dry_run_has_a_line_per_job(folder, data_dir, ablated):
    before = sorted((folder / "runs").iterdir())
    jobs = call(ablate, short_options(folder, data_dir, "ce,haframe", seeds=3, dry_run=True)).content["jobs"]
    assert [(job["method"], job["type"]) for job in jobs[:4]] == [
        ("ce", "type-I"), ("ce", "type-II"), ("haframe (alpha = 0)", "type-II"), ("haframe", "type-II")
    ]  # fmt: skip
    assert [job["state"] for job in jobs] == ["cached"] * 8 + ["train"] * 4
    assert sorted((folder / "runs").iterdir()) == before
