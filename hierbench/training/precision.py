"""The precision that training computes in: what a recipe asks for, and what the device gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hierbench.config.recipe import AskedPrecision, Precision
from hierbench.utils.errors import UserError

CPU_HAS_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # as PyTorch names them, x86-64 and ARM64


def resolve_precision(asked: AskedPrecision, device: str) -> Precision:
    """Return what "auto" means on a device: bfloat16 where it has instructions for it, else float32.

    Args:
        asked: by the recipe; anything but "auto" is returned as it is.
        device: "cpu", "cuda" or "mps"; "auto" where jobs run on another machine.

    Raises:
        UserError: this machine does not know.
    """
    if asked != "auto":
        return asked
    if device == "auto" or (device == "cuda" and not torch.cuda.is_available()):
        raise UserError(
            "train.precision = auto depends on the device, which is elsewhere: add --set train.precision=bfloat16, or "
            "float32"
        )
    if device == "cuda":
        has_it = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device == "cpu":
        # PyTorch before 2.10 does not tell, and bfloat16 without instructions is slower than float32.
        capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        has_it = any(capabilities.get(name, False) for name in CPU_HAS_BFLOAT16)
    else:
        has_it = False
    return "bfloat16" if has_it else "float32"
