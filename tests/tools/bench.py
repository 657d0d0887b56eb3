"""The speed of this machine: training steps, methods, evaluation, CRM, the frame and preparing, measured in turn.

    uv run python tests/tools/bench.py [--quick] [--json] [--device auto|cpu|cuda] [--peers FOLDER]

takes minutes; with --quick one round instead of three, for a rough estimate.

Shapes: B batch, N examples, D features, K classes.
"""

import argparse
import json
import math
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from hierbench.api.method import Method
from hierbench.api.registry import LoadedMethod, find_all
from hierbench.config.rates import Rates
from hierbench.config.sections import FEATURE_TYPES, Augment, FeatureType, Model, Precision
from hierbench.config.spec import TrainSpec
from hierbench.data.image import decode_file
from hierbench.data.source import Piece, Source, shipped_paths
from hierbench.data.writer import write_images
from hierbench.execution import timing
from hierbench.execution.parameters import stand_in_tree
from hierbench.execution.resources import choose_device
from hierbench.execution.timing import Workload, measure_seconds
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.table import Line, Number, Table, Text
from hierbench.methods.ce import CrossEntropy
from hierbench.methods.crm import CRM
from hierbench.methods.haframe import HAFrame, hierarchy_aware_frame
from hierbench.metrics import Tally, evaluate
from hierbench.models import build_backbone
from hierbench.models.classifier import compile_embedding
from hierbench.training.fabric import IMAGE_TYPES, make_fabric, resolve_precision
from hierbench.training.posthoc import rescored_chunks
from hierbench.training.step import Step, make_optimizer
from hierbench.utils.console import Meter
from hierbench.utils.processes import num_cores

