"""Training under `--protocol authors` against the published pipeline of `tests/support/published.py`: equal losses.

In float64, where two right programs part by rounding alone and a difference shows at the first steps.
"""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.data.prepared import Prepared
from hierbench.data.source import shipped_paths
from hierbench.execution.jobs import make_jobs
from hierbench.execution.parameters import stand_in_tree
from hierbench.models import build_classifier
from hierbench.runs.store import Store
from hierbench.training.step import make_optimizer, set_rates
from hierbench.training.trainer import seed_for, train
from tests.support import published
from tests.support.run_files import history_of

MODELS = [(name, kind) for name in ("ce", "flamingo", "hafeature", "haframe") for kind in find_method(name).cls.types]
DISSIMILAR = {"cifar100": (1, 2, 3, 4), "fgvc": (2,)}
STEPS, BATCH = 6, 8
PLAIN = ["model.backbone=wrn10-1", "augment.pad=0", "augment.last_offset=true", "augment.flip=false"]


@pytest.fixture(autouse=True)
def _more_steps(request, monkeypatch):
    if request.config.option.thorough:
        monkeypatch.setattr(sys.modules[__name__], "STEPS", 12)


@pytest.fixture
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """CIFAR-100's classes with one batch of noise per split, so that an epoch is one step."""
    folder, random = tmp_path_factory.mktemp("noise"), np.random.default_rng(0)
    splits = ("train", "val", "test")
    for split in splits:
        np.save(folder / f"{split}-images.npy", random.integers(0, 256, (BATCH, 3, 16, 16), dtype=np.uint8))
        np.save(folder / f"{split}-labels.npy", random.permutation(100)[:BATCH])
    paths = [list(path) for path in shipped_paths("cifar100").values()]
    sizes = dict.fromkeys(splits, BATCH)
    return Prepared(folder, {"digest": "", "paths": paths, "image_size": [16, 16], "splits": sizes, "remark": ""})


def planned(prepared, dataset, method, kind, overrides=()):
    """The job of a model under the authors' protocol; what is laid over it is not part of either protocol."""
    overrides = [f"train.epochs={STEPS}", f"train.batch_size={BATCH}", "model.weights=none", *overrides]
    recipe = load_recipe(dataset, overrides, "authors")
    return make_jobs(recipe, prepared, [find_method(method)], [kind], 1)[0]


def new_model(job, hierarchy):
    cls = job.method.cls
    params = cls.Params.model_validate(job.spec.method.params)
    return build_classifier(cls, hierarchy, job.spec.type, job.spec.model, params)


def counterpart(model, job):
    """The published network with a model's parameters, and its loss of features, targets and an order of the batch."""
    method, hierarchy, dataset = model.method, model.method.hierarchy, job.spec.dataset.name
    sizes, name, width = hierarchy.level_sizes, job.spec.method.name, method.num_features
    share = width // len(sizes)
    split = [share] * (len(sizes) - 1) + [width - share * (len(sizes) - 1)]
    heads = {
        "ce": [(width, sizes[-1])],
        "flamingo": [(width - share * level, size) for level, size in enumerate(sizes)],
        "hafeature": [(width, size) for size in sizes],
        "haframe": [],
    }[name]
    if dataset == "fgvc":
        (backbone, channels), momentum = published.residual_network(), 0.1
    else:
        depth, wide = map(int, job.spec.model.backbone.removeprefix("wrn").split("-"))
        momentum = 0.001 if (depth, wide) == (28, 8) else 0.1
        backbone, channels = published.wide_resnet(depth, wide, momentum)
    network = published.Network(backbone, channels, job.spec.type, dataset, sizes[-1], heads, momentum)
    of_method = list(method.parameters())
    if name == "hafeature":  # ours are one matrix
        of_method = [part for both in zip(*(tensor.split(sizes) for tensor in of_method), strict=True) for part in both]
    with torch.no_grad():
        ours = [*model.backbone.parameters(), *model.features.parameters(), *of_method]
        for theirs, value in zip(network.parameters(), ours, strict=True):
            assert theirs.shape == value.shape
            theirs.data = value.clone()
    network.to(of_method[0].dtype if of_method else method.frame.dtype)  # the statistics of its norms
    levels, parents = torch.tensor(hierarchy.level_targets), [torch.tensor(above) for above in hierarchy.parents]
    losses = {
        "ce": lambda x, y, order: published.cross_entropy_loss(network, x, y),
        "flamingo": lambda x, y, order: published.flamingo_loss(network, x, y, levels, split),
        "hafeature": lambda x, y, order: published.hafeature_loss(
            network, x, y, levels, parents, order, DISSIMILAR[dataset]
        ),
        "haframe": lambda x, y, order: published.haframe_loss(
            x, y, method.frame.clone(), method.similarity(torch.arange(len(method.frame))), method.params.alpha
        ),
    }
    return network, losses[name]


