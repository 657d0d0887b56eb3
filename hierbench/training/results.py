"""The records of a finished run: its predictions and metrics, the epoch that was chosen, and the environment."""

import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hierbench.data.prepared import Prepared
from hierbench.metrics import Tally
from hierbench.runs.store import HistoryRow, Run

# Lines of /proc/cpuinfo that tell processors of one name apart; the last three are ARM's.
PROCESSOR = ("cpu family", "model", "stepping", "CPU implementer", "CPU part", "CPU revision")


def history_row(
    epoch: int, rates: Mapping[str, float], loss_terms: Mapping[str, float], metrics: Mapping[str, float]
) -> HistoryRow:
    """Return the row of an epoch, from 1: learning rates, mean loss terms and their sum, validation metrics."""
    return {
        "epoch": epoch,
        **{f"lr_{name}": rate for name, rate in rates.items()},
        "train_loss": sum(loss_terms.values()),
        **{f"train_{name}": value for name, value in loss_terms.items()},
        **{f"val_{name}": value for name, value in metrics.items()},
    }


def write_result(
    run: Run,
    title: str,
    scores: Tensor,
    targets: Tensor,
    tally: Tally,
    best: HistoryRow | None = None,
    levels: Tensor | None = None,
) -> None:
    """Write predictions and metrics (`tally` of these) of a run.

    Args:
        run: where.
        title: the method's on the leaderboard.
        scores: [N, K].
        targets: [N].
        tally: of scores and targets.
        best: the history row of the chosen epoch, None without training.
        levels: [N, L] level-wise predictions, or None.
    """
    run.write_predictions(scores.cpu().numpy(), targets.cpu().numpy(), None if levels is None else levels.cpu().numpy())
    result = {"test": tally.metrics(), "mistakes_by_distance": tally.mistakes_by_distance()}
    run.write_record("metrics.json", {"schema": 1, "title": title} | result | (best_epoch(best) if best else {}))


def best_epoch(row: HistoryRow) -> dict[str, Any]:
    """Return the number and the validation metrics of the chosen epoch from its row of the history."""
    val = {name.removeprefix("val_"): value for name, value in row.items() if name.startswith("val_")}
    return {"val": val, "best_epoch": int(row["epoch"])}


@cache
def processor() -> str:
    """Return the model of the processor, since rounding depends on it; "" if unknown.

    Cloud providers give several generations one name, so family, model and stepping follow it.
    """
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.is_file():
        return platform.processor()
    first = cpuinfo.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.split("\n"))}
    numbers = [f"{name} {fields[name]}" for name in PROCESSOR if fields.get(name)]
    return ", ".join(filter(None, [fields.get("model name"), *numbers]))


@cache
def commit() -> dict[str, Any]:
    """Return the commit of the checkout that this code lies in and whether it was changed since, {} elsewhere."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return {}
    command = ["git", "--no-optional-locks", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*"]
    try:
        output = subprocess.run([*command, "--dirty"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):  # without git, or another user's checkout
        return {}
    sha, _, dirty = output.strip().partition("-")
    return {"commit": sha, "changed": bool(dirty)}


def environment(device: torch.device, prepared: Prepared | None = None, num_devices: int = 1) -> dict[str, Any]:
    """Return the software and hardware of a result, which are recorded and no part of the id."""
    data = {} if prepared is None else {"data": {key: prepared.meta[key] for key in ("digest", "splits", "remark")}}
    packages = ["hierbench", "torch", "torchvision", "numpy", "scipy", "lightning-fabric"]
    packages += ["timm"] if "timm" in sys.modules else []
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **({"processor": name} if (name := processor()) else {}),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "devices": num_devices,
        "threads": torch.get_num_threads(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **{package: version(package) for package in packages},
        **commit(),
        **(_cuda() if device.type == "cuda" else {}),
        **data,
    }


def _cuda() -> dict[str, Any]:
    """Return the settings that rounding depends on there."""
    driver = Path("/proc/driver/nvidia/version")
    number = re.search(r"\d+\.\d+[.\d]*", driver.read_text(encoding="utf-8")) if driver.is_file() else None
    return {
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        **({"driver": number[0]} if number else {}),
        "tf32": torch.backends.cudnn.allow_tf32,  # of convolutions
    }


def environment_of_features(device: torch.device) -> dict[str, Any]:
    """Return the software and hardware of cached features."""
    kept = ("device", "processor", "cuda", "cudnn", "driver", "hierbench", "torch", "torchvision", "timm")
    return {name: value for name, value in environment(device).items() if name in kept}
