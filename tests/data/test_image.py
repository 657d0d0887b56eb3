"""Decoding and stretching against Pillow, and on processors of several kinds."""

import hashlib
import io
import os
import subprocess
import sys
import zlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from hierbench.data.image import UnreadableImageError, decode, decode_pixels, stretched
from tests.support.crafted import chunk, png
from tests.tools.bench import photograph

SIZE = (224, 224)


def saved(array, kind="JPEG", **options):
    file = io.BytesIO()
    (array if isinstance(array, Image.Image) else Image.fromarray(array)).save(file, kind, **options)
    return file.getvalue()


def pillow(content, size=None):
    with Image.open(io.BytesIO(content)) as image:
        image = image.convert("RGB")
        if size is not None:
            image = image.resize(size[::-1], Image.Resampling.BILINEAR)
        return np.asarray(image).transpose(2, 0, 1).astype(int)


@pytest.mark.parametrize(("width", "height"), [(500, 375), (331, 500), (224, 300), (120, 90), (1, 7)])
def test_photographs_against_pillow(tmp_path, width, height):
    content = photograph(tmp_path / "a.jpg", width, height, seed=width).read_bytes()
    assert (decode_pixels(content).numpy() == pillow(content)).all()  # the same pixels before they are stretched
    difference = np.abs(decode(content, "a", SIZE)[0] - pillow(content, SIZE))
    assert difference.max() <= 1 and difference.mean() < 0.25


@pytest.mark.parametrize("shape", [(375, 500), (300, 40), (9, 9), (1, 7)])
def test_stretching_does_not_depend_on_the_layout(shape):
    rows = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8))
    planes = rows.permute(2, 0, 1).contiguous()
    expected = F.interpolate(planes[None], SIZE, mode="bilinear", antialias=True, align_corners=False)[0]
    grey = planes[:1].expand(3, -1, -1)
    assert stretched(planes, SIZE).equal(expected) and stretched(rows.permute(2, 0, 1), SIZE).equal(expected)
    assert stretched(grey, SIZE).equal(stretched(grey.contiguous(), SIZE))


def test_kinds_of_files():
    """As torchvision's image folders have them, that is as Pillow converts them."""
    noise = np.random.default_rng(0).integers(0, 256, (40, 50, 4), dtype=np.uint8)
    plain, palette = noise[..., :3], Image.fromarray(noise[..., :3]).quantize(16)
    kinds = {
        "progressive": saved(plain, progressive=True),
        "full colour": saved(plain, subsampling=0),
        "half colour": saved(plain, subsampling=1),
        "RGB in a JPEG": saved(plain, keep_rgb=True),
        "grey": saved(noise[..., 0]),
        "CMYK": saved(Image.fromarray(plain).convert("CMYK")),
        "PNG": saved(plain, "PNG"),
        "transparent PNG": saved(noise, "PNG"),
        "palette": saved(palette, "PNG"),
        "transparent palette": saved(palette, "PNG", transparency=3),
        "grey and alpha": saved(Image.fromarray(noise).convert("LA"), "PNG"),
        "black and white": saved(Image.fromarray(noise[..., 0] > 99), "PNG"),
        "WebP": saved(plain, "WEBP"),
        "transparent WebP": saved(noise, "WEBP", lossless=True),
        "moving WebP": saved(plain, "WEBP", save_all=True, append_images=[Image.new("RGB", (50, 40))]),
    }
    for name, content in kinds.items():
        assert (decode_pixels(content).numpy() == pillow(content)).all(), name
        exact = decode(content, name, (40, 50))
        assert exact.shape == (1, 3, 40, 50) and exact.flags.c_contiguous
        assert (exact[0] == pillow(content)).all(), name  # one that has the size is not resampled
        if name in ("grey and alpha", "transparent palette"):
            assert (decode_pixels(content).numpy() == torchvision_pixels(content)).all(), name


def test_a_truncated_photograph_is_an_error(tmp_path):
    content = photograph(tmp_path / "a.jpg", 200, 150, seed=1).read_bytes()
    for share in (0.1, 0.5, 0.9, 0.99):
        with pytest.raises(UnreadableImageError, match=r"image cut cannot be read \(.+\)"):
            decode(content[: int(share * len(content))], "cut", SIZE)


def test_the_pixels_are_the_same_on_every_processor(tmp_path):
    """PyTorch picks its code by the processor; the code for an old one gives the same digest."""
    file = photograph(tmp_path / "a.jpg", 500, 375, seed=3)
    code = (
        "import hashlib, pathlib, sys\n"
        "from hierbench.data.image import decode\n"
        "print(hashlib.sha256(decode(pathlib.Path(sys.argv[1]).read_bytes(), 'a', (224, 224)).tobytes()).hexdigest())\n"
    )
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    ran = subprocess.run(
        [sys.executable, "-c", code, file], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == hashlib.sha256(decode(file.read_bytes(), "a", SIZE).tobytes()).hexdigest()


def torchvision_pixels(content):
    """A file decoded by torchvision and converted to bytes by it."""
    import torch
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms.v2.functional import to_dtype

    image = decode_image(torch.frombuffer(bytearray(content), dtype=torch.uint8), ImageReadMode.RGB)
    return to_dtype(image, torch.uint8, scale=True).numpy()


def test_16_bits_keep_the_high_byte():
    """Pillow would clip grey values at 255."""
    grey = np.random.default_rng(0).integers(0, 1 << 16, (9, 7), dtype=np.uint16)
    content = saved(Image.fromarray(grey), "PNG")
    assert (decode_pixels(content).numpy() == (grey >> 8)).all()
    assert (decode_pixels(content).numpy() == torchvision_pixels(content)).all()
    assert (pillow(content) == 255).mean() > 0.9
    pixels = np.random.default_rng(1).integers(0, 1 << 16, (9, 7, 3), dtype=np.uint16)
    colour = png(7, 9, b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels), bits=16)
    assert (decode_pixels(colour).numpy() == torchvision_pixels(colour)).all()


def test_the_orientation_in_exif_data_is_ignored():
    """As torchvision's image folders and decoders do by default."""
    noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    turned, plain = saved(noise, exif=exif), saved(noise)
    assert b"Exif" in turned and (decode_pixels(turned).numpy() == decode_pixels(plain).numpy()).all()
    assert decode_pixels(turned).shape == (3, 40, 50)


def ppm():
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PPM")
    return buffer.getvalue()


IMAGES = {f"side {side}": png(side, side, bytes(100)) for side in (9500, 12_000, 30_000, 0x7FFFFFFF)} | {
    "text bomb": png(4, 4, bytes(100), more=chunk(b"zTXt", b"k\0\0" + zlib.compress(b"a" * (100 << 20), 9))),
    # Read by a program from outside, or by a format that is not asked for.
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n",
    "PPM": ppm(),
}


@pytest.mark.parametrize("case", IMAGES)
def test_a_file_that_is_not_an_image(little_memory, case):
    with pytest.raises(UnreadableImageError, match=r"image x cannot be read \(.+\)"):
        decode(IMAGES[case], "x", (4, 4))
