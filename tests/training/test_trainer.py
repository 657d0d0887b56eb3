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
from hierbench.config.spec import DatasetSpec
from hierbench.metrics import evaluate
from hierbench.training import prediction
from hierbench.training.step import learning_rate
from hierbench.training.trainer import NonFiniteLossError, load_checkpoint
from hierbench.utils import arrays
from tests.support.jobs import StoppedError, plan_job, stop_at, train_job
from tests.support.run_files import metrics_of, predictions_of


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
def test_a_stopped_run_resumed_equals_one_left_alone_bit_by_bit(small_shapes, tmp_path, method, kind, overrides):
    job = plan_job(small_shapes, *overrides, method=method, kind=kind)
    alone = train_job(job, small_shapes, tmp_path / "alone")
    for when in (0.1, 1.5):  # within the first epoch, within the second
        with pytest.raises(StoppedError):
            train_job(job, small_shapes, tmp_path / "stopped", stop_at(when))
    seen = []
    stopped = train_job(job, small_shapes, tmp_path / "stopped", lambda done, total: seen.append(done))
    assert min(seen) > 1  # it went on, it did not start anew
    for name in ("history.csv", "metrics.json", "predictions.npz"):
        assert (alone.folder / name).read_bytes() == (stopped.folder / name).read_bytes()
    best, same = (load_checkpoint(run.folder / "checkpoint.pt")["best"] for run in (alone, stopped))
    assert all(torch.equal(best[key], same[key]) for key in best)


def test_a_damaged_checkpoint_starts_anew(small_shapes, tmp_path):
    job = plan_job(small_shapes)
    alone = train_job(job, small_shapes, tmp_path / "alone")
    with pytest.raises(StoppedError):
        train_job(job, small_shapes, tmp_path / "stopped", stop_at(1.5))
    checkpoint = tmp_path / "stopped" / job.id / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    stopped = train_job(job, small_shapes, tmp_path / "stopped")
    assert (alone.folder / "predictions.npz").read_bytes() == (stopped.folder / "predictions.npz").read_bytes()


def test_the_files_of_a_run(small_shapes, tmp_path):
    run = train_job(plan_job(small_shapes), small_shapes, tmp_path)
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
    assert metrics["test"] == evaluate(scores, targets, small_shapes.hierarchy("height"))
    assert sum(metrics["mistakes_by_distance"]) == round(96 * (1 - metrics["test"]["top1"] / 100))
    assert "last" not in load_checkpoint(run.folder / "checkpoint.pt")


def test_the_first_of_equal_validation_accuracies_wins(small_shapes, tmp_path, monkeypatch):
    constant = {"top1": 5.0, "mistake_severity": 2.0, "hierdist@1": 1.9, "hierdist@5": 1.9, "hierdist@20": 1.9}
    monkeypatch.setattr(training, "validate", lambda *_: dict(constant))
    assert metrics_of(train_job(plan_job(small_shapes), small_shapes, tmp_path))["best_epoch"] == 1


def test_a_loss_that_is_not_finite_stops_the_job(small_shapes, tmp_path):
    with pytest.raises(NonFiniteLossError, match=r"loss is nan at epoch 1, step \d+, in the term 'cross_entropy'"):
        train_job(plan_job(small_shapes, "train.lr.type-I.classifier=1e30"), small_shapes, tmp_path)


def test_scores_that_are_not_finite_after_the_last_step_are_named(small_shapes, tmp_path, monkeypatch):
    from hierbench.methods.ce import CrossEntropy

    monkeypatch.setattr(CrossEntropy, "scores", lambda self, outputs: outputs * float("nan"))
    with pytest.raises(NonFiniteLossError, match="scores are nan after epoch 1"):
        train_job(plan_job(small_shapes), small_shapes, tmp_path)


def test_a_kill_between_history_and_checkpoint_loses_nothing(small_shapes, tmp_path, monkeypatch):
    job = plan_job(small_shapes)
    alone = train_job(job, small_shapes, tmp_path / "alone")
    calls = []

    def stop_at_the_second(path, content):
        calls.append(path)
        if len(calls) == 2:
            raise StoppedError
        save(path, content)

    save = training.save_checkpoint
    monkeypatch.setattr(checkpoint, "save_checkpoint", stop_at_the_second)
    with pytest.raises(StoppedError):
        train_job(job, small_shapes, tmp_path / "stopped")
    stopped = train_job(job, small_shapes, tmp_path / "stopped")
    for name in ("history.csv", "predictions.npz"):
        assert (alone.folder / name).read_bytes() == (stopped.folder / name).read_bytes()


