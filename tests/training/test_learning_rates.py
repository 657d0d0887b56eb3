"""Learning rates that a method declares: in plans, ids and tables."""

import pytest

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.execution.jobs import make_jobs, with_params
from hierbench.leaderboard import board
from hierbench.leaderboard.ablation_table import VARIANTS
from hierbench.runs.record_reader import read_records
from hierbench.runs.requests import record_request
from hierbench.runs.store import Store
from hierbench.studies.ablation import plan_variants

FAST = ["train.precision=float32"]
OWN = ["methods.ce.lr.classifier=0.2"]
SAME = {"backbone": 0.1, "transform": 0.15, "classifier": 0.15}


def planned(shapes, overrides=(), methods="ce,crm,haframe", tuned=None):
    loaded = [find_method(name) for name in methods.split(",")]
    recipe = load_recipe("shapes", [*FAST, *overrides])
    return make_jobs(recipe, shapes, loaded, ["type-I", "type-II"], 1, tuned=tuned)


def rates(job):
    return job.spec.train.lr.model_dump()


def test_a_job_has_the_rates_of_its_method_and_a_re_ranked_one_those_of_its_base(shapes):
    plain = planned(shapes)
    jobs = planned(shapes, OWN)
    assert [job.spec.label for job in jobs] == [job.spec.label for job in plain]
    for job, before in zip(jobs, plain, strict=True):
        expected = SAME | ({"classifier": 0.2} if job.spec.method.name in ("ce", "crm") else {})
        assert rates(job) == expected and rates(before) == SAME
        assert (job.id == before.id) == (job.spec.method.name == "haframe")
        assert "lr" not in job.spec.method.params
    written_out = planned(shapes, ["methods.ce.lr.classifier=0.15"])
    assert [job.id for job in written_out] == [job.id for job in plain]  # an id has the rates alone


def test_a_re_ranked_row_has_the_tuning_of_its_base(shapes):
    tuned = {("ce", "type-I"): {"lr.classifier": 0.2}, ("haframe", "type-II"): {"gamma": 7.0, "lr.transform": 0.5}}
    jobs = planned(shapes, tuned=tuned)
    by_row = {(job.spec.method.name, job.spec.type): job for job in jobs}
    assert len(jobs) == len(by_row) == 5
    for kind, classifier in (("type-I", 0.2), ("type-II", 0.15)):
        ce, crm = by_row["ce", kind], by_row["crm", kind]
        assert crm.spec.base == ce.id and rates(crm) == rates(ce) == SAME | {"classifier": classifier}
    frame = by_row["haframe", "type-II"]
    assert rates(frame) == SAME | {"transform": 0.5} and frame.spec.method.params["gamma"] == 7.0
    alone = planned(shapes, methods="crm", tuned=tuned)
    assert {job.id for job in alone} == {job.id for job in jobs if job.spec.method.name != "haframe"}


def test_the_frame_alone_has_the_frames_rates(shapes):
    recipe = load_recipe("shapes", [*FAST, "methods.haframe.lr.classifier=0.7"])
    methods = [find_method("ce"), find_method("haframe")]
    variants = plan_variants(recipe, shapes, methods, 1, None)
    classifier_rates = [rates(job)["classifier"] for jobs in variants for job in jobs]
    assert classifier_rates == [0.7 if variant.method == "haframe" else 0.15 for variant in VARIANTS]


def test_changed_rates_leave_the_others_of_the_method():
    recipe = load_recipe("shapes", ["methods.haframe.lr.backbone=0.5"])
    changed = with_params(recipe, "haframe", {"gamma": 3.0, "lr.transform": 0.25})
    assert changed.methods["haframe"] == {"alpha": 0.4, "gamma": 3.0, "lr": {"backbone": 0.5, "transform": 0.25}}


@pytest.fixture
def table(shapes, tmp_path):
    """Plans jobs one after the other, and returns the rows {(method, type): ids} and the remark of their table."""
    store = Store(tmp_path)

    def made(*steps, tuned=()):
        for overrides, methods in steps:
            plan = planned(shapes, overrides, methods)
            for job in plan:
                store.run(job.id).plan(job.spec.content())
            rows = [f"{job.spec.method.name}:{job.spec.type}" for job in plan if job.spec.method.name in tuned]
            budget = {row: {"trials": 4, "runs": 3, "study": "s"} for row in rows}
            record_request(tmp_path, "comparison", "shapes", {}, [job.id for job in plan], budget)
        made_board = board.Board.of("shapes", read_records(store.root))
        return {(row.method, row.type): row.runs for row in made_board.rows}, made_board.settings

    return made


def test_methods_with_rates_of_their_own_are_in_one_table(table, shapes):
    rows, remark = table((OWN, "ce,crm,haframe"))
    assert len(rows) == 5
    assert remark.endswith("; learning rates differ between methods; the recipe plans 3 seeds")
    assert "train.lr.type-II" not in remark
    assert "not as in the recipe: train.lr.type-I.classifier = 0.2" in remark  # all rows of that type
    _, remark = table((OWN, "ce,crm,haframe"), tuned=("ce", "crm", "haframe"))
    assert remark.endswith("; learning rates tuned per method; the recipe plans 3 seeds")
    rows, remark = table((["train.lr.type-II.classifier=0.2"], "ce,crm,haframe"))
    assert len(rows) == 5 and "not as in the recipe: train.lr.type-II.classifier = 0.2" in remark
    assert "learning rates" not in remark


def test_weights_are_named_with_their_digest(shapes, tmp_path):
    recipe, store = load_recipe("shapes", ["model.weights=file"]), Store(tmp_path)
    (job,) = make_jobs(recipe, shapes, [find_method("ce")], ["type-I"], 1, "0123456789" + "a" * 54)
    store.run(job.id).plan(job.spec.content())
    assert (
        "wrn10-1-s4, weights file (SHA-256 01234567), " in board.Board.of("shapes", read_records(store.root)).settings
    )


def test_of_several_rates_of_a_method_the_newest_count(table, shapes):
    """A re-ranked run is in the table only with its base; other methods keep theirs."""
    rows, _ = table((["methods.ce.lr.classifier=0.1"], "ce,crm,haframe"), (OWN, "ce"))
    expected = {(job.spec.method.name, job.spec.type): (job.id,) for job in planned(shapes, OWN, "ce,haframe")}
    assert rows == expected  # crm re-ranks runs that are not in it
    rows, _ = table((OWN, "crm"))
    assert set(rows) == {*expected, ("crm", "type-I"), ("crm", "type-II")}


def test_rates_of_the_recipe_are_not_a_difference_from_it(table, monkeypatch):
    """Also not those that a re-ranked run has from its base."""
    from hierbench.leaderboard import settings

    monkeypatch.setattr(settings, "find_recipe", lambda *_: load_recipe("shapes", OWN))
    assert "not as in the recipe" not in table((OWN, "ce,crm"))[1]
    assert "train.lr.type-I.classifier = 0.15" in table(([], "ce,crm"))[1]
