"""A stranger's methods with each optional part of the interface, through the commands."""

import csv
import json
import re

import numpy as np
import pytest

from hierbench.runs.store import Store
from tests.support.publications import loose
from tests.support.run_files import digest_of, level_predictions_of, metrics_of, predictions_of, specs_in

TRAINED = """
import torch
import torch.nn.functional as F
from torch import nn

from hierbench import Method


class Hooked(Method):
    name = title = source = "hooked"

    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)
        self.coarse = nn.Linear(num_features, hierarchy.level_sizes[0])
        self.register_buffer("parents", torch.tensor(hierarchy.level_targets[:, 0]), persistent=False)

    def forward(self, features):
        return self.classifier(features), self.coarse(features)

    def loss(self, outputs, targets):
        fine, coarse = outputs
        weight = 1.0 - self.progress  # from the coarse loss to the fine one
        return {
            "fine": (1.0 - weight / 2) * F.cross_entropy(fine, targets),
            "coarse": weight * F.cross_entropy(coarse, self.parents[targets]),
            "progress": fine.sum() * 0.0 + self.progress,
        }

    def scores(self, outputs):
        return outputs[0]

    def parameter_groups(self):
        return {"coarse": list(self.coarse.parameters())}

    def level_scores(self, outputs):
        fine, coarse = outputs
        levels = [coarse]
        for size in self.hierarchy.level_sizes[1:]:
            levels.append(fine[:, :size])
        return levels
"""
POSTHOC = """
from hierbench import PostHoc


class Blend(PostHoc):
    name = title = source = "blend"
    base = ("hooked", "ce")
    needs_validation = True

    def fit(self, *probabilities, targets):
        hits = [float((one.argmax(dim=1) == targets).double().mean()) for one in probabilities]
        self.weights = [(hit + 0.01) / (sum(hits) + 0.02) for hit in hits]

    def rescore(self, *probabilities):
        return sum(weight * one for weight, one in zip(self.weights, probabilities, strict=True))
"""
SMALL = ("--dataset", "shapes", "--types", "type-I", "--seeds", "1", "--mlflow", "off")
FAST = ("--set", "train.epochs=2", "--set", "train.batch_size=96", "--set", "model.backbone=wrn10-1-s4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hooks")
    (folder / "hooked.py").write_text(TRAINED)
    (folder / "blend.py").write_text(POSTHOC)
    return folder


def specs_by_method(runs):
    """Return {method: (id, spec)} of the runs in a folder."""
    return {spec["method"]["name"]: (run_id, spec) for run_id, spec in specs_in(runs).items()}


@pytest.fixture(scope="module")
def done(cli, folder, data_dir):
    """Runs of the three methods, from one command."""
    runs = folder / "runs"
    where = ("--runs", runs, "--data-dir", data_dir)
    table = cli.start(folder, "run", "--methods", "./blend.py,./hooked.py", *SMALL, *FAST, *where).finish().ok()
    return runs, where, table


def test_the_check_covers_every_hook(cli, folder):
    checked = cli(folder, "methods", "check", "./hooked.py").ok().out
    assert "ok      own groups share no parameter" in checked and "ok      scores for every level" in checked
    assert "ok      progress changes only the loss" in checked
    broken = folder / "broken.py"
    broken.write_text(
        TRAINED.replace("hooked", "broken").replace("return outputs[0]", "return outputs[0] * self.progress")
    )
    failed = cli(folder, "methods", "check", "./broken.py")
    assert failed.code == 1 and "FAILED  progress changes only the loss: scores depend on progress" in failed.out
    broken.write_text(POSTHOC.replace("blend", "broken"))
    checked = cli(folder, "methods", "check", "./broken.py").ok().out
    assert "ok      every base acts" in checked and "ok      fit before rescore" in checked


