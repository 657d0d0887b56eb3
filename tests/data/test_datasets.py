import errno
import io
import os
import pickle
import re
import shutil
import tarfile
import zipfile
from collections import Counter
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hierbench.config.options import Options
from hierbench.config.recipe import load_recipe
from hierbench.data import prepared as data
from hierbench.data.datasets import shapes
from hierbench.data.prepare import prepare
from hierbench.execution.inputs import find_inputs
from hierbench.utils.errors import UserError


def nothing_is_left(folder):
    return not [path for path in folder.rglob("*") if path.is_file() and "downloads" not in path.parts]


def test_shapes_has_the_shipped_tree():
    tree = Path(__file__).parents[2] / "benchmarks/hierarchies/shapes.csv"
    rows = [tuple(line.split(",")) for line in tree.read_text(encoding="utf-8").splitlines()[1:]]
    assert rows == list(shapes.class_paths().values())
    families = Counter(row[0] for row in rows)
    assert list(families.values()) == [12] * 4 and set(Counter(row[1] for row in rows).values()) == {4}


def test_prepare_shapes(tmp_path):
    seen = []
    prepared = prepare("shapes", tmp_path, progress=seen.append)
    assert seen == sorted(seen) and len(seen) > 20 and seen[-1] == 1.0
    assert prepared.meta["splits"] == {"train": 4800, "val": 960, "test": 1920}
    assert prepared.hierarchy("height").level_sizes == (4, 12, 48)
    images, labels = prepared.arrays("val")
    assert images.shape == (960, 3, 32, 32) and np.bincount(labels).tolist() == [20] * 48
    train, _ = prepared.arrays("train")
    assert not (train[:960] == images).all(axis=(1, 2, 3)).any()  # the splits are drawn apart
    assert data.verify("shapes", tmp_path).digest == prepared.digest
    again = prepare("shapes", tmp_path)
    assert again.digest == prepared.digest
    with (prepared.folder / "test-images.npy").open("r+b") as file:
        file.seek(5000)
        file.write(b"\x01\x02\x03")
    with pytest.raises(UserError, match="does not match its digest"):
        data.verify("shapes", tmp_path)
    with (prepared.folder / "test-images.npy").open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(UserError, match="is damaged"):
        data.find("shapes", tmp_path)


def test_tiny_imagenet(tmp_path, miniatures):
    archive = miniatures.tiny_imagenet(tmp_path / "tiny.zip")
    prepared = prepare("tiny-imagenet", tmp_path / "data", archive)
    assert prepared.meta["splits"] == {"train": 1800, "val": 200, "test": 200}
    hierarchy = prepared.hierarchy("height")
    assert (hierarchy.height, hierarchy.num_classes) == (11, 200)
    assert list(hierarchy.classes) == sorted(hierarchy.classes)
    images, labels = prepared.arrays("train")
    assert (images[0] == 128).all()  # a grey JPEG became three equal channels
    assert np.bincount(labels).tolist() == [9] * 200
    assert prepared.ids("test") == [f"val_{row}.JPEG" for row in range(200)] and len(prepared.ids("train")) == 1800
    (prepared.folder / "test-ids.json").write_text('["val_1.JPEG"]')
    with pytest.raises(UserError, match=r"test-ids\.json is damaged"):
        prepared.ids("test")


def test_tiny_imagenet_holds_out_the_last_by_number(tmp_path, miniatures):
    from hierbench.data.datasets.tiny_imagenet import open_source
    from hierbench.data.source import SourceRequest

    def few(name, content):
        """Twelve images of one class, two of the others."""
        return content if re.search(r"n02795169|_[01]\.JPEG|val|txt", name) else None

    archive = miniatures.tiny_imagenet(tmp_path / "ordered.zip", train_per_class=12, change=few)
    black, other = io.BytesIO(), tmp_path / "tiny-imagenet-200.zip"
    Image.new("L", (64, 64), 0).save(black, "JPEG")
    with zipfile.ZipFile(archive) as ordered, zipfile.ZipFile(other, "w") as shuffled:
        for name in sorted(ordered.namelist(), reverse=True):  # 9 comes first, then 8 to 2, 11, 10, 1 and 0
            shuffled.writestr(name, black.getvalue() if name.endswith("_11.JPEG") else ordered.read(name))
    source = open_source(SourceRequest(other, tmp_path))
    assert [len(source.labels[split]) for split in ("train", "val")] == [11 + 199, 200]
    assert sum(not piece.load().any() for piece in source.pieces() if piece.split == "val") == 1


