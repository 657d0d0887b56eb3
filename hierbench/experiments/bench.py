"""The speed of this machine: training steps, evaluation, CRM, the frame and preparing, measured in turn.

Shapes: B batch, N examples, K classes.
"""

from __future__ import annotations

import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from hierbench.api.method import Method
from hierbench.api.registry import Found, find_all
from hierbench.config.recipe import FEATURE_TYPES, Augment, Model, Precision
from hierbench.data.image import decode_file, pixels_of
from hierbench.data.source import Piece, Source, shipped_paths
from hierbench.data.writer import write_images
from hierbench.experiments.bench_report import Card, Evaluation, Prepare, Report, StepTime
from hierbench.hierarchy.tree import Hierarchy
from hierbench.methods.ce import CrossEntropy
from hierbench.methods.crm import CRM
from hierbench.methods.haframe import hierarchy_aware_frame
from hierbench.metrics import Tally, evaluate
from hierbench.planning.cost import stand_in_tree
from hierbench.planning.timing import BareBackbone, Trainee, Workload, in_turn, median_ratio, wait_for
from hierbench.training.posthoc import rescored_chunks
from hierbench.training.precision import resolve_precision
from hierbench.utils.processes import num_cores

INAT = (3, 4, 9, 34, 57, 72, 1010)  # nodes per level of iNaturalist 2019
SMALL_IMAGES = Augment(crop="pad", pad=4, pad_mode="reflect", flip=True, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
LARGE_IMAGES = Augment(crop="random-resized", flip=True, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
PREPARED_SIZE = (224, 224)
STEPS = 10  # between two looks at the clock, on CUDA
LIMIT = 10.0  # seconds after which no further round of a type's steps begins
OnPart = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        backbone: of the steps, on 32x32 images of CIFAR-100's tree.
        batch: B.
        rounds: of steps, all in turn; medians are taken.
        examples: N of evaluation and CRM.
        levels: nodes per level of their tree and of the frame's.
        photographs: images that are prepared in a round; of fewer the start of the threads is a part of the time.
        prepare_rounds: of preparing, which takes half a second.
        large: (backbone, batch) at 224x224 with random parts, and at 32x32; on CUDA alone.
        matmul: side of the matrices whose product gives the card's rate.
    """

    backbone: str = "wrn28-2"
    batch: int = 64
    rounds: int = 3
    examples: int = 40_000
    levels: tuple[int, ...] = INAT
    photographs: int = 192
    prepare_rounds: int = 5
    large: tuple[tuple[str, int], tuple[str, int]] = (("resnet50", 256), ("wrn28-8", 64))
    matmul: int = 8192


QUICK = Sizes(rounds=1)


def parts_of(device: str) -> list[str]:
    """Return the names of what `bench` will say it measures, in order."""
    card = ["card"] if device == "cuda" else []
    return ["evaluation", *(f"steps in {name}" for name in _precisions(device)), "preparing", *card]


def bench(device: str, sizes: Sizes, on_part: OnPart) -> Report:
    """Measure this machine; `on_part` is called with the name of each of `parts_of` when it begins."""
    start = time.perf_counter()
    torch.manual_seed(0)
    on_part("evaluation")  # first, while the peak of the memory is its own
    evaluation = _evaluation(device, sizes)
    steps: list[StepTime] = []
    for precision in _precisions(device):
        on_part(f"steps in {precision}")
        steps += _steps(device, precision, sizes)
    on_part("preparing")
    prepare = _prepare(sizes)
    card = None
    if device == "cuda":
        on_part("card")
        card = measure_card(device, sizes)
    return Report(
        device=device,
        name=torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
        threads=torch.get_num_threads(),
        precision=resolve_precision("auto", device),
        backbone=sizes.backbone,
        batch=sizes.batch,
        steps=tuple(steps),
        evaluation=evaluation,
        prepare=prepare,
        card=card,
        peak_mib=_peak_mib(),
        seconds=time.perf_counter() - start,
    )


def _precisions(device: str) -> list[Precision]:
    best = resolve_precision("auto", device)
    return ["float32"] if best == "float32" else [best, "float32"]


def _steps(device: str, precision: Precision, sizes: Sizes) -> Iterator[StepTime]:
    """Measure all methods on all types in turn, in each round the bare backbone before every one."""
    tree = Hierarchy.from_paths(shipped_paths("cifar100"))
    work = Workload(Model(backbone=sizes.backbone), SMALL_IMAGES, (32, 32), tree, sizes.batch, device, precision)
    bare = BareBackbone(work)
    for kind in FEATURE_TYPES:
        chosen = [found.cls for found in find_all() if isinstance(found, Found) and kind in found.cls.types]
        trainees = [Trainee(work, cls, kind) for cls in chosen if issubclass(cls, Method)]
        functions: list[Callable[[], object]] = []
        for trainee in trainees:  # each beside the backbone: the machine's speed drifts
            functions += [bare, trainee.train, trainee.besides_the_model]
        columns = iter(in_turn(functions, sizes.rounds, device, LIMIT))
        for trainee, alone, whole, besides in zip(trainees, columns, columns, columns, strict=True):
            yield StepTime(
                method=trainee.model.method.name,
                type=kind,
                precision=precision,
                step_ms=1000 * statistics.median(whole),
                bare_ms=1000 * statistics.median(alone),
                ratio=median_ratio(whole, alone),
                share=median_ratio(besides, alone),
                peak_mib=_peak_of(trainee, device),
            )


def _peak_of(trainee: Trainee, device: str) -> float | None:
    """Return the device's peak memory during a step, on CUDA alone."""
    if device != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats()
    trainee.train()
    wait_for(device)
    return torch.cuda.max_memory_allocated() / 2**20


def _evaluation(device: str, sizes: Sizes) -> Evaluation:
    """Measure metrics, CRM with the metrics of its scores, and the frame, in turn."""
    place, tree = torch.device(device), stand_in_tree(sizes.levels)
    num_classes = tree.num_classes
    scores, targets = torch.empty(sizes.examples, num_classes), torch.arange(sizes.examples) % num_classes
    for part in scores.split(1000):
        part.normal_()
    scores, targets, posthoc = scores.to(place), targets.to(place), CRM(tree)

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
    columns = in_turn([metrics, crm, frame], sizes.rounds, device)
    metrics_s, crm_s, frame_s = map(statistics.median, columns)
    extra = None if before is None or after is None else after - before
    return Evaluation(sizes.examples, num_classes, metrics_s, crm_s, frame_s, extra)


def _peak_mib() -> float | None:
    """Return the most memory that this process has held so far, None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _prepare(sizes: Sizes) -> Prepare:
    """Measure `write_images`, with decoding, resizing and writing, against decoding alone, in turn on all cores."""
    width, height = 500, 375
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [photograph(folder / f"{index}.jpg", width, height, index) for index in range(16)]
        files = [files[index % len(files)] for index in range(sizes.photographs)]
        ours, bare = prepare_seconds(files, folder, sizes.prepare_rounds)
    return Prepare(
        width=width,
        height=height,
        images_per_s=len(files) / statistics.median(ours),
        decoded_per_s=len(files) / statistics.median(bare),
        ratio=median_ratio(bare, ours),
    )


def prepare_seconds(files: list[Path], folder: Path, rounds: int) -> list[list[float]]:
    """Return the seconds of `write_images` over JPEG files in each round, and of bare decoding, both on all cores.

    Args:
        files: what is decoded.
        folder: where the prepared rows go.
        rounds: in turn.
    """

    def pieces() -> Iterator[Piece]:
        for row, file in enumerate(files):
            yield Piece("train", row, partial(decode_file, file, PREPARED_SIZE))

    none = np.zeros(0, dtype=np.int64)
    labels = {"train": np.zeros(len(files), dtype=np.int64), "val": none, "test": none}
    source = Source({"a": ("a",), "b": ("b",)}, labels, PREPARED_SIZE, pieces)

    def ours() -> None:
        with tempfile.TemporaryDirectory(dir=folder) as rows:
            write_images(source, Path(rows), lambda _: None)

    def bare() -> None:
        with ThreadPoolExecutor(num_cores()) as pool:
            for _ in pool.map(lambda file: pixels_of(file.read_bytes()), files):
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


def measure_card(device: str, sizes: Sizes) -> Card:
    """Measure what is asked of a CUDA device alone; it runs on a CPU too, with sizes for one."""
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

        def several(trainee: Trainee = trainee) -> None:
            for _ in range(STEPS):  # as in an epoch, nothing waits for the device in between
                trainee.train()

        (seconds,) = in_turn([several], sizes.rounds, device)
        speeds.append(STEPS / statistics.median(seconds))
    trainee.model.compiled_embed = None  # operations are counted as PyTorch runs them one by one
    with FlopCounterMode(display=False) as counter:
        trainee.train()
    return Card(sizes.large[0][1] * speeds[0], counter.get_total_flops() * speeds[1] / rate, rate / 1e12)
