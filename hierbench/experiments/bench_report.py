"""What `hierbench bench` found, as a table."""

from typing import Any

from tabulate import tabulate


def table(report: dict[str, Any]) -> str:
    """Return a report of `hierbench.experiments.bench.bench` as text."""
    asked, prepare, card = report["evaluation"], report["prepare"], report["card"]
    headers = ["Type", "Method", "Precision", "Step, ms", "Backbone, ms", "Ratio", "Head, loss, metrics, data"]
    rows = [
        [row["type"], row["method"], row["precision"], f"{row['step_ms']:.1f}", f"{row['bare_ms']:.1f}"]
        + [f"{row['ratio']:.2f}", f"{100 * row['share']:.1f} %"]
        + ([] if row["peak_mib"] is None else [f"{row['peak_mib']:.0f}"])
        for row in report["steps"]
    ]
    if report["device"] == "cuda":
        headers.append("Peak, MiB")
    methods = report["methods"]
    alone = [
        [row["method"], str(row["features"]), f"{row['ms']:.1f}", f"{row['ratio']:.2f}"] for row in methods["rows"]
    ]
    other = [
        [f"metrics, {asked['examples']:,} x {asked['classes']}", f"{asked['metrics_s']:.2f} s"],
        ["softmax, CRM and its metrics", f"{asked['crm_s']:.2f} s"],
        ["memory of both on top of the scores", _mib(asked["extra_mib"])],
        [f"frame, K = {asked['classes']}", f"{asked['frame_s']:.2f} s"],
        [
            f"preparing {prepare['width']}x{prepare['height']} JPEGs",
            f"{prepare['images_per_s']:.0f} images/s, {prepare['ratio']:.2f} of torchvision's decoding "
            f"({prepare['decoded_per_s']:.0f})",
        ],
    ]
    other += [
        [
            f"training on cached features, {row['type']}",
            f"{row['step_ms']:.1f} ms a step, {row['ratio']:.2f} of a plain loop's speed ({row['bare_ms']:.1f} ms)",
        ]
        for row in report["features"]
    ]
    if card is not None:
        other += [
            ["ResNet-50 at 224x224, with augmentation", f"{card['resnet50_images_per_s']:.0f} images/s"],
            ["matmul in bfloat16", f"{card['matmul_tflops']:.1f} TFLOP/s"],
            ["WideResNet-28-8 at 32x32, of that rate", f"{100 * card['wrn28_8_share']:.1f} %"],
        ]
    other += [["peak memory of this process", _mib(report["peak_mib"])], ["measured in", f"{report['seconds']:.0f} s"]]
    machine = f"{report['name']} ({report['device']}), {report['threads']} threads"
    return (
        f"{machine}, precision of auto: {report['precision']}\n\n"
        f"Training steps: {report['backbone']} at 32x32, batches of {report['batch']}, 100 classes\n"
        f"{tabulate(rows, headers, disable_numparse=True)}\n\n"
        f"Methods alone, forward and backward pass: batches of {methods['batch']}, {methods['classes']} classes\n"
        f"{tabulate(alone, ['Method', 'Features', 'Pass, ms', 'Of HAFrame'], disable_numparse=True)}\n\n"
        f"{tabulate(other, tablefmt='plain', disable_numparse=True)}\n"
    )


def _mib(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} MiB"