def losses_of_training(job, prepared, folder):
    run = Store(folder).run(job.id)
    run.plan(job.spec.content())
    train(job, prepared, run, "cpu", lambda done, total: None)
    return [row["train_loss"] for row in history_of(run)]


def losses_of_published(job, prepared):
    """From the same initial weights, on the same batches; the augmentation is switched off."""
    torch.manual_seed(seed_for(job.spec.seed, 0))
    network, loss = counterpart(new_model(job, prepared.hierarchy("height")), job)
    pixels, labels = (torch.from_numpy(np.array(array)) for array in prepared.arrays("train"))
    mean, std = (torch.tensor(values)[:, None, None] for values in (job.spec.augment.mean, job.spec.augment.std))
    batches, orders = [], []
    for epoch in range(STEPS):
        torch.manual_seed(seed_for(job.spec.seed, 1 + epoch))
        rows = torch.randperm(BATCH)
        batches.append(((pixels[rows] / 255.0 - mean) / std, labels[rows]))
        orders.append(torch.randperm(BATCH))  # of the neighbours whose dissimilarity counts
    return published.trajectory(network, batches, lambda x, y, epoch: loss(x, y, orders[epoch]))


@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize(("method", "kind"), MODELS)
def test_cifar100_trains_as_published(noise, tmp_path, method, kind):
    job = planned(noise, "cifar100", method, kind, PLAIN)
    ours, theirs = losses_of_training(job, noise, tmp_path), losses_of_published(job, noise)
    assert len(ours) == STEPS and np.abs(np.subtract(ours, theirs)).max() < 1e-10
    assert theirs[-1] < theirs[0]


@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize(
    "override", ["model.wrn_group_input=activated", "train.lr.type-II.transform=0.02", "train.weight_decay=0"]
)
def test_a_difference_shows(noise, tmp_path, override):
    job = planned(noise, "cifar100", "ce", "type-II", [*PLAIN, override])
    ours, theirs = losses_of_training(job, noise, tmp_path), losses_of_published(job, noise)
    assert np.abs(np.subtract(ours, theirs)).max() > 1e-6


def largest_difference(job, hierarchy, steps, size=32):
    """Of the losses of a float32 model from the published ones, when both go on in float64; one epoch per step."""
    torch.manual_seed(0)
    model = new_model(job, hierarchy).double()
    for block in model.backbone.modules():
        if hasattr(block, "bn3"):  # as in trained weights; a network just drawn magnifies rounding tenfold each step
            nn.init.constant_(block.bn3.weight, 0.1)
    network, loss = counterpart(model, job)
    images, targets = torch.randn(4, 3, size, size, dtype=torch.float64), torch.randperm(100)[:4]
    train = job.spec.train.model_copy(update={"epochs": steps})
    optimizer, ours, orders = make_optimizer(model, train), [], []
    for step in range(steps):
        set_rates(optimizer, train, step)
        optimizer.zero_grad()
        outputs = model(images)
        torch.manual_seed(step)
        orders.append(torch.randperm(4))
        torch.manual_seed(step)
        objective = sum(model.method.loss(outputs, targets).values())
        objective.backward()
        optimizer.step()
        ours.append(objective.item())
    theirs = published.trajectory(network, [(images, targets)] * steps, lambda x, y, step: loss(x, y, orders[step]))
    return np.abs(np.subtract(ours, theirs)).max()


@pytest.mark.parametrize(
    ("method", "kind"),
    [pytest.param("hafeature", "type-I", marks=pytest.mark.thorough), ("haframe", "type-II")],
)
def test_fgvc_trains_as_published(request, shapes, method, kind):
    steps = 3 if request.config.option.thorough else 2
    tree = stand_in_tree(load_recipe("fgvc").expected.level_sizes)
    assert largest_difference(planned(shapes, "fgvc", method, kind), tree, steps) < 1e-10


@pytest.mark.fidelity
@pytest.mark.parametrize("dataset", ["cifar100", "fgvc"])
@pytest.mark.parametrize(("method", "kind"), MODELS)
def test_the_whole_networks_train_as_published(shapes, cifar100, dataset, method, kind):
    tree = cifar100 if dataset == "cifar100" else stand_in_tree(load_recipe(dataset).expected.level_sizes)
    difference = largest_difference(planned(shapes, dataset, method, kind), tree, steps=20)
    print(f"{dataset} {method} {kind}: {difference:.1e}")
    assert difference < 1e-10
