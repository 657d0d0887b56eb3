"""`hierbench collapse` on a small dataset: the runs that it trains, those that it reuses, and its files."""

import csv
import json
import re
import shutil

import pytest
import torch

import hierbench.studies.collapse.measure as measuring
import hierbench.training.trainer as training
from tests.support.run_files import mirrored_in, specs_in

EPOCHS = 3
ARGUMENTS = ["--dataset", "shapes", "--mlflow", "off", "--jobs", "1", "--set", f"train.epochs={EPOCHS}"]


@pytest.fixture(scope="module")
def command(cli):
    """The command line where jobs have so many threads each, and figures few pixels."""
    import hierbench.execution.resources
    from hierbench.figures.plots import style

    def run(folder, *arguments, threads=1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hierbench.execution.resources, "side_by_side", lambda *_: (1, threads))
            patch.setitem(style.STYLE, "savefig.dpi", 50)
            return cli(folder, *arguments)

    return run


def contents(folder):
    """{path: bytes} of all files below a folder, but for the requests, to which each command adds."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "requests.jsonl")
    return {path: path.read_bytes() for path in files}


def rows(folder, runs="runs"):
    with (folder / runs / "collapse-shapes.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def compared(command, folder):
    """Finished runs without snapshots, by (method, type)."""
    command(folder, "run", "--methods", "ce,haframe", "--seeds", "1", *ARGUMENTS).ok()
    specs = specs_in(folder / "runs")
    return {(spec["method"]["name"], spec["type"]): folder / "runs" / run_id for run_id, spec in specs.items()}


@pytest.fixture(scope="module")
def collapsed(command, folder, compared):
    before = {path: content for run in compared.values() for path, content in contents(run).items()}
    code, out, err = command(folder, "collapse", *ARGUMENTS)
    assert code == 0, err
    after = {path: content for run in compared.values() for path, content in contents(run).items()}
    assert before == after
    return out, err


@pytest.fixture
def copy(folder, collapsed, tmp_path):
    """The folder as it was then, for commands that write its tables and figures anew."""
    shutil.copytree(folder / "runs", tmp_path / "runs")
    (tmp_path / "data").symlink_to(folder / "data")
    return tmp_path


def runs_in(folder):
    """The runs of a runs folder, by the name of their method."""
    return {spec["method"]["name"]: folder / run_id for run_id, spec in specs_in(folder).items()}


def test_its_runs_are_those_of_tables_bit_by_bit_and_apart_from_them(folder, compared, collapsed):
    _, err = collapsed
    assert "2 jobs, 2 to train" in err
    runs = runs_in(folder / "runs/collapse")
    assert {name: run.name for name, run in runs.items()} == {
        "ce": compared["ce", "type-I"].name, "haframe": compared["haframe", "type-II"].name
    }  # fmt: skip
    for again in runs.values():
        for name in ("spec.json", "history.csv", "metrics.json", "predictions.npz"):
            assert (again / name).read_bytes() == (folder / "runs" / again.name / name).read_bytes()
        snapshots = sorted(path.name for path in (again / "snapshots").glob("*.pt"))
        assert snapshots == [f"epoch-{epoch:03d}.pt" for epoch in range(1, EPOCHS + 1)]
        best = torch.load(again / "checkpoint.pt", weights_only=True)
        kept = torch.load(again / f"snapshots/epoch-{best['best_epoch']:03d}.pt", weights_only=True)
        assert kept.keys() == {"model"}
        assert all(torch.equal(value, best["best"][name]) for name, value in kept["model"].items())


def test_the_curves(folder, collapsed):
    out, _ = collapsed
    data = rows(folder)
    assert [(row["frame"], row["epoch"]) for row in data] == [
        (frame, str(epoch)) for frame in ("HAFrame", "ETF") for epoch in range(1, EPOCHS + 1)
    ]
    haframe = [row for row in data if row["frame"] == "HAFrame"]
    assert float(haframe[-1]["features_mean"]) < float(haframe[0]["features_mean"])
    for row in haframe:  # the classifier is fixed
        assert float(row["classifiers_mean"]) < 1e-6 and float(row["classifiers_std"]) < 1e-6
    for row in data:
        assert 0 <= float(row["features_mean"]) < 2 and 0 < float(row["self_duality"]) < 2
    stored = json.loads((folder / "runs/collapse-shapes.json").read_text())
    assert [curve["method"] for curve in stored["curves"]] == ["haframe", "ce"]
    assert stored["curves"][0]["self_duality"] == [float(row["self_duality"]) for row in haframe]
    assert (folder / "runs/collapse-shapes.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (folder / "runs/collapse-shapes.svg").read_text()
    first, last = (f"{float(haframe[place]['features_mean']):.4f}" for place in (0, -1))
    (line,) = [line for line in out.splitlines() if re.match(r"\| HAFrame +\| features, mean", line)]
    assert first in line and last in line


def test_again_it_trains_and_measures_nothing(command, copy, collapsed, monkeypatch):
    before = contents(copy / "runs")
    monkeypatch.setattr(measuring, "measure", None)
    monkeypatch.setattr(training, "train", None)
    code, out, err = command(copy, "collapse", *ARGUMENTS)
    assert (code, out) == (0, collapsed[0])
    assert "0 to train, 0 to re-rank, 2 cached" in err and "done: " not in err
    assert contents(copy / "runs") == before  # figures too
    code, out, _ = command(copy, "collapse", *ARGUMENTS, "--every", "2")
    assert code == 0 and [row["epoch"] for row in rows(copy)] == ["2", "3"] * 2


def test_the_switches_change_their_columns_alone(command, copy):
    command(copy, "collapse", *ARGUMENTS)
    paper = rows(copy)
    code, out, _ = command(copy, "collapse", *ARGUMENTS, "--set", "collapse.deviation=raw")
    assert code == 0 and "std of cos - ideal" in out
    changed = [{name for name in row if row[name] != other[name]} for row, other in zip(paper, rows(copy), strict=True)]
    assert all("deviation" in names for names in changed)
    # where all cosines are above the ideal ones, as at the very beginning, the standard deviations are the same
    assert set.union(*changed) == {"deviation", "features_std", "classifiers_std"}
    command(copy, "collapse", *ARGUMENTS, "--set", "collapse.self_duality=square")
    for row, other in zip(paper, rows(copy), strict=True):
        assert {name for name in row if row[name] != other[name]} == {"self_duality_form", "self_duality"}
        assert float(other["self_duality"]) == pytest.approx(float(row["self_duality"]) ** 2)


@pytest.fixture(scope="module")
def from_nothing(command, folder, collapsed):
    """The same without finished runs."""
    out = command(folder, "collapse", *ARGUMENTS, "--runs", "fresh").ok().out
    assert out == collapsed[0].replace("runs/", "fresh/")
    return out.replace("fresh/", "cut/")


class Cut:
    """Lets a function be called so many times, then interrupts as a person does."""

    def __init__(self, function, calls):
        self.function, self.calls = function, calls

    def __call__(self, *arguments):
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        return self.function(*arguments)


def test_an_interrupted_collapse_resumes(command, folder, from_nothing):
    arguments = ("collapse", *ARGUMENTS, "--runs", "cut")
    with pytest.MonkeyPatch.context() as patch:  # at the end of the first job's third epoch
        patch.setattr(training, "validate", Cut(training.validate, 2))
        assert command(folder, *arguments)[0] == 130
    (started,) = (folder / "cut/collapse").glob("*/snapshots")
    kept = {path.name: path.stat().st_mtime_ns for path in started.iterdir()}
    assert kept.keys() == {"epoch-001.pt", "epoch-002.pt"}
    with pytest.MonkeyPatch.context() as patch:  # in the third of six snapshots
        patch.setattr(measuring, "measure", Cut(measuring.measure, 2))
        code, out, _ = command(folder, *arguments)
        assert (code, out) == (130, "")
    assert {name: (started / name).stat().st_mtime_ns for name in kept} == kept
    measured = {path: path.stat().st_mtime_ns for path in (folder / "cut/collapse").glob("*/snapshots/*.json")}
    assert len(measured) == 2
    code, out, _ = command(folder, *arguments)
    assert (code, out) == (0, from_nothing)
    assert {path: path.stat().st_mtime_ns for path in measured} == measured
    assert (folder / "cut/collapse-shapes.csv").read_bytes() == (folder / "fresh/collapse-shapes.csv").read_bytes()


def test_a_narrow_type_one_gets_a_unit_per_class_and_stays_out_of_the_tables(command, folder, compared):
    few = ("--set", "train.epochs=1", "--set", "model.type_i_units=20", "--runs", "narrow")
    code, _, err = command(folder, "collapse", *ARGUMENTS, *few)
    assert code == 0 and "type-I has 48 units here" in err
    specs = specs_in(folder / "narrow/collapse").values()
    assert {spec["method"]["name"]: spec["model"]["type_i_units"] for spec in specs} == {"ce": 48, "haframe": 20}
    command(folder, "leaderboard", "--dataset", "shapes", "--runs", "narrow").one_line("no runs of shapes")


def test_a_failed_job_does_not_stop_the_other(command, folder):
    fatal = ("--set", "train.epochs=1", "--set", "train.lr.type-I.classifier=1e30", "--runs", "failed")
    code, out, err = command(folder, "collapse", *ARGUMENTS, *fatal)
    assert code == 1 and err.count("failed: ce type-I seed 0: loss is nan") == 2
    assert "| HAFrame  | features, mean" in out and "cross-entropy" not in out
    assert (folder / "failed/collapse-shapes.png").exists()


def test_mlflow_gets_both_runs_and_the_figure(command, copy):
    command(copy, "collapse", *ARGUMENTS[:2], *ARGUMENTS[4:]).ok()
    assert [status for _, status in mirrored_in(copy / "runs/mlflow.db")] == ["FINISHED"] * 2
    assert len(list((copy / "runs/mlartifacts").rglob("collapse-shapes.png"))) == 1


def test_dry_run(command, folder, collapsed):
    before = contents(folder / "runs")
    code, out, err = command(folder, "collapse", *ARGUMENTS, "--seeds", "2", "--dry-run")
    assert (code, err) == (0, "") and "4 jobs, 2 to train, 0 to re-rank, 2 cached" in out
    assert {tuple(part.strip(" |") for part in line.split(" | ")[:2]) for line in out.splitlines()[4:6]} == {
        ("ce", "type-I"),
        ("haframe", "type-II"),
    }
    assert contents(folder / "runs") == before


def test_runs_of_other_settings_leave_the_table_as_it_was(command, folder, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    (tmp_path / "data").symlink_to(folder / "data")
    table = ("leaderboard", "--dataset", "shapes", "--format", "json")
    before = json.loads(command(tmp_path, *table).ok().out)
    short = ("--set", "train.epochs=1")
    assert "2 jobs, 2 to train" in command(tmp_path, "collapse", *ARGUMENTS, *short).ok().err
    assert json.loads(command(tmp_path, *table).ok().out) == before
