"""Images: from the bytes of a file to pixels of one size.

JPEGs are decoded by simplejpeg or, with warnings or odd colours, by torchvision, with the same pixels as Pillow, and
stretched by PyTorch in integers, which gives the same result on every processor and is faster than Pillow; the two
differ by at most one grey level.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from hierbench.utils.errors import UserError
from hierbench.utils.files import LARGEST_TEXT, read_bytes

if TYPE_CHECKING:
    from torch import Tensor

Images = NDArray[np.uint8]
LARGEST_IMAGE = 1 << 28  # bytes of a user's image file
IMAGE_FORMATS = (
    "JPEG",
    "PNG",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
    "AVIF",
)  # PIL reads others with programs from outside (EPS)
ORIENTATION = 0x0112  # the tag of EXIF data, from 1, upright, to 8
# An image of more than 89 million pixels, which a small file can hold: PIL warns, and raises at twice as many.
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


class UnreadableImageError(UserError):
    """An image that is missing or damaged, found while reading it."""


def decode(
    content: bytes,
    name: str,
    size: tuple[int, int],
    crop: Callable[[Tensor], Tensor] | None = None,
    turn: Callable[[bytes, Tensor], Tensor] | None = None,
) -> Images:
    """Read an image, crop it and stretch it with antialiased bilinear interpolation: uint8 [1, 3, H, W].

    Args:
        content: of the file.
        name: for the error.
        size: (H, W); an image of this size is not resampled.
        crop: applied first, to uint8 [3, H', W'].
        turn: applied before, to the content of the file and its pixels.

    Raises:
        UnreadableImageError: it is damaged, is in no format of `IMAGE_FORMATS`, or `crop` raised an error.
    """
    try:
        pixels = decode_pixels(content)
        if turn is not None:
            pixels = turn(content, pixels)
        if crop is not None:
            pixels = crop(pixels)
        if pixels.shape[1:] != size:
            pixels = stretched(pixels, size)
        # PyTorch would copy on all cores, and each image has one of its own already.
        return np.ascontiguousarray(pixels.numpy())[None]
    except Exception as error:  # decoders fail in many ways
        reason = decoding_error(error, "not an image that Pillow reads" if content else "the file is empty")
        raise UnreadableImageError(f"image {name} cannot be read ({reason})") from None


def decoding_error(error: Exception, unknown: str) -> str:
    """Return why a decoder failed, in one line: `unknown` for files that are not images; a MemoryError is raised."""
    if isinstance(error, MemoryError):
        raise error
    # The text of an UnidentifiedImageError names an object of Python.
    return unknown if isinstance(error, UnidentifiedImageError) else str(error).strip().partition("\n")[0]


def decode_file(
    path: Path,
    size: tuple[int, int],
    crop: Callable[[Tensor], Tensor] | None = None,
    limit: int = LARGEST_TEXT,
    turn: Callable[[bytes, Tensor], Tensor] | None = None,
) -> Images:
    """Read an image from a regular file of up to `limit` bytes, as `decode` does; a missing one is unreadable."""
    try:
        content = read_bytes(path, limit, follow=True)
    except OSError as error:
        raise UnreadableImageError(f"image {path} cannot be read ({error.strerror or error})") from None
    return decode(content, str(path), size, crop, turn)


def exif_orientation(content: bytes) -> int:
    """Return the orientation that a camera wrote into an image's file, 1 to 8; 1, upright, without one."""
    if not any(mark in content for mark in (b"Exif", b"eXIf", b"EXIF", b"ftypavif")):  # JPEG, PNG, WebP, AVIF
        return 1
    with Image.open(io.BytesIO(content), formats=IMAGE_FORMATS) as image:
        orientation = 1 if image.format == "TIFF" else image.getexif().get(ORIENTATION, 1)  # PIL turns a TIFF itself
    return orientation if orientation in range(1, 9) else 1


def turned(pixels: Tensor, orientation: int) -> Tensor:
    """Return pixels [3, H, W] upright, given their EXIF orientation."""
    if orientation >= 5:  # rows are columns
        pixels = pixels.transpose(1, 2)
    flipped = {2: (2,), 3: (1, 2), 4: (1,), 6: (2,), 7: (1, 2), 8: (1,)}.get(orientation, ())
    return pixels.flip(flipped).contiguous() if flipped else pixels.contiguous()


def decode_pixels(content: bytes) -> Tensor:
    """Return the RGB pixels of an image's file, of several images the first, uint8 [3, H, W].

    As torchvision's image folders do: grey values are repeated, palettes are looked up, transparency is dropped, and
    the orientation in EXIF data is ignored (see `turned`). Of 16-bit values the high byte is kept, as torchvision's
    `decode_image` followed by `to_dtype(uint8, scale=True)` does it; Pillow alone would clip grey ones at 255, which
    leaves white.
    """
    import torch

    plain = _plain_jpeg(content)
    if plain is not None:
        return torch.from_numpy(plain).permute(2, 0, 1)
    with Image.open(io.BytesIO(content), formats=IMAGE_FORMATS) as image:  # reads the header, and refuses bombs
        if image.format == "JPEG" and image.mode == "RGB":
            from torchvision.io import ImageReadMode, decode_jpeg

            pixels: Tensor = decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8), ImageReadMode.RGB)
            return pixels
        if image.mode.startswith("I;16"):
            grey = torch.from_numpy((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
            return grey.expand(3, *grey.shape)
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


def _plain_jpeg(content: bytes) -> Images | None:
    """Return the pixels [H, W, 3] of a JPEG in colour that simplejpeg, faster than torchvision, reads, else None."""
    from simplejpeg import decode_jpeg, decode_jpeg_header

    try:
        height, width, space, _ = decode_jpeg_header(content, strict=True)
        if space not in ("YCbCr", "RGB") or height * width > (Image.MAX_IMAGE_PIXELS or 0):
            return None
        pixels: Images = decode_jpeg(content, "RGB", strict=True)
        return pixels
    except ValueError:  # another format, or damaged
        return None


def stretched(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Return pixels [3, H', W'], uint8, at another size (H, W): bilinear interpolation with antialiasing.

    Decoders give pixels row by row with the three colours side by side. The stride of a batch of one is ambiguous:
    unless it is that of a whole image, PyTorch assumes another layout and copies the pixels into planes first.
    """
    import torch.nn.functional as F

    batch = pixels.permute(1, 2, 0)[None].permute(0, 3, 1, 2)
    return F.interpolate(batch, size, mode="bilinear", antialias=True, align_corners=False)[0]


def center_crop(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the largest central part of pixels [3, H, W] that has the shape of `size`, (H', W')."""
    height, width = pixels.shape[1:]
    scale = min(height / size[0], width / size[1])
    tall, wide = (min(side, max(1, round(scale * part))) for side, part in zip((height, width), size, strict=True))
    top = (height - tall) // 2
    left = (width - wide) // 2
    return pixels[:, top : top + tall, left : left + wide]
