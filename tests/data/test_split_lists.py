"""iNaturalist 2019 and tieredImageNet-H: real trees and split lists, miniature archives in the official layouts."""

import hashlib
import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from hierbench.config.recipe import load_recipe
from hierbench.data import prepared
from hierbench.data.datasets import inat19, split_lists, tieredimagenet_h
from hierbench.data.datasets.split_lists import listed_file, read_lists
from hierbench.data.prepare import prepare
from hierbench.utils.errors import UserError
from tests.support.miniatures import extracted

SIZE = (16, 16)


@pytest.fixture(scope="session")
def tiered_lists(files, tmp_path_factory):
    return read_lists(
        tieredimagenet_h.TIERED_TREE, tieredimagenet_h.TIERED_SPLITS, tmp_path_factory.mktemp("none"), files
    )


def nearly_equal(ours, pillows):
    """Whether pixels differ as the two ways to stretch do: by one grey level, rarely."""
    difference = np.abs(ours.astype(int) - pillows)
    return difference.max() <= 1 and difference.mean() < 0.25


def test_table_1_from_the_real_split_lists(tiered_lists):
    expected = load_recipe("tieredimagenet-h").expected
    assert {split: len(rows) for split, rows in tiered_lists.labels.items()} == {
        "train": expected.train,
        "val": expected.val,
        "test": expected.test,
    }
    assert list(tiered_lists.paths) == sorted(tiered_lists.paths) and len(tiered_lists.paths) == 608
    for split, rows in tiered_lists.labels.items():
        assert set(np.bincount(rows)) == {{"train": 700, "val": 25, "test": 25}[split]}
        assert (np.diff(rows) >= 0).all()  # in order of class, so that the authors' dropped batch is the last classes
    train = zip(tiered_lists.names["train"], tiered_lists.labels["train"], strict=True)
    classes = list(tiered_lists.paths)
    assert all(name.startswith(f"{classes[label]}_") for name, label in train)


def test_inat19_from_the_archive(tmp_path, inat, miniatures):
    offline, class_of = inat
    archive = miniatures.inat19_archive(tmp_path / "train_val2019.tar.gz", class_of)
    shares = []
    dataset = prepare("inat19", tmp_path / "data", archive, shares.append, offline=offline)
    assert dataset.meta["splits"] == {"train": 60, "val": 20, "test": 20}
    assert shares == sorted(shares) and shares[-1] == 1.0
    tree = dataset.hierarchy("height")
    assert (tree.height, tree.num_classes) == (7, 51)
    assert "train 60 instead of 187385" in dataset.meta["remark"]
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    assert f"not the official train_val2019.tar.gz: its md5 is {md5}" in dataset.meta["remark"]
    assert dataset.meta["checksums"][archive.name] == md5
    assert "CC BY-NC-SA 4.0" in dataset.meta["notice"]
    with tarfile.open(archive) as tar:
        contents = {name.rpartition("/")[2]: tar.extractfile(name).read() for name in tar.getnames()}
    listed = read_lists(inat19.INAT19_TREE, inat19.INAT19_SPLITS, tmp_path, offline).names
    for split in ("train", "test"):
        images, labels = dataset.arrays(split)
        for image, label, name in zip(images, labels, listed[split], strict=True):
            assert tree.classes[label] == class_of[name]
            with Image.open(io.BytesIO(contents[name])) as photograph:
                stretched = photograph.convert("RGB").resize(SIZE, Image.Resampling.BILINEAR)
            assert nearly_equal(image, np.asarray(stretched).transpose(2, 0, 1))
    assert prepared.verify("inat19", tmp_path / "data").digest == dataset.digest


def test_folder_archive_and_plain_tar_give_the_same(tmp_path, inat, miniatures):
    offline, class_of = inat
    archive = miniatures.inat19_archive(tmp_path / "train_val2019.tar.gz", class_of)
    extracted(archive, tmp_path / "deep/er")
    with tarfile.open(tmp_path / "plain.tar", "w") as tar:
        tar.add(tmp_path / "deep/er/train_val2019", "x")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/images").symlink_to(tmp_path / "deep")
    (tmp_path / "deep/loop").symlink_to(tmp_path / "linked")
    digests = {
        prepare("inat19", tmp_path / f"data-{i}", source, offline=offline).digest
        for i, source in enumerate([archive, tmp_path / "deep", tmp_path / "plain.tar", tmp_path / "linked"])
    }
    assert len(digests) == 1


