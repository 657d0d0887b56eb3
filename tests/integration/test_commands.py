"""Real commands in a temporary folder; what is killed or counts what is imported is in a process of its own."""

import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import time

import pytest

FAST = ["--set", "train.epochs=1", "--set", "train.batch_size=96", "--set", "model.backbone=wrn10-1-s4", "--jobs", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data_dir):
    folder = tmp_path_factory.mktemp("work")
    shutil.copytree(data_dir, folder / "data")
    return folder


@pytest.fixture(scope="module")
def finished(cli, folder):
    """All methods on both types, two seeds, in two worker processes."""
    command = ("run", "--methods", "paper", "--dataset", "shapes", "--seeds", "2", *FAST[:-2])
    done = cli.start(folder, *command).finish().ok()
    shutil.copy(folder / "runs/leaderboard-shapes.json", folder / "first.json")  # later commands overwrite it
    return done


@pytest.fixture(scope="module")
def board(finished, folder):
    """Its table as JSON."""
    return json.loads((folder / "first.json").read_text())


def test_one_command_ends_in_a_leaderboard_of_nine_rows(finished, board):
    rows = [line for line in finished.out.splitlines() if line.startswith("| type-")]
    assert len(rows) == 9
    assert [row.split("|")[1].strip() for row in rows] == ["type-I"] * 4 + ["type-II"] * 5
    assert "18 jobs, 14 to train, 4 to re-rank, 0 cached" in finished.err
    browse = f"browse: {sys.executable} -m mlflow ui --backend-store-uri sqlite:////"  # works from any folder
    assert browse in finished.err
    assert [row["n"] for row in board["rows"]] == [2] * 9


def test_again_it_trains_nothing(cli, finished, folder):
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*/metrics.json")}
    done = cli(folder, "run", "--methods", "paper", "--dataset", "shapes", "--seeds", "2", *FAST)
    assert done.code == 0
    assert "0 to train, 0 to re-rank, 18 cached" in done.err
    assert done.out == finished.out
    assert {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*/metrics.json")} == before


def test_crm_comes_from_the_predictions_of_ce(finished, folder):
    specs = {path.parent.name: json.loads(path.read_text()) for path in (folder / "runs").glob("*/spec.json")}
    crm = {name: spec for name, spec in specs.items() if spec["method"]["name"] == "crm"}
    assert len(crm) == 4
    for name, spec in crm.items():
        base = specs[spec["base"]]
        assert (base["method"]["name"], base["type"], base["seed"]) == ("ce", spec["type"], spec["seed"])
        assert not (folder / "runs" / name / "checkpoint.pt").exists()


def test_mlflow_mirrors_the_runs(finished, folder):
    with sqlite3.connect(folder / "runs/mlflow.db") as database:

        def count(query):
            return database.execute(query).fetchone()[0]

        assert count("select count(*) from experiments where name = 'shapes'") == 1
        assert count("select count(*) from tags where key = 'mlflow.parentRunId'") == 18
        assert count("select count(*) from runs") == 19
        assert count("select count(*) from params where key = 'methods' and value = 'paper'") == 1  # of the parent
        assert count("select count(*) from metrics where key = 'test_hierdist_at_5'") == 18
        assert count("select count(*) from metrics where key = 'val_top1'") == 14
        assert count("select count(*) from params where key = 'method.name'") == 18
    assert len(list((folder / "runs/mlartifacts").rglob("metrics.json"))) == 18


@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "json", "html"])
def test_leaderboard_without_torch(cli, finished, folder, form):
    code = (
        "import sys\n"
        "sys.argv = ['hierbench', 'leaderboard', '--dataset', 'shapes', '--format', sys.argv[1], '--output', 'table']\n"
        "from hierbench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "assert 'torch' not in sys.modules and 'mlflow' not in sys.modules\n"
    )
    time.sleep(0.6)  # findings of files that have just changed are not kept
    cli(folder, "leaderboard", "--dataset", "shapes").ok()  # verifies the runs
    cli.real(folder, form, python=("-c", code)).ok()
    assert "HAFrame" in (folder / "table").read_text()


