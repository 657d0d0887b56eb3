"""One job on several devices equals the job on one, resumes after a kill, and hands its errors on."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
import torch

from hierbench.execution.resources import Setting
from hierbench.execution.run_job import can_compute, execute
from hierbench.models.sync_norm import RankNorm
from hierbench.training.trainer import load_checkpoint
from hierbench.utils.files import read_json
from tests.support.jobs import execute_job, plan_job
from tests.support.run_files import history_of, predictions_of


@pytest.fixture
def forked_ranks(monkeypatch):
    """Lets the processes of a job be forks of one that has everything imported and computes nothing."""
    real = multiprocessing.get_context
    multiprocessing.set_forkserver_preload(["hierbench.execution.ranks", "lightning_fabric", "hierbench.methods.ce"])
    monkeypatch.setattr(multiprocessing, "get_context", lambda method=None: real("forkserver"))


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.thorough)])
def test_two_processes_equal_one_up_to_rounding(request, small_shapes, small_data_dir, tmp_path, start):
    """Two steps, of all training images, at small learning rates: over more of them rounding grows by itself.

    With raw inputs two norms get no gradient, for which the processes must not wait.
    """
    if start == "fork":
        request.getfixturevalue("forked_ranks")
    rates = [f"train.lr.type-II.{name}=0.02" for name in ("backbone", "transform", "classifier")]
    overrides = ["train.batch_size=240", "model.wrn_group_input=raw", *rates]
    job = plan_job(small_shapes, *overrides, method="hafeature", kind="type-II")
    both, weights, seen = [], [], []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for devices in (1, 2):
        setting = Setting(tmp_path / str(devices), small_data_dir, threads=1, devices=devices)
        both.append(execute_job(job, setting, lambda done, total: seen.append((done, total))))
        weights.append(load_checkpoint(both[-1].folder / "checkpoint.pt")["best"])
    torch.set_num_threads(threads)
    assert seen == [(1.0, 2), (2.0, 2)] * 2
    for ours, theirs in zip(history_of(both[1]), history_of(both[0]), strict=True):
        assert ours.keys() == theirs.keys()
        assert [ours[k] for k in ours if k[:3] != "val"] == pytest.approx(
            [theirs[k] for k in ours if k[:3] != "val"], rel=1e-4
        )
    for name, value in weights[0].items():
        assert torch.allclose(value.double(), weights[1][name].double(), rtol=1e-3, atol=1e-4), name
    (scores, targets), (same_scores, same_targets) = (predictions_of(finished) for finished in both)
    assert (targets == same_targets).all() and np.abs(scores - same_scores).max() < 2e-3
    assert [read_json(finished.folder / "environment.json")["devices"] for finished in both] == [1, 2]


@pytest.mark.parametrize(
    ("method", "override", "norm"),
    [
        ("etf", "methods.etf.features=bn", "method.norm"),
        pytest.param(
            "barz_denzler", "methods.barz_denzler.head_weight=0.1", "method.head.1", marks=pytest.mark.thorough
        ),
    ],
)
def test_two_processes_count_a_batch_once_in_the_norms_of_a_method(
    small_shapes, small_data_dir, tmp_path, forked_ranks, method, override, norm
):
    """It sees the examples of both."""
    overrides = [override, "train.batch_size=240", "train.epochs=1"]  # one step
    variances = []
    for devices in (1, 2):
        setting = Setting(tmp_path / str(devices), small_data_dir, threads=1, devices=devices)
        ended = execute_job(plan_job(small_shapes, *overrides, method=method), setting)
        variances.append(load_checkpoint(ended.folder / "checkpoint.pt")["best"][f"{norm}.running_var"])
    assert torch.allclose(*variances, rtol=1e-6, atol=1e-6)


@pytest.mark.thorough
def test_two_processes_train_a_library_s_network_of_which_a_part_gets_no_gradient(
    small_shapes, small_data_dir, tmp_path, forked_ranks
):
    """The norm of a ConvNeXt's head comes after its feature map."""
    overrides = ["model.backbone=timm:test_convnext", "model.input_size=[32,32]", "train.batch_size=240"]
    losses = []
    for devices in (1, 2):
        setting = Setting(tmp_path / str(devices), small_data_dir, threads=1, devices=devices)
        losses.append(history_of(execute_job(plan_job(small_shapes, *overrides), setting))[0]["train_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_a_run_of_two_processes_resumes_after_a_kill(small_shapes, small_data_dir, tmp_path, forked_ranks):
    job, setting = plan_job(small_shapes), Setting(tmp_path, small_data_dir, threads=1, devices=2)
    ranks = []

    def kill_a_child(done, total):
        if done > 1.2 and not ranks:
            ranks.extend(process.pid for process in multiprocessing.active_children())
            os.kill(ranks[-1], signal.SIGKILL)

    assert execute(job, setting, kill_a_child).state == "failed"
    assert len(ranks) == 2
    deadline = time.monotonic() + 20
    while any(map(_exists, ranks)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(_exists, ranks))  # the other one went with it
    seen = []
    two = execute_job(job, setting, lambda done, total: seen.append(done))
    assert min(seen) > 1 and len(history_of(two)) == 2


def _exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        # The error itself crossed over.
        (
            ["train.lr.type-I.classifier=1e30", "train.batch_size=120"],
            "scores are nan after epoch 1: the last steps were",
        ),
        (["train.batch_size=25"], "a batch of 25 images cannot be shared by 2 devices equally"),
    ],
)
def test_an_error_in_one_of_two_processes_is_the_job_s(
    small_shapes, small_data_dir, tmp_path, forked_ranks, overrides, error
):
    setting = Setting(tmp_path, small_data_dir, threads=1, devices=2)
    assert execute(plan_job(small_shapes, *overrides), setting, lambda done, total: None).error.startswith(error)


def test_a_norm_over_ranks_keeps_the_following_layers():
    """As timm's norms, which activate too."""
    from timm.layers import BatchNormAct2d

    norm = BatchNormAct2d(3).eval()
    norm.running_mean.uniform_()
    images = torch.randn(2, 3, 4, 4)
    ours = RankNorm(norm)
    assert torch.equal(ours(images), norm(images)) and ours.state_dict().keys() == norm.state_dict().keys()


def test_a_dead_device_is_noticed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: 1 / 0)
    assert can_compute("cpu") and not can_compute("cuda")
