"""Stanford Cars (Krause et al., 3DRR 2013): its 8,144 training images of 196 models, the only ones with labels at hand.

Read from a copy (`train_perfect_preds.txt` has the label of each image, from 1), or from the official folders with
`devkit/cars_train_annos.mat`.
"""

from pathlib import Path

from scipy.io import loadmat

from hierbench.data.datasets.copied_images import CopiedImage, Copy, file_reader, find_copy, images_below, open_images
from hierbench.data.source import Source, SourceRequest
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_given

CARS_COPY = Copy(
    "Stanford Cars (for research only)",
    "fmejbah/car_dataset1",
    "2ac6920297f51277ac4e24afd231c46d35077831",
    "ad4f90e1c905774d763935891efb5d73d7498a30ee49ec96e79d8221fb09c342",
)
CARS_SIZE = (224, 224)


def open_source(request: SourceRequest) -> Source:
    """Read `cars_train/NUMBER.jpg`, the names of the classes and the labels."""
    root = find_copy(request, CARS_COPY, "stanford-cars", "cars_train")
    devkit = root / "devkit" if (root / "devkit").is_dir() else root
    try:
        names = [str(name[0]) for name in loadmat(str(devkit / "cars_meta.mat"))["class_names"][0]]
        labels = _labels(root, devkit)
        files = dict(images_below(root, "cars_train/*.jpg"))
        images = [CopiedImage(name, names[labels[path.name] - 1], file_reader(path)) for path, name in files.items()]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{devkit}: its names or labels cannot be read ({error})") from None
    return open_images("stanford-cars", root, images, CARS_SIZE, CARS_COPY.digest)


def _labels(root: Path, devkit: Path) -> dict[str, int]:
    """Return {file name: label from 1}."""
    listed = root / "train_perfect_preds.txt"
    if listed.is_file():
        lines = read_given(listed, listed.name).split()
        return {f"{number:05d}.jpg": int(line) for number, line in enumerate(lines, 1)}
    rows = loadmat(str(devkit / "cars_train_annos.mat"))["annotations"][0]
    return {str(row["fname"][0]): int(row["class"][0, 0]) for row in rows}
