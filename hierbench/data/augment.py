"""Batched augmentation on the device: pad and crop, flip, normalise, as one gather over a uint8 batch.

Shapes: B batch, N examples, images [., 3, H, W].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

PadMode = Literal["reflect", "zero"]


@dataclass(frozen=True)
class Augmentation:
    """Random crop after padding, and horizontal flip.

    Attributes:
        pad: pixels added on each side before cropping back to H x W; 0 for no crop.
        pad_mode: "reflect" (the edge pixel not repeated) or "zero" (black, before normalising).
        flip: flip half of the images.
    """

    pad: int
    pad_mode: PadMode
    flip: bool

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        """Pick the examples `rows` [B] from uint8 images [N, 3, H, W] and augment them: uint8 [B, 3, H, W].

        Picking, cropping and flipping are one gather, so nothing is copied in between. Randomness is the global
        generator's of the images' device.
        """
        if not self.pad and not self.flip:
            return images[rows]
        batch, (height, width), device = len(rows), images.shape[2:], images.device
        y = torch.arange(height, device=device).expand(batch, height)
        x = torch.arange(width, device=device).expand(batch, width)
        if self.flip:
            flipped = torch.rand(batch, 1, device=device) < 0.5
            x = torch.where(flipped, width - 1 - x, x)
        if self.pad:
            offset = torch.randint(-self.pad, self.pad + 1, (2, batch, 1), device=device)
            y, x = y + offset[0], x + offset[1]
        inside_y, inside_x = (y >= 0) & (y < height), (x >= 0) & (x < width)
        y, x = _reflect(y, height), _reflect(x, width)
        channel = torch.arange(3, device=device)
        picked = images[rows[:, None, None, None], channel[:, None, None], y[:, None, :, None], x[:, None, None, :]]
        if self.pad and self.pad_mode == "zero":
            picked *= inside_y[:, None, :, None] & inside_x[:, None, None, :]
        return picked


def _reflect(index: Tensor, size: int) -> Tensor:
    """Mirror indices into 0 .. size - 1 without repeating the edge; they are off by less than `size`."""
    index = index.abs()
    return torch.where(index >= size, 2 * (size - 1) - index, index)


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Map uint8 [B, 3, H, W] to float32 (x / 255 - mean) / std, channels last.

    Args:
        images: the batch.
        mean: [3], of values from 0 to 1.
        std: [3].
    """
    scale = (1.0 / (255.0 * std))[:, None, None]
    shift = (mean / std)[:, None, None]
    floats = images.to(torch.float32, memory_format=torch.channels_last)
    return floats.mul_(scale).sub_(shift)
