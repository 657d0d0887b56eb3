"""Omniglot (Lake, Salakhutdinov, Tenenbaum, Science 2015, MIT licence): its two small background sets, 242 characters.

Each character was drawn once by each of 20 people: 12 drawers are for training, 3 for validation and 5 for test. Read
from the zip files; both have Greek and Latin, the same images, which count once.
"""

import re
import zipfile
from functools import partial

from hierbench.data.datasets.copied_images import MAX_COPIED_BYTES, CopiedImage, Copy, find_copy, open_images
from hierbench.data.source import Source, SourceRequest
from hierbench.utils.archives import ARCHIVE_ERRORS, zip_member
from hierbench.utils.errors import UserError

OMNIGLOT_COPY = Copy(
    "Omniglot (MIT licence)",
    "brendenlake/omniglot",
    "057f034baf2ecb8530bc5710e5a23584d2a519cc",
    "7c87c7069a350f5656d0bf2a362da564a045620215ef54644d78153bf659d1a1",
)
OMNIGLOT_SIZE = (105, 105)
DRAWERS = {"test": 5, "val": 3}  # of 20
DRAWING = re.compile(r"[^/]+/(([^/]+)/(character\d+)/\d+_(\d+)\.png)")


def open_source(request: SourceRequest) -> Source:
    """Read `python/images_background_small{1,2}.zip`, `ALPHABET/characterNN/XXXX_DRAWER.png`."""
    root = find_copy(request, OMNIGLOT_COPY, "omniglot", "python")
    images = dict[str, CopiedImage]()
    for number in (1, 2):
        file = root / "python" / f"images_background_small{number}.zip"
        try:
            archive = zipfile.ZipFile(file)
        except (*ARCHIVE_ERRORS, OSError) as error:
            raise UserError(f"{file} is not a complete zip file ({error})") from None
        for name in archive.namelist():
            match = DRAWING.fullmatch(name)
            if match:
                read = partial(zip_member, archive, name, MAX_COPIED_BYTES)
                label = f"{match[2]} {match[3]}"
                images.setdefault(match[1], CopiedImage(match[1], label, read, group=f"drawer {match[4]}"))
    return open_images("omniglot", root, list(images.values()), OMNIGLOT_SIZE, OMNIGLOT_COPY.digest, DRAWERS)
