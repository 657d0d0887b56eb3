"""The compiled backbone and feature extractor, where compiling works."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from hierbench.models.classifier import Classifier


def compile_embedding(
    model: Classifier, shape: Sequence[int], autocast: Callable[[], AbstractContextManager[object]]
) -> bool:
    """Let a model train through `torch.compile`; return whether it does.

    What is compiled is the same for all methods; heads and losses are small, and somebody's may not compile. It is
    tried with a batch first, forward and backward, because PyTorch compiles when something is computed; if that fails,
    one warning says so and the model stays as it was. The environment variable TORCH_COMPILE_DISABLE=1 is PyTorch's own
    switch to do without.

    Args:
        model: on the device; its weights, norms and gradients are the same afterwards.
        shape: [B, 3, H, W] of the batches to come.
        autocast: returns the context of a forward pass.
    """
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    images = torch.zeros(*shape, device=next(model.parameters()).device).contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(model.embed, dynamic=False)
    try:
        model.train()
        with autocast():
            features = compiled(images)
        features.float().sum().backward()
    except Exception as error:  # the compiler, the compiler's compiler and the driver raise of every kind
        if isinstance(error, torch.OutOfMemoryError):
            raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        warnings.warn(f"torch.compile does not work here, training goes on without it ({reason[0]})", stacklevel=2)
        return False
    finally:
        model.zero_grad()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
    model.compiled_embed = compiled
    return True
