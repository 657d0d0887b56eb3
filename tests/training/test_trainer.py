import csv
import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import hierbench
import hierbench.training.checkpoint as checkpoint
import hierbench.training.trainer as training
from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.config.spec import DatasetSpec
from hierbench.data.prepared import find
from hierbench.execution.plan import make_plan
from hierbench.metrics import evaluate
from hierbench.runs.job import Job
from hierbench.runs.store import Store
from hierbench.training.step import learning_rate
from hierbench.training.trainer import NonFiniteLossError, load_checkpoint, train
from tests.support.run_files import metrics_of, predictions_of

QUICK = ["train.epochs=2", "train.batch_size=24", "model.backbone=wrn10-1-s4", "seeds=1"]


@pytest.fixture(scope="module")
def data_dir(small_data_dir):
    return small_data_dir


@pytest.fixture(scope="module")
def shapes(data_dir):
    return find("shapes", data_dir)


def job_for(prepared, method="ce", kind="type-I", overrides=()) -> Job:
    recipe = load_recipe("shapes", [*QUICK, *overrides])
    return make_plan(recipe, prepared, [find_method(method)], [kind], 1)[-1]


def run_job(job, prepared, folder, report=lambda done, total: None):
    run = Store(folder).run(job.id)
    run.plan(job.spec.content())
    train(job, prepared, run, "cpu", report)
    return run


class StoppedError(Exception):
    pass


def stop_at(when):
    def report(done, total):
        if done >= when:
            raise StoppedError

    return report


def test_cosine_schedule():
    rates = [learning_rate(0.1, epoch, 4) for epoch in range(4)]
    assert rates == pytest.approx([0.1, 0.0853553390593, 0.05, 0.0146446609407])


@pytest.mark.parametrize(
    ("method", "kind", "overrides"),
    [
        ("hafeature", "type-I", []),
        ("haframe", "type-II", []),
        ("ce", "type-II", ["train.sampling=balanced"]),
        ("ce", "type-I", ["train.every=3"]),
        ("ce", "type-I", ["train.optimizer=adamw", "train.warmup_epochs=1", "train.layer_decay=0.5"]),
    ],
)
def test_a_stopped_run_resumed_equals_one_left_alone_bit_by_bit(shapes, tmp_path, method, kind, overrides):
    job = job_for(shapes, method, kind, overrides)
    alone = run_job(job, shapes, tmp_path / "alone")
    for when in (0.1, 1.5):  # within the first epoch, within the second
        with pytest.raises(StoppedError):
            run_job(job, shapes, tmp_path / "stopped", stop_at(when))
    seen = []
    stopped = run_job(job, shapes, tmp_path / "stopped", lambda done, total: seen.append(done))
    assert min(seen) > 1  # it went on, it did not start anew
    for name in ("history.csv", "metrics.json", "predictions.npz"):
        assert (alone.folder / name).read_bytes() == (stopped.folder / name).read_bytes()
    best, same = (load_checkpoint(run.folder / "checkpoint.pt")["best"] for run in (alone, stopped))
    assert all(torch.equal(best[key], same[key]) for key in best)


def test_a_damaged_checkpoint_starts_anew(shapes, tmp_path):
    job = job_for(shapes)
    alone = run_job(job, shapes, tmp_path / "alone")
    with pytest.raises(StoppedError):
        run_job(job, shapes, tmp_path / "stopped", stop_at(1.5))
    checkpoint = tmp_path / "stopped" / job.id / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    stopped = run_job(job, shapes, tmp_path / "stopped")
    assert (alone.folder / "predictions.npz").read_bytes() == (stopped.folder / "predictions.npz").read_bytes()


