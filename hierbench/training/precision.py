"""The precision that training computes in: what a recipe asks for, and what the device gives."""

import torch

from hierbench.config.sections import AskedPrecision, Precision
from hierbench.utils.errors import UserError

CPU_HAS_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # as PyTorch names them, x86-64 and ARM64


def resolve_precision(asked: AskedPrecision, device: str) -> Precision:
    """Return what "auto" means on a device: bfloat16 where it has instructions for it, else float32.

    Raises:
        UserError: `device` is another machine's: "auto", or "cuda" without a GPU here.
    """
    if asked != "auto":
        return asked
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