def test_the_published_table(cli, folder):
    done = cli(folder, "leaderboard", "--dataset", "tieredimagenet-h", "--numbers", "paper")
    assert done.code == 0 and "**74.00 +/- 0.3549**" in done.out


def test_dry_run(cli, finished, folder):
    arguments = ("run", "--methods", "paper", "--dataset", "shapes", "--seeds", "3", *FAST, "--dry-run")
    before = sorted((folder / "runs").iterdir())
    done = cli(folder, *arguments, "--json")
    plan = json.loads(done.out)
    states = [job["state"] for job in plan["jobs"]]
    assert states.count("cached") == 18 and states.count("train") == 7 and states.count("rescore") == 2
    assert all(re.fullmatch("[0-9a-f]{64}", job["id"]) for job in plan["jobs"])
    assert plan["estimated_seconds"] > 0
    assert sorted((folder / "runs").iterdir()) == before
    assert "27 jobs, 7 to train" in cli(folder, *arguments).err


def test_dry_run_without_data_downloads_nothing(cli, tmp_path):
    done = cli(tmp_path, "run", "--dataset", "cifar100", "--dry-run", "--json")
    plan = json.loads(done.out)
    assert "cifar100 is not prepared" in plan["blocked"] and {job["state"] for job in plan["jobs"]} == {"blocked"}
    assert not list(tmp_path.iterdir())


def test_json(cli, finished, folder):
    arguments = ("run", "--methods", "ce,crm", "--types", "type-II", "--dataset", "shapes", "--seeds", "2", *FAST)
    content = json.loads(cli(folder, *arguments, "--json").out)
    assert [(row["type"], row["method"]) for row in content["rows"]] == [("type-II", "ce"), ("type-II", "crm")]
    alone = json.loads(cli(folder, *[a.replace("ce,crm", "crm") for a in arguments], "--json").out)
    assert [row["method"] for row in alone["rows"]] == ["crm"]  # its base runs, and is not shown


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--methods", "haframes"], ["unknown method 'haframes'", "did you mean 'haframe'"]),
        (["--methods", "x" * 5000], ["unknown method 'xxx", "known: all, "]),
        (["--methods", "paperr"], ["unknown method 'paperr'", "did you mean 'paper'"]),
        (["--methods", "./nowhere.py"], ["no method file nowhere.py"]),
        (["--methods", ","], ["--methods names no method"]),
        (["--methods", "haframe", "--types", "type-I"], ["haframe cannot use type-I"]),
        (["--types", "type-3"], ["unknown type 'type-3'"]),
        (["--seeds", "0"], ["--seeds must be at least 1"]),
        (["--seeds", "two"], ["Invalid value for '--seeds'", "valid integer"]),
        (["--jobs", "0"], ["--jobs", "must be auto or at least 1"]),
        (["--set", "train.epoch=1"], ["unknown key 'train.epoch'", "did you mean 'train.epochs'"]),
        (["--set", "methods.haframe.gama=1"], ["unknown key 'gama'", "did you mean 'gamma'"]),
        (["--set", "methods.hafram.gamma=1"], ["unknown method 'hafram'"]),
        (["--methods", "crm", "--set", "methods.haframe.gama=1"], ["haframe does not take part, only crm, ce; name"]),
        (["--methods", "ce", "--set", "tune={grid={hxe={alpha=[1]}}}"], ["hxe does not take part, only ce; name it"]),
        (["--set", "train.epochs=true"], ["train.epochs = true: input should be a number"]),
        (["--methods", "haframe", "--set", "methods.haframe.gamma=true"], ["haframe: gamma = true: input should be"]),
        (["--seeds", "20231123"], ["at most 1,000; was one seed meant? --seeds 1 trains seed 0"]),
        (["--set", "model.backbone=wrn11-1"], ["depth 6 n + 4"]),
        (["--set", "model.weights=imagenet1k-v1"], ["--set model.weights=none"]),
        (["--set", "augment.pad=32"], ["augment.pad = 32 must be less than the images' side"]),
        (["--set", "dataset=cifar100"], ["choose a dataset with --dataset"]),
        (["--device", "mps"], ["--device mps: this machine"]),
        (["--dry-run", "--set", "methods.haframe.gama=1"], ["unknown key 'gama'"]),
        (["--sed", "1"], ["No such option: --sed"]),
        (["--device", "gpu"], ["Invalid value for '--device'"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(cli, folder, arguments, parts):
    before = sorted((folder / "runs").iterdir()) if (folder / "runs").exists() else None
    assert cli(folder, "run", "--dataset", "shapes", *arguments).one_line(*parts)
    assert before == (sorted((folder / "runs").iterdir()) if before is not None else None)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run"], ["Missing option '--dataset'"]),
        (["run", "--dataset", "shape"], ["unknown dataset 'shape'", "did you mean 'shapes'"]),
        (["leaderboard", "--dataset", "fgvc"], ["no runs of fgvc", "hierbench run"]),
        (["leaderboard", "--dataset", "mnist", "--numbers", "paper"], ["unknown table"]),
        (
            ["leaderboard", "--dataset", "shape"],
            ["unknown dataset 'shape'; did you mean 'shapes'? known: cifar100"],
        ),
        (["leaderboard", "--dataset", "nosuch", "--numbers", "both"], ["unknown table", "cifar100, fgvc, inat19"]),
        (["data", "prepare", "tiny-imagenet", "--source", "nowhere.zip"], ["no archive nowhere.zip"]),
        (["data", "verify", "cifar100"], ["cifar100 is not prepared"]),
        (["methods", "check", "cee"], ["unknown method 'cee'", "did you mean 'ce'"]),
        (["methods", "new", "My Method"], ["lower-case"]),
        (["methods", "new", "crm"], ["method crm already exists"]),
        (["ruin"], ["No such command 'ruin'"]),
    ],
)
def test_other_mistakes(cli, tmp_path, arguments, parts):
    assert cli(tmp_path, *arguments).one_line(*parts)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_failed_job_does_not_stop_the_others(cli, folder, tmp_path):
    options = ("--types", "type-I", "--seeds", "1", "--runs", str(tmp_path / "runs"), "--mlflow", "off", *FAST)
    fatal = ("--set", "train.lr.type-I.classifier=1e30")
    done = cli(folder, "run", "--methods", "ce,crm,flamingo", "--dataset", "shapes", *options, *fatal)
    assert done.code == 1
    assert "failed: ce type-I seed 0: loss is nan at epoch 1" in done.err
    assert "failed: crm type-I seed 0: its base failed" in done.err
    assert done.out.count("0 of 1") == 3
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/status.json")]
    assert sorted(record["state"] for record in records) == ["failed", "failed", "planned"]
    assert any("Traceback" in record.get("traceback", "") for record in records)
    assert "Traceback" not in done.err