def test_tiered_imagenet_from_a_folder_and_from_the_official_archives(
    tmp_path, files, tiered_lists, miniatures, monkeypatch
):
    """The real lists of 456,000 names; 60 of the images are there. ILSVRC2012_img_train.tar holds a tar per class."""
    monkeypatch.setattr(split_lists, "IMAGE_SIZE", SIZE)
    names = [name for names in tiered_lists.names.values() for name in names[::7600]]
    source = miniatures.ilsvrc(tmp_path / "ILSVRC2012", names)
    with pytest.raises(UserError, match=r"455,940 of 456,000 images are missing: train/n\S+\.JPEG, .*--allow-missing"):
        prepare("tieredimagenet-h", tmp_path / "data", source, offline=files)
    assert prepared.find("tieredimagenet-h", tmp_path / "data") is None
    missing = (tmp_path / "data/prepared/tieredimagenet-h-missing.txt").read_text().splitlines()
    assert len(missing) == 455_940 and not {f"train/{name}" for name in names} & set(missing)
    dataset = prepare("tieredimagenet-h", tmp_path / "data", source, offline=files, allow_missing=True)
    assert dataset.meta["splits"] == {"train": 56, "val": 2, "test": 2}
    assert "455,940 of 456,000 images are missing" in dataset.meta["remark"]
    classes = dataset.hierarchy("depth").classes
    labels = dataset.arrays("train")[1]
    assert [classes[label] for label in labels] == [name.partition("_")[0] for name in names[:56]]
    images = dataset.arrays("train")[0]
    path = next(source.rglob(names[3]))
    with Image.open(path) as image:
        expected = np.asarray(image.convert("RGB").resize(SIZE, Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert nearly_equal(images[3], expected)
    archives = tmp_path / "archives"
    archives.mkdir()
    with tarfile.open(archives / "ILSVRC2012_img_train.tar", "w") as outer:
        for folder in sorted((source / "train").iterdir()):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for image in folder.iterdir():
                    tar.add(image, image.name)
            miniatures.add_file(outer, f"{folder.name}.tar", inner.getvalue())
    with tarfile.open(archives / "ILSVRC2012_img_val.tar", "w") as tar:
        for image in (source / "val").iterdir():
            tar.add(image, image.name)
    again = prepare("tieredimagenet-h", tmp_path / "again", archives, offline=files, allow_missing=True)
    assert again.digest == dataset.digest


def test_a_missing_class_folder_is_named(tmp_path, inat, miniatures):
    offline, class_of = inat
    gone = next(iter(class_of.values()))
    kept = {image: name for image, name in class_of.items() if name != gone}
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", kept)
    lines = []  # the terms, before anything is read
    with pytest.raises(UserError, match=rf"images are missing: .*; whole classes: .*train/{gone}"):
        prepare("inat19", tmp_path / "data", archive, offline=offline, announce=lines.append)
    assert len(lines) == 1 and "CC BY-NC-SA 4.0" in lines[0]


def test_two_files_of_one_name(tmp_path, inat, miniatures):
    offline, class_of = inat
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", class_of)
    for place in ("one", "two"):
        extracted(archive, tmp_path / "images" / place)
    with pytest.raises(UserError, match=r"occurs twice: \S+one\S+ and \S+two"):
        prepare("inat19", tmp_path / "data", tmp_path / "images", offline=offline)


def test_lists_that_name_an_image_twice(tmp_path, miniatures):
    miniatures.split_lists(tmp_path / "s.zip", "s", {"train": {"a": ["x.jpg"]}, "test": {"b": ["x.jpg"]}})
    (tmp_path / "both").write_text("root a\nroot b\n")
    (tmp_path / "one").write_text("root a\n")
    both, incomplete, lists = (
        listed_file(name, sha256=hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
        for name in ("both", "one", "s.zip")
    )
    with pytest.raises(UserError, match=r"lists x\.jpg twice, in train and in test"):
        read_lists(both, lists, tmp_path, tmp_path)
    with pytest.raises(UserError, match="do not have the same classes: b"):
        read_lists(incomplete, lists, tmp_path, tmp_path)


def test_offline_files_are_checked_too(tmp_path, files):
    with pytest.raises(UserError, match=r"--offline .*: no file tiered_imagenet_isa\.txt; it is https://raw"):
        prepare("tieredimagenet-h", tmp_path / "data", tmp_path, offline=tmp_path)
    (tmp_path / "tiered_imagenet_isa.txt").write_text("a b\n")
    with pytest.raises(UserError, match=r"is not tiered_imagenet_isa\.txt of commit f0bb7d0: its SHA-256 is"):
        prepare("tieredimagenet-h", tmp_path / "data", tmp_path, offline=tmp_path)


@pytest.mark.parametrize(("name", "archive"), [("inat19", "82 GB"), ("tieredimagenet-h", "your own copy of ImageNet")])
def test_a_dataset_without_download_names_the_archive_to_get(tmp_path, name, archive):
    with pytest.raises(UserError, match=f"{archive}.*hierbench data prepare {name} --source"):
        prepare(name, tmp_path / "data")
    assert not (tmp_path / "data").exists()
