"""iNaturalist 2019 and tieredImageNet-H: real trees and split lists, miniature archives in the official layouts."""

import errno
import gzip
import hashlib
import importlib
import io
import itertools
import os
import signal
import subprocess
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from hierbench.config.recipe import load_recipe
from hierbench.data import missing_images as missing_images
from hierbench.data import prepared, writer
from hierbench.data.datasets import image_finder, inat19, split_lists, tieredimagenet_h
from hierbench.data.datasets.split_lists import listed_file, read_lists
from hierbench.data.prepare import prepare
from hierbench.utils.errors import UserError

SIZE = (16, 16)
preparing = importlib.import_module("hierbench.data.prepare")


@pytest.fixture(scope="session")
def files(shared):
    return shared / "data/making-better-mistakes"


@pytest.fixture(scope="session")
def inat_classes(files):
    lines = (files / "inaturalist19_isa.txt").read_text().split()
    return sorted({name for name in lines if name.startswith("nat")})


@pytest.fixture
def make_inat(tmp_path, files, miniatures, monkeypatch):
    """Makes a folder with the tree of some classes and small split lists, in place of those whose digest is known."""

    def make(classes, per_split):
        offline = tmp_path / "offline"
        offline.mkdir()
        tree = offline / inat19.TREE.name
        edges = [line.split() for line in (files / inat19.TREE.name).read_text().splitlines()]
        above, kept = {child: parent for parent, child in edges}, set(classes)
        for name in classes:
            while name in above:
                kept.add(name := above[name])
        tree.write_text("".join(f"{parent} {child}\n" for parent, child in edges if child in kept))
        sha256 = hashlib.sha256(tree.read_bytes()).hexdigest()
        monkeypatch.setattr(inat19, "TREE", replace(inat19.TREE, sha256=sha256))
        lists = offline / inat19.SPLITS.name
        class_of = miniatures.inat19_lists(lists, classes, per_split)
        blob = subprocess.run(["git", "hash-object", lists], capture_output=True, text=True, check=True).stdout.strip()
        monkeypatch.setattr(inat19, "SPLITS", replace(inat19.SPLITS, blob=blob))
        monkeypatch.setattr(split_lists, "IMAGE_SIZE", SIZE)
        return offline, class_of

    return make


@pytest.fixture
def inat(make_inat, inat_classes):
    """A twentieth of the classes, and 100 images."""
    return make_inat(inat_classes[::20], {"train": 60, "val": 20, "test": 20})


@pytest.fixture(scope="session")
def tiered_lists(files, tmp_path_factory):
    return read_lists(tieredimagenet_h.TREE, tieredimagenet_h.SPLITS, tmp_path_factory.mktemp("none"), files)


@pytest.fixture
def loaded(monkeypatch):
    """The pieces that were loaded."""
    seen, write = [], writer.RowFile.write
    monkeypatch.setattr(writer.RowFile, "write", lambda self, piece: seen.append(piece) or write(self, piece))
    return seen


def extracted(archive, folder):
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


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
    listed = read_lists(inat19.TREE, inat19.SPLITS, tmp_path, offline).names
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


def test_corrupt_images_are_all_named_at_the_end_of_the_scan(tmp_path, inat, miniatures, monkeypatch):
    offline, class_of = inat
    bad = sorted(class_of)[:3]

    def change(image, content):
        return {bad[0]: content[:100], bad[1]: b"", bad[2]: b"GIF89a no image"}.get(image, content)

    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", class_of, change=change)
    with monkeypatch.context() as patch, pytest.raises(UserError, match=r"100 images cannot be .* has more than"):
        patch.setattr(image_finder, "LARGEST", 1)
        prepare("inat19", tmp_path / "large", archive, offline=offline)
    with pytest.raises(UserError, match="3 images cannot be read") as error:
        prepare("inat19", tmp_path / "data", archive, offline=offline)
    assert all(image in str(error.value) for image in bad) and "\n" not in str(error.value)
    assert prepared.find("inat19", tmp_path / "data") is None
    dataset = prepare("inat19", tmp_path / "data", archive, offline=offline, allow_missing=True)
    assert sum(dataset.meta["splits"].values()) == 97 and "3 images cannot be read" in dataset.meta["remark"]


def test_another_source_begins_anew(tmp_path, inat, miniatures, loaded):
    offline, class_of = inat
    first = dict(list(class_of.items())[:50])
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", first)
    with pytest.raises(UserError, match="50 of 100 images are missing"):
        prepare("inat19", tmp_path / "data", archive, offline=offline)
    loaded.clear()
    miniatures.inat19_archive(archive, class_of)  # the same path, another content
    prepare("inat19", tmp_path / "data", archive, offline=offline)
    assert len(loaded) == 100


