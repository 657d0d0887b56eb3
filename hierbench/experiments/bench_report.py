"""What `hierbench bench` found, as data and as a table."""

from __future__ import annotations

from dataclasses import dataclass

from tabulate import tabulate

from hierbench.config.recipe import FeatureType, Precision


@dataclass(frozen=True)
class StepTime:
    """Of one method, type and precision.

    Attributes:
        step_ms: gather, augment, forward, loss, backward and SGD of a batch.
        bare_ms: forward and backward pass of the backbone alone.
        ratio: step over bare, the median of the rounds' ratios.
        share: of head, loss, metrics and data path in relation to bare; the median as well.
        peak_mib: of the device, on CUDA alone.
    """

    method: str
    type: FeatureType
    precision: Precision
    step_ms: float
    bare_ms: float
    ratio: float
    share: float
    peak_mib: float | None


@dataclass(frozen=True)
class Evaluation:
    """Seconds for N scores of K classes, and the memory that it took beside them (None where it is not known)."""

    examples: int
    classes: int
    metrics_s: float
    crm_s: float
    frame_s: float
    extra_mib: float | None


@dataclass(frozen=True)
class Prepare:
    """Images per second through `write_images` and through bare decoding, on all cores, and the median ratio."""

    width: int
    height: int
    images_per_s: float
    decoded_per_s: float
    ratio: float


@dataclass(frozen=True)
class Card:
    """What is measured on CUDA alone.

    Attributes:
        resnet50_images_per_s: trained at 224x224, with augmentation.
        wrn28_8_share: of the card's matmul rate that training a WideResNet-28-8 reaches.
        matmul_tflops: bfloat16 products, operations per second in 1e12.
    """

    resnet50_images_per_s: float
    wrn28_8_share: float
    matmul_tflops: float


@dataclass(frozen=True)
class Report:
    """Everything that `hierbench bench` prints."""

    device: str
    name: str
    threads: int
    precision: Precision
    backbone: str
    batch: int
    steps: tuple[StepTime, ...]
    evaluation: Evaluation
    prepare: Prepare
    card: Card | None
    peak_mib: float | None
    seconds: float


def table(report: Report) -> str:
    """Return a report as text."""
    asked = report.evaluation
    lines = [
        f"{report.name} ({report.device}), {report.threads} threads, precision of auto: {report.precision}",
        "",
        f"Training steps: {report.backbone} at 32x32, batches of {report.batch}, 100 classes",
    ]
    headers = ["Type", "Method", "Precision", "Step, ms", "Backbone, ms", "Ratio", "Head, loss, metrics, data"]
    rows = [
        [row.type, row.method, row.precision, f"{row.step_ms:.1f}", f"{row.bare_ms:.1f}", f"{row.ratio:.2f}"]
        + [f"{100 * row.share:.1f} %"]
        + ([] if row.peak_mib is None else [f"{row.peak_mib:.0f}"])
        for row in report.steps
    ]
    if any(row.peak_mib is not None for row in report.steps):
        headers.append("Peak, MiB")
    lines += [tabulate(rows, headers, disable_numparse=True), ""]
    other = [
        [f"metrics, {asked.examples:,} x {asked.classes}", f"{asked.metrics_s:.2f} s"],
        ["softmax, CRM and its metrics", f"{asked.crm_s:.2f} s"],
        ["memory of both beside the scores", _mib(asked.extra_mib)],
        [f"frame, K = {asked.classes}", f"{asked.frame_s:.2f} s"],
        [
            f"preparing {report.prepare.width}x{report.prepare.height} JPEGs",
            f"{report.prepare.images_per_s:.0f} images/s, {report.prepare.ratio:.2f} of decoding alone "
            f"({report.prepare.decoded_per_s:.0f})",
        ],
    ]
    if (card := report.card) is not None:
        other += [
            ["ResNet-50 at 224x224, with augmentation", f"{card.resnet50_images_per_s:.0f} images/s"],
            ["matmul in bfloat16", f"{card.matmul_tflops:.1f} TFLOP/s"],
            ["WideResNet-28-8 at 32x32, of that rate", f"{100 * card.wrn28_8_share:.1f} %"],
        ]
    other += [["peak memory of this process", _mib(report.peak_mib)], ["measured in", f"{report.seconds:.0f} s"]]
    return "\n".join([*lines, tabulate(other, tablefmt="plain", disable_numparse=True), ""])


def _mib(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} MiB"
