"""Real commands in a temporary folder; tests that kill or count imports use separate processes."""

import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import traceback
from pathlib import Path

import pytest

from tests.support.run_files import specs_in, statuses_in
from tests.support.short import SHORT, SMALL
from tests.support.waiting import wait_for

OURS = tuple(str(Path(__file__).resolve().parents[2] / name) for name in ("hierbench", "leaderboard"))

PAPER = ("run", "--methods", "paper", "--dataset", "shapes", *SHORT)
ONE = ("--dataset", "shapes", "--types", "type-I", "--seeds", "1", *SMALL)
TWICE = (*PAPER, "--seeds", "2", "--jobs", "1")


@pytest.fixture(scope="module")
def finished(cli, folder):
    """All methods on both types, two seeds, in two worker processes."""
    done = cli.start(folder, *PAPER, "--seeds", "2").finish().ok()
    rows = json.loads((folder / "runs/leaderboard-shapes.json").read_text())["rows"]  # later commands overwrite it
    assert [row["n"] for row in rows] == [2] * 9
    return done


def test_one_command_ends_in_a_leaderboard_of_nine_rows(finished):
    rows = [line for line in finished.out.splitlines() if line.startswith("| type-")]
    assert [row.split("|")[1].strip() for row in rows] == ["type-I"] * 4 + ["type-II"] * 5
    assert "18 jobs, 14 to train, 4 to re-rank, 0 cached" in finished.err
    assert f"serve:  {sys.executable} -m mlflow ui --backend-store-uri sqlite:////" in finished.err  # from any folder
    assert "browse: http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning\n" in finished.err