def test_one_command_trains_the_bases_and_blends_them(done):
    runs, _, table = done
    rows = [line.split("|")[2].strip(" *") for line in table.out.splitlines() if line.startswith("| type")]
    assert rows == ["blend", "hooked"]  # ce was not asked for
    specs = specs_by_method(runs)
    assert specs["blend"][1]["base"] == [specs["hooked"][0], specs["ce"][0]]
    assert specs["blend"][1]["train"]["lr"] == specs["hooked"][1]["train"]["lr"]
    status = json.loads((runs / specs["blend"][0] / "status.json").read_text())
    digests = [digest_of(Store(runs).run(specs[name][0]), "predictions.npz") for name in ("hooked", "ce")]
    assert status["base_predictions"] == digests


def test_the_blend_is_that_of_validation_accuracies(done):
    runs, _, _ = done
    store, specs = Store(runs), specs_by_method(runs)
    hits = []
    for name in ("hooked", "ce"):
        hits.append(metrics_of(store.run(specs[name][0]))["val"]["top1"] / 100)
    weights = [(hit + 0.01) / (sum(hits) + 0.02) for hit in hits]
    scores, expected = predictions_of(store.run(specs["blend"][0]))[0], 0.0
    for name, weight in zip(("hooked", "ce"), weights, strict=True):
        logits = predictions_of(store.run(specs[name][0]))[0].astype(np.float64)
        exp = np.exp(logits - logits.max(axis=1, keepdims=True))
        expected = expected + weight * exp / exp.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(scores, expected, rtol=1e-9)


def test_progress_groups_and_levels_are_recorded(done, shapes):
    runs, _, _ = done
    store, specs = Store(runs), specs_by_method(runs)
    run = store.run(specs["hooked"][0])
    with (run.folder / "history.csv").open() as file:
        history = list(csv.DictReader(file))
    steps = 480 // 96
    of_epoch = [sum((epoch + step / steps) / 2 for step in range(steps)) / steps for epoch in range(2)]
    assert [float(row["train_progress"]) for row in history] == pytest.approx(of_epoch, rel=1e-6)
    assert [row["lr_coarse"] for row in history] == [row["lr_classifier"] for row in history]
    levels, tree = level_predictions_of(run), shapes.hierarchy("height")
    scores, targets = predictions_of(run)
    assert levels.shape == (len(targets), tree.num_levels) and levels.dtype == np.int64
    assert (levels[:, -1] == scores.argmax(axis=1)).all() and (levels < np.array(tree.level_sizes)).all()
    assert level_predictions_of(store.run(specs["ce"][0])) is None


def test_a_repeated_command_finds_all_cached_and_a_job_runs_alone(cli, folder, done, tmp_path):
    runs, where, _ = done
    again = cli(folder, "run", "--methods", "./blend.py,./hooked.py", *SMALL, *FAST, *where).ok()
    assert "3 cached" in again.err
    where = ("--runs", tmp_path / "runs", *where[2:])
    plan = cli(
        folder, "run", "--methods", "./blend.py,./hooked.py", *SMALL, *FAST, *where, "--plan-only", "--json"
    ).ok()
    jobs = {job["method"]: job for job in json.loads(plan.out)["jobs"]}
    assert jobs["blend"]["after"] == [jobs["hooked"]["id"], jobs["ce"]["id"]]
    assert jobs["blend"]["command"].count("--method") == 2
    early = cli(folder, *jobs["blend"]["command"][1:])
    assert early.code == 1 and f"run first: hierbench job {jobs['hooked']['id']}" in early.err
    for name in ("hooked", "ce", "blend"):
        cli(folder, *jobs[name]["command"][1:]).ok()
    folders = (runs, tmp_path / "runs")
    blend, same_blend = (specs_by_method(folder)["blend"][0] for folder in folders)
    first, second = (predictions_of(Store(folder).run(blend))[0] for folder in folders)
    assert blend == same_blend and (first == second).all()