def test_checkpoints_cost_a_twentieth_of_the_time(small_shapes, tmp_path, monkeypatch):
    """Where one takes longer, epochs are left out, and a killed run goes on from the last that was not."""
    job = plan_job(small_shapes, "train.epochs=4")
    alone = train_job(job, small_shapes, tmp_path / "alone")
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
        train_job(job, small_shapes, tmp_path / "stopped", report)
    assert saved == [1]
    stopped = train_job(job, small_shapes, tmp_path / "stopped")
    assert saved[1:] == [2, 4, 4]  # at once, the last epoch, and the result
    for name in ("history.csv", "predictions.npz"):
        assert (alone.folder / name).read_bytes() == (stopped.folder / name).read_bytes()


def test_the_commit_that_ran_is_recorded(small_shapes, tmp_path):
    root = Path(hierbench.__file__).resolve().parents[1]
    record = json.loads(
        (train_job(plan_job(small_shapes), small_shapes, tmp_path).folder / "environment.json").read_text()
    )
    if not (root / ".git").exists():  # an installed package
        assert not {"commit", "changed"} & record.keys()
        return
    head, status = (
        subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout.strip()
        for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    )
    assert record["commit"] == head and record["changed"] is bool(status)


def test_a_resumed_run_keeps_its_number_of_threads(small_shapes, tmp_path):
    job = plan_job(small_shapes)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = train_job(job, small_shapes, tmp_path / "alone")
        with pytest.raises(StoppedError):
            train_job(job, small_shapes, tmp_path / "stopped", stop_at(1.5))
        torch.set_num_threads(2)
        stopped = train_job(job, small_shapes, tmp_path / "stopped")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert (alone.folder / "predictions.npz").read_bytes() == (stopped.folder / "predictions.npz").read_bytes()


def test_the_last_short_batch_is_dropped_and_every_test_example_counted(small_shapes, tmp_path):
    seen = []
    run = train_job(plan_job(small_shapes, "train.batch_size=50"), small_shapes, tmp_path, lambda d, _: seen.append(d))
    assert len(seen) == 2 * 4  # 240 examples: four whole batches an epoch
    assert len(predictions_of(run)[1]) == 96


def test_id_depends_on_exactly_the_settings_that_change_the_result(small_shapes, tmp_path):
    base = plan_job(small_shapes).id
    assert plan_job(small_shapes).id == base
    changes = [
        ["train.epochs=3"], ["augment.flip=true"], ["train.lr.type-I.backbone=0.5"], ["model.backbone=wrn10-1"],
        ["distance=depth"],
    ]  # fmt: skip
    ids = {plan_job(small_shapes, *change).id for change in changes}
    ids |= {plan_job(small_shapes, kind="type-II").id, plan_job(small_shapes, method="flamingo").id}
    assert len(ids) == 7 and base not in ids
    same = [["title=other"], ["train.lr.type-II.backbone=0.5"], ["methods.haframe.gamma=1"], ["seeds=4"]]
    assert {plan_job(small_shapes, *change).id for change in same} == {base}
    copied = type(small_shapes)(shutil.copytree(small_shapes.folder, tmp_path / "copy"), small_shapes.meta)
    assert plan_job(copied).id == base


def test_id_is_the_digest_of_the_canonical_json(small_shapes):
    spec = plan_job(small_shapes).spec
    assert isinstance(spec.dataset, DatasetSpec)
    text = json.dumps(spec.content(), sort_keys=True, separators=(",", ":"))
    assert spec.id == hashlib.sha256(text.encode()).hexdigest()


def test_many_scores_are_held_in_parts_and_in_a_file(small_shapes, tmp_path, monkeypatch):
    """Validation part by part, the test scores in a nameless file: the numbers are the same."""
    job = plan_job(small_shapes, method="haframe", kind="type-II")
    plain = train_job(job, small_shapes, tmp_path / "plain")
    monkeypatch.setattr(prediction, "PART", 1)
    monkeypatch.setattr(arrays, "SCRATCH_BYTES", 0)
    mapped = train_job(job, small_shapes, tmp_path / "mapped")
    for name in ("history.csv", "metrics.json", "predictions.npz"):
        assert (plain.folder / name).read_bytes() == (mapped.folder / name).read_bytes()
    assert not list(mapped.folder.glob("tmp*"))
