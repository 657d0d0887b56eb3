"""The estimate of a plan's time: a measured step times the steps."""

from pathlib import Path

import pytest
import torch

from hierbench.config.recipe import load_recipe
from hierbench.execution import estimate as estimating
from hierbench.execution.estimate import estimate
from hierbench.execution.resources import Setting
from hierbench.execution.timing import Trainee


def test_the_estimate_is_that_of_the_steps(monkeypatch):
    """Steps of a second for 10 images, put together by hand."""
    recipe, measured = load_recipe("shapes", ["train.epochs=2", "train.batch_size=10"]), []
    expected = recipe.expected.model_copy(update={"train": 45, "val": 20, "test": 30})
    recipe = recipe.model_copy(update={"expected": expected})

    def seconds(recipe, kind, hierarchy, device, batch_size):
        measured.append((kind, batch_size))
        return 0.1 if kind == "type-I" else 0.2

    monkeypatch.setattr(estimating, "seconds_per_image", seconds)
    job_seconds = 2 * 40 * 0.1  # of 45 images the last 5 are dropped
    for kinds, workers, expected in (
        (["type-I"], 1, job_seconds),
        (["type-I"] * 3 + ["type-II"], 2, 4 * job_seconds / 2),
        (["type-I"], 8, job_seconds),  # one job is not split
    ):
        estimated = estimate(recipe, kinds, None, Setting(Path(), Path(), workers=workers, threads=1))
        assert estimated.seconds == pytest.approx(expected)
    assert measured == [("type-I", 10)] * 3  # types of one backbone are measured once


def test_the_estimate_times_a_training_step(monkeypatch):
    calls = []
    once = Trainee.train
    monkeypatch.setattr(Trainee, "train", lambda self: (calls.append(self.work), once(self))[1])
    recipe = load_recipe("shapes", ["model.backbone=wrn10-1-s4", "train.batch_size=64", "train.epochs=1"])
    before = torch.get_rng_state(), torch.get_num_threads()
    assert estimate(recipe, ["type-I"], None, Setting(Path(), Path(), threads=1)).seconds > 0
    assert torch.equal(torch.get_rng_state(), before[0]) and torch.get_num_threads() == before[1]
    assert {work.image_size for work in calls} == {(32, 32)} and max(work.batch for work in calls) <= 64


@pytest.mark.parametrize(
    ("kinds", "setting", "seconds"),
    [
        ([], Setting(Path(), Path()), 0.0),  # all is cached
        (["type-I"], Setting(Path(), Path(), workers=0), None),  # jobs run elsewhere
        (["type-I"], Setting(Path(), Path(), "cuda"), None),  # would use the device twice
        (["type-I"], Setting(Path(), Path(), "mps"), None),
    ],
)
def test_nothing_is_measured_where_it_would_not_tell(monkeypatch, kinds, setting, seconds):
    monkeypatch.setattr(estimating, "seconds_per_image", lambda *_: pytest.fail("measured"))
    assert estimate(load_recipe("shapes"), kinds, None, setting, measure=False).seconds == seconds
