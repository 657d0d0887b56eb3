"""Too little memory, and batches in parts."""

import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from hierbench.api.registry import find_method
from hierbench.execution.resources import Setting
from hierbench.execution.run_job import execute
from hierbench.models import build_classifier
from hierbench.training.memory import count_micro_batches, is_out_of_memory
from hierbench.training.step import Step
from hierbench.utils.processes import limited_memory
from tests.support.jobs import execute_job, plan_job
from tests.support.run_files import history_of


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
        MemoryError(),
    ],
)
def test_too_little_memory_is_recognised_whoever_says_it(error):
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_gradients_of_the_parts_add_up_to_those_of_the_batch(small_shapes):
    """Without batch norm a divided batch is the same computation."""
    torch.manual_seed(0)
    method = find_method("haframe").cls(small_shapes.hierarchy("height"), 48)
    features, targets = torch.randn(90, 48), torch.randint(48, (90,))

    def gradient(parts):
        x = nn.Parameter(features.clone())
        step = Step(method, lambda rows: method(x[rows]), torch.optim.SGD([x], lr=1.0))
        step([(rows, targets[rows]) for rows in torch.arange(90).chunk(parts)], 90)
        return features - x.detach()

    assert torch.allclose(gradient(4), gradient(1), rtol=1e-4, atol=1e-7)


def test_a_divided_batch_is_another_job_and_trains(small_shapes, small_data_dir, tmp_path):
    """One step, as for bfloat16."""
    short = ["train.epochs=1", "train.batch_size=240"]
    undivided, divided = plan_job(small_shapes, *short), plan_job(small_shapes, *short, "train.micro_batch=8")
    assert undivided.id != divided.id
    both = [history_of(execute_job(job, Setting(tmp_path, small_data_dir))) for job in (undivided, divided)]
    assert both[0][0]["train_loss"] != both[1][0]["train_loss"]  # batch norm saw 8 images
    assert both[0][0]["train_loss"] == pytest.approx(both[1][0]["train_loss"], rel=0.1)


def test_how_a_batch_is_divided():
    assert count_micro_batches(64, 0, 1) == 1
    assert count_micro_batches(64, 64, 1) == 1 and count_micro_batches(64, 100, 1) == 1
    assert count_micro_batches(64, 16, 2) == 4
    for batch, micro, sizes in ((64, 22, [22, 22, 20]), (10, 4, [4, 4, 2]), (9, 7, [5, 4])):
        assert [len(part) for part in torch.arange(batch).chunk(count_micro_batches(batch, micro, 1))] == sizes


class Heavy(nn.Module):
    """Stands for a device with room for 24 images."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, images):
        if self.training and len(images) > 24:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB")
        return self.layers(images)


def test_a_job_out_of_memory_names_a_micro_batch_that_fits(small_shapes, small_data_dir, tmp_path, monkeypatch):
    def heavy(*args, **kwargs):
        model = build_classifier(*args, **kwargs)
        model.backbone = Heavy(model.backbone)
        return model

    monkeypatch.setattr("hierbench.training.step.build_classifier", heavy)
    job = plan_job(small_shapes, "train.batch_size=96")
    error = execute(job, Setting(tmp_path, small_data_dir), lambda done, total: None).error
    assert error.startswith(
        "the device has too little memory for 96 images at a time; 24 fit: --set train.micro_batch=24 "
    )
    assert Setting(tmp_path, small_data_dir).store.run(job.id).status["error"] == error
    execute_job(
        plan_job(small_shapes, "train.batch_size=96", "train.micro_batch=24"), Setting(tmp_path, small_data_dir)
    )


def test_a_model_that_fits_with_no_batch_says_what_it_asked_for(small_shapes, small_data_dir, tmp_path, monkeypatch):
    def huge(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 17838899200 bytes.")

    monkeypatch.setattr("hierbench.training.step.build_classifier", huge)
    error = execute(plan_job(small_shapes), Setting(tmp_path, small_data_dir), lambda done, total: None).error
    assert error.endswith("and for 2 as well; one of its tensors takes 17.8 GB")


@pytest.mark.skipif(sys.platform != "linux", reason="others have no such limit")
def test_memory_that_is_not_there_is_an_error():
    """Of two arrays that fit alone the system gives both, and ends the process once it writes to them."""
    with limited_memory():
        free = int(re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())[1])
        kept = torch.empty(700 * free, dtype=torch.uint8)
        with pytest.raises(RuntimeError, match=r"tried to allocate \d+ bytes"):
            torch.empty(len(kept), dtype=torch.uint8)