def test_again_it_trains_nothing(cli, finished, folder):
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*/metrics.json")}
    done = cli(folder, *TWICE).ok()
    assert "0 to train, 0 to re-rank, 18 cached" in done.err and done.out == finished.out
    assert {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*/metrics.json")} == before


def test_crm_comes_from_the_predictions_of_ce(finished, folder):
    specs = specs_in(folder / "runs")
    crm = {name: spec for name, spec in specs.items() if spec["method"]["name"] == "crm"}
    assert len(crm) == 4
    for name, spec in crm.items():
        base = specs[spec["base"]]
        assert (base["method"]["name"], base["type"], base["seed"]) == ("ce", spec["type"], spec["seed"])
        assert not (folder / "runs" / name / "checkpoint.pt").exists()


def test_mlflow_mirrors_the_runs(finished, folder):
    with sqlite3.connect(folder / "runs/mlflow.db") as database:

        def count(table, condition="true"):
            return database.execute(f"select count(*) from {table} where {condition}").fetchone()[0]

        assert count("experiments", "name = 'shapes'") == 1 and count("runs") == 19
        assert count("tags", "key = 'mlflow.parentRunId'") == count("params", "key = 'method.name'") == 18
        assert count("params", "key = 'methods' and value = 'paper'") == 1  # of the parent
        assert (count("metrics", "key = 'test_hierdist_at_5'"), count("metrics", "key = 'val_top1'")) == (18, 14)
        assert count("metrics", "key = 'hierdist_at_5/type-II HAFrame'") == 1  # the row's mean, of the parent
    assert len(list((folder / "runs/mlartifacts").rglob("leaderboard-shapes.md"))) == 1


def test_runs_are_listed(cli, finished, folder):
    rows = json.loads(cli(folder, "runs", "--dataset", "shapes", "--json").ok().out)["rows"]
    assert (
        len(rows) == 18 and {row["State"] for row in rows} == {"recorded"} and all(row["Minutes"] > 0 for row in rows)
    )
    assert {row["Request"] for row in rows} == {rows[0]["Request"]} and len(rows[0]["Request"]) == 6
    assert (rows[0]["Recipe"], rows[0]["Method"], rows[0]["Type"], rows[0]["Seed"]) == ("shapes", "ce", "type-I", "0")
    assert all(len(list((folder / "runs").glob(f"{row['Folder']}*"))) == 1 for row in rows)
    for command in ("runs", "leaderboard --dataset shapes"):
        cli(folder, *command.split(), "--runs", "nosuch").one_line("no folder nosuch")


def test_leaderboard_without_torch(without_torch, finished, folder):
    done = without_torch("leaderboard", "--dataset", "shapes", "--runs", folder / "runs", "--format", "html")
    assert "HAFrame" in done.out


def test_dry_run(cli, finished, folder):
    arguments = (*PAPER, "--seeds", "3", "--jobs", "1", "--dry-run")
    before = sorted((folder / "runs").iterdir())
    done = cli(folder, *arguments, "--json")
    plan = json.loads(done.out)
    states = [job["state"] for job in plan["jobs"]]
    assert states.count("cached") == 18 and states.count("train") == 7 and states.count("rescore") == 2
    assert all(re.fullmatch("[0-9a-f]{64}", job["id"]) for job in plan["jobs"])
    assert plan["estimated_seconds"] > 0
    assert sorted((folder / "runs").iterdir()) == before
    assert "27 jobs, 7 to train" in cli(folder, *arguments).out


def test_dry_run_without_data_downloads_nothing(cli, tmp_path):
    done = cli(tmp_path, "run", "--dataset", "cifar100", "--dry-run", "--json")
    plan = json.loads(done.out)
    assert "cifar100 is not prepared" in plan["needed"] and "blocked" not in plan
    assert {job["state"] for job in plan["jobs"]} == {"train", "rescore"} and plan["disk_bytes"] > 1e8
    assert not list(tmp_path.iterdir())
    blocked = cli(tmp_path, "run", "--methods", "ce", "--dataset", "inat19", "--dry-run").ok().out
    assert "5 blocked" in blocked and "data prepare inat19 --source FILE" in blocked
    printed = cli(tmp_path, "run", "--methods", "all", "--dataset", "fgvc", "--dry-run").ok().out
    assert len(printed.splitlines()) < 55 and "| 5 to train" in printed and "\nSum: 205 runs, about " in printed
    assert "hxe: with their defaults" not in printed and "note: barz_denzler, " in printed and "hiercos," not in printed


def test_json(cli, finished, folder):
    arguments = (*TWICE, "--types", "type-II", "--json", "--methods")
    content = json.loads(cli(folder, *arguments, "ce,crm").ok().out)
    assert [(row["type"], row["method"]) for row in content["rows"]] == [("type-II", "ce"), ("type-II", "crm")]
    alone = json.loads(cli(folder, *arguments, "crm").ok().out)
    assert [row["method"] for row in alone["rows"]] == ["crm"]  # its base runs, and is not shown


def test_a_failed_job_does_not_stop_the_others(cli, folder, tmp_path):
    fatal = ("--set", "train.lr.type-I.classifier=1e30", "--runs", tmp_path / "runs")
    done = cli(folder, "run", "--methods", "ce,crm,flamingo", *ONE, *fatal)
    assert done.code == 1
    assert "failed: ce type-I seed 0: loss is nan at epoch 1" in done.err
    assert "failed: crm type-I seed 0: its base failed" in done.err
    assert done.out.count("0 of 1") == 3
    statuses = statuses_in(tmp_path / "runs").values()
    assert sorted(status["state"] for status in statuses) == ["failed", "failed", "planned"]
    assert any("Traceback" in status.get("traceback", "") for status in statuses)
    assert "Traceback" not in done.err


BROKEN = "cannot be imported: ZeroDivisionError: division by zero (line 2 of broken.py)"


def test_broken_method_files_do_not_stop_the_others(cli, folder, tmp_path):
    """One cannot be imported, another fails in training."""
    (tmp_path / "broken.py").write_text("import hierbench\n1 / 0\n")
    cli(tmp_path, "methods", "new", "buggy").ok()
    path = tmp_path / "buggy.py"
    path.write_text(path.read_text().replace("return self.classifier(features)", "return self.clasifier(features)"))
    done = cli(folder, "run", "--methods", f"{path},ce,{tmp_path}/broken.py", *ONE, "--runs", tmp_path / "runs")
    assert done.code == 1 and "Traceback" not in done.err and BROKEN in done.err
    assert "failed: buggy type-I seed 0: AttributeError" in done.err
    assert "done: ce type-I seed 0" in done.err and done.out.count("| type-I ") == 2
    cli(folder, "run", "--methods", f"{tmp_path}/broken.py", "--dataset", "shapes").one_line(BROKEN)


def test_all_leaves_out_a_broken_method_of_the_project(cli, folder, tmp_path, monkeypatch):
    """Also one that the recipe has a section for."""
    import hierbench.methods

    methods = tmp_path / "methods"
    shutil.copytree(next(iter(hierbench.methods.__path__)), methods)
    (methods / "haframe.py").write_text("1 / 0\n")
    package = type(sys)("hierbench.methods")
    package.__path__ = [str(methods)]
    monkeypatch.setitem(sys.modules, "hierbench.methods", package)
    for name in [name for name in sys.modules if name.startswith("hierbench.methods.")]:
        monkeypatch.delitem(sys.modules, name)
    done = cli(folder, "run", "--methods", "paper", "--dataset", "shapes", "--seeds", "1", "--dry-run").ok()
    assert "warning: method haframe cannot be imported" in done.err and "8 jobs" in done.out


@pytest.mark.soak
def test_the_default_recipe_has_the_difficulty_it_promises(cli, tmp_path):
    """Cross-entropy between 50% and 90% with mistakes at every height: the whole dataset, one seed."""
    options = ("--methods", "ce", "--types", "type-I", "--seeds", "1", "--mlflow", "off")
    cli(tmp_path, "run", "--dataset", "shapes", *options).ok()
    (path,) = (tmp_path / "runs").glob("*/metrics.json")
    metrics = json.loads(path.read_text())
    assert 50 < metrics["test"]["top1"] < 90
    assert len(metrics["mistakes_by_distance"]) == 4 and min(metrics["mistakes_by_distance"][1:]) >= 20


def test_a_new_method_passes_the_check_and_runs(cli, folder, tmp_path):
    """Its output does not spoil the JSON; a comment in its file changes no id."""
    cli(tmp_path, "methods", "new", "my-soft_labels2").ok()
    path = tmp_path / "my-soft_labels2.py"
    assert "all checks passed" in cli(tmp_path, "methods", "check", path).ok().out
    honest = path.read_text()
    prints = "        print('hello')\n        return self.classifier"
    path.write_text("print('imported')\n" + honest.replace("        return self.classifier", prints))
    command = ("run", "--methods", path, "--runs", tmp_path / "runs", *ONE)
    done = cli(folder, *command, "--json").ok()
    assert [row["method"] for row in json.loads(done.out)["rows"]] == ["my-soft_labels2"]
    assert "imported" in done.err and "hello" in done.err
    for change, summary in (("", "1 cached"), ("# a comment\n", "1 cached"), ("LATER = 1\n", "1 to train")):
        path.write_text(path.read_text() + change)
        assert summary in cli(folder, *command, "--dry-run").ok().out


SIX_EPOCHS = ("run", "--methods", "ce,crm", *ONE, "--set", "train.epochs=6")


@pytest.fixture(scope="module")
def undisturbed(cli, folder):
    """An undisturbed run: its folder and output."""
    done = cli.start(folder, *SIX_EPOCHS, "--runs", "whole").finish().ok()
    return folder / "whole", done.out


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_killed_run_resumes_and_ends_the_same(cli, folder, undisturbed, tmp_path, signal_number):
    undisturbed_runs, out = undisturbed
    process = cli.start(folder, *SIX_EPOCHS, "--runs", tmp_path / "killed")
    wait_for(lambda: list((tmp_path / "killed").glob("*/checkpoint.pt")))
    process.kill(signal_number)
    killed = process.finish()
    assert killed.code == (-signal.SIGKILL if signal_number == signal.SIGKILL else 130)
    if signal_number == signal.SIGINT:
        assert "interrupted; finished work is kept" in killed.err and "Traceback" not in killed.err
    assert cli(folder, *SIX_EPOCHS, "--runs", tmp_path / "killed").ok().out == out
    for path in undisturbed_runs.glob("*/*"):
        if path.name in ("metrics.json", "history.csv", "predictions.npz"):
            assert path.read_bytes() == (tmp_path / "killed" / path.parent.name / path.name).read_bytes()
    assert not list((tmp_path / "killed").rglob("*.tmp"))


def test_a_worker_that_is_killed_fails_its_job_alone(cli, folder, tmp_path):
    runs = tmp_path / "runs"
    chosen = (*ONE, "--jobs", "2", "--set", "train.epochs=8", "--runs", runs)
    process = cli.start(folder, "run", "--methods", "ce,flamingo", *chosen)

    def running():
        return [status["pid"] for status in statuses_in(runs).values() if status["state"] == "running"]

    wait_for(lambda: len(running()) == 2)
    os.kill(running()[0], signal.SIGKILL)
    done = process.finish()
    assert done.code == 1
    assert "the worker process ended (killed by signal 9 (SIGKILL))" in done.err
    assert done.out.count("0 of 1") == 1
    ((job, error),) = ((job, status["error"]) for job, status in statuses_in(runs).items() if "error" in status)
    assert "SIGKILL" in error and not list((runs / job).glob(".lock*"))


def test_runs_that_cannot_be_written(cli, folder, tmp_path):
    (tmp_path / "file").write_text("")
    cli(folder, "run", "--dataset", "shapes", "--runs", tmp_path / "file/runs").one_line("runs cannot be written to")


def test_help_fits_one_screen(cli, folder):
    _, _, commands = cli(folder, "--help").ok().out.partition("Commands:\n")
    lines = commands.strip().splitlines()
    assert len(lines) <= 20 and all(re.match(r" {0,2}[a-z]+ +[A-Z].*\.$", line) for line in lines)


def test_help_is_quick_and_imports_nothing_heavy(cli, folder):
    code = (
        "import sys\nsys.argv = ['hierbench', '--help']\nfrom hierbench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'mlflow', 'numpy', 'pandas', 'scipy', 'pydantic', 'optuna'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    cli.real(folder, python=("-c", code), limit=60).ok()


def test_twelve_calls_from_the_command_to_the_first_step(cli, tmp_path, data_dir, monkeypatch):
    """Of the project's own, each of which does something."""
    from hierbench.execution import timing
    from hierbench.training.step import Step

    seen = []

    def step(self, *arguments, call=Step.__call__):
        frames = [frame.filename for frame in traceback.extract_stack()[:-1]]
        if timing.__file__ not in frames:
            seen.append([name for name in frames if name.startswith(OURS)])
        return call(self, *arguments)

    (tmp_path / "data").symlink_to(data_dir)
    monkeypatch.setattr(Step, "__call__", step)
    monkeypatch.setattr("hierbench.execution.resources.num_cores", lambda: 1)
    cli(tmp_path, "run", "--methods", "ce", "--types", "type-I", "--dataset", "shapes", "--seeds", "1", *SMALL).ok()
    assert len(seen[0]) <= 12, seen[0]
