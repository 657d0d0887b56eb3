"""The road from a command to the first training step is short, and a plan is a value."""

import dataclasses
import traceback
from pathlib import Path

import pytest

import hierbench
from hierbench.config.options import Options
from hierbench.execution.jobs import find_methods
from hierbench.execution.request import requested_recipe, resolve
from hierbench.studies.comparison import plan_comparison
from hierbench.training.step import Step
from tests.support.short import SMALL

PACKAGE = str(Path(hierbench.__file__).parent)


def test_at_most_eleven_calls_lie_between_a_command_and_the_first_step(cli, tmp_path, data_dir, monkeypatch):
    places = []

    def stop(*_):
        places.extend(frame.name for frame in traceback.extract_stack() if frame.filename.startswith(PACKAGE))
        raise KeyboardInterrupt

    monkeypatch.setattr(Step, "__call__", stop)
    words = ("run", "--dataset", "shapes", "--methods", "ce", "--types", "type-I", "--seeds", "1", *SMALL)
    assert cli(tmp_path, *words, "--data-dir", data_dir).code == 130
    assert places[0] == "main" and places[-1] == "train"
    assert len(places) <= 11, places


def test_a_plan_is_a_value(tmp_path, data_dir):
    options = Options("shapes", "ce,crm", "type-I", 1, runs=tmp_path / "runs", data_dir=data_dir)
    methods, _ = find_methods(["ce", "crm"])
    request = resolve(options, requested_recipe(options), methods)
    plan = plan_comparison(request, methods)
    assert [line.label for line in plan.planned] == ["ce type-I seed 0", "crm type-I seed 0"]
    assert list(plan.states.values()) == ["train", "rescore"] and plan.setting.workers == 1
    for value, name in ((plan, "setting"), (request, "recipe"), (plan.planned[0], "state")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, None)
    assert plan_comparison(request, methods) == plan


def test_a_plan_announces_a_frame_of_many_classes(tmp_path, data_dir, monkeypatch):
    options = Options("shapes", "ce,haframe,hxe", "type-II", 1, runs=tmp_path / "runs", data_dir=data_dir)
    methods, _ = find_methods(["ce", "haframe", "hxe"])
    request = resolve(options, requested_recipe(options), methods)
    assert plan_comparison(request, methods).notes == []
    monkeypatch.setattr("hierbench.studies.comparison.MATRIX_CLASSES", 10)
    (note,) = plan_comparison(request, methods).notes
    assert note == "note: haframe makes a frame of 48 classes for each run, under 1 s and under 0.1 MB"
    assert plan_comparison(request, methods[:1]).notes == []


def test_a_plan_without_data_is_blocked_only_where_the_user_has_to_bring_it(tmp_path):
    for dataset, state in (("shapes", "train"), ("imagenet1k", "blocked")):
        options = Options(dataset, "ce", "type-II", 1, runs=tmp_path / "runs", data_dir=tmp_path, dry_run=True)
        methods, _ = find_methods(["ce"])
        plan = plan_comparison(resolve(options, requested_recipe(options), methods), methods)
        assert plan.jobs == [] and [line.state for line in plan.planned] == [state]
