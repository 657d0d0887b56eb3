"""A command whose jobs are all done answers without PyTorch, and never with something that is not its own table."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hierbench.config.options import Options
from hierbench.studies import plan_cache
from hierbench.studies.plan_cache import answer_from_cache
from tests.short import SHORT

COMMAND = ["run", "--methods", "ce,crm", "--dataset", "shapes", "--types", "type-I", "--seeds", "1", *SHORT]
OPTIONS = Options("shapes", methods="ce,crm", types="type-I", seeds=1, overrides=list(SHORT[1::2]))
OFF = replace(OPTIONS, mlflow="off")  # the database does not know a copy of the folder
LOOK = """
import sys
from hierbench.cli.main import main
sys.argv = ["hierbench", *sys.argv[1:]]
try:
    main()
finally:
    print("heavy:", sorted({"torch", "mlflow", "optuna", "pandas", "matplotlib"} & sys.modules.keys()), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data_dir):
    folder = tmp_path_factory.mktemp("again")
    shutil.copytree(data_dir, folder / "data")
    return folder


@pytest.fixture(scope="module")
def first(cli, folder):
    return cli(folder, *COMMAND, HIERBENCH_CACHE_DIR=str(folder / "cache")).ok()


@pytest.fixture
def copy(folder, first, monkeypatch, tmp_path):
    monkeypatch.chdir(shutil.copytree(folder, tmp_path / "copy"))


def contents(folder):
    return {path: path.read_bytes() for path in (folder / "runs").glob("*/*") if path.is_file()}


def test_the_second_time_needs_no_pytorch_and_says_the_same(cli, folder, first):
    records = contents(folder)
    again = cli.real(folder, *COMMAND, python=("-c", LOOK), HIERBENCH_CACHE_DIR=str(folder / "cache")).ok()
    *said, heavy = again.err.splitlines()
    assert heavy == "heavy: []"
    assert again.out == first.out and "type-I" in again.out
    assert "2 jobs, 0 to train, 0 to re-rank, 2 cached" in again.err and "note: not the whole dataset" in again.err
    assert said[-2:] == first.err.splitlines()[-2:]  # where everything is
    assert records == contents(folder)


def test_it_answers_for_the_same_command_alone(folder, first, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert answer_from_cache(OPTIONS)
    assert answer_from_cache(replace(OPTIONS, jobs=3, as_json=True))  # neither changes a result
    for changed in (
        {"methods": "ce"},
        {"methods": "crm,ce"},
        {"types": "type-I,type-II"},
        {"seeds": 2},
        {"overrides": ["train.epochs=2", *OPTIONS.overrides[1:]]},
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


def test_it_does_not_answer_when_anything_else_has_changed(folder, first, cli, monkeypatch, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "one_more_package"  # so that the real ones are left alone
    package.mkdir()
    files = [package / name for name in ("__init__.py", "method.py", "recipe.toml", "tree.csv")]
    for file in files:
        file.touch()
    assert answer_from_cache(OFF)
    others = {
        "PACKAGES": (*plan_cache.PACKAGES, package.name),
        "version": lambda package: "another",
        "this_machine": lambda: "another",
        "entry_points": lambda group: ["an installed method"],
    }
    for name, another in others.items():
        with monkeypatch.context() as patch:
            patch.setattr(plan_cache, name, another)
            assert not answer_from_cache(OFF), name
    (plan,) = Path("runs/.plans").iterdir()
    kept, meta = plan.read_text(), Path("data/prepared/shapes/meta.json")
    for damaged in ("", "{}", "[{}]", "[1]", "null", '{"a": true}'):
        plan.write_text(damaged)
        assert not answer_from_cache(OFF), damaged
    plan.write_text(kept)
    before = meta.read_text()
    meta.write_text(before.replace(json.loads(before)["digest"], "0" * 64))
    assert not answer_from_cache(OFF)
    meta.write_text(before)
    monkeypatch.setattr(plan_cache, "PACKAGES", others["PACKAGES"])
    cli(tmp_path / "copy", *COMMAND, "--mlflow", "off").ok()
    assert answer_from_cache(OFF)
    for file in files:
        stamp = file.stat().st_mtime_ns
        os.utime(file, ns=(stamp, stamp + 1))
        assert not answer_from_cache(OFF), file.name
        os.utime(file, ns=(stamp, stamp))
    assert answer_from_cache(OFF)
    run = next(path for path in Path("runs").iterdir() if (path / "checkpoint.pt").exists())
    (run / "status.json").unlink()
    assert not answer_from_cache(OFF)
