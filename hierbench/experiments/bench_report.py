"""What `hierbench bench` found, as a table."""

from typing import Any

from hierbench.leaderboard.table import Line, Number, Table, Text


def bench_table(report: dict[str, Any]) -> Table:
    """Return a report of `hierbench.experiments.bench.bench`: what takes how long, and below it the rates."""
    asked, prepare, card, methods = (report[name] for name in ("evaluation", "prepare", "card", "methods"))
    rows = [
        _line(
            f"step in {row['precision']}, {row['type']}",
            row["method"],
            row["step_ms"],
            row["bare_ms"],
            row["ratio"],
            f"{100 * row['share']:.1f} %" + ("" if row["peak_mib"] is None else f", peak {_mib(row['peak_mib'])}"),
        )
        for row in report["steps"]
    ]
    rows += [
        _line(f"pass of {row['features']} features", row["method"], row["ms"], None, row["ratio"])
        for row in methods["rows"]
    ]
    rows += [
        _line(f"step on cached features, {row['type']}", "", row["step_ms"], row["bare_ms"], row["ratio"])
        for row in report["features"]
    ]
    other = [
        f"metrics, {asked['examples']:,} x {asked['classes']}: {asked['metrics_s']:.2f} s",
        f"softmax, CRM and its metrics: {asked['crm_s']:.2f} s",
        f"memory of both on top of the scores: {_mib(asked['extra_mib'])}",
        f"frame, K = {asked['classes']}: {asked['frame_s']:.2f} s",
        f"preparing {prepare['width']}x{prepare['height']} JPEGs: {prepare['images_per_s']:.0f} images/s, "
        f"{prepare['ratio']:.2f} of torchvision's decoding ({prepare['decoded_per_s']:.0f})",
    ]
    if card is not None:
        other += [
            f"ResNet-50 at 224x224, with augmentation: {card['resnet50_images_per_s']:.0f} images/s",
            f"matmul in bfloat16: {card['matmul_tflops']:.1f} TFLOP/s",
            f"WideResNet-28-8 at 32x32, of that rate: {100 * card['wrn28_8_share']:.1f} %",
        ]
    other += [f"peak memory of this process: {_mib(report['peak_mib'])}", f"measured in {report['seconds']:.0f} s"]
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
        items=other,
        content=report,
    )


def _line(what: str, method: str, took: float, alone: float | None, ratio: float, besides: str = "") -> Line:
    return Line(
        [Text(what), Text(method), Number(took, ".1f"), Number(alone, ".1f"), Number(ratio), Text(besides)],
    )


def _mib(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} MiB"
