"""Frozen backbones through the command line: one cache for all jobs, its plan, its damage, and every command."""

import json
import re
import shutil

import pytest
import torch

from tests.support.short import SHORT

FROZEN = ["--set", "model.frozen=true", "--set", "model.weights=random", *SHORT, "--set", "train.epochs=2"]
SMALL = ["--dataset", "shapes", "--seeds", "1", "--mlflow", "off", "--device", "cpu", *FROZEN]
TUNE = ["--dataset", "shapes", "--mlflow", "off", "--device", "cpu", *FROZEN]  # which takes no --seeds


@pytest.fixture
def where(tmp_path, shapes):
    """The options of folders: a copy of the data without features."""
    shutil.copytree(shapes.folder, tmp_path / "data/prepared/shapes", ignore=shutil.ignore_patterns("*features*"))
    return ["--runs", tmp_path / "runs", "--data-dir", tmp_path / "data"]


def caches(tmp_path):
    return sorted((tmp_path / "data/prepared/shapes/features").glob("[0-9a-f]*"))


def test_auto_that_is_a_gpu_says_that_a_cpu_may_be_faster(cli, tmp_path, where, monkeypatch):
    """The command ends before it uses the GPU, of which there is only one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    words = ["run", "--methods", "ce", "--dataset", "shapes", *FROZEN, *where, "--devices", "2"]
    note = "note: heads on frozen features train on the GPU; many CPU cores may be faster: --device cpu"
    for device, is_said in (("auto", True), ("cuda", False)):
        done = cli(tmp_path, *words, "--device", device)
        done.one_line("this machine has 1")
        assert (note in done.err) is is_said


def command_of(where):
    return ["run", "--methods", "ce,haframe", "--jobs", "1", *SMALL, *where]


def test_a_dry_run_has_the_size_of_a_cache_and_writes_nothing(cli, tmp_path, where):
    planned = json.loads(cli(tmp_path, *command_of(where), "--dry-run", "--json").ok().out)
    (feature,) = planned["features"]
    assert [feature[key] for key in ("pool", "cached", "images", "vectors")] == ["average", False, 768, 768]
    assert feature["bytes"] == 768 * 64 * 4 and 0 < feature["seconds"] <= planned["estimated_seconds"]
    shown = cli(tmp_path, *command_of(where), "--dry-run").ok().out
    assert "average-pooled features of wrn10-1-s4: 768 images, 1 view in training, 0.2 MB, to extract, " in shown
    assert not caches(tmp_path)


def test_parameters_of_a_frozen_backbone_are_not_counted(cli, tmp_path, where):
    models = json.loads(cli(tmp_path, *command_of(where), "--dry-run", "--json").ok().out)["models"]
    parameters = {(model["type"], model["method"]): model["parameters"] for model in models}
    assert parameters["type-I", "ce"] == 2 * 64 + 65 * 600 + 2 * 600 + 601 * 48


@pytest.fixture
def ran(cli, tmp_path, where):
    """A comparison on frozen features, and their cache."""
    done = cli(tmp_path, *command_of(where)).ok()
    (cache,) = caches(tmp_path)
    return done, cache


def test_a_table_says_that_the_backbone_is_frozen(ran):
    out = ran[0].out
    assert "wrn10-1-s4 frozen, views 1, 2 epochs" in out and "model.tokens" not in out
    assert "augment." not in out  # the recipe's crop and flip do not apply


def test_more_seeds_take_the_features_from_the_cache(cli, tmp_path, where, ran):
    _, cache = ran
    written = (cache / "train-features.npy").stat().st_mtime_ns
    again = cli(tmp_path, *command_of(where), "--seeds", "2", "--dry-run").ok().out
    assert "0.2 MB, cached" in again and "3 cached" in again
    assert (cache / "train-features.npy").stat().st_mtime_ns == written


def test_a_damaged_cache_is_named(cli, tmp_path, where, ran):
    _, cache = ran
    file = cache / "val-features.npy"
    file.write_bytes(file.read_bytes()[:-8])
    damaged = cli(tmp_path, *command_of(where), "--seeds", "2")
    assert damaged.code == 2 and str(cache) in damaged.err
    assert "remove the folder and run the command again" in damaged.err


def test_tune_and_ablate(cli, tmp_path, where):
    cli(tmp_path, "ablate", *SMALL, *where, "--jobs", "1").ok()
    grid = ["--set", "tune.runs=1", "--set", "tune.grid.haframe.alpha=[0.2]", "--set", "tune.grid.haframe.gamma=[1, 2]"]
    cli(tmp_path, "tune", "--method", "haframe", *TUNE, *where, "--jobs", "1", *grid).ok()
    assert len(caches(tmp_path)) == 1
    tune = ["tune", "--method", "ce", *TUNE, *where, "--set", "tune.grid.ce.lr.backbone=[1,2]"]
    planned = cli(tmp_path, *tune, "--dry-run").ok()
    assert "ce type-I is left out" in planned.err and re.search("ce +type-II +2 ", planned.out)
    cli(tmp_path, *tune, "--dry-run", "--types", "type-I").one_line("nothing to tune")


def test_a_planned_job_extracts_its_features(cli, tmp_path, where):
    planned = cli(tmp_path, "run", "--methods", "ce", "--types", "type-I", *SMALL, *where, "--plan-only", "--json").ok()
    (job,) = json.loads(planned.out)["jobs"]
    assert "extracting 768 features of wrn10-1-s4" in cli(tmp_path, *job["command"][1:]).ok().err
    assert len(caches(tmp_path)) == 1
