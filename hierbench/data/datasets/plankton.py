"""PlanktonSet 1.0, the training images of the National Data Science Bowl 2015: 30,336 images of 121 kinds of plankton.

Cowen, Sponaugle, Robinson and Luo, NOAA NCEI accession 0127422, doi 10.7289/V5D21VJD. Most images have about 60x60
pixels; they are stretched to 128x128. Read from a copy, or from the competition's archive, which has the same layout.
"""

from hierbench.data.datasets.copied_images import Copy, class_folders, find_copy, open_images
from hierbench.data.source import Source, SourceRequest

PLANKTON_COPY = Copy(
    "PlanktonSet 1.0 (NOAA; the competition's rules: for research)",
    "Jaime-Rangel/Alexnet_Matlab",
    "e0eff0e96e4528ff820af06b8d42c812f57253b2",
    "aa4849442036072e3f79639be32e7ce7c69f2731b1d77b77e10048e575b1bc45",
)
PLANKTON_SIZE = (128, 128)


def open_source(request: SourceRequest) -> Source:
    """Read `train/CLASS/NUMBER.jpg`."""
    root = find_copy(request, PLANKTON_COPY, "plankton", "train/acantharia_protist")
    images = class_folders(root, "train/*/*.jpg")
    return open_images("plankton", root, images, PLANKTON_SIZE, PLANKTON_COPY.digest)
