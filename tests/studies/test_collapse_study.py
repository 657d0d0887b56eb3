"""The study of neural collapse on a small dataset: the runs that it trains, those that it reuses, and its files."""

import csv
import json
import shutil

import pytest
import torch

import hierbench.studies.collapse.measure as measuring
import hierbench.training.trainer as training
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.request_choice import NoRunsError
from hierbench.runs.record_reader import read_records
from hierbench.studies.collapse.collapse_study import collapse
from hierbench.studies.comparison import compare
from tests.support.run_files import mirrored_in, specs_in
from tests.support.studies import call, short_options

EPOCHS = 3
OVERRIDES = (f"train.epochs={EPOCHS}",)
SAME = ("spec.json", "history.csv", "metrics.json", "predictions.npz")


@pytest.fixture(scope="module", autouse=True)
def few_pixels():
    from hierbench.leaderboard.pictures import style

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(style.STYLE, "savefig.dpi", 50)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("collapse")


@pytest.fixture(scope="module")
def study(data_dir):
    """Calls the study in a folder."""

    def study(folder, *overrides, every=None, seeds=1, **more):
        options = short_options(folder, data_dir, "ce,haframe", seeds=seeds, overrides=(*OVERRIDES, *overrides), **more)
        return call(collapse, options, every)

    return study


