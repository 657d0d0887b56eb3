"""Batched augmentation on the device: crops, flips and normalisation of whole batches.

Shapes: B batch, b examples of it, N examples, images [., 3, H, W].

A crop picks the examples `rows` [b] from uint8 images [N, 3, H, W] and augments them: [b, 3, H, W], 0 to 255. `rows`
may be a part of a batch: those from `first` on of `batch` examples, all of them by default. Random numbers come from
the global generator of the images' device and are drawn for the whole batch, so that an example's do not depend on how
the batch is divided.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hierbench.config.sections import Augment

CROP_AREA = (0.08, 1.0)  # of a random part, as a share of the image
RATIO = 4.0 / 3.0  # of a random part's sides, at most, either way
ATTEMPTS = 10


@dataclass(frozen=True)
class PadAndCrop:
    """Random crop after padding, and horizontal flip; uint8 stays uint8.

    Attributes:
        pad: pixels added on each side before cropping back to H x W; 0 for no crop.
        pad_mode: "reflect" (the edge pixel not repeated) or "zero" (black, before normalising).
        flip: flip half of the images.
        last_offset: draw from all 2 pad + 1 offsets; without it the last is never drawn (docs/protocols.md, row 23).
    """

    pad: int
    pad_mode: Literal["reflect", "zero"]
    flip: bool
    last_offset: bool = True

    def __call__(self, images: Tensor, rows: Tensor, batch: int | None = None, first: int = 0) -> Tensor:
        """Pick lines of pixels, then pixels of each: on a CPU far faster than indexing by four indices."""
        if not self.pad and not self.flip:
            return images[rows]
        num = len(rows)
        height, width = images.shape[2:]
        device = images.device
        batch = batch or num
        part = slice(first, first + num)
        y = torch.arange(height, device=device).expand(num, height)
        x = torch.arange(width, device=device).expand(num, width)
        if self.flip:
            flipped = torch.rand(batch, 1, device=device)[part] < 0.5
            x = torch.where(flipped, width - 1 - x, x)
        if self.pad:
            offset = torch.randint(-self.pad, self.pad + self.last_offset, (2, batch, 1), device=device)[:, part]
            y = y + offset[0]
            x = x + offset[1]
        inside_y = (y >= 0) & (y < height)
        inside_x = (x >= 0) & (x < width)
        y = _reflect(y, height)
        x = _reflect(x, width)
        line = ((rows[:, None] * 3 + torch.arange(3, device=device))[:, :, None] * height + y[:, None]).flatten()
        picked = images.view(-1, width).index_select(0, line).view(num, 3, height, width)
        picked = picked.gather(3, x[:, None, None].expand(num, 3, height, width))
        if self.pad and self.pad_mode == "zero":
            picked *= inside_y[:, None, :, None] & inside_x[:, None, None, :]
        return picked


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random part of each image stretched to the whole, bilinearly, and, with `flip`, half of them flipped.

    Like torchvision's transform of the same name, but not rounded to whole grey values: the part has from 8 to 100 %
    of the area and sides in a ratio between 3/4 and 4/3, drawn at most ten times; if none fits, it is the whole image.
    """

    flip: bool

    def __call__(self, images: Tensor, rows: Tensor, batch: int | None = None, first: int = 0) -> Tensor:
        """Pick the examples and sample all parts at once."""
        num = len(rows)
        height, width = images.shape[2:]
        device = images.device
        batch = batch or num
        part = slice(first, first + num)
        top, left, part_height, part_width = (values[part] for values in random_parts(batch, height, width, device))
        y = _sample_points(top, part_height, height)
        x = _sample_points(left, part_width, width)
        if self.flip:
            flipped = torch.rand(batch, 1, device=device)[part] < 0.5
            x = torch.where(flipped, x.flip(1), x)
        x = (x * (2.0 / (width - 1)) - 1.0)[:, None, :].expand(num, height, width)
        y = (y * (2.0 / (height - 1)) - 1.0)[:, :, None].expand(num, height, width)
        grid = torch.stack([x, y], dim=3)
        return F.grid_sample(images[rows].to(grid.dtype), grid, mode="bilinear", align_corners=True)


def make_crop(augment: Augment) -> PadAndCrop | RandomResizedCrop:
    """Return the crop that a recipe's section configures."""
    if augment.crop == "random-resized":
        return RandomResizedCrop(augment.flip)
    return PadAndCrop(augment.pad, augment.pad_mode, augment.flip, augment.last_offset)


def random_parts(batch: int, height: int, width: int, device: torch.device) -> tuple[Tensor, ...]:
    """Return top, left, height and width of a random part of each image, [B] int64 each."""
    area = torch.empty(ATTEMPTS, batch, device=device).uniform_(*CROP_AREA) * (height * width)
    ratio = torch.empty(ATTEMPTS, batch, device=device).uniform_(-math.log(RATIO), math.log(RATIO)).exp()
    part_width = (area * ratio).sqrt().round().long()
    part_height = (area / ratio).sqrt().round().long()
    fits = (part_width > 0) & (part_width <= width) & (part_height > 0) & (part_height <= height)
    first = fits.int().argmax(dim=0, keepdim=True)  # of the attempts; the first one if no attempt fits
    any_fits = fits.any(dim=0)
    part_width = torch.where(any_fits, part_width.gather(0, first)[0], width)
    part_height = torch.where(any_fits, part_height.gather(0, first)[0], height)
    place = torch.rand(2, batch, device=device)
    top = (place[0] * (height - part_height + 1)).long().minimum(height - part_height)
    left = (place[1] * (width - part_width + 1)).long().minimum(width - part_width)
    return top, left, part_height, part_width


def _sample_points(start: Tensor, length: Tensor, size: int) -> Tensor:
    """Return [B, size]: the centres of `size` pixels that cover `length` pixels from `start` on, clamped to these."""
    centres = (torch.arange(size, device=start.device) + 0.5) / size
    points = (centres * length[:, None] - 0.5).clamp_min(0.0).minimum(length[:, None] - 1.0)
    return start[:, None] + points


def _reflect(index: Tensor, size: int) -> Tensor:
    """Mirror indices into 0 .. size - 1 without repeating the edge; they are off by less than `size`."""
    index = index.abs()
    return torch.where(index >= size, 2 * (size - 1) - index, index)


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Map [B, 3, H, W] with values from 0 to 255 to (x / 255 - mean) / std, channels last.

    Args:
        images: the batch, uint8 or float; a float batch may be overwritten.
        mean: [3], of values from 0 to 1; the result has its dtype.
        std: [3].
    """
    # As lines of 3 W numbers, which is twice as fast on a CPU as broadcasting over three channels.
    num, _, height, width = images.shape
    pixels = images.permute(0, 2, 3, 1).contiguous().to(mean.dtype)
    scale = (1.0 / (255.0 * std)).repeat(width)
    shift = (mean / std).repeat(width)
    pixels.view(num * height, width * 3).mul_(scale).sub_(shift)
    return pixels.permute(0, 3, 1, 2)
