import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.config.tuned_values import Tuned, find_tuned, read_tuned, tuned_file, write_tuned
from hierbench.data.prepared import Prepared
from hierbench.execution.resources import Setting
from hierbench.execution.run_job import execute
from hierbench.leaderboard.board import Board
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from hierbench.studies.tuning.search import Search, Space, Target, search_space
from hierbench.studies.tuning.tuning_study import winner
from hierbench.utils.errors import UserError
from tests.support.run_files import history_of, metrics_of

QUICK = ["train.epochs=1", "train.batch_size=96", "model.backbone=wrn10-1-s4", "tune.runs=2"]
GRID = Space({"alpha": (0.3, 0.5), "gamma": (2.0, 4.0)}, {"alpha": (0.0, 1.0), "gamma": (0.1, 20.0)}, 4)


def results_of(value, top1=50.0, severity=2.0):
    """The validation metrics of a run."""
    return {"hierdist@1": value, "top1": top1, "mistake_severity": severity, "hierdist@5": 1.0}


def value_of(params):
    return params["alpha"] + params["gamma"]


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.mark.parametrize(
    ("name", "alphas", "gammas"),
    [
        ("fgvc", (0.3, 0.4, 0.5, 0.6), (1, 2, 3, 4, 5)),
        ("cifar100", (0.3, 0.4, 0.5, 0.6), (1, 2, 3, 4, 5)),
        ("inat19", (0.3, 0.4, 0.5), (3, 4, 5)),
        ("tieredimagenet-h", (0.3, 0.4, 0.5), (3, 4, 5)),
    ],
)
def test_the_papers_grids(name, alphas, gammas):
    recipe = load_recipe(name)
    space = search_space(recipe, find_method("haframe"))
    assert (tuple(space.grid["alpha"]), tuple(space.grid["gamma"])) == (alphas, gammas)
    assert space.trials == len(alphas) * len(gammas) and recipe.tune.runs == 3
    assert [point["alpha"] for point in space.points[: len(gammas)]] == [alphas[0]] * len(gammas)


def test_the_space_comes_from_the_methods_params():
    space = search_space(load_recipe("shapes"), find_method("haframe"))
    assert space.ranges == {"alpha": (0.3, 0.6), "gamma": (1.0, 5.0)}
    assert search_space(load_recipe("shapes"), find_method("ce")) is None
    assert search_space(load_recipe("shapes"), find_method("hafeature")) is None  # a switch is not tuned


def test_learning_rates_are_searched_where_the_recipe_has_points():
    """Those of all methods, unless a method has its own."""
    points = ["tune.grid.all.lr.classifier=[0.1,0.001]", "tune.grid.haframe.lr.transform=[0.1,0.001]"]
    recipe = load_recipe("shapes", [*points, "tune.grid.ce.lr.classifier=[1,1,2]"])
    spaces = {name: search_space(recipe, find_method(name)) for name in ("ce", "flamingo", "haframe")}
    assert spaces["ce"].grid == {"lr.classifier": [1.0, 2.0]} and spaces["ce"].trials == 2
    assert spaces["flamingo"].grid == {"lr.classifier": [0.1, 0.001]}
    assert list(spaces["haframe"].grid) == ["alpha", "gamma", "lr.transform"]  # its classifier is fixed
    assert spaces["haframe"].points[1] == spaces["haframe"].points[0] | {"lr.transform": 0.001}
    assert spaces["haframe"].ranges["lr.transform"] == (0.001, 0.1)
    assert spaces["haframe"].ranges["gamma"] == (1.0, 5.0)
    with pytest.raises(UserError, match="haframe has no parameters with this rate"):
        search_space(load_recipe("shapes", ["tune.grid.haframe.lr.classifier=[0.1]"]), find_method("haframe"))


def test_type_i_on_a_frozen_backbone_has_no_rate_of_the_backbone():
    points = ["tune.grid.all.lr.backbone=[1,2]", "tune.grid.haframe.alpha=[0.5]", "tune.grid.haframe.gamma=[3,5]"]
    recipe = load_recipe("shapes", [*points, "model.frozen=true"])
    space = search_space(recipe, find_method("haframe"))
    narrowed = space.of(recipe.model, "type-I")
    assert list(narrowed.grid) == list(narrowed.ranges) == ["alpha", "gamma"] and len(narrowed.points) == 2
    assert space.of(recipe.model, "type-II") == space == space.of(load_recipe("shapes").model, "type-I")
    assert search_space(recipe, find_method("ce")).of(recipe.model, "type-I") is None