INAT = (3, 4, 9, 34, 57, 72, 1010)  # nodes per level of iNaturalist 2019
SMALL_IMAGES = Augment(crop="pad", pad=4, pad_mode="reflect", flip=True, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
LARGE_IMAGES = Augment(crop="random-resized", flip=True, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
PREPARED_SIZE = (224, 224)
RATE = 1e-4  # small, so that the loss on noise stays finite
FLOAT32: Precision = "float32"
UNITS = 600  # D of type I, as in the paper
LIMIT = 10.0  # seconds after which no further round of a type's steps begins
# Between two clock readings:
STEPS = 10  # on CUDA: as in an epoch, nothing waits for the device in between
BESIDES = 5  # head, loss, metrics and data path: a hundredth of a step
PASSES = 3  # of a method alone


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    backbone: str = "wrn28-2"  # of the steps, on 32x32 images of CIFAR-100's tree
    batch: int = 64
    rounds: int = 3  # of steps and evaluation, all in turn; medians are taken
    examples: int = 40_000  # N of evaluation and CRM
    levels: tuple[int, ...] = INAT  # of their tree and of the frame's
    photographs: int = 192  # prepared in a round; with fewer, starting the threads is part of the time
    prepare_rounds: int = 5  # of half a second
    large: tuple[tuple[str, int], ...] = (("resnet50", 256), ("wrn28-8", 64))  # (backbone, batch) at 224x224 and 32x32
    frozen: str = "torchvision:mobilenet_v2"  # whose features are trained on: 1280 channels, 200 classes
    frozen_steps: int = 40  # of a round
    method_batch: int = 256  # B of the methods alone, on the tree of `levels`
    method_rounds: int = 7  # of a tenth of a second per method
    matmul: int = 8192  # side of the matrices whose product gives the rate of a CUDA device


QUICK = Sizes(rounds=1)


def in_turn(
    functions: Sequence[Callable[[], object]], rounds: int, device: str, limit: float = math.inf
) -> list[list[float]]:
    """Return seconds of each function in each round, [functions][rounds]; after `limit` seconds no round begins.

    Functions run once before. They alternate, so that drifts of the machine's speed affect all alike.
    """
    for function in dict.fromkeys(functions):
        function()
    start, seconds = time.perf_counter(), list[list[float]]()
    while not seconds or (len(seconds) < rounds and time.perf_counter() - start < limit):
        seconds.append([measure_seconds(function, device) for function in functions])
    return [list(column) for column in zip(*seconds, strict=True)]


def median_ratio(above: Iterable[float], below: Iterable[float]) -> float:
    """Return the median over rounds of the ratio."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def head_pass(method: Method, targets: Tensor, times: int = 1) -> Callable[[], Any]:
    """Return a function that does forward pass, loss and backward pass of a method alone, and returns its outputs.

    It gets noise in place of features [B, D], `times` times; `targets` are [B].
    """
    features = torch.randn(len(targets), method.num_features, device=targets.device)

    def call() -> Any:
        for _ in range(times):
            method.zero_grad()
            outputs = method(features.detach().requires_grad_())
            torch.stack(list(method.loss(outputs, targets).values())).sum().backward()
        return outputs

    return call


class Trainee(timing.Trainee):
    """A model set up as jobs are, with Fabric and, on CUDA, compiled; and the parts of a step outside the network."""

    def __init__(self, work: Workload, method: type[Method], feature_type: FeatureType) -> None:
        super().__init__(work, method, feature_type)
        self.head = head_pass(self.model.method, work.targets)
        fabric = make_fabric(work.device, work.precision)
        rates = Rates(backbone=RATE, transform=RATE, classifier=RATE)
        train = TrainSpec(epochs=1, batch_size=work.batch, momentum=0.9, weight_decay=5e-4, lr=rates)
        wrapped, optimizer = fabric.setup(self.model, make_optimizer(self.model, train))
        self.step = Step(self.model.method, wrapped, optimizer, fabric.backward)
        if work.device == "cuda" and not work.model.frozen:
            shape = (work.batch, 3, *(work.model.input_size or work.image_size))
            compile_embedding(self.model, [shape], IMAGE_TYPES[work.precision], fabric.autocast)

    def train(self, steps: int = 1) -> None:
        """Gather, augment and normalise batches, and do a training step on each."""
        self.model.train()
        for part in self.work.train_batches(steps):
            self.step([part], self.work.batch)

    def besides_the_model(self, times: int = 1) -> None:
        """Do everything except backbone, feature extractor and optimizer: data path, head, loss, and metrics."""
        for _, targets in self.work.train_batches(times):
            outputs = self.head()
            with torch.inference_mode():
                tally = Tally(self.work.hierarchy)
                tally.add(self.model.method.scores(outputs), targets)
                tally.metrics()


def bare_backbone(work: Workload) -> Callable[[], None]:
    """Return a function that does forward and backward pass of the backbone alone, on a prepared batch."""
    backbone = build_backbone(work.model).to(work.device).to(memory_format=torch.channels_last)
    forward = torch.compile(backbone, dynamic=False) if work.device == "cuda" else backbone
    images, _ = next(work.train_batches())

    def call() -> None:
        backbone.zero_grad()
        with work.autocast():
            features = forward(images)
        features.float().mean().backward()

    return call


def bench(device: str, sizes: Sizes) -> dict[str, Any]:
    """Measure this machine, with progress.

    Returns:
        JSON types: "device", its "name", "threads", "precision" of auto, "backbone" and "batch" of the steps; "steps"
        as `measure_steps`; "methods": their "batch" and "classes", and "rows" as `measure_methods`;
        "features" as `measure_features`; "evaluation": "metrics_s", "crm_s" with the metrics of its scores, "frame_s",
        and "extra_mib" that the first two took on top of the scores; "prepare" as `_prepare`; "card" as `measure_card`,
        None but on CUDA; "peak_mib" of this process; "seconds" that the measurement took.
    """
    start, tree = time.perf_counter(), stand_in_tree(sizes.levels)
    torch.manual_seed(0)
    parts: dict[str, Callable[[], Any]] = {
        "evaluation": lambda: _evaluation(device, sizes, tree),  # first, while the peak of the memory is its own
        "steps": lambda: measure_steps(device, sizes),
        "methods": lambda: {
            "batch": sizes.method_batch,
            "classes": tree.num_classes,
            "rows": measure_methods(device, sizes.method_rounds, sizes.method_batch, tree),
        },
        "features": lambda: measure_features(device, sizes.rounds, sizes),
        "prepare": lambda: _prepare(sizes),
        **({"card": lambda: measure_card(device, sizes)} if device == "cuda" else {}),
    }
    report: dict[str, Any] = {
        "device": device,
        "name": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "precision": resolve_precision("auto", device),
        "backbone": sizes.backbone,
        "batch": sizes.batch,
        "card": None,
    }
    with Meter("measuring", len(parts)) as meter:
        for number, (name, measure) in enumerate(parts.items(), 1):
            meter.part(name, 0.0, 1.0)
            meter.say(f"measuring: {name} ({number} of {len(parts)})")
            report[name] = measure()
            meter.end_part(name, 1.0)
    return report | {"peak_mib": _peak_mib(), "seconds": time.perf_counter() - start}


def trained_methods() -> list[type[Method]]:
    """Return the classes of all methods that are found and trained, in the order of their names."""
    classes = (method.cls for method in find_all() if isinstance(method, LoadedMethod))
    return [cls for cls in classes if issubclass(cls, Method)]


def measure_steps(device: str, sizes: Sizes) -> list[dict[str, Any]]:
    """Measure all methods on all types in turn, in each round the bare backbone before every one.

    Returns:
        A dict per precision, method and type: "step_ms" of a batch from gather to SGD, "bare_ms" forward and backward
        pass of the backbone alone, and the medians over rounds of "ratio", the step over the bare, and of "share",
        head, loss, metrics and data path over the bare; "peak_mib" of the device, None but on CUDA.
    """
    tree, rows = Hierarchy.from_paths(shipped_paths("cifar100")), list[dict[str, Any]]()
    for precision, feature_type in product(dict.fromkeys([resolve_precision("auto", device), FLOAT32]), FEATURE_TYPES):
        work = Workload(Model(backbone=sizes.backbone), SMALL_IMAGES, (32, 32), tree, sizes.batch, device, precision)
        bare, functions = bare_backbone(work), list[Callable[[], object]]()
        trainees = [Trainee(work, cls, feature_type) for cls in trained_methods() if feature_type in cls.types]
        for trainee in trainees:  # each next to the backbone: the machine's speed drifts
            functions += [bare, trainee.train, partial(trainee.besides_the_model, BESIDES)]
        columns = iter(in_turn(functions, sizes.rounds, device, LIMIT))
        for trainee, alone, steps_s, besides in zip(trainees, columns, columns, columns, strict=True):
            row = {"method": trainee.model.method.name, "type": feature_type, "precision": precision}
            row |= {
                "step_ms": 1000 * statistics.median(steps_s),
                "bare_ms": 1000 * statistics.median(alone),
                "ratio": median_ratio(steps_s, alone),
                "share": median_ratio(besides, alone) / BESIDES,
                "peak_mib": _device_peak_mib(trainee) if device == "cuda" else None,
            }
            rows.append(row)
    return rows


def _device_peak_mib(trainee: Trainee) -> float:
    """Return the CUDA device's peak memory during a step."""
    torch.cuda.reset_peak_memory_stats()
    trainee.train()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**20


def measure_methods(device: str, rounds: int, batch: int, tree: Hierarchy) -> list[dict[str, Any]]:
    """Measure head and loss of every trained method in float32: D = K, as type II has it, where it can.

    Returns:
        A dict per method: its name, "features" D, "ms" of a forward and backward pass, and "ratio" to HAFrame's, a
        median over rounds; in each round HAFrame is measured right before every one.
    """
    targets = torch.randint(tree.num_classes, (batch,)).to(device)

    def passes(cls: type[Method]) -> tuple[int, Callable[[], Any]]:
        num_features = tree.num_classes if "type-II" in cls.types else UNITS
        method = cls(tree, num_features, cls.Params()).to(device).train()
        return num_features, head_pass(method, targets, PASSES)

    _, haframe = passes(HAFrame)
    measured = {cls.name: passes(cls) for cls in trained_methods()}
    columns = iter(in_turn([call for _, alone in measured.values() for call in (haframe, alone)], rounds, device))
    return [
        {
            "method": name,
            "features": num_features,
            "ms": 1000 * statistics.median(alone) / PASSES,
            "ratio": median_ratio(alone, reference),
        }
        for (name, (num_features, _)), reference, alone in zip(measured.items(), columns, columns, strict=True)
    ]


def measure_features(device: str, rounds: int, sizes: Sizes) -> list[dict[str, Any]]:
    """Measure training on cached features in float32, with cross-entropy, against the same layers in a plain loop.

    Both sides read features that stay in the device's memory, from drawing the rows to the last step: the engine as
    jobs do, the plain loop by picking the rows of a batch.

    Returns:
        A dict per type: "step_ms" of the engine, "bare_ms" of the plain loop, "ratio" of their speeds, a median over
        rounds: 1 is as fast as the plain loop.
    """
    model, tree, steps = Model(backbone=sizes.frozen, frozen=True), stand_in_tree((10, 200)), sizes.frozen_steps
    work = Workload(model, SMALL_IMAGES, (32, 32), tree, 64, device, "float32", batches=steps)
    rows = []
    for feature_type in FEATURE_TYPES:
        engine = partial(Trainee(work, CrossEntropy, feature_type).train, steps)
        engine_s, bare_s = in_turn([engine, _plain_loop(work, feature_type)], rounds, device)
        rows.append(
            {
                "type": feature_type,
                "step_ms": 1000 * statistics.median(engine_s) / steps,
                "bare_ms": 1000 * statistics.median(bare_s) / steps,
                "ratio": median_ratio(bare_s, engine_s),
            }
        )
    return rows


def _plain_loop(work: Workload, feature_type: FeatureType) -> Callable[[], None]:
    """Return a function that does a step on each batch of rows, with nothing around the layers."""
    model = timing.Trainee(work, CrossEntropy, feature_type).model
    network = nn.Sequential(model.features, model.method.get_submodule("classifier"))
    sgd = torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4, fused=True)
    images, labels = work.split.images, work.split.labels

    def epoch() -> None:
        for rows in torch.randint(len(labels), (len(labels),)).to(work.device).split(work.batch):
            sgd.zero_grad()
            functional.cross_entropy(network(images.index_select(0, rows)), labels[rows]).backward()
            sgd.step()

    return epoch


def _evaluation(device: str, sizes: Sizes, tree: Hierarchy) -> dict[str, Any]:
    """Measure metrics, CRM with the metrics of its scores, and the frame, in turn, for N scores of K classes."""
    place, num = torch.device(device), sizes.examples
    scores = torch.randn(num, tree.num_classes, device=place)
    targets, posthoc = torch.arange(num, device=place) % tree.num_classes, CRM(tree)

    def metrics() -> None:
        evaluate(scores, targets, tree)

    def crm() -> None:
        tally = Tally(tree)
        for _, chunk, chunk_targets in rescored_chunks(posthoc, scores, targets, place):
            tally.add(chunk, chunk_targets)
        tally.metrics()

    def frame() -> None:
        hierarchy_aware_frame(tree.distances, 3.0)

    before = _peak_mib()
    metrics()
    crm()
    after = _peak_mib()
    metrics_s, crm_s, frame_s = map(statistics.median, in_turn([metrics, crm, frame], sizes.rounds, device))
    return {
        "examples": num,
        "classes": tree.num_classes,
        "metrics_s": metrics_s,
        "crm_s": crm_s,
        "frame_s": frame_s,
        "extra_mib": after - before,
    }


def _peak_mib() -> float:
    """Return the most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _prepare(sizes: Sizes) -> dict[str, Any]:
    """Measure images per second through `write_images` and through torchvision's decoder alone, in turn."""
    width, height = 500, 375
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [photograph(folder / f"{index}.jpg", width, height, index) for index in range(16)]
        files = [files[index % len(files)] for index in range(sizes.photographs)]
        ours, bare = prepare_seconds(files, folder, sizes.prepare_rounds)
    return {
        "width": width,
        "height": height,
        "images_per_s": len(files) / statistics.median(ours),
        "decoded_per_s": len(files) / statistics.median(bare),
        "ratio": median_ratio(bare, ours),
    }


def prepare_seconds(files: list[Path], folder: Path, rounds: int) -> list[list[float]]:
    """Return the seconds per round of `write_images` over JPEG files, into `folder`, and of decoding by torchvision."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    pieces = [Piece("train", row, partial(decode_file, file, PREPARED_SIZE)) for row, file in enumerate(files)]
    none = np.zeros(0, dtype=np.int64)
    labels = {"train": np.zeros(len(files), dtype=np.int64), "val": none, "test": none}
    source = Source({"a": ("a",), "b": ("b",)}, labels, PREPARED_SIZE, lambda: iter(pieces))

    def ours() -> None:
        write_images(source, Path(tempfile.mkdtemp(dir=folder)), lambda _: None)  # deleted later: not part of it

    def bare() -> None:
        with ThreadPoolExecutor(num_cores()) as pool:
            for _ in pool.map(lambda file: decode_jpeg(read_file(str(file)), ImageReadMode.RGB), files):
                pass

    return in_turn([ours, bare], rounds, "cpu")


def photograph(path: Path, width: int, height: int, seed: int) -> Path:
    """Write a JPEG as large as a photograph's: smooth noise at several scales and fine grain, quality 90."""
    random = np.random.default_rng(seed)
    pixels = np.full((height, width, 3), 128.0, dtype=np.float32)
    for scale, strength in ((64, 45.0), (16, 20.0), (4, 8.0)):
        small = random.standard_normal((height // scale + 2, width // scale + 2, 3)) * strength + 128.0
        smooth = Image.fromarray(small.clip(0, 255).astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
        pixels += np.asarray(smooth, dtype=np.float32) - 128.0
    pixels += random.standard_normal((height, width, 1), dtype=np.float32) * 6.0
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, "JPEG", quality=90)
    return path


def measure_card(device: str, sizes: Sizes) -> dict[str, float]:
    """Measure what `bench` measures on CUDA alone; with small sizes it runs on a CPU, too.

    ResNet-50 is trained with augmentation; "wrn28_8_share" is the share of the rate of bfloat16 products,
    "matmul_tflops", that training a WideResNet-28-8 reaches.
    """
    from torch.utils.flop_counter import FlopCounterMode

    precision = resolve_precision("auto", device)
    matrix = torch.randn(sizes.matmul, sizes.matmul, device=device, dtype=torch.bfloat16)
    (products,) = in_turn([lambda: matrix @ matrix], 10, device)
    rate = 2 * sizes.matmul**3 / statistics.median(products)
    tree = Hierarchy.from_paths(shipped_paths("cifar100"))
    places = ((LARGE_IMAGES, PREPARED_SIZE), (SMALL_IMAGES, (32, 32)))
    speeds = []
    for (backbone, batch), (augment, size) in zip(sizes.large, places, strict=True):
        work = Workload(Model(backbone=backbone), augment, size, tree, batch, device, precision)
        trainee = Trainee(work, CrossEntropy, "type-I")
        (seconds,) = in_turn([partial(trainee.train, STEPS)], sizes.rounds, device)
        speeds.append(STEPS / statistics.median(seconds))
    trainee.model.compiled_embed = None  # operations are counted as PyTorch runs them one by one
    with FlopCounterMode(display=False) as counter:
        trainee.train()
    return {
        "resnet50_images_per_s": sizes.large[0][1] * speeds[0],
        "wrn28_8_share": counter.get_total_flops() * speeds[1] / rate,
        "matmul_tflops": rate / 1e12,
    }


def bench_table(report: dict[str, Any]) -> Table:
    """Return what `bench` found as a table: what takes how long, and below it the rates."""
    evaluation, prepare, card, methods = (report[name] for name in ("evaluation", "prepare", "card", "methods"))
    rows = list(_lines(report))
    rates = [
        f"metrics, {evaluation['examples']:,} x {evaluation['classes']}: {evaluation['metrics_s']:.2f} s",
        f"softmax, CRM and its metrics: {evaluation['crm_s']:.2f} s",
        f"memory of both on top of the scores: {evaluation['extra_mib']:.0f} MiB",
        f"frame, K = {evaluation['classes']}: {evaluation['frame_s']:.2f} s",
        f"preparing {prepare['width']}x{prepare['height']} JPEGs: {prepare['images_per_s']:.0f} images/s, "
        f"{prepare['ratio']:.2f} of torchvision's decoding ({prepare['decoded_per_s']:.0f})",
    ]
    if card is not None:
        rates += [
            f"ResNet-50 at 224x224, with augmentation: {card['resnet50_images_per_s']:.0f} images/s",
            f"matmul in bfloat16: {card['matmul_tflops']:.1f} TFLOP/s",
            f"WideResNet-28-8 at 32x32, of that rate: {100 * card['wrn28_8_share']:.1f}%",
        ]
    rates += [f"peak memory of this process: {report['peak_mib']:.0f} MiB", f"measured in {report['seconds']:.0f} s"]
    return Table(
        title=f"{report['name']}, speed",
        columns=["What", "Method", "ms", "Alone, ms", "Ratio", "Head, loss, metrics, data"],
        rows=rows,
        above=[
            f"{report['name']} ({report['device']}), {report['threads']} threads, precision of auto: "
            f"{report['precision']}"
        ],
        notes=[
            f"Step: {report['backbone']} at 32x32, batches of {report['batch']}, 100 classes; alone and ratio: of the "
            "backbone, and on cached features of a plain loop.",
            f"Pass: a method alone, forward and backward, batches of {methods['batch']}, {methods['classes']} classes; "
            "ratio: of HAFrame.",
        ],
        items=rates,
        content=report,
    )


def _lines(report: dict[str, Any]) -> Iterator[Line]:
    """Yield a line for each step, each method alone and each step on features."""
    rows = [(f"step in {row['precision']}, {row['type']}", row) for row in report["steps"]]
    rows += [(f"pass of {row['features']} features", row) for row in report["methods"]["rows"]]
    rows += [(f"step on cached features, {row['type']}", row) for row in report["features"]]
    for label, row in rows:
        besides = f"{100 * row['share']:.1f}%" if "share" in row else ""
        if row.get("peak_mib") is not None:
            besides += f", peak {row['peak_mib']:.0f} MiB"
        numbers = [Number(row.get("step_ms", row.get("ms")), ".1f"), Number(row.get("bare_ms"), ".1f")]
        yield Line([Text(label), Text(row.get("method", "")), *numbers, Number(row["ratio"]), Text(besides)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peers", type=Path, help="a folder of other code: compare with it, and print docs/speed.md")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    options = parser.parse_args(arguments)
    if options.peers:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        from tests.tools.peers import compare  # needs the other code

        print(compare(options.peers), end="")
        return
    report = bench(choose_device(options.device), QUICK if options.quick else Sizes())
    print(json.dumps({"schema": 1} | report, indent=1) if options.json else render(bench_table(report), "terminal"))


if __name__ == "__main__":
    main()
