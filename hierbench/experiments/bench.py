"""The speed of this machine: training steps, evaluation, CRM, the frame and preparing, measured in turn.

Shapes: B batch, N examples, K classes.
"""

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
from typing import Any

import numpy as np
import torch
from PIL import Image

from hierbench.config.sections import FEATURE_TYPES, Augment, Model, Precision
from hierbench.data.image import decode_file
from hierbench.data.source import Piece, Source, shipped_paths
from hierbench.data.writer import write_images
from hierbench.experiments.bench_features import measure_features
from hierbench.experiments.bench_methods import measure_methods, trained_methods
from hierbench.hierarchy.tree import Hierarchy
from hierbench.methods.ce import CrossEntropy
from hierbench.methods.crm import CRM
from hierbench.methods.haframe import hierarchy_aware_frame
from hierbench.metrics import Tally, evaluate
from hierbench.planning.cost import stand_in_tree
from hierbench.planning.timing import BareBackbone, Trainee, Workload, in_turn, median_ratio
from hierbench.training.posthoc import rescored_chunks
from hierbench.training.precision import resolve_precision
from hierbench.utils.processes import num_cores

INAT = (3, 4, 9, 34, 57, 72, 1010)  # nodes per level of iNaturalist 2019
SMALL_IMAGES = Augment(crop="pad", pad=4, pad_mode="reflect", flip=True, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
LARGE_IMAGES = Augment(crop="random-resized", flip=True, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
PREPARED_SIZE = (224, 224)
STEPS = 10  # between two clock readings, on CUDA
LIMIT = 10.0  # seconds after which no further round of a type's steps begins
BESIDES = 5  # head, loss, metrics and data path between two clock readings: a hundredth of a step


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
    features: tuple[int, int, int, int] = (64, 1280, 200, 40)  # batch, channels, classes, steps of a round
    method_batch: int = 256  # B of the methods alone, on the tree of `levels`
    method_rounds: int = 7  # of a tenth of a second per method
    matmul: int = 8192  # side of the matrices whose product gives the rate of a CUDA device


QUICK = Sizes(rounds=1)


def parts_of(device: str) -> list[str]:
    """Return the names of the parts that `bench` measures, in order."""
    card = ["card"] if device == "cuda" else []
    steps = [f"steps in {name}" for name in _precisions(device)]
    return ["evaluation", *steps, "methods", "features", "preparing", *card]


def bench(device: str, sizes: Sizes, on_part: Callable[[str], None]) -> dict[str, Any]:
    """Measure this machine; `on_part` is called with the name of each of `parts_of` when it begins.

    Returns:
        JSON types: "device", its "name", "threads", "precision" of auto, "backbone" and "batch" of the steps;
        "steps", a dict per method, type and precision: "step_ms" of a batch from gather to SGD, "bare_ms" forward and
        backward pass of the backbone alone, and the medians over rounds of "ratio", the step over the bare, and of
        "share", head, loss, metrics and data path over the bare; "peak_mib" of the device, None but on CUDA;
        "methods": their "batch" and "classes", and "rows" as `measure_methods`; "features" as `measure_features`,
        "evaluation" as `_evaluation`, "prepare" as `_prepare`, "card" as `measure_card`, None but on CUDA;
        "peak_mib" of this process, None where it is not known; "seconds" that the measurement took.
    """
    start = time.perf_counter()
    torch.manual_seed(0)
    on_part("evaluation")  # first, while the peak of the memory is its own
    evaluation = _evaluation(device, sizes)
    steps: list[dict[str, Any]] = []
    for precision in _precisions(device):
        on_part(f"steps in {precision}")
        steps += _steps(device, precision, sizes)
    on_part("methods")
    tree = stand_in_tree(sizes.levels)
    methods = measure_methods(device, sizes.method_rounds, sizes.method_batch, tree)
    on_part("features")
    features = measure_features(device, sizes.rounds, *sizes.features)
    on_part("preparing")
    prepare = _prepare(sizes)
    card = None
    if device == "cuda":
        on_part("card")
        card = measure_card(device, sizes)
    return {
        "device": device,
        "name": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "precision": resolve_precision("auto", device),
        "backbone": sizes.backbone,
        "batch": sizes.batch,
        "steps": steps,
        "methods": {"batch": sizes.method_batch, "classes": tree.num_classes, "rows": methods},
        "features": features,
        "evaluation": evaluation,
        "prepare": prepare,
        "card": card,
        "peak_mib": _peak_mib(),
        "seconds": time.perf_counter() - start,
    }


def _precisions(device: str) -> list[Precision]:
    best = resolve_precision("auto", device)
    return ["float32"] if best == "float32" else [best, "float32"]


def _steps(device: str, precision: Precision, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Measure all methods on all types in turn, in each round the bare backbone before every one."""
    tree = Hierarchy.from_paths(shipped_paths("cifar100"))
    work = Workload(Model(backbone=sizes.backbone), SMALL_IMAGES, (32, 32), tree, sizes.batch, device, precision)
    bare = BareBackbone(work)
    for feature_type in FEATURE_TYPES:
        trainees = [Trainee(work, cls, feature_type) for cls in trained_methods() if feature_type in cls.types]
        functions: list[Callable[[], object]] = []
        for trainee in trainees:  # each next to the backbone: the machine's speed drifts
            functions += [bare, trainee.train, partial(trainee.besides_the_model, BESIDES)]
        # Without compilation the networks are alike, so that one step warms up all of them.
        first = functions if device == "cuda" else [*functions[:2], *functions[2::3]]
        columns = iter(in_turn(functions, sizes.rounds, device, LIMIT, first))
        for trainee, alone, whole, besides in zip(trainees, columns, columns, columns, strict=True):
            yield {
                "method": trainee.model.method.name,
                "type": feature_type,
                "precision": precision,
                "step_ms": 1000 * statistics.median(whole),
                "bare_ms": 1000 * statistics.median(alone),
                "ratio": median_ratio(whole, alone),
                "share": median_ratio(besides, alone) / BESIDES,
                "peak_mib": _device_peak_mib(trainee) if device == "cuda" else None,
            }


def _device_peak_mib(trainee: Trainee) -> float:
    """Return the CUDA device's peak memory during a step."""
    torch.cuda.reset_peak_memory_stats()
    trainee.train()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**20


def _evaluation(device: str, sizes: Sizes) -> dict[str, Any]:
    """Measure metrics, CRM with the metrics of its scores, and the frame, in turn, for N scores of K classes.

    "extra_mib" is the memory that the first two took on top of the scores, None where it is not known.
    """
    place, tree, num = torch.device(device), stand_in_tree(sizes.levels), sizes.examples
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
    columns = in_turn([metrics, crm, frame], sizes.rounds, device)
    metrics_s, crm_s, frame_s = map(statistics.median, columns)
    return {
        "examples": num,
        "classes": tree.num_classes,
        "metrics_s": metrics_s,
        "crm_s": crm_s,
        "frame_s": frame_s,
        "extra_mib": None if before is None or after is None else after - before,
    }


def _peak_mib() -> float | None:
    """Return the most memory that this process has held so far, None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
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

        def several(trainee: Trainee = trainee) -> None:
            for _ in range(STEPS):  # as in an epoch, nothing waits for the device in between
                trainee.train()

        (seconds,) = in_turn([several], sizes.rounds, device)
        speeds.append(STEPS / statistics.median(seconds))
    trainee.model.compiled_embed = None  # operations are counted as PyTorch runs them one by one
    with FlopCounterMode(display=False) as counter:
        trainee.train()
    return {
        "resnet50_images_per_s": sizes.large[0][1] * speeds[0],
        "wrn28_8_share": counter.get_total_flops() * speeds[1] / rate,
        "matmul_tflops": rate / 1e12,
    }