def test_tpe_draws_learning_rates_and_wide_ranges_by_their_logarithm():
    """From 1e-6 to 1, half of the draws before TPE has seen any are below 1e-3, instead of a thousandth of them."""
    ranges = {"lr.classifier": (1e-6, 1.0), "alpha": (1e-6, 1.0), "beta": (0.0, 1.0)}
    space = Space({name: (0.0,) for name in ranges}, ranges, 10)
    drawn = tried(Search(space, "tpe"), lambda params: 1.0)
    assert all(1e-6 <= params["lr.classifier"] <= 1.0 for params in drawn) and len(drawn) == 10
    assert all(sum(params[name] < 1e-3 for params in drawn) >= 3 for name in ("lr.classifier", "alpha"))
    assert sum(params["beta"] < 1e-3 for params in drawn) == 0


def test_tpe_begins_with_the_recipes_own_values(target):
    """Its ranges include them; a value that is near an end of its range is named."""
    start = target.start(search_space(target.recipe, target.method))
    assert start == {"alpha": 0.4, "gamma": 4.0}
    search = Search(Space(GRID.grid, {"alpha": (0.3, 0.5), "gamma": (1.0, 2.0)}, 8), "tpe", start)
    drawn = tried(search)
    assert drawn[0] == start and search.space.ranges == {"alpha": (0.3, 0.5), "gamma": (1.0, 4.0)}
    assert search.space.ends_near({"alpha": 0.305, "gamma": 2.0}) == ("alpha 0.305 of 0.3 to 0.5",)
    assert search.space.ends_near({"alpha": 0.32, "gamma": 3.9}) == ("gamma 3.9 of 1 to 4",)


def tried(search, value_of=value_of):
    """Carry a search out; return its configurations."""
    configurations = []
    while batch := search.next():
        for trial in batch:
            configurations.append(dict(trial.params))
            value = value_of(trial.params)
            search.end(trial, [results_of(value - 0.1), results_of(value + 0.1)])
    return configurations


@pytest.mark.parametrize("sampler", ["grid", "tpe", "random"])
def test_a_search_chooses_the_same_whenever_it_is_started(sampler):
    """Runs of a killed command are reused, and two commands share the work."""
    space = Space(GRID.grid, GRID.ranges, 4 if sampler == "grid" else 14)
    configurations = tried(Search(space, sampler))
    assert configurations == tried(Search(space, sampler))
    assert len({tuple(params.values()) for params in configurations}) == space.trials
    if sampler == "tpe":  # a larger budget continues the search
        assert tried(Search(replace(space, trials=22), sampler))[:14] == configurations
        assert configurations[10:] != tried(Search(space, sampler), lambda params: -value_of(params))[10:]


def test_the_winner_and_how_sure_it_is():
    search = Search(GRID, "grid")
    tried(search)
    best = winner(search, "s", 2)
    assert best.params == {"alpha": 0.3, "gamma": 2.0} and best.runner_up == {"alpha": 0.5, "gamma": 2.0}
    assert best.mean == pytest.approx(2.3) and best.runner_up_mean == pytest.approx(2.5)
    assert best.ci95 == pytest.approx(12.706204736 * 0.1414213562 / 2**0.5) and not best.separated
    assert (best.trials, best.runs, best.budget) == (4, 2, "4 x 2")


@pytest.fixture
def target(shapes):
    return Target(load_recipe("shapes", QUICK), shapes, find_method("haframe"), "type-II", None)


def test_the_study_is_another_one_when_anything_but_the_hyperparameters_differs(target, shapes):
    names = {target.study(GRID, "grid"), target.study(GRID, "tpe")}
    longer = load_recipe("shapes", [*QUICK, "train.epochs=2"])
    names.add(Target(longer, shapes, target.method, "type-II", None).study(GRID, "grid"))
    other = load_recipe("shapes", [*QUICK, "methods.haframe.gamma=7"])
    same = Target(other, shapes, target.method, "type-II", None).study(GRID, "grid")
    assert len(names) == 3 and same == target.study(GRID, "grid")


def test_the_test_set_is_never_opened(target, data_dir, tmp_path, monkeypatch):
    opened = []
    arrays = Prepared.arrays

    def watched(self, split):
        opened.append(split)
        return arrays(self, split)

    job = target.jobs({"alpha": 0.3})[0]
    monkeypatch.setattr("hierbench.data.prepared.find", lambda name, folder: target.prepared)
    monkeypatch.setattr(Prepared, "arrays", watched)
    assert execute(job, Setting(tmp_path / "runs", data_dir), lambda done, total: None).state == "done"
    assert set(opened) == {"train", "val"}
    run = Store(tmp_path / "runs").run(job.id)
    metrics = metrics_of(run)
    assert "test" not in metrics and not (run.folder / "predictions.npz").exists()
    assert metrics["val"]["hierdist@1"] == history_of(run)[-1]["val_hierdist@1"]
    with pytest.raises(UserError, match="no runs of shapes"):
        Board.of("shapes", read_records(tmp_path / "runs"))


