"""A twentieth of iNaturalist 2019 in miniature, and the pieces that a preparation loads."""

import hashlib
import subprocess
from dataclasses import replace

import pytest

from hierbench.data import writer
from hierbench.data.datasets import inat19, split_lists


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
        tree = offline / inat19.INAT19_TREE.name
        edges = [line.split() for line in (files / inat19.INAT19_TREE.name).read_text().splitlines()]
        above, kept = {child: parent for parent, child in edges}, set(classes)
        for name in classes:
            while name in above:
                kept.add(name := above[name])
        tree.write_text("".join(f"{parent} {child}\n" for parent, child in edges if child in kept))
        sha256 = hashlib.sha256(tree.read_bytes()).hexdigest()
        monkeypatch.setattr(inat19, "INAT19_TREE", replace(inat19.INAT19_TREE, sha256=sha256))
        lists = offline / inat19.INAT19_SPLITS.name
        class_of = miniatures.inat19_lists(lists, classes, per_split)
        blob = subprocess.run(["git", "hash-object", lists], capture_output=True, text=True, check=True).stdout.strip()
        monkeypatch.setattr(inat19, "INAT19_SPLITS", replace(inat19.INAT19_SPLITS, blob=blob))
        monkeypatch.setattr(split_lists, "IMAGE_SIZE", (16, 16))
        return offline, class_of

    return make


@pytest.fixture
def inat(make_inat, inat_classes):
    """A twentieth of the classes, and 100 images."""
    return make_inat(inat_classes[::20], {"train": 60, "val": 20, "test": 20})


@pytest.fixture
def loaded(monkeypatch):
    """The pieces that were loaded."""
    seen, write = [], writer.RowFile.write
    monkeypatch.setattr(writer.RowFile, "write", lambda self, piece: seen.append(piece) or write(self, piece))
    return seen