BROKEN = "cannot be imported: ZeroDivisionError: division by zero (line 2 of broken.py)"


def test_a_broken_method_file_does_not_stop_the_others(cli, folder, tmp_path):
    (tmp_path / "broken.py").write_text("import hierbench\n1 / 0\n")
    options = ("--types", "type-I", "--seeds", "1", "--runs", str(tmp_path / "runs"), "--mlflow", "off", *FAST)
    done = cli(folder, "run", "--methods", f"ce,{tmp_path}/broken.py", "--dataset", "shapes", *options)
    assert done.code == 1
    assert BROKEN in done.err and done.out.count("| type-I ") == 1
    alone = cli(folder, "run", "--methods", f"{tmp_path}/broken.py", "--dataset", "shapes")
    assert alone.one_line(BROKEN)


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
    done = cli(folder, "run", "--methods", "paper", "--dataset", "shapes", "--seeds", "1", "--dry-run")
    assert done.code == 0
    assert "warning: method haframe cannot be imported" in done.err and "8 jobs" in done.err


def test_a_method_that_fails_in_training_fails_alone(cli, folder, tmp_path):
    template = cli(tmp_path, "methods", "new", "buggy")
    assert template.code == 0
    path = tmp_path / "buggy.py"
    path.write_text(path.read_text().replace("return self.classifier(features)", "return self.clasifier(features)"))
    options = ("--types", "type-I", "--seeds", "1", "--runs", str(tmp_path / "runs"), "--mlflow", "off", *FAST)
    done = cli(folder, "run", "--methods", f"{path},ce", "--dataset", "shapes", *options)
    assert done.code == 1 and "Traceback" not in done.err
    assert "failed: buggy type-I seed 0: AttributeError" in done.err
    assert "done: ce type-I seed 0" in done.err


