"""FGVC-Aircraft: the banner cropped, resized to 224x224, the tree joined from the annotations."""

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor
from torchvision.datasets import FGVCAircraft

from hierbench.data.image import Images, decode_file, decode_pixels
from hierbench.data.source import Piece, Source, SourceRequest, source_identity, source_root
from hierbench.data.writer import SPLITS
from hierbench.utils.download import Remote
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest, read_given

FGVC_FOLDER = "fgvc-aircraft-2013b"
FGVC_SHA256 = "e4e323d410e29f0370c81eabdcbb0e2b813acea1de22891b70b58ff41bfc9834"
FGVC_ARCHIVE = Remote("FGVC-Aircraft", FGVCAircraft._URL, FGVC_SHA256)
BANNER = 20  # pixels at the bottom with the copyright
FGVC_SIZE = 224
LEVELS = ("manufacturer", "family", "variant")


def open_source(request: SourceRequest) -> Source:
    """Read the annotations in the folder that holds `fgvc-aircraft-2013b`, or in its archive; None downloads that."""
    dataset = "fgvc --protocol authors" if request.jpeg_quality else "fgvc"
    root = source_root(
        request, FGVC_FOLDER, FGVC_ARCHIVE, dataset, lambda downloads: (downloads / FGVC_FOLDER).is_dir()
    )
    images_folder = root / FGVC_FOLDER / "data" / "images"
    if not images_folder.is_dir():
        raise UserError(f"no folder {images_folder}; --source takes the folder that holds {FGVC_FOLDER}")
    annotated = {split: _annotations(root, split) for split in SPLITS}
    paths = _join_tree(annotated)
    variants = root / FGVC_FOLDER / "data" / "variants.txt"
    unlisted = paths.keys() - {line.strip() for line in _read_lines(variants)}
    if unlisted:
        raise UserError(f"{min(unlisted)} is not in {variants}, or the folder is incomplete")
    index = {variant: i for i, variant in enumerate(paths)}
    labels = {
        split: np.array([index[names["variant"]] for names in images.values()], dtype=np.int64)
        for split, images in annotated.items()
    }

    def pieces() -> Iterator[Piece]:
        for split, images in annotated.items():
            for row, image in enumerate(images):
                yield Piece(split, row, partial(load_image, images_folder / f"{image}.jpg", request.jpeg_quality))

    lists = sorted((root / FGVC_FOLDER / "data").glob("images_*.txt"))
    checksums = {path.name: file_digest(path, follow=True) for path in lists}
    ids = {split: [f"{image}.jpg" for image in images] for split, images in annotated.items()}
    return Source(
        paths, labels, (FGVC_SIZE, FGVC_SIZE), pieces, checksums=checksums, identity=source_identity(root), ids=ids
    )


def load_image(path: Path, jpeg_quality: int = 0) -> Images:
    """Read an image, crop the banner, re-save it as JPEG unless the quality is 0, and stretch it: [1, 3, 224, 224]."""

    def without_banner(pixels: Tensor) -> Tensor:
        cropped = pixels[:, : pixels.shape[1] - BANNER]
        if not jpeg_quality:
            return cropped
        saved = io.BytesIO()
        Image.fromarray(cropped.permute(1, 2, 0).numpy()).save(saved, "JPEG", quality=jpeg_quality)
        return decode_pixels(saved.getvalue())

    return decode_file(path, (FGVC_SIZE, FGVC_SIZE), without_banner)


def _read_lines(path: Path) -> list[str]:
    return read_given(path, str(path)).splitlines()


def _annotations(root: Path, split: str) -> dict[str, dict[str, str]]:
    """Return {image: {level: name}} of a split, from the three annotation files."""
    images: dict[str, dict[str, str]] = {}
    for level in reversed(LEVELS):  # the rows are in the order of the variants' file
        path = root / FGVC_FOLDER / "data" / f"images_{level}_{split}.txt"
        for line in _read_lines(path):
            image, _, name = line.partition(" ")
            if not name.strip() or not image or "/" in image or "\0" in image:
                raise UserError(f"{path.name}: a line is not 'image name': {line!r}")
            images.setdefault(image, {})[level] = name.strip()
    for image, names in images.items():
        if len(names) != len(LEVELS):
            raise UserError(f"image {image} of {split} has no {next(iter(set(LEVELS) - set(names)))} annotation")
    return images


def _join_tree(annotated: dict[str, dict[str, dict[str, str]]]) -> dict[str, tuple[str, ...]]:
    """Join the tree: {variant: (manufacturer, family, variant)}, variants in sorted order."""
    paths: dict[str, tuple[str, ...]] = {}
    for images in annotated.values():
        for image, names in images.items():
            path = tuple(names[level] for level in LEVELS)
            if paths.setdefault(names["variant"], path) != path:
                raise UserError(f"image {image}: {path} contradicts {paths[names['variant']]} of another image")
    return {variant: paths[variant] for variant in sorted(paths)}
