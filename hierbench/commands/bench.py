"""`hierbench bench`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hierbench.bench import Report


class BenchDevice(StrEnum):
    """Where to measure: those that can be waited for."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def bench(
    device: Annotated[BenchDevice, typer.Option(help="Where to measure.")] = BenchDevice.auto,
    quick: Annotated[bool, typer.Option("--quick", help="One round instead of three: a rough look.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Measure this machine: training steps, evaluation, CRM, the frame and preparing; about a minute."""
    import json
    from dataclasses import asdict

    from hierbench.bench import QUICK, Sizes, parts_of
    from hierbench.bench import bench as measure
    from hierbench.progress import Meter
    from hierbench.session import choose_device

    place = choose_device(device.value)
    parts = parts_of(place)
    with Meter("measuring", len(parts)) as meter:
        running: list[str] = []

        def on_part(name: str) -> None:
            if running:
                meter.end_part(running.pop(), 1.0)
            running.append(name)
            meter.part(name, 0.0, 1.0)
            meter.say(f"measuring: {name} ({parts.index(name) + 1} of {len(parts)})")

        report = measure(place, QUICK if quick else Sizes(), on_part)
    if as_json:
        print(json.dumps({"schema": 1} | asdict(report), indent=1, allow_nan=False))
    else:
        print(table(report), end="")


def table(report: Report) -> str:
    """Return a report as text."""
    from tabulate import tabulate

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
