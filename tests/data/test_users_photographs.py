"""Photographs as people have them: turned by a camera, in several formats, twice, or broken."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from hierbench.data.duplicates import describe_duplicates
from hierbench.data.image import decode_pixels, exif_orientation, turned
from hierbench.data.prepare import prepare
from hierbench.data.user.template import TemplateRequest, write_recipe
from tests.support import miniatures
from tests.support.birds import write_file

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def save(path, orientation=1, **options):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(PIXELS).save(path, exif=exif, **options)
    return path.read_bytes()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_turned_as_pillow_does(tmp_path, orientation):
    for name in ("a.jpg", "a.webp", "a.avif", "a.png", "a.tiff"):
        content = save(tmp_path / name, orientation)
        assert exif_orientation(content) == (1 if name == "a.tiff" else orientation)  # Pillow turns a TIFF itself
        with Image.open(tmp_path / ("a.png" if name == "a.tiff" else name)) as image:
            upright = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
        assert np.array_equal(turned(decode_pixels(content), exif_orientation(content)).permute(1, 2, 0), upright), name


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "AVIF", "JPEG"])
def test_formats_that_pillow_reads(tmp_path, kind):
    Image.fromarray(PIXELS).save(tmp_path / "a", kind)
    assert decode_pixels((tmp_path / "a").read_bytes()).shape == (3, 20, 30)


def test_turned_broken_and_repeated_photographs_are_counted(tmp_path):
    birds = miniatures.birds(tmp_path / "birds")
    first, *others = sorted((birds / "images/wren").glob("*"))
    save(first.with_name("turned.jfif"), 6, format="JPEG")
    other = birds / "images/mallard/again.jpg"
    other.write_bytes(others[0].read_bytes())
    (birds / "images/wren/broken.jpg").write_bytes(b"no image")
    said = list[str]()
    request = TemplateRequest(
        "birds", str(birds / "images"), str(birds / "taxonomy.csv"), tmp_path / "new.toml", skip_broken=True
    )
    write_recipe(request, lambda share: None, said.append)
    assert any("again.jpg" in line and "another" in line for line in said)
    file = write_file(birds, change=("[expected]", "skip_broken = true\n[expected]"))
    remark = prepare(file, tmp_path / "data").meta["remark"]
    assert "1 image that cannot be read left out: wren/broken.jpg" in remark
    assert "1 image was turned upright by the EXIF orientation" in remark
    assert "again.jpg" in remark and "another" in remark


def test_duplicates_across_splits_and_classes():
    digests = {"train": [b"1", b"2", b"3", b"3"], "val": [b"4"], "test": [b"1", b"2", b"5"]}
    labels = {"train": np.array([0, 0, 1, 0]), "val": np.array([0]), "test": np.array([0, 1, 1])}
    names = {split: [f"{split}{row}" for row in range(len(rows))] for split, rows in labels.items()}
    assert describe_duplicates(digests, labels, names) == [
        "1 train image is also in another class, first train3 as train2",
        "2 test images are also in train, 1 under another label, first test0 as train0",
    ]