def contents(folder):
    """{path: bytes} of all files below a folder, but for the requests, to which each command adds."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "requests.jsonl")
    return {path: path.read_bytes() for path in files}


def rows(folder, runs="runs"):
    with (folder / runs / "collapse-shapes.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def compared(folder, data_dir):
    """Finished runs without snapshots, by (method, type)."""
    call(compare, short_options(folder, data_dir, "ce,haframe", overrides=OVERRIDES))
    specs = specs_in(folder / "runs")
    return {(spec["method"]["name"], spec["type"]): folder / "runs" / run_id for run_id, spec in specs.items()}


@pytest.fixture(scope="module")
def finished(compared):
    return {path: content for run in compared.values() for path, content in contents(run).items()}


@pytest.fixture(scope="module")
def collapsed(study, folder, compared, finished):
    return study(folder)


@pytest.fixture(scope="module")
def runs(folder, collapsed):
    """Its runs, by the name of their method."""
    place = folder / "runs/collapse"
    return {spec["method"]["name"]: place / run_id for run_id, spec in specs_in(place).items()}


@pytest.fixture
def copy(folder, collapsed, tmp_path):
    """The folder as it was then, for studies that write its tables and figures anew."""
    shutil.copytree(folder / "runs", tmp_path / "runs")
    return tmp_path


def test_its_runs_are_apart_from_those_of_tables(compared, finished, collapsed, runs):
    assert "2 jobs, 2 to train" in collapsed.err
    assert {name: run.name for name, run in runs.items()} == {
        "ce": compared["ce", "type-I"].name, "haframe": compared["haframe", "type-II"].name
    }  # fmt: skip
    assert {path: path.read_bytes() for path in finished} == finished


@pytest.mark.parametrize("name", SAME)
def test_its_runs_are_bit_by_bit_those_of_tables(folder, runs, name):
    for run in runs.values():
        assert (run / name).read_bytes() == (folder / "runs" / run.name / name).read_bytes()


def test_a_snapshot_is_kept_of_every_epoch(runs):
    for run in runs.values():
        snapshots = sorted(path.name for path in (run / "snapshots").glob("*.pt"))
        assert snapshots == [f"epoch-{epoch:03d}.pt" for epoch in range(1, EPOCHS + 1)]


def test_the_snapshot_of_the_best_epoch_is_the_best_model(runs):
    for run in runs.values():
        best = torch.load(run / "checkpoint.pt", weights_only=True)
        kept = torch.load(run / f"snapshots/epoch-{best['best_epoch']:03d}.pt", weights_only=True)
        assert kept.keys() == {"model"}
        assert all(torch.equal(value, best["best"][name]) for name, value in kept["model"].items())


def test_there_is_a_line_per_frame_and_epoch(folder, collapsed):
    expected = [(frame, str(epoch)) for frame in ("HAFrame", "ETF") for epoch in range(1, EPOCHS + 1)]
    assert [(row["frame"], row["epoch"]) for row in rows(folder)] == expected


def test_the_features_approach_the_frame_and_its_classifier_is_fixed(folder, collapsed):
    haframe = [row for row in rows(folder) if row["frame"] == "HAFrame"]
    assert float(haframe[-1]["features_mean"]) < float(haframe[0]["features_mean"])
    assert all(float(row[f"classifiers_{kind}"]) < 1e-6 for row in haframe for kind in ("mean", "std"))


def test_quantities_are_within_their_bounds(folder, collapsed):
    assert all(0 <= float(row["features_mean"]) < 2 and 0 < float(row["self_duality"]) < 2 for row in rows(folder))


def test_the_files_and_the_summary_have_the_same_numbers(folder, collapsed):
    haframe = [row for row in rows(folder) if row["frame"] == "HAFrame"]
    stored = json.loads((folder / "runs/collapse-shapes.json").read_text())
    assert [curve["method"] for curve in stored["curves"]] == ["haframe", "ce"]
    assert stored["curves"][0]["self_duality"] == [float(row["self_duality"]) for row in haframe]
    (line,) = [line for line in collapsed.markdown.splitlines() if line.startswith("| HAFrame") and "s, mean" in line][
        :1
    ]
    assert all(f"{float(haframe[place]['features_mean']):.4f}" in line for place in (0, -1))


def test_the_figure_is_drawn(folder, collapsed):
    assert (folder / "runs/collapse-shapes.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (folder / "runs/collapse-shapes.svg").read_text()


def test_again_it_trains_and_measures_nothing(study, copy, collapsed, monkeypatch):
    before = contents(copy / "runs")
    monkeypatch.setattr(measuring, "measure", None)
    monkeypatch.setattr(training, "train", None)
    again = study(copy)
    assert again.markdown == collapsed.markdown and contents(copy / "runs") == before  # figures too
    assert "0 to train, 0 to re-rank, 2 cached" in again.err and "done: " not in again.err


def test_fewer_snapshots_are_a_part_of_those_there(study, copy, monkeypatch):
    monkeypatch.setattr(training, "train", None)
    study(copy, every=2)
    assert [row["epoch"] for row in rows(copy)] == ["2", "3"] * 2


def changed_columns(before, after):
    return [{name for name in row if row[name] != other[name]} for row, other in zip(before, after, strict=True)]


def test_the_switch_of_the_deviation_changes_its_columns_alone(study, copy):
    paper = rows(copy)
    assert "std of cos - ideal" in study(copy, "collapse.deviation=raw").markdown
    changed = changed_columns(paper, rows(copy))
    assert all("deviation" in names for names in changed)
    # where all cosines are above the ideal ones, as at the very beginning, the standard deviations are the same
    assert set.union(*changed) == {"deviation", "features_std", "classifiers_std"}


def test_the_switch_of_self_duality_squares_its_column(study, copy):
    paper = rows(copy)
    study(copy, "collapse.self_duality=square")
    assert changed_columns(paper, rows(copy)) == [{"self_duality_form", "self_duality"}] * len(paper)
    for row, other in zip(paper, rows(copy), strict=True):
        assert float(other["self_duality"]) == pytest.approx(float(row["self_duality"]) ** 2)


class Cut:
    """Lets a function be called so many times, then interrupts as a person does."""

    def __init__(self, function, calls):
        self.function = function
        self.calls = calls

    def __call__(self, *arguments):
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        return self.function(*arguments)


def times(paths):
    return {path: path.stat().st_mtime_ns for path in paths}


def test_an_interrupted_study_keeps_its_snapshots_and_measurements(study, folder, collapsed):
    cut = {"runs": folder / "cut"}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):  # at the end of the third epoch
        patch.setattr(training, "validate", Cut(training.validate, 2))
        study(folder, **cut)
    (started,) = (folder / "cut/collapse").glob("*/snapshots")
    kept = contents(started)
    assert {path.name for path in kept} == {"epoch-001.pt", "epoch-002.pt"}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):  # in the third of six snapshots
        patch.setattr(measuring, "measure", Cut(measuring.measure, 2))
        study(folder, **cut)
    measured = times((folder / "cut/collapse").glob("*/snapshots/*.json"))
    assert kept.items() <= contents(started).items() and len(measured) == 2
    assert study(folder, **cut).markdown == collapsed.markdown and times(measured) == measured
    assert (folder / "cut/collapse-shapes.csv").read_bytes() == (folder / "runs/collapse-shapes.csv").read_bytes()


def test_a_narrow_type_one_gets_a_unit_per_class_and_stays_out_of_the_tables(study, folder):
    narrow = study(folder, "train.epochs=1", "model.type_i_units=20", runs=folder / "narrow")
    assert "type-I has 48 units here" in narrow.err
    specs = specs_in(folder / "narrow/collapse").values()
    assert {spec["method"]["name"]: spec["model"]["type_i_units"] for spec in specs} == {"ce": 48, "haframe": 20}
    with pytest.raises(NoRunsError):
        Board.of("shapes", read_records(folder / "narrow"))


def test_a_failed_job_does_not_stop_the_other(study, folder):
    failed = study(folder, "train.epochs=1", "train.lr.type-I.classifier=1e30", runs=folder / "failed")
    assert failed.code == 1 and "failed: ce type-I seed 0: loss is nan" in failed.err and len(failed.lines) == 2
    assert "| HAFrame  | features, mean" in failed.markdown and "cross-entropy" not in failed.markdown
    assert (folder / "failed/collapse-shapes.png").exists()


def test_mlflow_gets_both_runs_and_the_figure(study, copy):
    study(copy, mlflow=None)
    assert [status for _, status in mirrored_in(copy / "runs/mlflow.db")] == ["FINISHED"] * 2
    assert len(list((copy / "runs/mlartifacts").rglob("collapse-shapes.png"))) == 1


def test_a_dry_run_writes_nothing(study, folder, collapsed):
    before = contents(folder / "runs")
    dry = study(folder, seeds=2, dry_run=True)
    assert dry.err == "" and "4 jobs, 2 to train, 0 to re-rank, 2 cached" in dry.markdown
    jobs = {(job["method"], job["type"]) for job in dry.content["jobs"]}
    assert jobs == {("ce", "type-I"), ("haframe", "type-II")} and contents(folder / "runs") == before


def test_runs_of_other_settings_leave_the_table_as_it_was(study, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    before = Board.of("shapes", read_records(tmp_path / "runs")).render("json")
    assert "2 jobs, 2 to train" in study(tmp_path, "train.epochs=1").err
    assert Board.of("shapes", read_records(tmp_path / "runs")).render("json") == before
