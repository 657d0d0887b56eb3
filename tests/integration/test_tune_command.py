"""`hierbench tune` as a user runs it: killed, started again, and two at once."""

import json
import re
import shutil
import signal
from importlib import resources

import optuna
import pytest

from hierbench.api.registry import find_method, method_names
from hierbench.config.tuned_values import read_tuned
from tests.support.run_files import specs_in, statuses_in
from tests.support.short import SMALL

SEARCH = (
    "tune", "--method", "haframe", "--dataset", "shapes", *SMALL,
    "--set", "tune.grid.haframe.alpha=[0.3,0.5]", "--set", "tune.grid.haframe.gamma=[2,4]", "--set", "tune.runs=2",
)  # fmt: skip
KEY = ("paper", "haframe", "type-II")
FOUND = "runs/tuned/shapes.toml"
STEPS = 5  # of an epoch
COUNTED = """
from pathlib import Path
from hierbench.methods.haframe import HAFrame


class Counted(HAFrame):
    name, title, source = "counted", "counted", "a test"

    def loss(self, outputs, targets):
        with open("steps", "a") as file:
            file.write("x")
        terms = super().loss(outputs, targets)
        diverges = self.params.gamma == 13 and not Path("mended").exists()
        return {name: term * float("nan") for name, term in terms.items()} if diverges else terms
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
    out = cli.start(folder, *SEARCH, "--output", "elsewhere.toml").finish().ok().out
    after = started(folder)
    assert {name: after[name] for name in before} == before  # nothing is trained twice
    expected = read_tuned(alone[0] / FOUND)[KEY]
    assert read_tuned(folder / "elsewhere.toml")[KEY].model_copy(update={"date": expected.date}) == expected
    assert not (folder / FOUND).exists()
    assert ranking(out) == ranking(alone[1].out)


def counted(arguments):
    """The arguments for a method that counts its steps, and diverges with gamma 13 until there is a file `mended`."""
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


def test_a_configuration_that_diverges_does_not_win_and_is_tried_again_by_the_next_command(cli, data):
    folder = data("diverges")
    (folder / "counted.py").write_text(COUNTED)
    grid = [*counted(SEARCH), "--set", "tune.grid.counted.gamma=[13,2]", "--set", "tune.grid.counted.alpha=[0.3]"]
    grid += ["--set", "tune.runs=1"]
    code, out, err = cli(folder, *grid)
    assert code == 1 and "failed: counted type-II alpha 0.3, gamma 13 seed 1000: " in err
    assert len(ranking(out)) == 1
    tuned = read_tuned(folder / FOUND)[("paper", "counted", "type-II")]
    assert (tuned.params, tuned.trials, tuned.runner_up) == ({"alpha": 0.3, "gamma": 2.0}, 1, {})
    assert recorded(folder) == ["COMPLETE", "FAIL"]

    (folder / "mended").touch()
    before = (folder / "steps").stat().st_size
    _, out, err = cli(folder, *grid).ok()
    assert "2 configurations x 1 runs, 1 done" in err and "gamma 13: validation hierdist@1" in err
    assert len(ranking(out)) == 2
    assert (folder / "steps").stat().st_size == before + STEPS  # the other configuration is not trained again
    assert read_tuned(folder / FOUND)[("paper", "counted", "type-II")].trials == 2
    assert recorded(folder) == ["COMPLETE", "COMPLETE", "FAIL"]


def recorded(folder):
    """The states of the trials that the study has."""
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{folder}/runs/optuna.db")
    return sorted(trial.state.name for trial in study.trials)


def test_run_uses_tuned_values_and_the_table_shows_the_budget(cli, alone, tmp_path):
    folder = shutil.copytree(alone[0], tmp_path / "tuned")
    run = ("run", "--methods", "ce,haframe", "--types", "type-II", "--dataset", "shapes", "--seeds", "1", *SMALL)
    _, out, err = cli(folder, *run, "--tuned").ok()
    params = read_tuned(folder / FOUND)[KEY].params
    assert f"tuned: haframe type-II: alpha {params['alpha']:g}, gamma {params['gamma']:g} (4 x 2 runs" in err
    cells = [line.split("|") for line in out.splitlines() if line.startswith("|")]
    budgets = {row[2].strip(" *"): row[-2].strip() for row in cells}
    assert (budgets["Method"], budgets["cross-entropy"]) == ("Tuning", "4 x 1, in the recipe")
    assert [budget for title, budget in budgets.items() if title.startswith("HAFrame")] == ["4 x 2"]
    assert "x runs of each." in out and "budgets" not in err
    (spec,) = [
        spec
        for spec in specs_in(folder / "runs").values()
        if spec["method"]["name"] == "haframe" and spec["split"] == "test"
    ]
    assert {name: spec["method"]["params"][name] for name in params} == params and spec["seed"] == 0


RATES = (
    "--dataset", "shapes", "--types", "type-II", "--mlflow", "off", "--jobs", "1",
    "--set", "train.epochs=1", "--set", "train.batch_size=480", "--set", "model.backbone=wrn10-1-s4",
)  # fmt: skip
POINTS = (
    "--set", "tune.runs=1", "--set", "tune.grid.all.lr.classifier=[0.02,0.05]",
    "--set", "tune.grid.ce.lr.classifier=[0.01,0.1]",
    "--set", "tune.grid.haframe.alpha=[0.4]", "--set", "tune.grid.haframe.gamma=[8]",
)  # fmt: skip


def test_learning_rates_of_every_method_are_tuned_and_run_takes_them(cli, data):
    """The tuned row is re-ranked, and trained once."""
    folder = data("rates")
    _, out, err = cli(folder, "tune", "--methods", "ce,haframe", *RATES, *POINTS).ok()
    assert "ce type-II: 2 configurations x 1 runs" in err and "haframe type-II: 2 configurations x 1 runs" in err
    assert "Rank lr.classifier alpha gamma Validation hierdist@1" in " ".join(out.split()) and len(started(folder)) == 4
    tuned = {key[1]: entry.params for key, entry in read_tuned(folder / FOUND).items()}
    assert tuned["ce"].keys() == {"lr.classifier"} and tuned["ce"]["lr.classifier"] in (0.01, 0.1)
    assert tuned["haframe"] == {"alpha": 0.4, "gamma": 8.0, "lr.classifier": tuned["haframe"]["lr.classifier"]}
    assert tuned["haframe"]["lr.classifier"] in (0.02, 0.05)

    run = ("run", *RATES, "--seeds", "1", "--tuned")
    _, out, err = cli(folder, *run, "--methods", "ce,crm,haframe").ok()
    assert f"tuned: ce type-II: lr.classifier {tuned['ce']['lr.classifier']:g} (2 x 1 runs" in err
    specs = specs_in(folder / "runs")
    final = {spec["method"]["name"]: (name, spec) for name, spec in specs.items() if spec["split"] == "test"}
    assert len(specs) == 4 + 3 and final.keys() == {"ce", "crm", "haframe"}
    assert final["crm"][1]["base"] == final["ce"][0]
    for method, (_, spec) in final.items():
        rate = tuned["ce" if method == "crm" else method]["lr.classifier"]
        assert spec["train"]["lr"] == {"backbone": 0.1, "transform": 0.15, "classifier": rate}
    assert "learning rates tuned per method" in out + err
    budgets = [line.split("|")[-2].strip() for line in out.splitlines() if line.startswith("|")][2:]
    assert budgets == ["2 x 1"] * 3  # also the re-ranked row, whose base was tuned

    before = started(folder)
    cli(folder, *run, "--methods", "crm").ok()
    assert started(folder) == before


def test_all_skips_methods_without_hyperparameters_with_a_note(cli, data):
    folder = data("all")
    command = ("tune", "--dataset", "shapes", "--types", "type-II", "--dry-run", "--methods")
    _, out, err = cli(folder, *command, "all").ok()
    assert "note: crm has nothing to tune and is left out; it re-ranks ce" in err and "note: ce has nothing" in err
    assert "\nhaframe  " in out and "\nce  " not in out
    _, out, err = cli(folder, *command, "all", "--set", "tune.grid.all.lr.backbone=[0.01,0.1]").ok()
    for method in ("ce", "flamingo", "hafeature"):
        assert re.search(rf"^{method} +type-II +2 +3 +lr.backbone 0.01, 0.1", out, re.M)
    _, out, err = cli(
        folder, *command, "all", "--sampler", "tpe", "--trials", "7", "--set", "tune.grid.all.lr.backbone=[0.01,0.1]"
    ).ok()
    budgets = re.findall(r"^(\w+) +type-II +(\d+) ", out, re.M)
    trained = {method.name for method in map(find_method, method_names()) if method.trains}
    assert dict(budgets) == dict.fromkeys(trained | {"_coarse_ce"}, "7")  # HiE's coarse network is tuned with them
