"""Real commands in a temporary folder."""

import json

import pytest

from tests.support.short import SMALL

FAST = ["--seeds", "2", *SMALL]


@pytest.fixture(scope="module")
def compared(cli, folder):
    """The comparison that shares three of the four variants: its files."""
    cli(folder, "run", "--methods", "ce,haframe", "--dataset", "shapes", *FAST).ok()
    return times(folder)


def times(folder):
    """When each result, and the leaderboard, was written."""
    files = [*(folder / "runs").glob("*/metrics.json"), folder / "runs/leaderboard-shapes.json"]
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.fixture(scope="module")
def ablated(cli, folder, compared):
    return cli(folder, "ablate", "--dataset", "shapes", *FAST).ok()


def test_runs_of_a_comparison_are_reused(folder, compared, ablated):
    assert compared.items() <= times(folder).items()
    assert "8 jobs, 2 to train, 0 to re-rank, 6 cached" in ablated.err
    assert ablated.err.count("done: ") == 2 and "done: haframe (alpha = 0) type-II seed 1: top-1" in ablated.err
    runs = [path.parent for path in times(folder).keys() - compared]
    specs = [json.loads((run / "spec.json").read_text()) for run in runs]
    assert sorted(spec["seed"] for spec in specs) == [0, 1]
    assert all(spec["method"]["params"]["alpha"] == 0.0 and spec["method"]["params"]["gamma"] == 4.0 for spec in specs)
    for run in runs:  # the cosine loss is there, with no weight
        header, line = (run / "history.csv").read_text().splitlines()
        assert dict(zip(header.split(","), line.split(","), strict=True))["train_cosine"] == "0.0"


def test_the_table_holds_the_means_of_the_runs(folder, ablated):
    out = ablated.out
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if "✓" in line]
    assert [cells[:6] for cells in lines] == [
        ["Shapes (generated)", "wrn10-1-s4", "✓", "✗", "✗", "✗"],
        ["Shapes (generated)", r"wrn10-1-s4\*", "✓", "✓", "✗", "✗"],
        ["Shapes (generated)", r"wrn10-1-s4\*", "✓", "✓", "✓", "✗"],
        ["Shapes (generated)", "HAFrame", "✓", "✓", "✓", "✓"],
    ]
    assert out == (folder / "runs/ablation-shapes.md").read_text() and "ablation-shapes.md" in ablated.err
    content = json.loads((folder / "runs/ablation-shapes.json").read_text())
    for cells, row in zip(lines, content["rows"], strict=True):
        tops = [json.loads((folder / "runs" / run / "metrics.json").read_text())["test"]["top1"] for run in row["runs"]]
        assert len(tops) == row["n"] == 2
        assert row["metrics"]["top1"]["mean"] == pytest.approx(sum(tops) / 2)
        assert cells[6].strip("*").startswith(f"{sum(tops) / 2:.2f} +/- ")
    assert len({run for row in content["rows"] for run in row["runs"]}) == 8


def test_the_leaderboard_excludes_variants_of_the_ablation(cli, folder, ablated):
    """The frame without its loss is a variant of the ablation, no method of its own."""
    out = cli(folder, "leaderboard", "--dataset", "shapes", "--format", "json").ok().out
    rows = [(row["type"], row["method"], row["title"]) for row in json.loads(out)["rows"]]
    assert rows == [
        ("type-I", "ce", "cross-entropy"),
        ("type-II", "ce", "cross-entropy"),
        ("type-II", "haframe", "HAFrame"),
    ]


def test_again_it_trains_nothing(cli, folder, ablated):
    before = times(folder)
    again = cli(folder, "ablate", "--dataset", "shapes", *FAST, "--format", "json").ok()
    assert again.out == (folder / "runs/ablation-shapes.json").read_text()
    assert "0 to train, 0 to re-rank, 8 cached" in again.err and "done: " not in again.err
    assert times(folder) == before


def test_dry_run(cli, folder, ablated):
    before = sorted((folder / "runs").iterdir())
    arguments = ("ablate", "--dataset", "shapes", "--seeds", "3", *SMALL, "--dry-run", "--format", "json")
    jobs = json.loads(cli(folder, *arguments).ok().out)["jobs"]
    assert [(job["method"], job["type"]) for job in jobs[:4]] == [
        ("ce", "type-I"), ("ce", "type-II"), ("haframe (alpha = 0)", "type-II"), ("haframe", "type-II")
    ]  # fmt: skip
    assert [job["state"] for job in jobs] == ["cached"] * 8 + ["train"] * 4
    assert sorted((folder / "runs").iterdir()) == before
