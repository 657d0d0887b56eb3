"""Preparations that damaged archives, kills, mistakes and full disks interrupt; on a miniature of iNaturalist."""

import errno
import gzip
import importlib
import io
import itertools
import os
import signal
import tarfile

import pytest

from hierbench.data import missing_images, prepared
from hierbench.data.datasets import image_finder, inat19
from hierbench.data.prepare import prepare
from hierbench.utils.errors import UserError
from tests.support.miniatures import extracted

preparing = importlib.import_module("hierbench.data.prepare")


def test_corrupt_images_are_all_named_at_the_end_of_the_scan(tmp_path, inat, miniatures, monkeypatch):
    offline, class_of = inat
    bad = sorted(class_of)[:3]

    def change(image, content):
        return {bad[0]: content[:100], bad[1]: b"", bad[2]: b"GIF89a no image"}.get(image, content)

    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", class_of, change=change)
    with monkeypatch.context() as patch, pytest.raises(UserError, match=r"100 images cannot be .* has more than"):
        patch.setattr(image_finder, "MAX_IMAGE_BYTES", 1)
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
def test_killed_at_any_step_after_the_scan(tmp_path, make_inat, inat_classes, miniatures):
    """Every second write, rename and removal after the images are read fails, and then once more on the way back.

    Some images are missing, so that arrays are compacted, too.
    """
    offline, class_of = make_inat(inat_classes[::100], {"train": 6, "val": 2, "test": 2})
    kept = dict(list(class_of.items())[:9])
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", kept)
    options = {"offline": offline, "allow_missing": True}
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
        number += 2
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


KILLED = """
import os, sys, time
from dataclasses import replace
from pathlib import Path
from hierbench.data import writer
from hierbench.data.datasets import inat19, split_lists
from hierbench.data.prepare import prepare
sha256, blob, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
inat19.INAT19_TREE = replace(inat19.INAT19_TREE, sha256=sha256)
inat19.INAT19_SPLITS = replace(inat19.INAT19_SPLITS, blob=blob)
split_lists.IMAGE_SIZE = 16, 16
writer.FLUSH_EVERY, writer.WINDOW, writer.PIECES_AT_ONCE = 5 * 3 * 16 * 16, 1, 1
write = writer.RowFile.write
writer.RowFile.write = lambda self, piece: (time.sleep(0.02), os.write(1, b"piece\\n"), write(self, piece))[2]
print(prepare("inat19", folder / "data", folder / "a.tar.gz", offline=folder / "offline").digest)
"""


def test_a_killed_preparation_resumes_and_ends_the_same(cli, tmp_path, inat, miniatures):
    offline, class_of = inat
    archive = miniatures.inat19_archive(tmp_path / "a.tar.gz", class_of)
    undisturbed = prepare("inat19", tmp_path / "whole", archive, offline=offline)
    command = (tmp_path, inat19.INAT19_TREE.sha256, inat19.INAT19_SPLITS.blob, tmp_path)
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
    command = (tmp_path, inat19.INAT19_TREE.sha256, inat19.INAT19_SPLITS.blob, tmp_path)
    processes = [cli.start(*command, python=("-c", KILLED)) for _ in range(2)]
    outputs = [process.finish().ok().out.split() for process in processes]
    assert outputs[0][-1] == outputs[1][-1] == prepare("inat19", tmp_path / "x", archive, offline=offline).digest
    assert sorted(len(output) - 1 for output in outputs) == [0, 100]
