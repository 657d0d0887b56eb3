"""The German Traffic Sign Recognition Benchmark (Stallkamp et al., Neural Networks 32, 2012): 43 signs.

Read from a copy whose images are all scaled to 32x32, or from the official folders, whose images are scaled here. Test
is the official one; 30 frames of one sign share a track, the number before `_`, and a fifth of the tracks of each class
is for validation. A track of class 00014 of which eight frames are also test images is left out.
"""

import csv
import io

import numpy as np
import torch
from PIL import Image

from hierbench.data.datasets.copied_images import CopiedImage, Copy, file_reader, find_copy, images_below, open_images
from hierbench.data.image import Images, UnreadableImageError, stretched
from hierbench.data.source import Source, SourceRequest
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_given

GTSRB_COPY = Copy(
    "GTSRB (images of all sizes scaled to 32x32 by the copy)",
    "hergerr/traffic-sign-recognition",
    "80c6270c952cb66ec6eda521911d5cd992788333",
    "f13a6764b157a64e6a102538651b1d85d93e013f2925816bd36b5cae7cc323d8",
)
GTSRB_SIZE = (32, 32)
TRACKS_FOR_VALIDATION = 0.2


def open_source(request: SourceRequest) -> Source:
    """Read `GTSRB/Final_Training/Images/CLASS/TRACK_FRAME.ppm` and `GTSRB/Final_Test`."""
    root = find_copy(request, GTSRB_COPY, "gtsrb", "GTSRB/Final_Training") / "GTSRB"
    images = [
        CopiedImage(name, folder, file_reader(path), "train", f"{folder}/{path.name.partition('_')[0]}", _decode_ppm)
        for path, name in images_below(root, "Final_Training/Images/*/*.ppm")
        for folder in [path.parent.name]
    ]
    listed = next((f for f in sorted(root.glob("Final_Test/**/GT-final_test.csv"))), root / "GT-final_test.csv")
    rows = csv.DictReader(read_given(listed, listed.name).splitlines(), delimiter=";")
    label_of = {row.get("Filename", ""): row.get("ClassId", "") for row in rows}
    tested = dict(images_below(root, "Final_Test/Images/*.ppm"))
    if label_of.keys() != {path.name for path in tested}:
        raise UserError(f"{listed} does not list the images beside it")
    images += [
        CopiedImage(name, f"{int(label_of[path.name]):05d}", file_reader(path), "test", decode=_decode_ppm)
        for path, name in tested.items()
    ]
    return open_images("gtsrb", root, images, GTSRB_SIZE, GTSRB_COPY.digest, {"val": TRACKS_FOR_VALIDATION})


def _decode_ppm(content: bytes, name: str, size: tuple[int, int]) -> Images:
    """Return a PPM file's pixels [1, 3, H, W], stretched to a size."""
    try:
        with Image.open(io.BytesIO(content), formats=("PPM",)) as image:
            pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
    except (OSError, ValueError, Image.DecompressionBombWarning) as error:
        raise UnreadableImageError(f"image {name} cannot be read ({error})") from None
    pixels = pixels if pixels.shape[1:] == size else stretched(pixels, size)
    return np.ascontiguousarray(pixels.numpy())[None]
