"""Lightning Fabric for one job: a device or several, and the precision of the recipe as far as the device has it."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from hierbench.config.sections import AskedPrecision, Precision
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PRECISIONS = {"float32": "32-true", "bfloat16": "bf16-mixed"}
IMAGE_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}  # that Fabric feeds a network
CPU_HAS_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # as PyTorch names them, x86-64 and ARM64


def make_fabric(
    device: str, precision: Precision, gpus: Sequence[int] = (), num_ranks: int = 1, *, find_unused: bool = False
) -> Fabric:
    """Return the Fabric of a job, or of one of the `num_ranks` processes that `hierbench.execution.ranks` started.

    Args:
        device: "cpu", "cuda" or "mps".
        precision: bfloat16 is autocast; parameters, sums of gradients and the optimiser stay float32.
        gpus: indices of the CUDA devices that the job may use, () for the first ones.
        num_ranks: processes of the job.
        find_unused: whether parts of the model may get no gradient, as of a library's network.
    """
    import_fabric()
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy

    # Buffers are equal on all ranks: those of norms follow from all examples, see `hierbench.models.sync_norm`.
    several = DDPStrategy(find_unused_parameters=find_unused, broadcast_buffers=False)
    strategy = several if num_ranks > 1 else "auto"
    devices = list(gpus[:num_ranks]) if device == "cuda" and gpus else num_ranks
    # Explicit: from a scheduler's environment variables Fabric would conclude that it has to use all its tasks.
    fabric = Fabric(
        accelerator=device,
        devices=devices,
        strategy=strategy,
        precision=PRECISIONS[precision],  # type: ignore[arg-type]
        plugins=[LightningEnvironment()],
    )
    fabric.launch()  # also of one device, which becomes the current one
    return fabric


def import_fabric() -> None:
    """Import Fabric, which takes seconds, and let it log warnings alone: it logs every process that it counts."""
    importlib.import_module("lightning_fabric")
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)


def resolve_precision(requested: AskedPrecision, device: str, *, frozen: bool = False) -> Precision:
    """Return the precision for "auto" on a device: bfloat16 where it has instructions for it, else float32.

    Raises:
        UserError: bfloat16 of a frozen network, or on MPS; or `device` is another machine's: "auto", or "cuda" without
            a GPU here.
    """
    if requested == "bfloat16" and frozen:
        raise UserError(
            "train.precision = bfloat16 would round the cached features of a frozen network in training and not in "
            "evaluation, and heads gain nothing from it; use float32"
        )
    if requested == "bfloat16" and device == "mps":
        raise UserError("train.precision = bfloat16 is not for mps, which would train in float32; use float32")
    if frozen:
        return "float32"
    if requested != "auto":
        return requested
    if device == "auto" or (device == "cuda" and not torch.cuda.is_available()):
        raise UserError(
            "train.precision = auto depends on the device, which is elsewhere: add --set train.precision=bfloat16, or "
            "float32"
        )
    if device == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    # PyTorch before 2.10 does not report it, and bfloat16 without instructions is slower than float32.
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)() if device == "cpu" else {}
    return "bfloat16" if any(capabilities.get(name) for name in CPU_HAS_BFLOAT16) else "float32"
