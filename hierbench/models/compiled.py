"""Compiles the backbone and feature extractor where `torch.compile` works."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from hierbench.models.classifier import Classifier


def compile_embedding(
    model: Classifier, shape: Sequence[int], autocast: Callable[[], AbstractContextManager[object]]
) -> bool:
    """Make a model train through `torch.compile`; return whether that works.

    Methods are not compiled: heads and losses are small, and a foreign one may not compile. PyTorch compiles lazily, so
    a batch goes forward and backward first; if that fails, the model stays uncompiled, with one warning. PyTorch's
    environment variable TORCH_COMPILE_DISABLE=1 switches compilation off. `shape` is [B, 3, H, W] of the training
    batches; weights, norms and gradients of the model, which is on its device, are the same afterwards.
    """
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    images = torch.zeros(*shape, device=next(model.parameters()).device).contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(model.embed, dynamic=False)
    try:
        model.train()
        with autocast():
            features = compiled(images)
        features.float().sum().backward()
    except Exception as error:  # compilers and drivers raise errors of any type
        if isinstance(error, torch.OutOfMemoryError):
            raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        warnings.warn(f"torch.compile does not work here, training continues without it ({reason[0]})", stacklevel=2)
        return False
    finally:
        model.zero_grad()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
    model.compiled_embed = compiled
    return True
