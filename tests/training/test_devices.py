"""One job on several devices, in parts of a batch, in bfloat16, compiled or not, with too little memory."""

import functools
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.data.augment import PadAndCrop, RandomResizedCrop
from hierbench.data.loader import Split
from hierbench.data.prepared import find
from hierbench.execution.plan import make_plan
from hierbench.execution.resources import Setting, side_by_side
from hierbench.execution.run_job import can_compute, execute
from hierbench.models import build_classifier
from hierbench.models.classifier import compile_embedding, is_worth_compiling
from hierbench.models.sync_norm import RankNorm
from hierbench.training.fabric import IMAGE_TYPES, make_fabric, resolve_precision
from hierbench.training.feature_extraction import one_thread_each
from hierbench.training.memory import batch_shapes, count_micro_batches, is_out_of_memory
from hierbench.training.results import environment
from hierbench.training.step import Step, make_optimizer
from hierbench.training.trainer import load_checkpoint
from hierbench.utils.files import read_json
from tests.support.run_files import history_of, predictions_of

QUICK = ["train.epochs=2", "train.batch_size=24", "model.backbone=wrn10-1-s4"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data_dir(small_data_dir):
    return small_data_dir


@pytest.fixture(scope="module")
def shapes(data_dir):
    return find("shapes", data_dir)


def job_for(prepared, overrides=(), method="ce", kind="type-I"):
    return make_plan(load_recipe("shapes", [*QUICK, *overrides]), prepared, [find_method(method)], [kind], 1)[0]


def run(job, setting, report=lambda done, total: None):
    assert execute(job, setting, report).state == "done"
    return setting.store.run(job.id)


@pytest.fixture
def forked_ranks(monkeypatch):
    """Lets the processes of a job be forks of one that has everything imported and computes nothing."""
    real = multiprocessing.get_context
    multiprocessing.set_forkserver_preload(["hierbench.execution.ranks", "lightning_fabric", "hierbench.methods.ce"])
    monkeypatch.setattr(multiprocessing, "get_context", lambda method=None: real("forkserver"))


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.thorough)])
def test_two_processes_equal_one_up_to_rounding(request, shapes, data_dir, tmp_path, start):
    """Two steps, of all training images, at small learning rates: over more of them rounding grows by itself.

    With raw inputs two norms get no gradient, for which the processes must not wait.
    """
    if start == "fork":
        request.getfixturevalue("forked_ranks")
    rates = [f"train.lr.type-II.{name}=0.02" for name in ("backbone", "transform", "classifier")]
    overrides = ["train.batch_size=240", "model.wrn_group_input=raw", *rates]
    job = job_for(shapes, overrides, "hafeature", "type-II")
    both, weights, seen = [], [], []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for devices in (1, 2):
        setting = Setting(tmp_path / str(devices), data_dir, threads=1, devices=devices)
        both.append(run(job, setting, lambda done, total: seen.append((done, total))))
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
    shapes, data_dir, tmp_path, forked_ranks, method, override, norm
):
    """It sees the examples of both."""
    overrides = [override, "train.batch_size=240", "train.epochs=1"]  # one step
    variances = []
    for devices in (1, 2):
        setting = Setting(tmp_path / str(devices), data_dir, threads=1, devices=devices)
        ended = run(job_for(shapes, overrides, method), setting)
        variances.append(load_checkpoint(ended.folder / "checkpoint.pt")["best"][f"{norm}.running_var"])
    assert torch.allclose(*variances, rtol=1e-6, atol=1e-6)