def changed(content, where):
    """An archive, plain or gzipped, that is damaged at a place of its 51st member, or at a share of its length."""
    if isinstance(where, float):
        return content[: int(len(content) * where)]
    content = bytearray(content)
    if where == "checksum of gzip":
        content[-6] ^= 1  # all images are whole
        return content
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        offset, last = tar.getmembers()[50].offset, tar.getmembers()[-1]
    if where == "a bad header":
        content[offset + 20] ^= 1
        return content
    end = last.offset_data + (last.size + 511) // 512 * 512
    return content[: {"at a header": offset, "in a header": offset + 100, "before the end": end}[where]]


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        *itertools.product(["plain", "nested"], ["at a header", "in a header", "before the end", "a bad header"]),
        *itertools.product(["gzip"], [0.3, 0.9999, "checksum of gzip"]),
    ],
)
def test_a_truncated_or_damaged_archive(tmp_path, inat, miniatures, kind, where):
    offline, class_of = inat
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", class_of)
    content = archive.read_bytes() if kind == "gzip" else gzip.decompress(archive.read_bytes())
    archive.write_bytes(changed(content, where))
    if kind == "nested":
        with tarfile.open(tmp_path / "outer.tar", "w") as tar:
            tar.add(archive, "inner.tar")
        archive = tmp_path / "outer.tar"
    with pytest.raises(UserError, match=rf"{archive.name} is truncated or damaged .* read from it are discarded"):
        prepare("inat19", tmp_path / "data", archive, offline=offline, allow_missing=True)
    assert prepared.find("inat19", tmp_path / "data") is None
    assert not list((tmp_path / "data").rglob("*.npy"))


def test_a_damaged_archive_costs_its_own_images_alone(tmp_path, inat, miniatures, loaded):
    offline, class_of = inat
    names, folder = sorted(class_of), tmp_path / "both"
    folder.mkdir()
    miniatures.inat19_archive(folder / "a.tar.gz", {name: class_of[name] for name in names[:70]})
    second = miniatures.inat19_archive(folder / "b.tar.gz", {name: class_of[name] for name in names[70:]})
    content = second.read_bytes()
    second.write_bytes(content[:-20])
    with pytest.raises(UserError, match=r"b\.tar\.gz is truncated or damaged .*the 30 of 100 images"):
        prepare("inat19", tmp_path / "data", folder, offline=offline)
    second.write_bytes(content)
    digest = prepare("inat19", tmp_path / "one", folder, offline=offline).digest
    loaded.clear()
    assert prepare("inat19", tmp_path / "data", folder, offline=offline).digest == digest
    assert len(loaded) == 30


class KilledError(BaseException):
    """In place of a kill: nothing may catch it as an error."""


@pytest.mark.thorough  # a real kill is below
@pytest.mark.parametrize("missing", [False, True])
def test_killed_at_any_step_after_the_scan(tmp_path, make_inat, inat_classes, miniatures, missing):
    """Every write, rename and removal after the images are read fails once, and then once more on the way back."""
    offline, class_of = make_inat(inat_classes[::100], {"train": 6, "val": 2, "test": 2})
    kept = dict(list(class_of.items())[: 9 if missing else 10])
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", kept)
    options = {"offline": offline, "allow_missing": missing}
    undisturbed = prepare("inat19", tmp_path / "whole", archive, **options)
    steps = []

    def dying(name, function, at):
        def step(*arguments, **options):
            steps.append(name)
            if len(steps) == at:
                raise KilledError
            return function(*arguments, **options)

        return step

    def attempt(folder, at):
        steps.clear()
        with pytest.MonkeyPatch.context() as patch:
            for name in ("write_json", "write_atomically", "arrays_digest", "sync_folder"):
                patch.setattr(preparing, name, dying(name, getattr(preparing, name), at))
            patch.setattr(missing_images, "compact", dying("compact", missing_images.compact, at))
            for name in ("replace", "unlink"):
                patch.setattr(type(folder), name, dying(name, getattr(type(folder), name), at))
            try:
                return prepare("inat19", folder, archive, **options)
            except KilledError:
                return None

    number = 1
    while True:
        folder = tmp_path / f"data-{number}"
        if attempt(folder, number) is not None:
            break
        dataset = prepared.find("inat19", folder)
        assert dataset is None or dataset.digest == undisturbed.digest
        attempt(folder, 3)  # killed again early on
        again = prepare("inat19", folder, archive, **options)
        assert prepared.verify("inat19", folder).digest == undisturbed.digest == again.digest
        assert sorted(os.listdir(again.folder)) == sorted(os.listdir(undisturbed.folder))
        number += 1
    assert number > 10


