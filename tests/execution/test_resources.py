"""Jobs side by side on cores and GPUs."""

from dataclasses import replace

import pytest
import torch

from hierbench.execution.resources import Setting, side_by_side


@pytest.mark.parametrize(
    ("num_training", "device", "more", "expected"),
    [
        (20, "cpu", {}, (8, 1)),
        (3, "cpu", {}, (3, 2)),
        (0, "cpu", {}, (1, 8)),
        (20, "cpu", {"devices": 2}, (4, 1)),
        (1, "cpu", {"devices": 2}, (1, 4)),
        (20, "cuda", {}, (4, None)),
        (20, "cuda", {"devices": 2}, (2, None)),
        (20, "cuda", {"jobs_per_gpu": 3}, (12, None)),
        (2, "cuda", {"jobs_per_gpu": 3}, (2, None)),
    ],
)
def test_jobs_side_by_side(monkeypatch, num_training, device, more, expected):
    monkeypatch.setattr("hierbench.execution.resources.num_cores", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert side_by_side(num_training, device, **more) == expected


def test_workers_take_turns_over_gpus(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    setting = Setting(tmp_path, tmp_path, "cuda", workers=6)
    assert [setting.of_worker(slot).gpus for slot in range(6)] == [(0,), (1,), (2,), (3,), (0,), (1,)]
    pairs = replace(setting, devices=2)
    assert [pairs.of_worker(slot).gpus for slot in range(3)] == [(0, 1), (2, 3), (0, 1)]
    assert Setting(tmp_path, tmp_path).of_worker(3).gpus == ()
