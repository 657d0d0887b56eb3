"""`hierbench tune` as a user runs it: killed, started again, and two at once."""

import json
import re
import shutil
import signal
from importlib import resources

import pytest

from hierbench.config.tuned_values import read_tuned
from tests.support.run_files import statuses_in
from tests.support.short import SMALL

SEARCH = (
    "tune", "--method", "haframe", "--dataset", "shapes", *SMALL,
    "--set", "tune.grid.haframe.alpha=[0.3,0.5]", "--set", "tune.grid.haframe.gamma=[2,4]", "--set", "tune.runs=2",
)  # fmt: skip
KEY = ("paper", "haframe", "type-II")
FOUND = "runs/tuned/shapes.toml"
STEPS = 5  # of an epoch
COUNTED = """
from hierbench.methods.haframe import HAFrame


class Counted(HAFrame):
    name, title, source = "counted", "counted", "a test"

    def loss(self, outputs, targets):
        with open("steps", "a") as file:
            file.write("x")
        return super().loss(outputs, targets)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory, data_dir):
    def folder(name):
        place = tmp_path_factory.mktemp(name)
        shutil.copytree(data_dir, place / "data")
        return place

    return folder


@pytest.fixture(scope="module")
def alone(cli, data):
    """A search that nothing disturbs."""
    folder = data("alone")
    return folder, cli.start(folder, *SEARCH).finish().ok()


def started(folder):
    """{id: when its only complete run began}; a run that is trained again begins later."""
    return statuses_in(folder / "runs")


def ranking(out):
    """The lines of configurations, best first."""
    return re.findall(r"^\w+ +type-II +\d .*", out, re.MULTILINE)


def test_all_configurations_are_compared(alone):
    folder, (_, out, err) = alone
    rows = ranking(out)
    values = [float(row.split()[5]) for row in rows]
    assert len(rows) == 4 and values == sorted(values)
    tuned = read_tuned(folder / FOUND)[KEY]
    assert tuned.mean == pytest.approx(values[0], abs=1e-4) and (tuned.trials, tuned.runs) == (4, 2)
    assert "4 configurations x 2 runs, 0 done" in err and "Warning" not in err
    assert KEY not in read_tuned(resources.files("hierbench.benchmarks") / "tuned/shapes.toml")  # in the package
    states = started(folder)
    assert len(states) == 8 and {state["state"] for state in states.values()} == {"done"}
    for name in states:
        spec = json.loads((folder / "runs" / name / "spec.json").read_text())
        assert spec["split"] == "val" and spec["seed"] in (1000, 1001)
        assert not (folder / "runs" / name / "predictions.npz").exists()


def done_before_kill(cli, folder, arguments):
    """Kill a search after its first result; return the status of the finished runs by id."""
    process = cli.start(folder, *arguments)
    assert any("validation hierdist@1" in line for line in process.stderr)
    process.kill()
    assert process.finish().code == -signal.SIGKILL
    return {name: state for name, state in started(folder).items() if state["state"] == "done"}


def test_a_killed_search_ends_with_the_same_winner(cli, alone, data):
    folder = data("killed")
    before = done_before_kill(cli, folder, SEARCH)
    assert 2 <= len(before) < 8
    out = cli.start(folder, *SEARCH).finish().ok().out
    after = started(folder)
    assert {name: after[name] for name in before} == before  # nothing is trained twice
    expected = read_tuned(alone[0] / FOUND)[KEY]
    assert read_tuned(folder / FOUND)[KEY].model_copy(update={"date": expected.date}) == expected
    assert ranking(out) == ranking(alone[1].out)


def counted(arguments):
    """The arguments for a method that counts its steps."""
    return [argument.replace("haframe", "counted.py" if argument == "haframe" else "counted") for argument in arguments]


def test_two_at_once_share_the_grid(cli, alone, data):
    folder = data("two")
    (folder / "counted.py").write_text(COUNTED)
    processes = [cli.start(folder, *counted(SEARCH)) for _ in range(2)]
    outputs = [process.finish().ok() for process in processes]
    tried = [re.findall(r"alpha ([\d.]+), gamma ([\d.]+): validation", done.err) for done in outputs]
    assert sorted(tried[0] + tried[1]) == [("0.3", "2"), ("0.3", "4"), ("0.5", "2"), ("0.5", "4")]
    assert len((folder / "steps").read_text()) == 8 * STEPS  # nothing was trained twice
    assert outputs[0].out == outputs[1].out
    expected = read_tuned(alone[0] / FOUND)[KEY]
    tuned = read_tuned(folder / FOUND)[("paper", "counted", "type-II")]
    assert (tuned.params, tuned.mean) == (expected.params, expected.mean)