@pytest.mark.parametrize("step", ["arrays_digest", "write_json"])
def test_images_that_came_after_a_killed_preparation_without_them(tmp_path, inat, miniatures, monkeypatch, step):
    """The arrays without the missing images, which the killed command has written, are not taken for whole ones."""
    offline, class_of = inat
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", class_of)
    undisturbed = prepare("inat19", tmp_path / "whole", archive, offline=offline)
    folder, later = extracted(archive, tmp_path / "images"), tmp_path / "later"
    later.mkdir()
    moved = {path: later / path.name for path in sorted(folder.rglob("*.jpg"))[::7]}
    for path, place in moved.items():
        path.rename(place)

    real = getattr(preparing, step)

    def killed(*arguments, **options):
        if step == "arrays_digest" or arguments[0].name == "meta.json":
            raise KilledError
        return real(*arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(preparing, step, killed)
        prepare("inat19", tmp_path / "data", folder, offline=offline, allow_missing=True)
    for path, place in moved.items():
        place.rename(path)
    again = prepare("inat19", tmp_path / "data", folder, offline=offline)
    assert again.digest == undisturbed.digest == prepared.verify("inat19", tmp_path / "data").digest
    assert sorted(os.listdir(again.folder)) == sorted(os.listdir(undisturbed.folder))


def test_a_mistake_in_the_command_loses_nothing(tmp_path, inat, miniatures, loaded):
    offline, class_of = inat
    folder = extracted(miniatures.inat19_archive(tmp_path / "a.tar.gz", class_of), tmp_path / "images")
    undisturbed = prepare("inat19", tmp_path / "whole", folder, offline=offline).digest
    moved = {path: tmp_path / path.name for path in sorted(folder.rglob("*.jpg"))[:40]}
    for path, place in moved.items():
        path.rename(place)
    with pytest.raises(UserError, match="40 of 100 images are missing"):
        prepare("inat19", tmp_path / "data", folder, offline=offline)
    for arguments in ({}, {"source": tmp_path / "typo", "offline": offline}, {"source": folder, "offline": tmp_path}):
        with pytest.raises(UserError):
            prepare("inat19", tmp_path / "data", **arguments)
    for path, place in moved.items():
        place.rename(path)
    loaded.clear()
    assert prepare("inat19", tmp_path / "data", folder, offline=offline).digest == undisturbed
    assert len(loaded) == 40


@pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "Permission denied")])
def test_a_disk_that_does_not_take_the_images(tmp_path, inat, miniatures, monkeypatch, number, words):
    offline, class_of = inat
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", class_of)
    count = []
    pwrite = os.pwrite

    def refusing(*arguments):
        count.append(1)
        if len(count) > 40:
            raise OSError(number, os.strerror(number))
        return pwrite(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refusing)
        with pytest.raises(UserError, match=f"{words}; images that were read are kept") as error:
            prepare("inat19", tmp_path / "data", archive, offline=offline)
    assert "\n" not in str(error.value) and prepared.find("inat19", tmp_path / "data") is None
    assert prepare("inat19", tmp_path / "data", archive, offline=offline).meta["splits"]["train"] == 60


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


KILLED = """
import os, sys, time
from dataclasses import replace
from pathlib import Path
from hierbench.data import writer
from hierbench.data.datasets import inat19, split_lists
from hierbench.data.prepare import prepare
sha256, blob, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
inat19.TREE, inat19.SPLITS = replace(inat19.TREE, sha256=sha256), replace(inat19.SPLITS, blob=blob)
split_lists.IMAGE_SIZE = 16, 16
writer.FLUSH_EVERY, writer.WINDOW, writer.TOGETHER = 5 * 3 * 16 * 16, 1, 1
write = writer.RowFile.write
writer.RowFile.write = lambda self, piece: (time.sleep(0.02), os.write(1, b"piece\\n"), write(self, piece))[2]
print(prepare("inat19", folder / "data", folder / "a.tar.gz", offline=folder / "offline").digest)
"""


def test_a_killed_preparation_resumes_and_ends_the_same(cli, tmp_path, inat, miniatures):
    offline, class_of = inat
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", class_of)
    undisturbed = prepare("inat19", tmp_path / "whole", archive, offline=offline)
    command = (tmp_path, inat19.TREE.sha256, inat19.SPLITS.blob, tmp_path)
    for lines in (15, 30):
        process = cli.start(*command, python=("-c", KILLED))
        for _ in range(lines):
            assert process.stdout.readline() == "piece\n"
        process.kill()
        assert process.finish().code == -signal.SIGKILL
        assert prepared.find("inat19", tmp_path / "data") is None
    done = cli.start(*command, python=("-c", KILLED)).finish()
    *pieces, digest = done.out.split()
    assert digest == undisturbed.digest, done.err
    assert 45 <= len(pieces) <= 90  # of 100; what was flushed before each kill is not read again
    dataset = prepared.verify("inat19", tmp_path / "data")
    assert dataset.meta == undisturbed.meta
    assert sorted(os.listdir(dataset.folder)) == sorted(os.listdir(undisturbed.folder))


def test_two_at_once_prepare_once(cli, tmp_path, inat, miniatures):
    offline, class_of = inat
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", class_of)
    command = (tmp_path, inat19.TREE.sha256, inat19.SPLITS.blob, tmp_path)
    processes = [cli.start(*command, python=("-c", KILLED)) for _ in range(2)]
    outputs = [process.finish().ok().out.split() for process in processes]
    assert outputs[0][-1] == outputs[1][-1] == prepare("inat19", tmp_path / "x", archive, offline=offline).digest
    assert sorted(len(output) - 1 for output in outputs) == [0, 100]
