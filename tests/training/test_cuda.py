"""A GPU computes the same as a CPU; skipped without a GPU. `tests/tools/bench.py` measures speed."""

import numpy as np
import pytest
import torch

from hierbench import evaluate
from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.data.augment import PadAndCrop, RandomResizedCrop
from hierbench.data.loader import Split
from hierbench.execution.resources import Setting
from hierbench.execution.run_job import execute
from hierbench.methods.crm import CRM
from hierbench.models import build_classifier
from tests.support.jobs import plan_job
from tests.support.run_files import history_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
METHODS = [("ce", "type-I"), ("flamingo", "type-I"), ("hafeature", "type-II"), ("haframe", "type-II")]


@pytest.mark.parametrize(("method", "kind"), METHODS)
@pytest.mark.parametrize("backbone", ["wrn28-8", "resnet50"])
@torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
def test_a_step_is_that_of_the_cpu(cifar100, method, kind, backbone, monkeypatch):
    """In float32; HAFeature draws an order on the device, which is given here."""
    order = torch.randperm(8)
    monkeypatch.setattr(torch, "randperm", lambda num, device=None: order.to(device))
    cls, model = find_method(method).cls, load_recipe("cifar100", [f"model.backbone={backbone}"]).model
    images, targets = torch.randn(8, 3, 64, 64), torch.arange(8)
    steps = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        net = build_classifier(cls, cifar100, kind, model).to(device).to(memory_format=torch.channels_last)
        terms = net.method.loss(net(images.to(device)), targets.to(device))
        sum(terms.values()).backward()
        steps.append({name: value.item() for name, value in terms.items()} | {"weight": _gradient(net)})
    assert steps[1] == pytest.approx(steps[0], rel=2e-3)


def _gradient(net):
    return float(sum(p.grad.double().square().sum() for p in net.parameters() if p.grad is not None)) ** 0.5


@pytest.mark.parametrize(("method", "kind"), METHODS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")  # PyTorch's, at its first use
def test_a_job_learns_as_on_the_cpu_and_never_waits_within_an_epoch(
    shapes, data_dir, tmp_path, method, kind, precision
):
    job = plan_job(shapes, "train.batch_size=96", f"train.precision={precision}", method=method, kind=kind)

    def watched(done, total):  # called after each step: the first of an epoch may set things up
        torch.cuda.set_sync_debug_mode("default" if done == int(done) else "error")

    try:
        assert execute(job, Setting(tmp_path / "cuda", data_dir, "cuda"), watched).state == "done"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert execute(job, Setting(tmp_path / "cpu", data_dir), lambda done, total: None).state == "done"
    ours, theirs = (history_of(Setting(tmp_path / name, data_dir).store.run(job.id)) for name in ("cuda", "cpu"))
    assert ours[-1]["train_loss"] == pytest.approx(theirs[-1]["train_loss"], rel=0.05)  # other random numbers


@pytest.mark.parametrize("crop", [PadAndCrop(4, "reflect", flip=True), RandomResizedCrop(flip=True)])
def test_augmentation(shapes, crop):
    images, rows = torch.from_numpy(np.array(shapes.arrays("train")[0])).cuda(), torch.randperm(480)[:64].cuda()
    torch.manual_seed(3)
    batch = crop(images, rows)
    torch.manual_seed(3)
    assert torch.equal(crop(images, rows[20:], 64, 20), batch[20:])
    plain = PadAndCrop(0, "zero", flip=False)(images, rows)
    assert torch.equal(plain.cpu(), images.cpu()[rows.cpu()])


def test_images_that_do_not_fit_are_streamed(shapes):
    spec, order, seen = plan_job(shapes, "train.batch_size=96").spec, torch.randperm(480), []
    for resident in (True, False):
        split = Split(shapes, "train", spec, torch.device("cuda"), resident=resident)
        torch.manual_seed(0)
        seen.append([images.clone() for images, _ in split.train_batches(order.split(96))])
    assert all(torch.equal(batch, same_batch) for batch, same_batch in zip(*seen, strict=True))


def test_evaluation(cifar100):
    scores, targets = torch.randn(5000, 100).round(decimals=1), torch.randint(100, (5000,))  # with ties
    assert evaluate(scores.cuda(), targets.cuda(), cifar100) == evaluate(scores, targets, cifar100)
    probabilities, crm = scores.double().softmax(1), CRM(cifar100)
    assert torch.allclose(crm.rescore(probabilities.cuda()).cpu(), crm.rescore(probabilities), atol=1e-12)