@pytest.mark.thorough
def test_two_processes_train_a_library_s_network_of_which_a_part_gets_no_gradient(
    shapes, data_dir, tmp_path, forked_ranks
):
    """The norm of a ConvNeXt's head comes after its feature map."""
    overrides = ["model.backbone=timm:test_convnext", "model.input_size=[32,32]", "train.batch_size=240"]
    losses = []
    for devices in (1, 2):
        setting = Setting(tmp_path / str(devices), data_dir, threads=1, devices=devices)
        losses.append(history_of(run(job_for(shapes, overrides), setting))[0]["train_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_a_run_of_two_processes_resumes_after_a_kill(shapes, data_dir, tmp_path, forked_ranks):
    job, setting = job_for(shapes), Setting(tmp_path, data_dir, threads=1, devices=2)
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
    two = run(job, setting, lambda done, total: seen.append(done))
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
def test_an_error_in_one_of_two_processes_is_the_job_s(shapes, data_dir, tmp_path, forked_ranks, overrides, error):
    setting = Setting(tmp_path, data_dir, threads=1, devices=2)
    assert execute(job_for(shapes, overrides), setting, lambda done, total: None).error.startswith(error)


def test_a_norm_over_ranks_keeps_the_following_layers():
    """As timm's norms, which activate too."""
    from timm.layers import BatchNormAct2d

    norm = BatchNormAct2d(3).eval()
    norm.running_mean.uniform_()
    images = torch.randn(2, 3, 4, 4)
    ours = RankNorm(norm)
    assert torch.equal(ours(images), norm(images)) and ours.state_dict().keys() == norm.state_dict().keys()


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


def test_a_dead_device_is_noticed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: 1 / 0)
    assert can_compute("cpu") and not can_compute("cuda")


@pytest.mark.parametrize("crop", [PadAndCrop(4, "reflect", flip=True), RandomResizedCrop(flip=True)])
def test_parts_of_a_batch_are_augmented_as_the_whole(shapes, crop):
    images, rows = torch.from_numpy(np.array(shapes.arrays("train")[0])), torch.randperm(240)[:64]
    torch.manual_seed(3)
    batch = crop(images, rows)
    for first, last in ((0, 20), (20, 64)):
        torch.manual_seed(3)
        assert torch.equal(crop(images, rows[first:last], 64, first), batch[first:last])


@pytest.mark.parametrize("name", ["train", "val"])
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_the_feed_gives_the_same_batches_resident_and_streamed_and_divided(shapes, name, num_ranks):
    spec, order = job_for(shapes).spec, torch.randperm(240)

    def batches(rank, num_ranks, resident):
        split = Split(shapes, name, spec, CPU, rank, num_ranks, resident)
        torch.manual_seed(0)
        fed = split.train_batches(order.split(24)) if name == "train" else split.eval_batches()
        return [(images.clone(), labels.clone()) for images, labels in fed]

    undivided = batches(0, 1, True)
    parts = [[batches(rank, num_ranks, resident) for rank in range(num_ranks)] for resident in (True, False)]
    for resident_part, streamed_part in zip(*parts, strict=True):
        for (images, labels), (same, same_labels) in zip(resident_part, streamed_part, strict=True):
            assert torch.equal(images, same) and torch.equal(labels, same_labels)
    if name == "val":
        shares = [images for part in parts[0] for images, _ in part]
        assert torch.equal(torch.cat(shares), torch.cat([images for images, _ in undivided]))
        return
    for (images, labels), *shares in zip(undivided, *parts[0], strict=True):
        assert torch.equal(images, torch.cat([share for share, _ in shares]))
        # Labels of the whole batch, for the method sees it whole.
        assert all(torch.equal(labels, same_labels) for _, same_labels in shares)


# --- parts of a batch ---


def test_gradients_of_the_parts_add_up_to_those_of_the_batch(shapes):
    """Without batch norm a divided batch is the same computation."""
    torch.manual_seed(0)
    method = find_method("haframe").cls(shapes.hierarchy("height"), 48)
    features, targets = torch.randn(90, 48), torch.randint(48, (90,))

    def gradient(parts):
        x = nn.Parameter(features.clone())
        step = Step(method, lambda rows: method(x[rows]), torch.optim.SGD([x], lr=1.0))
        step([(rows, targets[rows]) for rows in torch.arange(90).chunk(parts)], 90)
        return features - x.detach()

    assert torch.allclose(gradient(4), gradient(1), rtol=1e-4, atol=1e-7)


def test_a_divided_batch_is_another_job_and_trains(shapes, data_dir, tmp_path):
    """One step, as for bfloat16."""
    short = ["train.epochs=1", "train.batch_size=240"]
    undivided, divided = job_for(shapes, short), job_for(shapes, [*short, "train.micro_batch=8"])
    assert undivided.id != divided.id
    both = [history_of(run(job, Setting(tmp_path, data_dir))) for job in (undivided, divided)]
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


def test_a_job_out_of_memory_names_a_micro_batch_that_fits(shapes, data_dir, tmp_path, monkeypatch):
    def heavy(*args, **kwargs):
        model = build_classifier(*args, **kwargs)
        model.backbone = Heavy(model.backbone)
        return model

    monkeypatch.setattr("hierbench.training.step.build_classifier", heavy)
    job = job_for(shapes, ["train.batch_size=96"])
    error = execute(job, Setting(tmp_path, data_dir), lambda done, total: None).error
    assert error.startswith(
        "the device has too little memory for 96 images at a time; 24 fit: --set train.micro_batch=24 "
    )
    assert Setting(tmp_path, data_dir).store.run(job.id).status["error"] == error
    run(job_for(shapes, ["train.batch_size=96", "train.micro_batch=24"]), Setting(tmp_path, data_dir))


# --- precision ---


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


def test_bfloat16_is_another_job_and_the_method_stays_in_float32(shapes, data_dir, tmp_path, monkeypatch):
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
    exact, rounded = job_for(shapes, short), job_for(shapes, [*short, "train.precision=bfloat16"])
    assert exact.id != rounded.id and rounded.spec.content()["train"]["precision"] == "bfloat16"
    convolved = []
    monkeypatch.setattr(nn.functional, "leaky_relu", _recording(nn.functional.leaky_relu, convolved))
    histories = [history_of(run(job, Setting(tmp_path, data_dir))) for job in (exact, rounded)]
    assert set(seen) == {(torch.float32, torch.float32, False)}
    assert {torch.float32, torch.bfloat16} <= set(convolved)
    for row, rounded_row in zip(*histories, strict=True):
        assert row["train_loss"] == pytest.approx(rounded_row["train_loss"], rel=0.02) and row != rounded_row


def _recording(function, types):
    def recorded(x, *args, **kwargs):
        types.append(x.dtype)
        return function(x, *args, **kwargs)

    return recorded


# --- compiled ---


def test_a_compiled_model_computes_the_same_and_starts_as_it_was(shapes, monkeypatch):
    compile_it = torch.compile  # traced forward and backward; a C++ compiler would add half a minute
    monkeypatch.setattr(torch, "compile", functools.partial(compile_it, backend="aot_eager"))
    spec = job_for(shapes).spec
    torch.manual_seed(0)
    model = build_classifier(find_method("ce").cls, shapes.hierarchy("height"), "type-I", spec.model)
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


def test_a_short_training_of_a_small_network_is_not_compiled():
    small, large = nn.Linear(9, 9), nn.Linear(4000, 4000)
    worth = [is_worth_compiling(network, steps) for network in (small, large) for steps in (2999, 3000)]
    assert worth == [False, True, True, True]


@pytest.mark.parametrize(
    ("overrides", "precision", "expected"),
    [
        (["train.batch_size=60"], "float32", 1),
        (["train.batch_size=60"], "bfloat16", 1),
        (["train.batch_size=60", "model.input_size=[24,40]"], "bfloat16", 1),
        (["train.batch_size=62", "train.micro_batch=16"], "bfloat16", 2),  # 16, 16, 16 and 14 images
    ],
)
def test_training_compiles_nothing_that_the_trial_has_not(shapes, monkeypatch, overrides, precision, expected):
    compile_it, graphs = torch.compile, []

    def counted(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda function, **options: compile_it(function, backend=counted, **options))
    job = job_for(shapes, [*overrides, f"train.precision={precision}"])
    fabric, spec = make_fabric("cpu", precision), job.spec
    model = build_classifier(find_method("ce").cls, shapes.hierarchy("height"), "type-I", spec.model)
    model = model.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(model, spec.train)
    step = Step(model.method, *fabric.setup(model, optimizer), fabric.backward)
    batch, num = spec.train.batch_size, count_micro_batches(spec.train.batch_size, spec.train.micro_batch, 1)
    parts = batch_shapes(batch, num, 1, spec.model.input_size or (32, 32))
    assert compile_embedding(model, parts, IMAGE_TYPES[precision], fabric.autocast)
    assert len(graphs) == expected == len(parts)
    split = Split(shapes, "train", spec, CPU)
    batches = split.train_batches([part for rows in torch.arange(2 * batch).split(batch) for part in rows.chunk(num)])
    for _ in range(2):
        step(islice(batches, num), batch)
    assert len(graphs) == expected


def test_a_network_after_as_many_as_pytorch_keeps_is_compiled_too(shapes, monkeypatch):
    """It keeps eight, here two."""
    compile_it, graphs = torch.compile, []
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2)
    monkeypatch.setattr(
        torch,
        "compile",
        lambda function, **options: compile_it(function, backend=lambda g, _: graphs.append(g) or g.forward, **options),
    )
    spec = job_for(shapes).spec
    for number in range(3):
        units = spec.model.model_copy(update={"type_i_units": 16 + number})
        model = build_classifier(find_method("ce").cls, shapes.hierarchy("height"), "type-I", units)
        assert compile_embedding(model, [(4, 3, 32, 32)], torch.float32, make_fabric("cpu", "float32").autocast)
        assert len(graphs) == number + 1


def test_without_a_compiler_there_is_one_warning(shapes, monkeypatch):
    def broken(function, **options):
        def call(images):
            function(images)  # moves the norms' statistics first
            raise RuntimeError("no C++ compiler\nmany lines")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    spec = job_for(shapes).spec
    model = build_classifier(find_method("ce").cls, shapes.hierarchy("height"), "type-I", spec.model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.warns(UserWarning, match=r"torch.compile does not work here.*\(no C\+\+ compiler\)") as warned:
        assert not compile_embedding(model, [(8, 3, 32, 32)], torch.float32, make_fabric("cpu", "float32").autocast)
    assert len(warned) == 1 and model.compiled_embed is None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# --- jobs side by side ---


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