def test_a_base_without_checkpoint_is_one_clear_line(cli, folder, done, tmp_path):
    runs, where, _ = done
    specs = specs_by_method(runs)
    checkpoint = runs / specs["ce"][0] / "checkpoint.pt"
    kept = checkpoint.read_bytes()
    changed = folder / "again" / "blend.py"
    changed.parent.mkdir(exist_ok=True)
    changed.write_text(POSTHOC.replace("0.01", "0.02"))
    words = ("run", "--methods", f"{changed},./hooked.py", *SMALL, *FAST, *where)
    checkpoint.unlink()
    try:
        failed = cli.start(folder, *words).finish()
    finally:
        checkpoint.write_bytes(kept)
    assert failed.code == 1 and "Traceback" not in failed.err
    assert "validation scores of ce type-I seed 0 are computed from its checkpoint" in failed.err
    cli.start(folder, *words).finish().ok()


def test_own_rates_change_the_job_and_unknown_ones_are_one_line(cli, folder, done):
    _, where, _ = done
    run = ("run", "--methods", "./hooked.py", *SMALL, *FAST, *where)
    changed = cli(folder, *run, "--set", "methods.hooked.lr.coarse=0.5", "--dry-run", "--json").ok()
    (job,) = json.loads(changed.out)["jobs"]
    assert job["state"] == "train"
    message = "methods.hooked: unknown key 'lr.coarze'; did you mean 'lr.coarse'? known: "
    cli(folder, *run, "--set", "methods.hooked.lr.coarze=0.5").one_line(
        message + "lr.backbone, lr.classifier, lr.coarse"
    )
    tune = ("tune", "--methods", "./hooked.py", *SMALL[:4], *SMALL[6:], *FAST, *where)
    tuned = cli(folder, *tune, "--set", "tune.grid.hooked.lr.coarse=[0.1,1]", "--dry-run").ok()
    assert re.search(r"hooked +type-I +2 +3 +lr.coarse 0.1, 1", tuned.out)
    wrong = ("--set", "tune.grid.hooked.lr.coarze=[0.1]", "--dry-run")
    cli(folder, *tune, *wrong).one_line("tune.grid.hooked.lr.coarze: hooked tunes", "lr.coarse")


def test_a_base_that_re_ranks_has_no_validation_scores(cli, folder, tmp_path, done):
    file = tmp_path / "blend.py"
    file.write_text(POSTHOC.replace('("hooked", "ce")', '"crm"'))
    failed = cli(folder, "run", "--methods", file, *SMALL, *FAST, *done[1])
    failed.one_line("blend needs validation scores of crm", "re-ranks", prints=True)


def test_hie_and_its_coarse_network(cli, folder, data_dir, tmp_path):
    where = ("--runs", tmp_path, "--data-dir", data_dir)
    table = cli(folder, "run", "--methods", "hie", *SMALL, *FAST, *where).ok()
    assert "HiE" in table.out and "coarse" not in table.out and "1 to re-rank" in table.err
    board = cli(folder, "leaderboard", "--dataset", "shapes", *where[:2]).ok()
    assert "HiE" in board.out and "cross-entropy" in board.out and "coarse" not in board.out
    specs = specs_by_method(tmp_path)
    assert specs["hie"][1]["base"] == [specs["ce"][0], specs["_coarse_ce"][0]]
    report = ("report", "--dataset", "shapes", "--rows", "hie,ce", "--output", tmp_path / "page.html")
    page = cli(folder, *report, *where).ok()
    assert "B is cross-entropy" in page.out and "no scores of all classes" in page.out, page.said
    cli(folder, "publish", "--dataset", "shapes", *where[:2], "--output", tmp_path / "published").ok()
    loose(tmp_path / "published")
    published_ids = {path.parent.name for path in tmp_path.glob("published/shapes/*/spec.json")}
    assert published_ids == {name for name, _ in specs.values()}
    again = cli(folder, "leaderboard", "--dataset", "shapes", "--runs", tmp_path / "published/shapes").ok()
    assert again.out == board.out
