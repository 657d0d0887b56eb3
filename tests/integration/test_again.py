"""A command whose jobs are all done answers without PyTorch, and never with something that is not its own table."""

import json
import os
import platform
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import hierbench.experiments.plan_cache as module
from hierbench.config.options import Options
from hierbench.config.recipe import load_recipe
from hierbench.config.spec import Spec
from hierbench.data.prepared import find
from hierbench.experiments.plan_cache import answer_from_cache

COMMAND = ["run", "--methods", "ce,crm", "--dataset", "shapes", "--types", "type-I", "--seeds", "1"]
COMMAND += ["--set", "train.epochs=1", "--set", "train.batch_size=96", "--set", "model.backbone=wrn10-1-s4"]
LOOK = """
import sys
from hierbench.cli.main import main
sys.argv = ["hierbench", *sys.argv[1:]]
try:
    main()
finally:
    print("heavy:", sorted({"torch", "mlflow", "optuna", "pandas", "matplotlib"} & sys.modules.keys()), file=sys.stderr)
"""


def surroundings(folder):
    """Variables of the environment; findings are kept from one test to the next."""
    return {"HIERBENCH_CACHE_DIR": str(folder / "cache"), "NO_COLOR": "1", "COLUMNS": "200"}


@pytest.fixture(scope="module")
def hierbench(cli):
    """Runs a command as a user does; returns its output, what it said, and the heavy packages that it imported."""

    def run(folder, *arguments):
        done = cli.real(folder, *arguments, python=("-c", LOOK), **surroundings(folder)).ok()
        said, _, heavy = done.err.rpartition("heavy: ")
        return done.out, said, heavy.strip()

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data_dir):
    folder = tmp_path_factory.mktemp("again")
    shutil.copytree(data_dir, folder / "data")
    return folder


@pytest.fixture(scope="module")
def first(cli, folder):
    """In a process of its own, with a worker process."""
    return cli.start(folder, *COMMAND, "--jobs", "2", **surroundings(folder)).finish().ok()


def test_the_second_time_needs_no_pytorch_and_says_the_same(hierbench, folder, first):
    records = {path: path.read_bytes() for path in (folder / "runs").glob("*/*") if path.is_file()}
    table, said, heavy = hierbench(folder, *COMMAND)
    assert heavy == "[]"
    assert table == first.out and "type-I" in table
    assert "2 jobs, 0 to train, 0 to re-rank, 2 cached" in said and "note: not the whole dataset" in said
    assert said.splitlines()[-2:] == first.err.splitlines()[-2:]  # where everything is
    assert records == {path: path.read_bytes() for path in (folder / "runs").glob("*/*") if path.is_file()}


def test_a_leaderboard_needs_no_pytorch(cli, hierbench, folder, first):
    time.sleep(0.6)  # findings of files that have just changed are not kept
    cli(folder, "leaderboard", "--dataset", "shapes", **surroundings(folder)).ok()  # verifies the runs, with PyTorch
    for source in ("runs", "paper"):
        dataset = "shapes" if source == "runs" else "fgvc"
        table, _, heavy = hierbench(folder, "leaderboard", "--dataset", dataset, "--numbers", source)
        assert heavy == "[]" and "cross-entropy" in table
    assert json.loads(cli(folder, *COMMAND, "--json").ok().out)["rows"][0]["n"] == 1


OVERRIDES = ["train.epochs=1", "train.batch_size=96", "model.backbone=wrn10-1-s4"]
OPTIONS = Options(dataset="shapes", methods="ce,crm", types="type-I", seeds=1, overrides=OVERRIDES)


def test_it_answers_for_the_same_command_alone(folder, first, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert answer_from_cache(OPTIONS)
    assert answer_from_cache(replace(OPTIONS, jobs=3, as_json=True))  # neither changes a result
    for changed in (
        {"methods": "ce"},
        {"methods": "crm,ce"},
        {"types": "type-I,type-II"},
        {"seeds": 2},
        {"overrides": ["train.epochs=2", *OVERRIDES[1:]]},
        {"overrides": ["train.epochs=1", "train.batch=96"]},  # a mistake is the planner's to tell
        {"protocol": "authors"},
        {"dataset": "cifar100"},
        {"dry_run": True},
        {"data_dir": Path("elsewhere")},
        {"runs": Path("elsewhere")},
        {"mlflow": "sqlite:///elsewhere.db"},  # which has not seen the runs
        {"methods": "ce,crm,./mine.py"},
    ):
        capsys.readouterr()
        assert not answer_from_cache(replace(OPTIONS, **changed)), changed
        assert capsys.readouterr().out == ""


def test_it_does_not_answer_when_anything_else_has_changed(folder, first, monkeypatch, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    off = replace(OPTIONS, mlflow="off")  # the copied database does not know the copy
    assert answer_from_cache(off)
    others = {
        "PACKAGES": ("hierbench",),
        "version": lambda package: "another",
        "platform": SimpleNamespace(node=lambda: "another", python_version=platform.python_version),
        "entry_points": lambda group: ["an installed method"],
    }
    for name, another in others.items():
        with monkeypatch.context() as patch:
            patch.setattr(module, name, another)
            assert not answer_from_cache(off), name
    meta = Path("data/prepared/shapes/meta.json")
    before = meta.read_text()
    meta.write_text(before.replace(json.loads(before)["digest"], "0" * 64))
    assert not answer_from_cache(off)
    meta.write_text(before)
    assert answer_from_cache(off)
    (plan,) = Path("runs/.plans").iterdir()
    for damaged in ("", "{}", "[{}]", "[1]", "null", '[{"spec": {"seed": 0}, "shown": true}]'):
        kept = plan.read_text()
        plan.write_text(damaged)
        assert not answer_from_cache(off), damaged
        plan.write_text(kept)
    run = next(path for path in Path("runs").iterdir() if (path / "checkpoint.pt").exists())
    (run / "status.json").unlink()
    assert not answer_from_cache(off)


def test_a_touched_file_of_the_package_is_noticed(folder, first, monkeypatch, tmp_path):
    """Of one that is added to the packages, so that the real ones are left alone."""
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    off = replace(OPTIONS, mlflow="off")
    assert {"hierbench", "hierbench.methods", "hierbench.benchmarks"} <= set(module.PACKAGES)
    package = tmp_path / "one_more_package"
    package.mkdir()
    files = [package / name for name in ("__init__.py", "method.py", "recipe.toml", "tree.csv")]
    for file in files:
        file.touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "PACKAGES", (*module.PACKAGES, package.name))
    assert not answer_from_cache(off)
    (plan,) = Path("runs/.plans").iterdir()
    kept = json.loads(plan.read_text())
    jobs = [SimpleNamespace(spec=Spec.model_validate(job["spec"]), shown=job["shown"]) for job in kept]
    module.plan_writer(off, load_recipe("shapes", off.overrides), find("shapes", Path("data")))(jobs)
    assert answer_from_cache(off)
    for file in files:
        before = file.stat().st_mtime_ns
        os.utime(file, ns=(before, before + 1))
        assert not answer_from_cache(off), file.name
        os.utime(file, ns=(before, before))
    assert answer_from_cache(off)