def test_the_files_of_a_run(shapes, tmp_path):
    run = run_job(job_for(shapes), shapes, tmp_path)
    assert {path.name for path in run.folder.iterdir()} == {
        "spec.json", "status.json", "history.csv", "metrics.json", "predictions.npz", "checkpoint.pt",
        "environment.json",
    }  # fmt: skip
    with (run.folder / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert float(rows[1]["lr_backbone"]) == pytest.approx(0.5 * float(rows[0]["lr_backbone"]))
    assert {"train_loss", "train_cross_entropy", "val_top1", "val_hierdist@20"} <= set(rows[0])
    metrics = metrics_of(run)
    best = max(rows, key=lambda row: float(row["val_top1"]))
    assert metrics["best_epoch"] == int(best["epoch"]) and metrics["val"]["top1"] == float(best["val_top1"])
    scores, targets = predictions_of(run)
    assert scores.shape == (96, 48)
    assert metrics["test"] == evaluate(scores, targets, shapes.hierarchy("height"))
    assert sum(metrics["mistakes_by_distance"]) == round(96 * (1 - metrics["test"]["top1"] / 100))
    assert "last" not in load_checkpoint(run.folder / "checkpoint.pt")


def test_the_first_of_equal_validation_accuracies_wins(shapes, tmp_path, monkeypatch):
    constant = {"top1": 5.0, "mistake_severity": 2.0, "hierdist@1": 1.9, "hierdist@5": 1.9, "hierdist@20": 1.9}
    monkeypatch.setattr(training, "validate", lambda *_: dict(constant))
    assert metrics_of(run_job(job_for(shapes), shapes, tmp_path))["best_epoch"] == 1


def test_a_loss_that_is_not_finite_stops_the_job(shapes, tmp_path):
    with pytest.raises(NonFiniteLossError, match=r"loss is nan at epoch 1, step \d+, in the term 'cross_entropy'"):
        run_job(job_for(shapes, overrides=["train.lr.type-I.classifier=1e30"]), shapes, tmp_path)


def test_scores_that_are_not_finite_after_the_last_step_are_named(shapes, tmp_path, monkeypatch):
    from hierbench.methods.ce import CrossEntropy

    monkeypatch.setattr(CrossEntropy, "scores", lambda self, outputs: outputs * float("nan"))
    with pytest.raises(NonFiniteLossError, match="scores are nan after epoch 1"):
        run_job(job_for(shapes), shapes, tmp_path)


def test_a_kill_between_history_and_checkpoint_loses_nothing(shapes, tmp_path, monkeypatch):
    job = job_for(shapes)
    alone = run_job(job, shapes, tmp_path / "alone")
    calls = []

    def stop_at_the_second(path, content):
        calls.append(path)
        if len(calls) == 2:
            raise StoppedError
        save(path, content)

    save = training.save_checkpoint
    monkeypatch.setattr(checkpoint, "save_checkpoint", stop_at_the_second)
    with pytest.raises(StoppedError):
        run_job(job, shapes, tmp_path / "stopped")
    stopped = run_job(job, shapes, tmp_path / "stopped")
    for name in ("history.csv", "predictions.npz"):
        assert (alone.folder / name).read_bytes() == (stopped.folder / name).read_bytes()


def test_checkpoints_cost_a_twentieth_of_the_time(shapes, tmp_path, monkeypatch):
    """Where one takes longer, epochs are left out, and a killed run goes on from the last that was not."""
    job = job_for(shapes, overrides=["train.epochs=4"])
    alone = run_job(job, shapes, tmp_path / "alone")
    clock, saved = [0.0], []

    def slow(path, content):
        save(path, content)
        clock[0] += 1.0
        saved.append(len(content["history"]))

    def report(done, total):
        if len(saved) == 1 and done > 3.5:
            raise StoppedError

    save = training.save_checkpoint
    for module in (training, checkpoint):
        monkeypatch.setattr(module, "save_checkpoint", slow)
    monkeypatch.setattr("hierbench.training.checkpoint.time", SimpleNamespace(monotonic=lambda: clock[0]))
    with pytest.raises(StoppedError):
        run_job(job, shapes, tmp_path / "stopped", report)
    assert saved == [1]
    stopped = run_job(job, shapes, tmp_path / "stopped")
    assert saved[1:] == [2, 4, 4]  # at once, the last epoch, and the result
    for name in ("history.csv", "predictions.npz"):
        assert (alone.folder / name).read_bytes() == (stopped.folder / name).read_bytes()


def test_the_commit_that_ran_is_recorded(shapes, tmp_path):
    root = Path(hierbench.__file__).resolve().parents[1]
    record = json.loads((run_job(job_for(shapes), shapes, tmp_path).folder / "environment.json").read_text())
    if not (root / ".git").exists():  # an installed package
        assert not {"commit", "changed"} & record.keys()
        return
    head, status = (
        subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout.strip()
        for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    )
    assert record["commit"] == head and record["changed"] is bool(status)


def test_a_resumed_run_keeps_its_number_of_threads(shapes, tmp_path):
    job = job_for(shapes)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = run_job(job, shapes, tmp_path / "alone")
        with pytest.raises(StoppedError):
            run_job(job, shapes, tmp_path / "stopped", stop_at(1.5))
        torch.set_num_threads(2)
        stopped = run_job(job, shapes, tmp_path / "stopped")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert (alone.folder / "predictions.npz").read_bytes() == (stopped.folder / "predictions.npz").read_bytes()


def test_the_last_short_batch_is_dropped_and_every_test_example_counted(shapes, tmp_path):
    seen = []
    run = run_job(job_for(shapes, overrides=["train.batch_size=50"]), shapes, tmp_path, lambda d, _: seen.append(d))
    assert len(seen) == 2 * 4  # 240 examples: four whole batches an epoch
    assert len(predictions_of(run)[1]) == 96


def test_id_depends_on_exactly_the_settings_that_change_the_result(shapes, tmp_path):
    base = job_for(shapes).id
    assert job_for(shapes).id == base
    changes = [
        ["train.epochs=3"], ["augment.flip=true"], ["train.lr.type-I.backbone=0.5"], ["model.backbone=wrn10-1"],
        ["distance=depth"],
    ]  # fmt: skip
    ids = {job_for(shapes, overrides=change).id for change in changes}
    ids |= {job_for(shapes, "ce", "type-II").id, job_for(shapes, "flamingo").id}
    assert len(ids) == 7 and base not in ids
    same = [["title=other"], ["train.lr.type-II.backbone=0.5"], ["methods.haframe.gamma=1"], ["seeds=4"]]
    assert {job_for(shapes, overrides=change).id for change in same} == {base}
    copied = type(shapes)(shutil.copytree(shapes.folder, tmp_path / "copy"), shapes.meta)
    assert job_for(copied).id == base


def test_id_is_the_digest_of_the_canonical_json(shapes):
    spec = job_for(shapes).spec
    assert isinstance(spec.dataset, DatasetSpec)
    text = json.dumps(spec.content(), sort_keys=True, separators=(",", ":"))
    assert spec.id == hashlib.sha256(text.encode()).hexdigest()