@pytest.mark.thorough
def test_the_default_recipe_has_the_difficulty_it_promises(cli, tmp_path):
    """Cross-entropy between 50 % and 90 % with mistakes at every height: the whole dataset, one seed."""
    options = ("--methods", "ce", "--types", "type-I", "--seeds", "1", "--mlflow", "off")
    done = cli(tmp_path, "run", "--dataset", "shapes", *options)
    assert done.code == 0, done.err
    (path,) = (tmp_path / "runs").glob("*/metrics.json")
    metrics = json.loads(path.read_text())
    assert 50 < metrics["test"]["top1"] < 90
    assert len(metrics["mistakes_by_distance"]) == 4 and min(metrics["mistakes_by_distance"][1:]) >= 20
    assert "done: ce type-I seed 0" in done.err


def test_a_new_method_passes_the_check_and_runs(cli, folder, tmp_path):
    assert cli(tmp_path, "methods", "new", "my-soft_labels2").code == 0
    path = tmp_path / "my-soft_labels2.py"
    checked = cli(tmp_path, "methods", "check", str(path))
    assert checked.code == 0, checked.out
    assert "all checks passed" in checked.out
    options = ("--seeds", "1", "--runs", str(tmp_path / "runs"), "--mlflow", "off", *FAST)
    done = cli(folder, "run", "--methods", str(path), "--dataset", "shapes", *options)
    assert done.code == 0, done.err
    assert done.out.count("my-soft_labels2") == 2
    again = cli(folder, "run", "--methods", str(path), "--dataset", "shapes", *options)
    assert "2 cached" in again.err
    path.write_text(path.read_text().replace("5.0, low", "6.0, low") + "# a comment\n")
    changed = cli(folder, "run", "--methods", str(path), "--dataset", "shapes", *options, "--dry-run")
    assert "2 to train" in changed.err
    path.write_text(path.read_text().replace("6.0, low", "5.0, low") + "# another comment\n")
    commented = cli(folder, "run", "--methods", str(path), "--dataset", "shapes", *options, "--dry-run")
    assert "2 cached" in commented.err


def test_a_dead_mlflow_server_only_warns(cli, folder, tmp_path, monkeypatch):
    options = ("--types", "type-I", "--seeds", "1", "--runs", str(tmp_path / "runs"), *FAST)
    arguments = ("run", "--methods", "ce", "--dataset", "shapes", *options)
    start = time.monotonic()
    done = cli(folder, *arguments, "--mlflow", "http://127.0.0.1:9")
    assert done.code == 0, done.err
    assert done.err.count("warning: MLflow at http://127.0.0.1:9 does not take the results") == 1
    assert time.monotonic() - start < 300
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/later.db")
    assert cli(folder, *arguments).code == 0  # what was missed is mirrored once it can be
    with sqlite3.connect(tmp_path / "later.db") as database:
        assert database.execute("select count(*) from metrics where key = 'test_top1'").fetchone()[0] == 1


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(cli, folder):
    """A run that nobody kills: its folder, and what it printed."""
    done = cli.start(folder, *SIX_EPOCHS, "--runs", "whole").finish().ok()
    return folder / "whole", done.out


SIX_EPOCHS = (
    "run",
    "--methods",
    "ce,crm",
    "--dataset",
    "shapes",
    "--types",
    "type-I",
    "--seeds",
    "1",
    "--mlflow",
    "off",
)
SIX_EPOCHS += ("--set", "train.epochs=6", *FAST[2:])


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_killed_run_goes_on_and_ends_the_same(cli, folder, undisturbed, tmp_path, how):
    whole, out = undisturbed
    process = cli.start(folder, *SIX_EPOCHS, "--runs", tmp_path / "killed")
    wait_for(lambda: list((tmp_path / "killed").glob("*/checkpoint.pt")))
    process.kill(how)
    killed = process.finish()
    assert killed.code == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    if how == signal.SIGINT:
        assert "interrupted; finished work is kept" in killed.err and "Traceback" not in killed.err
    assert cli(folder, *SIX_EPOCHS, "--runs", tmp_path / "killed").ok().out == out
    for path in whole.glob("*/*"):
        if path.name in ("metrics.json", "history.csv", "predictions.npz"):
            assert path.read_bytes() == (tmp_path / "killed" / path.parent.name / path.name).read_bytes()
    assert not list((tmp_path / "killed").rglob("*.tmp"))


