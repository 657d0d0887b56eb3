"""Compiled models: the same results, no compilation that the trial has not done, and a warning without a compiler."""

import functools
from itertools import islice

import pytest
import torch

from hierbench.api.registry import find_method
from hierbench.data.loader import Split
from hierbench.models import build_classifier
from hierbench.models.classifier import compile_embedding
from hierbench.training.fabric import IMAGE_TYPES, make_fabric
from hierbench.training.memory import batch_shapes, count_micro_batches
from hierbench.training.step import Step, make_optimizer
from tests.support.jobs import plan_job

CPU = torch.device("cpu")


def test_a_compiled_model_computes_the_same_and_starts_as_it_was(small_shapes, monkeypatch):
    compile_it = torch.compile  # traced forward and backward; a C++ compiler would add half a minute
    monkeypatch.setattr(torch, "compile", functools.partial(compile_it, backend="aot_eager"))
    spec = plan_job(small_shapes).spec
    torch.manual_seed(0)
    model = build_classifier(find_method("ce").cls, small_shapes.hierarchy("height"), "type-I", spec.model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert compile_embedding(model, [(8, 3, 32, 32)], torch.float32, make_fabric("cpu", "float32").autocast)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    images = torch.randn(8, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    fast = model.train()(images)
    model.load_state_dict(before)
    model.compiled_embed = None
    assert torch.allclose(fast, model(images), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("overrides", "precision", "expected"),
    [
        (["train.batch_size=60"], "float32", 1),
        (["train.batch_size=60"], "bfloat16", 1),
        (["train.batch_size=60", "model.input_size=[24,40]"], "bfloat16", 1),
        (["train.batch_size=62", "train.micro_batch=16"], "bfloat16", 2),  # 16, 16, 16 and 14 images
    ],
)
def test_training_compiles_nothing_that_the_trial_has_not(small_shapes, monkeypatch, overrides, precision, expected):
    compile_it, graphs = torch.compile, []

    def counted(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda function, **options: compile_it(function, backend=counted, **options))
    job = plan_job(small_shapes, *overrides, f"train.precision={precision}")
    fabric, spec = make_fabric("cpu", precision), job.spec
    model = build_classifier(find_method("ce").cls, small_shapes.hierarchy("height"), "type-I", spec.model)
    model = model.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(model, spec.train)
    step = Step(model.method, *fabric.setup(model, optimizer), fabric.backward)
    batch, num = spec.train.batch_size, count_micro_batches(spec.train.batch_size, spec.train.micro_batch, 1)
    parts = batch_shapes(batch, num, 1, spec.model.input_size or (32, 32))
    assert compile_embedding(model, parts, IMAGE_TYPES[precision], fabric.autocast)
    assert len(graphs) == expected == len(parts)
    split = Split(small_shapes, "train", spec, CPU)
    batches = split.train_batches([part for rows in torch.arange(2 * batch).split(batch) for part in rows.chunk(num)])
    for _ in range(2):
        step(islice(batches, num), batch)
    assert len(graphs) == expected


def test_a_network_after_as_many_as_pytorch_keeps_is_compiled_too(small_shapes, monkeypatch):
    """It keeps eight, here two."""
    compile_it, graphs = torch.compile, []
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2)
    monkeypatch.setattr(
        torch,
        "compile",
        lambda function, **options: compile_it(function, backend=lambda g, _: graphs.append(g) or g.forward, **options),
    )
    spec = plan_job(small_shapes).spec
    for number in range(3):
        units = spec.model.model_copy(update={"type_i_units": 16 + number})
        model = build_classifier(find_method("ce").cls, small_shapes.hierarchy("height"), "type-I", units)
        assert compile_embedding(model, [(4, 3, 32, 32)], torch.float32, make_fabric("cpu", "float32").autocast)
        assert len(graphs) == number + 1


def test_without_a_compiler_there_is_one_warning(small_shapes, monkeypatch):
    def broken(function, **options):
        def call(images):
            function(images)  # moves the norms' statistics first
            raise RuntimeError("no C++ compiler\nmany lines")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    spec = plan_job(small_shapes).spec
    model = build_classifier(find_method("ce").cls, small_shapes.hierarchy("height"), "type-I", spec.model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.warns(UserWarning, match=r"torch.compile does not work here.*\(no C\+\+ compiler\)") as warned:
        assert not compile_embedding(model, [(8, 3, 32, 32)], torch.float32, make_fabric("cpu", "float32").autocast)
    assert len(warned) == 1 and model.compiled_embed is None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
