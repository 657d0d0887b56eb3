"""Jobs on a GPU, with fake tensors: they have a device and no values, and need no GPU.

Tensors on two devices raise, and so does what makes the host wait for the device.
"""

from typing import Literal, get_args, get_origin

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hierbench.api.contract import changed_params
from hierbench.api.method import base_names
from hierbench.api.registry import find_method, method_names
from hierbench.config.recipe import load_recipe
from hierbench.data.augment import PadAndCrop, RandomResizedCrop, normalise
from hierbench.data.loader import resize_to
from hierbench.hierarchy import levels
from hierbench.losses import class_embeddings, class_losses, node_losses, node_targets
from hierbench.metrics import Tally
from hierbench.models import build_classifier
from hierbench.training.fabric import make_fabric
from hierbench.training.prediction import level_predictions
from hierbench.training.step import Step, make_optimizer
from hierbench.training.trainer import average_terms, new_model
from tests.support.jobs import plan_job

CUDA = torch.device("cuda", 0)
TRAINED = [name for name in (*method_names(), "_coarse_ce") if find_method(name).trains]
RERANKING = [name for name in method_names() if not find_method(name).trains]
# Sums of a GPU whose order differs from call to call.
UNORDERED = {getattr(torch.ops.aten, name) for name in ("index_add_", "index_add", "scatter_add", "scatter_add_")}


class Watched(TorchDispatchMode):
    """Raises for a result that has left the GPU, and for results of a type."""

    def __init__(self, refused=None):
        super().__init__()
        self.refused, self.functions = refused, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.functions.add(function.overloadpacket)
        result = function(*args, **(kwargs or {}))
        before, after = ([x for x in tree_leaves(values) if isinstance(x, torch.Tensor)] for values in (args, result))
        if any(x.device == CUDA for x in before):
            assert all(x.device == CUDA for x in after), f"{function}: the host waits for the device"
        assert all(x.dtype != self.refused for x in after), f"{function}: {self.refused}"
        return result


@pytest.fixture
def gpu():
    """Moves modules and tensors to a fake GPU, and then watches the computations."""
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:

        def move(module_or_tensor):
            if not isinstance(module_or_tensor, nn.Module):
                return fake.from_tensor(module_or_tensor).to(CUDA)
            for part in module_or_tensor.modules():
                for name, parameter in part._parameters.items():
                    if parameter is not None:
                        part._parameters[name] = nn.Parameter(move(parameter.detach()))
                for name, buffer in part._buffers.items():
                    part._buffers[name] = buffer if buffer is None else move(buffer)
            return module_or_tensor

        yield move
    for module in (levels, class_losses, node_losses, node_targets, class_embeddings):  # tables of fake tensors
        for function in vars(module).values():
            getattr(function, "cache_clear", lambda: None)()


def real():
    """In a test with a fake GPU: makes real tensors."""
    return torch.utils._python_dispatch._disable_current_modes()


def variants(names):
    """Methods with their default hyperparameters, and with one changed; each choice of those that have names."""
    for name in names:
        cls = find_method(name).cls
        yield name, {}
        for field, params in changed_params(cls):
            annotation = cls.Params.model_fields[field].annotation
            choices = get_args(annotation) if get_origin(annotation) is Literal else [getattr(params, field)]
            yield from ((name, {field: choice}) for choice in choices)


@pytest.mark.parametrize(("name", "values"), list(variants(TRAINED)), ids=str)
def test_a_method_stays_on_the_device(gpu, shapes, name, values):
    loaded, tree = find_method(name), shapes.hierarchy("height")
    with real():
        method, features = loaded.cls(tree, 48, loaded.params(values)), torch.randn(8, 48)
    method, features, targets = gpu(method), gpu(features), gpu(torch.arange(8))
    method.train().loss(method(features), targets)  # makes the tables of the tree on the device
    with Watched():
        method.train().loss(method(features), targets)
        outputs = method.eval()(features)
        tally = Tally(tree)
        tally.add(method.scores(outputs), targets)
        method.level_scores(outputs)


@pytest.mark.parametrize(("name", "values"), list(variants(RERANKING)), ids=str)
def test_re_ranking_stays_on_the_device(gpu, shapes, name, values):
    loaded = find_method(name)
    with real():
        posthoc = loaded.cls(shapes.hierarchy("height"), loaded.params(values))
    bases = [gpu(torch.empty(8, 48)).double().softmax(dim=1) for _ in base_names(loaded.cls)]
    with Watched() as watched:
        assert posthoc.rescore(*bases).shape == (8, 48)
    assert not watched.functions & UNORDERED


@pytest.mark.parametrize(
    "crop",
    [PadAndCrop(4, "reflect", flip=True), PadAndCrop(4, "zero", flip=False), RandomResizedCrop(flip=True)],
    ids=str,
)
@pytest.mark.parametrize("kind", ["type-I", "type-II"])
def test_images_become_features_on_the_device(gpu, shapes, crop, kind):
    model = load_recipe("shapes", ["model.backbone=wrn10-1-s4"]).model
    with real():
        classifier = build_classifier(find_method("ce").cls, shapes.hierarchy("height"), kind, model)
    classifier, images, rows = gpu(classifier), gpu(torch.zeros(20, 3, 32, 32, dtype=torch.uint8)), gpu(torch.arange(8))
    mean = std = gpu(torch.ones(3))
    # cuDNN's sampling has no fake kernel.
    with Watched(), torch.backends.cudnn.flags(enabled=False):
        batch = resize_to(normalise(crop(images, rows, 16, 4), mean, std), (24, 24))
        assert classifier.embed(batch).shape[0] == 8


def test_a_wait_and_a_tensor_elsewhere_are_seen(gpu):
    x = gpu(torch.ones(3))
    for computation in (
        lambda: x.cpu(),
        lambda: x.sum().item(),
        lambda: x.nonzero(),
        lambda: x[x > 0],
        lambda: x + torch.ones(3),
    ):
        with Watched(), pytest.raises((AssertionError, RuntimeError)):
            computation()


@pytest.mark.parametrize("name", TRAINED)
def test_a_step_on_mps_has_no_float64(shapes, name):
    """With the model as for MPS, which lacks it, and on the CPU, which has backward passes."""
    job = plan_job(shapes, "train.batch_size=8", method=name, kind="type-II")
    model = new_model(job, shapes.hierarchy("height"), None, "mps", 1)
    step = Step(model.method, model, make_optimizer(model, job.spec.train))
    step([(torch.randn(8, 3, 32, 32), torch.arange(8))], 8)  # makes the tables of the tree
    with Watched(torch.float64):
        step([(torch.randn(8, 3, 32, 32), torch.arange(8))], 8)
        with torch.inference_mode():
            outputs = model.eval()(torch.randn(8, 3, 32, 32))
            level_predictions(model.method, outputs)
            model.method.scores(outputs)


def test_the_mean_of_an_epoch_s_terms_is_taken_on_the_cpu(monkeypatch):
    """It is in float64; only the copy waits for the device."""
    calls = []
    for name in ("cpu", "double"):
        real = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda self, name=name, real=real: calls.append(name) or real(self))
    assert average_terms(torch.ones(3, 1), ["loss"], 0) == {"loss": 1.0}
    assert calls == ["cpu", "double"]


def test_a_single_device_is_made_the_current_one(monkeypatch):
    launched = []
    make_fabric("cpu", "float32")  # imports Fabric
    monkeypatch.setattr("lightning_fabric.Fabric.launch", lambda self: launched.append(self))
    assert launched == [make_fabric("cpu", "float32")]