def test_a_worker_that_is_killed_fails_its_job_alone(cli, folder, tmp_path):
    options = ("--types", "type-I", "--seeds", "1", "--mlflow", "off", "--jobs", "2", "--set", "train.epochs=8")
    runs = tmp_path / "runs"
    chosen = ("--methods", "ce,flamingo", "--dataset", "shapes", *options, *FAST[2:6], "--runs", runs)
    process = cli.start(folder, "run", *chosen)

    def running():
        records = [json.loads(path.read_text()) for path in runs.glob("*/status.json")]
        return [record["pid"] for record in records if record["state"] == "running"]

    wait_for(lambda: len(running()) == 2)
    os.kill(running()[0], signal.SIGKILL)
    done = process.finish()
    assert done.code == 1
    assert "the worker process ended (killed by signal 9 (SIGKILL))" in done.err
    assert done.out.count("0 of 1") == 1
    (failed,) = (path for path in runs.glob("*/status.json") if json.loads(path.read_text())["state"] == "failed")
    assert "SIGKILL" in json.loads(failed.read_text())["error"] and not list(failed.parent.glob(".lock*"))


def test_runs_that_cannot_be_written(cli, folder, tmp_path):
    (tmp_path / "file").write_text("")
    done = cli(folder, "run", "--dataset", "shapes", "--runs", str(tmp_path / "file/runs"))
    assert done.one_line("runs cannot be written to")


def test_a_damaged_record_is_set_aside_and_computed_again(cli, finished, folder, tmp_path):
    shutil.copytree(folder / "runs", tmp_path / "runs")
    path = next((tmp_path / "runs").glob("*/checkpoint.pt")).with_name("status.json")
    path.write_text("{")
    shown = cli(folder, "leaderboard", "--dataset", "shapes", "--runs", str(tmp_path / "runs")).ok()
    assert "is damaged (status.json)" in shown.err and "table" not in shown.err
    arguments = ("run", "--methods", "paper", "--dataset", "shapes", "--seeds", "2", *FAST, "--mlflow", "off")
    done = cli(folder, *arguments, "--runs", str(tmp_path / "runs"))
    assert done.code == 0 and "1 to train, 0 to re-rank, 17 cached" in done.err
    assert done.err.count("note: status.json of ") == 1 and done.out == finished.out
    assert (path.parent / "damaged/status.json").read_text() == "{"


def test_help_is_quick_and_imports_nothing_heavy(cli, folder):
    code = (
        "import sys\nsys.argv = ['hierbench', '--help']\nfrom hierbench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'mlflow', 'numpy', 'pandas', 'scipy', 'pydantic', 'optuna'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    cli.real(folder, python=("-c", code), limit=60).ok()


def test_lists(cli, folder, finished):
    methods = cli(folder, "methods", "list").out
    assert all(name in methods for name in ("ce", "crm", "flamingo", "hafeature", "haframe"))
    assert "prepared 960" in " ".join(cli(folder, "data", "list").out.split())
    assert "torch" in cli(folder, "env").out


def test_a_method_that_prints_does_not_spoil_the_json(cli, folder, tmp_path):
    assert cli(tmp_path, "methods", "new", "loud").code == 0
    path = tmp_path / "loud.py"
    text = path.read_text().replace(
        "        return self.classifier", "        print('hello')\n        return self.classifier"
    )
    path.write_text("print('imported')\n" + text)
    options = ("--types", "type-I", "--seeds", "1", "--runs", str(tmp_path / "runs"), "--mlflow", "off", *FAST)
    done = cli(folder, "run", "--methods", str(path), "--dataset", "shapes", *options, "--json")
    assert [row["method"] for row in json.loads(done.out)["rows"]] == ["loud"]
    assert "imported" in done.err and "hello" in done.err
