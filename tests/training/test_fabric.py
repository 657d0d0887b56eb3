"""The precision of a training, and what is recorded of the device."""

import pytest
import torch
from torch import nn

from hierbench.api.registry import find_method
from hierbench.execution.resources import Setting
from hierbench.training.fabric import resolve_precision
from hierbench.training.feature_extraction import one_thread_each
from hierbench.training.results import environment
from tests.support.jobs import execute_job, plan_job
from tests.support.run_files import history_of

CPU = torch.device("cpu")


def test_auto_precision_is_that_of_the_processor(monkeypatch):
    for has_bf16, expected in ((True, "bfloat16"), (False, "float32")):
        capabilities = {"avx512_bf16": has_bf16, "avx2": True}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda c=capabilities: c)
        assert resolve_precision("auto", "cpu") == expected
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert resolve_precision("auto", "cpu") == "float32"
    assert resolve_precision("auto", "mps") == "float32"
    assert resolve_precision("bfloat16", "cpu") == "bfloat16"
    assert resolve_precision("auto", "cuda", frozen=True) == "float32"


def test_bfloat16_is_another_job_and_the_method_stays_in_float32(small_shapes, small_data_dir, tmp_path, monkeypatch):
    """One step, whose loss is of the same weights: over more of them rounding grows by itself."""
    cls = find_method("ce").cls
    seen = []
    forward = cls.forward

    def watched(self, features):
        outputs = forward(self, features)
        seen.append((features.dtype, outputs.dtype, torch.is_autocast_enabled("cpu")))
        return outputs

    monkeypatch.setattr(cls, "forward", watched)
    short = ["train.epochs=1", "train.batch_size=240"]
    exact, rounded = plan_job(small_shapes, *short), plan_job(small_shapes, *short, "train.precision=bfloat16")
    assert exact.id != rounded.id and rounded.spec.content()["train"]["precision"] == "bfloat16"
    convolved = []
    monkeypatch.setattr(nn.functional, "leaky_relu", _recording(nn.functional.leaky_relu, convolved))
    histories = [history_of(execute_job(job, Setting(tmp_path, small_data_dir))) for job in (exact, rounded)]
    assert set(seen) == {(torch.float32, torch.float32, False)}
    assert {torch.float32, torch.bfloat16} <= set(convolved)
    for row, rounded_row in zip(*histories, strict=True):
        assert row["train_loss"] == pytest.approx(rounded_row["train_loss"], rel=0.02) and row != rounded_row


def _recording(function, types):
    def recorded(x, *args, **kwargs):
        types.append(x.dtype)
        return function(x, *args, **kwargs)

    return recorded


def test_extraction_is_with_cudnn():
    """As its flags are off by default."""
    with one_thread_each():
        assert torch.backends.cudnn.enabled and torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.benchmark and not torch.backends.cudnn.allow_tf32


def test_the_environment_names_the_sources_of_rounding_on_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GPU 1")
    record = environment(torch.device("cuda"))
    assert record.keys() >= {"cuda", "cudnn", "tf32"} and record["device"] == "GPU 1"
    assert record["tf32"] is True
    assert not {"cuda", "tf32"} & environment(CPU).keys()
