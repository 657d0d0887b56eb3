"""Images: from the bytes of a file to pixels of one size.

JPEGs are decoded by torchvision, with the same pixels as Pillow, and stretched by PyTorch in integers, which gives the
same result on every processor and is faster than Pillow; the two differ by at most one grey level.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hierbench.utils.errors import UserError
from hierbench.utils.files import LARGEST_TEXT, read_bytes

if TYPE_CHECKING:
    from torch import Tensor

Images = NDArray[np.uint8]
FORMATS = ("JPEG", "PNG")  # of the official images; PIL reads others with programs from outside (EPS)
# An image of more than 89 million pixels, which a small file can hold: PIL warns, and raises at twice as many.
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


class UnreadableImageError(UserError):
    """An image that is missing or damaged, found while reading it."""


def decode(content: bytes, name: str, size: tuple[int, int], crop: Callable[[Tensor], Tensor] | None = None) -> Images:
    """Read an image, crop it and stretch it with antialiased bilinear interpolation: uint8 [1, 3, H, W].

    Args:
        content: of the file.
        name: for the error.
        size: (H, W); an image of this size is not resampled.
        crop: applied first, to uint8 [3, H', W'].

    Raises:
        UnreadableImageError: it is damaged or not a JPEG or PNG, or `crop` raised an error.
    """
    import torch.nn.functional as F

    try:
        pixels = pixels_of(content)
        if crop is not None:
            pixels = crop(pixels)
        if pixels.shape[1:] != size:
            pixels = F.interpolate(pixels[None], size, mode="bilinear", antialias=True, align_corners=False)[0]
        return pixels.contiguous().numpy()[None]
    except MemoryError:
        raise
    except Exception as error:  # decoders fail in many ways
        reason = str(error).strip().partition("\n")[0]
        raise UnreadableImageError(f"image {name} cannot be read ({reason})") from None


def decode_file(
    path: Path, size: tuple[int, int], crop: Callable[[Tensor], Tensor] | None = None, limit: int = LARGEST_TEXT
) -> Images:
    """Read an image from a regular file of up to `limit` bytes, as `decode` does; a missing one is unreadable."""
    try:
        content = read_bytes(path, limit, follow=True)
    except OSError as error:
        raise UnreadableImageError(f"image {path} cannot be read ({error.strerror or error})") from None
    return decode(content, str(path), size, crop)


def pixels_of(content: bytes) -> Tensor:
    """Return the RGB pixels of a JPEG or PNG file, uint8 [3, H, W]."""
    import torch

    with Image.open(io.BytesIO(content), formats=FORMATS) as image:  # reads the header, and refuses bombs
        if image.format == "JPEG" and image.mode == "RGB":
            from torchvision.io import ImageReadMode, decode_jpeg

            pixels: Tensor = decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8), ImageReadMode.RGB)
            return pixels
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
