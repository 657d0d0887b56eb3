import itertools
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
from optuna.trial import TrialState

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.config.tuned import Tuned, find_tuned, read_tuned, tuned_file, write_tuned
from hierbench.data.prepared import Prepared
from hierbench.execution.run_job import execute
from hierbench.experiments.tuning.study import Search, Space
from hierbench.experiments.tuning.tune import winner
from hierbench.experiments.tuning.tuner import FIRST_SEED, Target, search_space
from hierbench.leaderboard.board import board_from_runs
from hierbench.planning.plan import make_plan
from hierbench.planning.resources import Setting
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError

GRID = Space({"alpha": (0.3, 0.5), "gamma": (2.0, 4.0)}, {"alpha": (0.0, 1.0), "gamma": (0.1, 20.0)}, 4)


def value_of(params):
    return params["alpha"] + params["gamma"]


def work(search, trial):
    value = value_of(trial.params)
    search.complete(trial, value, [value - 0.1, value + 0.1], ["a", "b"])


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
    assert space.ranges == {"alpha": (0.0, 1.0), "gamma": (0.1, 20.0)}
    assert search_space(load_recipe("shapes"), find_method("ce")) is None
    assert search_space(load_recipe("shapes"), find_method("hafeature")) is None  # a switch is not tuned


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tune.grid.haframe.beta=[1]", "haframe tunes alpha, gamma"),
        ("tune.grid.haframe.alpha=[]", "is empty"),
        ("tune.grid.haframe.alpha=[2.0]", "hyperparameters of haframe: alpha"),
    ],
)
def test_a_grid_that_does_not_fit(override, message):
    with pytest.raises(UserError, match=message):
        search_space(load_recipe("shapes", [override]), find_method("haframe"))


def test_every_point_is_tried_once(storage):
    search = Search(storage, "s", GRID, "grid")
    tried = []
    while (trial := search.next()) is not None:
        tried.append(trial.params)
        work(search, trial)
    assert sorted(tried, key=value_of) == sorted(GRID.points, key=value_of) and len(tried) == 4
    assert search.finished()[0].params == {"alpha": 0.3, "gamma": 2.0}
    assert Search(storage, "s", GRID, "grid").next() is None


def test_two_processes_share_the_grid(storage):
    one, two = Search(storage, "s", GRID, "grid"), Search(storage, "s", GRID, "grid")
    held = []
    for search in itertools.cycle((one, two)):
        if (trial := search.next()) is None:
            break
        held.append((search, trial))
    assert len(held) == 4 and len({tuple(trial.params.items()) for _, trial in held}) == 4
    for search, trial in held:
        work(search, trial)
    assert one.finished()[0].params == two.finished()[0].params