@pytest.mark.parametrize("per_class", [10, pytest.param(100, marks=pytest.mark.thorough)])
def test_real_photographs(tmp_path, shared, per_class):
    """Those of the subset, or a tenth of its training images and all others."""
    archive, of_class = shared / "data/tiny-imagenet-200-subset.zip", Counter()
    if per_class < 100:
        with zipfile.ZipFile(archive) as all_images, zipfile.ZipFile(tmp_path / "part.zip", "w") as part:
            for name in all_images.namelist():
                of_class[Path(name).parent] += "/train/" in name
                if of_class[Path(name).parent] <= per_class:
                    part.writestr(name, all_images.read(name))
        archive = tmp_path / "part.zip"
    prepared = prepare("tiny-imagenet", tmp_path, archive)
    assert prepared.meta["splits"] == {"train": 180 * per_class, "val": 20 * per_class, "test": 4_000}
    images, _ = prepared.arrays("test")
    assert 90 < images[::40].mean() < 140


@pytest.mark.parametrize("name", ["tiny-imagenet", "cifar100", "fgvc", "grocery"])
def test_without_a_network_the_error_names_alternatives(tmp_path, monkeypatch, name):
    import urllib.request

    def no_network(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    with pytest.raises(UserError, match=f"no route to host.*hierbench data prepare {name} --source FILE"):
        prepare(name, tmp_path)
    assert nothing_is_left(tmp_path)


def test_cifar100(tmp_path, miniatures):
    source = miniatures.cifar100(tmp_path / "source")
    prepared = prepare("cifar100", tmp_path / "data", source)
    assert prepared.meta["splits"] == {"train": 200, "val": 200, "test": 100}
    assert "differ from the official CIFAR-100" in prepared.meta["remark"]
    assert prepared.hierarchy("height").level_sizes == (2, 4, 8, 20, 100)
    images, labels = prepared.arrays("val")
    original = pickle.loads((source / "cifar-100-python/train").read_bytes())
    assert (images.reshape(200, -1) == original["data"][200:]).all()  # the last of each class
    assert labels.tolist() == original["fine_labels"][200:]


def test_cifar100_from_the_archive(tmp_path, miniatures):
    source = miniatures.cifar100(tmp_path / "source")
    with tarfile.open(tmp_path / "cifar.tar.gz", "w:gz") as tar:
        tar.add(source / "cifar-100-python", "cifar-100-python")
    prepared = prepare("cifar100", tmp_path / "data", tmp_path / "cifar.tar.gz")
    assert prepared.digest == prepare("cifar100", tmp_path / "other", source).digest


def test_cifar100_from_its_pictures(tmp_path, miniatures):
    folder = miniatures.cifar100_pictures(tmp_path / "pictures")
    prepared = prepare("cifar100", tmp_path / "data", folder)
    assert prepared.meta["splits"] == {"train": 200, "val": 200, "test": 100} and not prepared.ordered
    assert "whose file names have the smallest SHA-256" in prepared.meta["remark"]
    smallest = sorted(os.listdir(folder / "train/apple"), key=lambda name: sha256(name.encode()).digest())
    assert sorted(prepared.ids("val")[:2]) == sorted(smallest[:2])
    images, labels = prepared.arrays("val")
    assert labels.tolist() == sorted(labels)
    assert (
        images[0] == np.asarray(Image.open(folder / "train/apple" / prepared.ids("val")[0])).transpose(2, 0, 1)
    ).all()
    archive = shutil.make_archive(tmp_path / "pictures", "zip", folder)
    for name in ("cifar100", "cifar100-frozen", "cifar100-small"):
        assert prepare(name, tmp_path / name, Path(archive)).digest == prepared.digest
    with pytest.raises(UserError, match="authors drops the last images"):
        find_inputs(
            load_recipe("cifar100", protocol="authors"), Options("cifar100", data_dir=tmp_path / "data", dry_run=True)
        )


def test_pictures_with_names_of_others_and_of_macos(tmp_path, miniatures):
    """The same names in each class, endings of other programs, and the files that a Mac adds to a zip."""
    folder = miniatures.cifar100_pictures(tmp_path / "pictures")
    digest = prepare("cifar100", tmp_path / "data", folder).digest
    for path in sorted((folder / "test").rglob("*.png")):
        path.rename(path.with_name("0.PNG"))
        (path.parent / "._0.PNG").write_bytes(b"x")
    (folder / "__MACOSX/test/apple").mkdir(parents=True)
    (folder / "__MACOSX/test/apple/1.png").write_bytes(b"x")
    archive = Path(shutil.make_archive(tmp_path / "pictures", "zip", folder))
    prepared = prepare("cifar100", tmp_path / "other", archive)
    assert prepared.digest == digest == prepare("cifar100", tmp_path / "third", folder).digest
    assert prepared.ids("test")[:2] == ["apple/0.PNG", "aquarium_fish/0.PNG"]
    content = bytearray(archive.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1  # of the last member in the directory
    archive.write_bytes(content)
    with pytest.raises(UserError, match="is encrypted: unpack it"):
        prepare("cifar100", tmp_path / "fourth", archive)


def test_grocery(tmp_path, miniatures):
    folder = miniatures.grocery(tmp_path / "store")
    prepared = prepare("grocery", tmp_path / "data", folder)
    assert prepared.meta["splits"] == {"train": 162, "val": 162, "test": 162}
    assert "train.txt, val.txt, test.txt differ from the official lists" in prepared.meta["remark"]
    assert prepared.hierarchy("height").level_sizes == (3, 43, 81)
    images, labels = prepared.arrays("test")
    assert images.shape == (162, 3, 224, 224) and labels.tolist() == np.repeat(np.arange(81), 2).tolist()
    assert prepared.ids("test")[0] == "test/Fruit/Apple/Golden-Delicious/Golden-Delicious_000.jpg"
    assert prepare("grocery-frozen", tmp_path / "other", folder / "dataset").digest == prepared.digest


def test_cub(tmp_path, miniatures):
    """The whole dataset, 100 of its classes, and the public part with them: other lists, the same images."""
    official = miniatures.cub(tmp_path / "birds")
    prepared = prepare("cub", tmp_path / "data", official)
    assert prepared.meta["splits"] == {"train": 200, "val": 200, "test": 400}
    assert prepared.hierarchy("height").level_sizes == (13, 37, 121, 200)
    assert prepared.ids("val")[43] == "044.Frigatebird/0001.jpg" and prepared.arrays("val")[1].tolist() == [*range(200)]
    classes = prepare("cub-frozen", tmp_path / "classes", official.parent)
    assert classes.meta["splits"] == {"train": 100, "val": 100, "test": 200}
    part = prepare("cub-frozen", tmp_path / "part", miniatures.cub(tmp_path / "part_of_birds", part=True))
    assert part.hierarchy("height").digest() == classes.hierarchy("height").digest()
    for split, rows in classes.meta["splits"].items():
        assert [name.partition(".")[2] for name in classes.ids(split)] == part.ids(split)
        assert len(part.ids(split)) == rows


def test_fgvc(tmp_path, miniatures):
    prepared = prepare("fgvc", tmp_path / "data", miniatures.fgvc(tmp_path))
    hierarchy = prepared.hierarchy("height")
    assert hierarchy.classes == ("707-320", "747-100", "747-200", "DHC-1", "F/A-18")
    assert hierarchy.level_sizes == (3, 4, 5) and hierarchy.height == 3
    assert hierarchy.distances[0].tolist() == [0, 2, 2, 3, 3]
    assert prepared.ids("train")[0] == "0000000.jpg" and prepared.ids("test")[-1] == "0000029.jpg"
    images, labels = prepared.arrays("test")
    assert images.shape == (10, 3, 224, 224) and labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert (images[:, :, -3:] > 250).mean() < 0.2  # the white banner is cropped


def test_a_killed_unpacking_is_not_taken_for_a_whole_one(tmp_path, miniatures, monkeypatch):
    source = miniatures.fgvc(tmp_path / "source")
    archive = tmp_path / "fgvc.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source / "fgvc-aircraft-2013b", "fgvc-aircraft-2013b")
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="is not a complete tar archive"):
        prepare("fgvc", tmp_path / "data", archive)
    assert not list((tmp_path / "data/downloads").iterdir())
    archive.write_bytes(content)
    assert prepare("fgvc", tmp_path / "data", archive).meta["splits"]["train"] == 10


def test_a_full_disk_is_found_out_before_writing(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: os.terminal_size((0, 0)) and type("U", (), {"free": 10}))
    with pytest.raises(UserError, match="nothing was kept"):
        prepare("shapes", tmp_path)
    assert nothing_is_left(tmp_path)


@pytest.fixture
def _few_shapes(monkeypatch):
    monkeypatch.setattr(shapes, "PER_CLASS", {"train": 2, "val": 1, "test": 1})


@pytest.mark.usefixtures("_few_shapes")
def test_a_disk_that_fills_up_while_writing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("hierbench.data.prepare.write_json", full)
    with pytest.raises(UserError, match="nothing was kept"):
        prepare("shapes", tmp_path)
    assert nothing_is_left(tmp_path)


@pytest.mark.usefixtures("_few_shapes")
def test_files_of_a_killed_preparation_are_removed(tmp_path):
    partial = tmp_path / "prepared/.shapes.partial"
    partial.mkdir(parents=True)
    (partial / "train-images.npy").write_bytes(b"half")
    assert data.find("shapes", tmp_path) is None
    prepared = prepare("shapes", tmp_path)
    assert not partial.exists()
    assert sorted(path.name for path in prepared.folder.iterdir()) == [
        "meta.json",
        *(f"{split}-{array}.npy" for split in ("test", "train", "val") for array in ("images", "labels")),
    ]
