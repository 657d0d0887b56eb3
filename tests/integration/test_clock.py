"""A clock that is moved by a day while a command runs, and between two commands."""

import itertools
import json
import time

import pytest

from hierbench.training import trainer

DAY = 86400.0
RUN = (
    "run", "--methods", "ce,crm", "--dataset", "shapes", "--types", "type-I", "--seeds", "1", "--jobs", "1",
    "--mlflow", "off", "--set", "train.batch_size=96", "--set", "model.backbone=wrn10-1-s4",
)  # fmt: skip


class Clock:
    """The time of day, which can be moved."""

    def __init__(self, patch):
        self.ahead, time_of_day, in_ns = 0.0, time.time, time.time_ns
        patch.setattr(time, "time", lambda: time_of_day() + self.ahead)
        patch.setattr(time, "time_ns", lambda: in_ns() + int(1e9 * self.ahead))


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def hierbench(cli, tmp_path):
    """Run the command line on one folder of runs; return its output."""
    return lambda *arguments: cli(tmp_path, *arguments, "--runs", tmp_path / "runs").ok()[1:]


def test_a_clock_that_jumps_between_epochs(tmp_path, data_dir, clock, hierbench, monkeypatch):
    command = (*RUN, "--set", "train.epochs=3", "--data-dir", str(data_dir))
    out, _ = hierbench(*command)
    (tmp_path / "runs").rename(tmp_path / "whole")
    real, jumps, since = trainer.validate, itertools.cycle((DAY, -2 * DAY, DAY)), time.monotonic()

    def jump(*arguments):
        clock.ahead += next(jumps)
        return real(*arguments)

    monkeypatch.setattr(trainer, "validate", jump)
    moved, err = hierbench(*command)
    assert moved == out and "-" not in err.partition("about ")[2].partition(" left")[0]
    for path in (tmp_path / "runs").glob("*/status.json"):
        assert 0 <= json.loads(path.read_text())["seconds"] <= time.monotonic() - since
    for path in (tmp_path / "whole").glob("*/*"):
        if path.name in ("metrics.json", "history.csv", "predictions.npz"):
            assert path.read_bytes() == (tmp_path / "runs" / path.parent.name / path.name).read_bytes()
    for clock.ahead in (-DAY, DAY):
        again_, err = hierbench(*command)
        assert again_.strip() == out.strip() and "0 to train, 0 to re-rank, 2 cached" in err
    assert not list((tmp_path / "runs").glob("*/.*"))