def test_what_a_dead_process_had_is_handed_out_again(storage):
    code = (
        "import sys\nfrom hierbench.experiments.tuning.study import Search, Space\n"
        "search = Search(sys.argv[1], 's', Space({'alpha': (0.3, 0.5), 'gamma': (2.0, 4.0)}, {}, 4), 'grid')\n"
        "first, second = search.next(), search.next()\n"
        "search.complete(first, 1.0, [1.0], ['a'])\n"
        "print(*second.params.values())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, storage], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    search = Search(storage, "s", GRID, "grid")
    tried = []
    while (trial := search.next()) is not None:
        tried.append(tuple(trial.params.values()))
        work(search, trial)
    assert len(tried) == 3 and tuple(map(float, done.stdout.split())) in tried
    assert sum(trial.state == TrialState.COMPLETE for trial in search.trials()) == 4


@pytest.mark.parametrize("before", [0, 4])
def test_a_point_that_was_half_written_down_is_handed_out_again(storage, monkeypatch, before):
    """Killed between two hyperparameters, at the grid's first point or at one that was handed out again."""
    search = Search(storage, "s", GRID, "grid")
    for _ in range(before):
        search.give_up(search.next(), "failed")
    search = Search(storage, "s", GRID, "grid")

    def half(trial):
        trial.suggest_categorical("alpha", [0.3, 0.5])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(search, "_suggest", half)
        patch.setattr(search.storage, "record_heartbeat", lambda trial: None)
        search.next()
    monkeypatch.setattr("hierbench.experiments.tuning.study.UNOWNED", 0.0)
    search, tried = Search(storage, "s", GRID, "grid"), []
    deadline = time.monotonic() + 20
    while len(tried) < 4 and time.monotonic() < deadline:
        if (trial := search.next()) is not None:
            tried.append(tuple(trial.params.values()))
            work(search, trial)
    assert len(set(tried)) == 4


def test_what_a_process_was_killed_at_before_it_wrote_its_name_is_handed_out_again(storage, monkeypatch):
    """No owner and no sign of life: it would count as running for ever."""
    search = Search(storage, "s", GRID, "grid")

    def killed(trial):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(search, "_suggest", killed)
        patch.setattr(search.storage, "record_heartbeat", lambda trial: None)
        search.next()
    monkeypatch.setattr("hierbench.experiments.tuning.study.UNOWNED", 0.2)
    tried = []
    while search.busy_elsewhere() or not tried:
        while (trial := search.next()) is not None:
            tried.append(trial.params)
            work(search, trial)
        time.sleep(0.05)
    assert len(tried) == 4 and len(search.finished()) == 4


def test_a_process_that_stood_still_before_it_wrote_its_name_goes_on(storage, monkeypatch):
    slow, fast = Search(storage, "s", GRID, "grid"), Search(storage, "s", GRID, "grid")
    monkeypatch.setattr("hierbench.experiments.tuning.study.UNOWNED", -1.0)
    suggest, stood = slow._suggest, []

    def stand_still(trial):
        suggest(trial)
        if not stood:
            stood.append(trial.number)
            fast._release_the_dead()

    monkeypatch.setattr(slow, "_suggest", stand_still)
    trial = slow.next()
    assert trial.number != stood[0] and slow.trials()[stood[0]].state == TrialState.FAIL


def test_a_clock_that_is_moved_makes_nobody_count_a_point_twice(storage):
    """A day later every sign of life is old: a living process is taken for dead, and ends its trial all the same."""
    one, two = Search(storage, "s", GRID, "grid"), Search(storage, "s", GRID, "grid")
    mine = one.next()
    with closing(sqlite3.connect(storage.removeprefix("sqlite:///"))) as database, database:
        moved = database.execute("update trial_heartbeats set heartbeat = datetime(heartbeat, '-1 day')").rowcount
    assert moved == 1
    taken = []
    while (trial := two.next()) is not None:
        taken.append(trial.params)
        work(two, trial)
    assert len(taken) == 4
    work(one, mine)
    one.give_up(mine, "too late")
    assert one.next() is None and len(one.finished()) == 4


def test_what_a_live_process_has_is_left_to_it(storage):
    one, two = Search(storage, "s", GRID, "grid"), Search(storage, "s", GRID, "grid")
    two.owner = f"{two.owner.rpartition(' ')[0]} 1"  # another process of this machine, alive
    mine = one.next()
    others = []
    while (trial := two.next()) is not None:
        others.append(trial.params)
        work(two, trial)
    assert len(others) == 3 and mine.params not in others
    assert two.busy_elsewhere() == 1 and one.busy_elsewhere() == 0


def test_a_failed_point_is_tried_again_by_the_next_command_alone(storage):
    search = Search(storage, "s", GRID, "grid")
    first = search.next()
    search.give_up(first, "diverged")
    rest = []
    while (trial := search.next()) is not None:
        rest.append(trial.params)
        work(search, trial)
    assert first.params not in rest and len(rest) == 3
    again = Search(storage, "s", GRID, "grid")
    trial = again.next()
    assert trial.params == first.params
    work(again, trial)
    assert again.next() is None


def test_tpe_has_its_budget_and_no_more(storage):
    space = Space(GRID.grid, GRID.ranges, 6)
    one, two = Search(storage, "s", space, "tpe"), Search(storage, "s", space, "tpe")
    count = 0
    for search in itertools.cycle((one, two)):
        if (trial := search.next()) is None:
            break
        assert 0 <= trial.params["alpha"] <= 1 and 0.1 <= trial.params["gamma"] <= 20
        work(search, trial)
        count += 1
    assert count == 6


def test_the_winner_and_how_sure_it_is(storage):
    search = Search(storage, "s", GRID, "grid")
    while (trial := search.next()) is not None:
        work(search, trial)
    best = winner(search, "s", 2)
    assert best.params == {"alpha": 0.3, "gamma": 2.0} and best.runner_up == {"alpha": 0.5, "gamma": 2.0}
    assert best.mean == pytest.approx(2.3) and best.runner_up_mean == pytest.approx(2.5)
    assert best.ci95 == pytest.approx(12.706204736 * 0.1414213562 / 2**0.5) and not best.separated
    assert (best.trials, best.runs, best.budget) == (4, 2, "4 x 2")


def test_equal_values_go_to_the_first_of_the_grid(storage):
    search = Search(storage, "s", GRID, "grid")
    while (trial := search.next()) is not None:
        search.complete(trial, 1.0, [1.0, 1.0], [])
    assert search.finished()[0].params == GRID.points[0]


def test_a_storage_that_is_none(tmp_path):
    with pytest.raises(UserError, match="--storage nonsense"):
        Search("nonsense", "s", GRID, "grid")
    with pytest.raises(UserError, match="--storage sqlite"):
        Search(f"sqlite:///{tmp_path}/no/such/folder/x.db", "s", GRID, "grid")


@pytest.fixture
def target(shapes):
    recipe = load_recipe("shapes", ["train.epochs=1", "train.batch_size=96", "tune.runs=2"])
    return Target(recipe, shapes, find_method("haframe"), "type-II", None)


def test_tuning_seeds_are_not_those_of_final_runs(target, shapes):
    jobs = target.jobs({"alpha": 0.3})
    assert [job.spec.seed for job in jobs] == [FIRST_SEED, FIRST_SEED + 1]
    assert all(job.spec.split == "val" and job.spec.method.params["alpha"] == 0.3 for job in jobs)
    final = make_plan(target.recipe, shapes, [target.found], ["type-II"], target.recipe.seeds)
    assert not {job.spec.seed for job in final} & {job.spec.seed for job in jobs}


def test_the_study_is_another_one_when_anything_but_the_hyperparameters_differs(target, shapes):
    names = {target.study(GRID, "grid"), target.study(GRID, "tpe")}
    longer = load_recipe("shapes", ["train.epochs=2", "train.batch_size=96", "tune.runs=2"])
    names.add(Target(longer, shapes, target.found, "type-II", None).study(GRID, "grid"))
    other = load_recipe("shapes", ["train.epochs=1", "train.batch_size=96", "tune.runs=2", "methods.haframe.gamma=7"])
    same = Target(other, shapes, target.found, "type-II", None).study(GRID, "grid")
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
    assert execute(job, Setting(tmp_path / "runs", data_dir), lambda done, total: None) == ""
    assert set(opened) == {"train", "val"}
    run = Store(tmp_path / "runs").run(job.id)
    metrics = run.metrics()
    assert "test" not in metrics and not (run.folder / "predictions.npz").exists()
    assert metrics["val"]["hierdist@1"] == run.history()[-1]["val_hierdist@1"]
    with pytest.raises(UserError, match="no runs of shapes"):
        board_from_runs("shapes", Store(tmp_path / "runs"))


TUNED = Tuned(
    params={"alpha": 0.3},
    study='a "study" of \\ many names',
    date="2026-11-20",
    sampler="grid",
    trials=4,
    pruned=0,
    runs=3,
    mean=1.25,
)


def test_tuned_files_keep_what_others_found(tmp_path):
    file = tmp_path / "tuned/shapes.toml"
    assert read_tuned(file) == {}
    write_tuned(file, {("paper", "haframe", "type-II"): TUNED})
    other = TUNED.model_copy(update={"mean": 1.0, "runner_up": {"alpha": 0.5}, "ci95": 0.125})
    write_tuned(file, {("authors", "haframe", "type-II"): other, ("paper", "my method", "type-I"): other})
    found = read_tuned(file)
    assert found[("paper", "haframe", "type-II")] == TUNED and len(found) == 3
    assert found[("authors", "haframe", "type-II")] == other


def test_what_was_tuned_here_precedes_what_is_shipped(tmp_path, monkeypatch):
    from hierbench.config import tuned

    monkeypatch.setattr(tuned.resources, "files", lambda package: tmp_path / "package")
    shipped = {("paper", name, "type-II"): TUNED for name in ("haframe", "other")}
    write_tuned(tmp_path / "package/tuned/shapes.toml", shipped)
    assert find_tuned(tmp_path / "runs", "shapes") == shipped
    own = TUNED.model_copy(update={"mean": 1.0})
    write_tuned(tuned_file(tmp_path / "runs", "shapes"), {("paper", "haframe", "type-II"): own})
    assert find_tuned(tmp_path / "runs", "shapes") == shipped | {("paper", "haframe", "type-II"): own}


@pytest.mark.parametrize("text", ["[", "paper = 3", "[paper.haframe.type-II]\nparams = 1\n"])
def test_a_damaged_tuned_file_is_named(tmp_path, text):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(UserError, match=r"x\.toml is damaged .*tune again"):
        read_tuned(tmp_path / "x.toml")


def test_what_is_worse_than_the_median_is_stopped(storage, target, tmp_path):
    """After two epochs of its first run; a grid is searched to its end."""
    from hierbench.experiments.tuning.tuner import Tuning, _Slot

    class Bystander:
        def __getattr__(self, name):
            return lambda *arguments, **options: None

    target = Target(
        load_recipe("shapes", ["train.epochs=4", "tune.runs=2"]), target.prepared, target.found, "type-II", None
    )
    space = Space(GRID.grid, GRID.ranges, 8)
    search = Search(storage, "s", space, "tpe")
    for value in (1.0, 1.1, 1.2, 1.3):
        trial = search.next()
        for epoch in range(1, 5):
            trial.report(value, epoch)
        search.complete(trial, value, [value], [])
    tuning = Tuning(target, search, Setting(tmp_path, tmp_path), Bystander(), Bystander())
    for reached, expected in ((1.0, TrialState.RUNNING), (9.0, TrialState.PRUNED)):
        trial = search.next()
        jobs = target.jobs(dict(trial.params))
        run = tuning.store.run(jobs[0].id)
        run.plan(jobs[0].spec.content())
        run.write_history([{"epoch": epoch, "val_hierdist@1": reached} for epoch in (1, 2, 3)])
        slot = _Slot(Bystander(), trial, list(jobs), jobs)
        assert tuning._worth_going_on(slot, jobs[0]) == (expected == TrialState.RUNNING)
        assert search.trials()[trial.number].state == expected
        assert (slot.trial is None) == (expected == TrialState.PRUNED)
    best = winner(search, "s", 2)
    assert (best.trials, best.pruned, best.budget) == (4, 1, "5 x 2")