TUNED = Tuned(
    params={"alpha": 0.3},
    study='a "study" of \\ many names',
    date="2026-11-20",
    sampler="grid",
    trials=4,
    runs=3,
    mean=1.25,
)


def test_local_tuned_values_precede_shipped_ones(tmp_path, monkeypatch):
    from hierbench.config import tuned_values

    monkeypatch.setattr(tuned_values.resources, "files", lambda package: tmp_path / "package")
    shipped = {("paper", name, "type-II"): TUNED for name in ("haframe", "other")}
    write_tuned(tmp_path / "package/tuned/shapes.toml", shipped)
    assert find_tuned(tmp_path / "runs", "shapes") == shipped
    local = TUNED.model_copy(update={"mean": 1.0})
    write_tuned(tuned_file(tmp_path / "runs", "shapes"), {("paper", "haframe", "type-II"): local})
    assert find_tuned(tmp_path / "runs", "shapes") == shipped | {("paper", "haframe", "type-II"): local}


def test_a_search_over_a_wider_range_counts_the_one_before(tmp_path):
    """Written twice, a study counts once."""
    key, file = ("paper", "haframe", "type-II"), tmp_path / "tuned.toml"
    for study, configurations in (("a", 4), ("b", 8), ("b", 8), ("c", 12)):
        write_tuned(file, {key: TUNED.model_copy(update={"study": study})})
        assert read_tuned(file)[key].budget == f"{configurations} x 3"


def test_a_random_search_covers_the_ranges_and_its_finalists_are_compared_by_all_their_runs():
    """The first configuration is the recipe's; of eight others each eighth of every range has one."""
    space = Space({}, {"gamma": (1.0, 5.0), "lr.classifier": (1e-3, 1e1)}, 9)
    start = {"gamma": 2.0, "lr.classifier": 0.1}
    search = Search(space, "random", start, seed=7)
    drawn = tried(search, lambda params: abs(params["gamma"] - 3.0))
    assert drawn[0] == start and drawn == tried(Search(space, "random", start, seed=7), lambda params: 1.0)
    assert drawn[1:] != tried(Search(space, "random", start, seed=8), lambda params: 1.0)[1:]
    assert sorted(int((params["gamma"] - 1.0) * 2.0) for params in drawn[1:]) == [*range(8)]
    assert sorted(int(2.0 * math.log10(params["lr.classifier"]) + 6.0) for params in drawn[1:]) == [*range(8)]
    first, second = search.finalists(2)
    assert [first.params, second.params] == [params for params, _ in search.results()[:2]]
    search.confirm(first, [results_of(9.0)])
    search.confirm(second, [results_of(1.0)])
    best, other = search.results()[:2]
    assert (best[0], other[0]) == (second.params, first.params) and len(best[1].values) == 3
    assert winner(search, "s", 1, "2 x 3").mean == pytest.approx(np.mean(best[1].values))


def test_what_another_rule_would_have_chosen():
    """The least severity counts twice, at any accuracy and within half a point of the best."""
    search = Search(GRID, "grid")
    values = [(1.0, 60.0, 2.5, 1.4), (1.1, 61.0, 2.4, 1.3), (1.2, 60.6, 2.3, 1.2), (1.3, 50.0, 2.0, 1.25)]
    points = []
    for (value, top1, severity, further), trial in zip(values, search.next(), strict=True):
        search.end(trial, [results_of(value, top1, severity) | {"hierdist@5": further}])
        points.append(trial.params)
    best = winner(search, "s", 1)
    assert best.params == points[0] and best.others == {
        "top1": points[1],
        "mistake_severity": points[3],
        "hierdist@5": points[2],
        "mistake_severity within 0.5 of top1": points[2],
    }


def test_two_searches_that_end_at_the_same_time_both_keep_their_results(tmp_path):
    file = tmp_path / "tuned/shapes.toml"

    def write(method):
        for kind in ("type-I", "type-II"):
            write_tuned(file, {("paper", method, kind): TUNED})

    names = [f"m{number}" for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, names))
    assert set(read_tuned(file)) == {("paper", name, kind) for name in names for kind in ("type-I", "type-II")}
    assert [path.name for path in file.parent.iterdir()] == ["shapes.toml"]
