"""The study of hyperparameters: what it searches, what its winner is, and what a comparison takes from it."""

import re

import optuna
import pytest

from hierbench.api.registry import find_method, method_names
from hierbench.config.tuned_values import read_tuned
from hierbench.runs.record_reader import read_records
from hierbench.studies.comparison import compare
from hierbench.studies.tuning.tuning_study import tune
from hierbench.utils import console
from tests.support.run_files import specs_in, statuses_in
from tests.support.studies import FAST, call, short_options

GRID = ("tune.grid.haframe.alpha=[0.3,0.5]", "tune.grid.haframe.gamma=[2]", "tune.runs=2")
UNSTABLE = """
from pathlib import Path
from hierbench.methods.haframe import HAFrame


class Unstable(HAFrame):
    name = title = source = "unstable"

    def loss(self, outputs, targets):
        terms = super().loss(outputs, targets)
        diverges = self.params.gamma == 13 and not Path(FILE).exists()
        return {name: term * float("nan") for name, term in terms.items()} if diverges else terms
"""


def search(folder, data_dir, *overrides, methods="haframe", sampler=None, trials=None, **more):
    options = short_options(folder, data_dir, methods, "type-II", None, (*FAST, *overrides), **more)
    return call(tune, options, sampler, trials)


def tuned_in(folder):
    return {key[1]: entry for key, entry in read_tuned(folder / "runs/tuned/shapes.toml").items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tuning")


@pytest.fixture(scope="module")
def searched(folder, data_dir):
    return search(folder, data_dir, *GRID)


@pytest.fixture(scope="module")
def compared(folder, data_dir, searched):
    return call(compare, short_options(folder, data_dir, "ce,haframe", "type-II"), tuned=True)


def test_a_comparison_trains_with_the_tuned_values(folder, compared):
    params = tuned_in(folder)["haframe"].params
    assert f"tuned: haframe type-II: alpha {params['alpha']:g}, gamma {params['gamma']:g} (2 x 2 runs" in compared.err
    tested = [run.job for run in read_records(folder / "runs") if run.job.split == "test"]
    (spec,) = [spec for spec in tested if spec.method.name == "haframe"]
    assert {name: spec.method.params[name] for name in params} == params and spec.seed == 0


def test_the_table_shows_the_budget_of_each_row(compared):
    cells = [line.split("|") for line in compared.markdown.splitlines() if line.startswith("|")]
    budgets = {row[2].strip(" *"): row[-2].strip() for row in cells}
    assert (budgets["Method"], budgets["cross-entropy"]) == ("Tuning", "4 x 1, in the recipe")
    assert [budget for title, budget in budgets.items() if title.startswith("HAFrame")] == ["2 x 2"]
    assert "x runs of each." in compared.markdown and "budgets" not in compared.err


def test_what_the_command_sets_comes_before_the_tuned_values(folder, data_dir, compared, tmp_path):
    """Then the row was set by hand, and its other values are the tuned ones."""
    tuned = tmp_path / "tuned.toml"
    tuned.write_bytes((folder / "runs/tuned/shapes.toml").read_bytes())
    options = short_options(
        tmp_path,
        data_dir,
        "ce,haframe",
        "type-II",
        1,
        (*FAST, "methods.haframe.alpha=0.2"),
        plan_only=True,
        jobs=None,
    )
    result = call(compare, options, tuned=True, file=tuned)
    (params,) = [run.job.method.params for run in read_records(tmp_path / "runs") if run.job.method.name == "haframe"]
    assert params["alpha"] == 0.2 and params["gamma"] == tuned_in(folder)["haframe"].params["gamma"]
    assert "runs, 20" in result.err and "by hand: alpha" in result.err


@pytest.fixture
def unstable(tmp_path, data_dir):
    """Searches a method that diverges with gamma 13 until there is a file `mended`."""
    (tmp_path / "unstable.py").write_text(UNSTABLE.replace("FILE", repr(str(tmp_path / "mended"))))
    overrides = ("tune.grid.unstable.gamma=[13,2]", "tune.grid.unstable.alpha=[0.3]", "tune.runs=1")
    return lambda: search(tmp_path, data_dir, *overrides, methods=str(tmp_path / "unstable.py"))


def recorded(folder):
    """The states of the trials that the study has."""
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{folder}/runs/optuna.db")
    return sorted(trial.state.name for trial in study.trials)


def test_a_configuration_that_diverges_does_not_win(unstable, tmp_path):
    result = unstable()
    assert result.code == 1 and "failed: unstable type-II alpha 0.3, gamma 13 seed 1000: " in result.err
    winner = tuned_in(tmp_path)["unstable"]
    assert (winner.params, winner.trials, winner.runner_up) == ({"alpha": 0.3, "gamma": 2.0}, 1, {})
    assert len(result.table.rows) == 1 and recorded(tmp_path) == ["COMPLETE", "FAIL"]


def test_a_failed_configuration_alone_is_tried_again_by_the_next_command(unstable, tmp_path, monkeypatch):
    unstable()
    (tmp_path / "mended").touch()
    before = statuses_in(tmp_path / "runs")
    monkeypatch.setattr(console, "LINE_EVERY", 0.0)
    result = unstable()
    assert int(re.findall(r"shapes: (\d+)%", result.err)[0]) < 50, "what was done before is not counted as progress"
    assert "2 configurations x 1 runs, 1 done" in result.err and "gamma 13: validation hierdist@1" in result.err
    after = statuses_in(tmp_path / "runs")
    assert [run for run in before if before[run] == after[run]] == [r for r in before if before[r]["state"] == "done"]
    assert tuned_in(tmp_path)["unstable"].trials == 2 and recorded(tmp_path) == ["COMPLETE", "COMPLETE", "FAIL"]


RATES = ("train.batch_size=480", "tune.runs=1", "tune.grid.all.lr.transform=[0.02,0.05]")
POINTS = (
    "tune.grid.ce.lr.transform=[0.01,0.1]",
    "tune.grid.haframe.alpha=[0.4]",
    "tune.grid.haframe.gamma=[8]",
)


@pytest.fixture(scope="module")
def rates(tmp_path_factory, data_dir):
    """A search of learning rates of two methods, and a comparison that takes them."""
    folder = tmp_path_factory.mktemp("rates")
    found = search(folder, data_dir, *RATES, *POINTS, methods="ce,haframe")
    options = short_options(folder, data_dir, "ce,crm,haframe", "type-II", overrides=(*FAST, RATES[0]))
    return folder, found, call(compare, options, tuned=True), options


def test_learning_rates_of_every_method_are_searched(rates):
    folder, result, *_ = rates
    assert "ce type-II: 2 configurations x 1 runs" in result.err
    assert result.err.index("haframe type-II: 2 configurations") < result.err.index("done: ")  # the rows side by side
    assert result.table.columns[2:6] == ["Rank", "lr.transform", "alpha", "gamma"]
    ce = tuned_in(folder)["ce"].params
    haframe = tuned_in(folder)["haframe"].params
    assert ce.keys() == {"lr.transform"} and ce["lr.transform"] in (0.01, 0.1)
    assert (haframe["alpha"], haframe["gamma"]) == (0.4, 8.0) and haframe["lr.transform"] in (0.02, 0.05)


def test_a_comparison_takes_the_rates_also_of_a_re_ranked_row(rates):
    folder, _, compared, _ = rates
    specs = specs_in(folder / "runs")
    final = {spec["method"]["name"]: (name, spec) for name, spec in specs.items() if spec["split"] == "test"}
    assert len(specs) == 4 + 3 and final["crm"][1]["base"] == final["ce"][0]
    for method, (_, spec) in final.items():
        rate = tuned_in(folder)["ce" if method == "crm" else method].params["lr.transform"]
        assert spec["train"]["lr"] == {"backbone": 0.1, "transform": rate, "classifier": 0.15}
    assert "learning rates tuned per method" in compared.markdown + compared.err


def test_a_re_ranked_row_has_the_budget_of_its_base(rates):
    lines = [line for line in rates[2].markdown.splitlines() if line.startswith("|")][2:]
    assert [line.split("|")[-2].strip() for line in lines] == ["2 x 1"] * 3


def test_a_tuned_row_asked_for_alone_is_there_already(rates, data_dir):
    folder, *_, options = rates
    before = statuses_in(folder / "runs")
    alone = short_options(folder, data_dir, "crm", "type-II", overrides=options.overrides)
    call(compare, alone, tuned=True)
    assert statuses_in(folder / "runs") == before


def planned(result):
    """{method: (configurations, values)} of a dry run."""
    return {line.cells[0].text: (line.cells[2].text, line.cells[4].text) for line in result.table.rows}


def test_all_skips_methods_without_hyperparameters_with_a_note(tmp_path, data_dir):
    result = search(tmp_path, data_dir, methods="all", dry_run=True)
    assert "note: crm has nothing to tune and is left out; it re-ranks ce" in result.err
    assert "note: ce has nothing" in result.err
    assert "haframe" in planned(result) and "ce" not in planned(result)


def test_a_grid_for_all_gives_every_method_something_to_tune(tmp_path, data_dir):
    result = search(tmp_path, data_dir, "tune.grid.all.lr.backbone=[0.01,0.1]", methods="all", dry_run=True)
    for method in ("ce", "flamingo", "hafeature"):
        assert planned(result)[method] == ("2", "lr.backbone 0.01, 0.1")


def test_trials_of_tpe_are_the_same_for_all_also_for_hies_coarse_network(tmp_path, data_dir):
    grid = "tune.grid.all.lr.backbone=[0.01,0.1]"
    result = search(tmp_path, data_dir, grid, methods="all", sampler="tpe", trials=7, dry_run=True)
    trained = {method.name for method in map(find_method, method_names()) if method.trains}
    assert {name: num for name, (num, _) in planned(result).items()} == dict.fromkeys(trained | {"_coarse_ce"}, "7")
    assert re.search("lr.backbone", planned(result)["_coarse_ce"][1])
