"""The precision of the forward pass: bfloat16 where the hardware computes in it, else float32."""

from __future__ import annotations

from typing import Literal

import torch

Precision = Literal["float32", "bfloat16"]


def resolve_precision(asked: Literal["auto", "float32", "bfloat16"], device: str) -> Precision:
    """Return the precision to use on a device; "auto" is bfloat16 where the hardware has instructions for it."""
    if asked != "auto":
        return asked
    if device == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    if device == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        return "bfloat16"
    return "float32"
