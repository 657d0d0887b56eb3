"""ImageNet-1K in its official layouts: the same examples from folders, from a flat val with the devkit, from tars."""

import pytest

from hierbench import Hierarchy
from hierbench.data.datasets.imagenet1k import open_source
from hierbench.data.source import SourceRequest
from hierbench.utils.errors import UserError


@pytest.fixture(scope="module")
def layouts(tmp_path_factory, miniatures):
    folder = tmp_path_factory.mktemp("imagenet")
    return {
        "folders": miniatures.imagenet1k(folder / "folders"),
        "flat": miniatures.imagenet1k(folder / "flat", flat=True),
        "tars": miniatures.imagenet1k(folder / "tars", archives=True),
    }


def opened(folder):
    return open_source(SourceRequest(folder, folder))


def test_all_layouts_are_the_same_examples(layouts):
    sources = [opened(folder) for folder in layouts.values()]
    first = sources[0]
    assert tuple(first.paths) == Hierarchy.load("imagenet1k").classes == tuple(sorted(first.paths))
    assert {split: len(rows) for split, rows in first.labels.items()} == {"train": 2000, "val": 1000, "test": 1000}
    classes = list(first.paths)
    assert all(
        name.startswith(classes[label]) for name, label in zip(first.names["val"], first.labels["val"], strict=True)
    )
    assert all(name.endswith("_100.JPEG") for name in first.names["val"])  # the last by number, not by text
    assert first.labels["test"].tolist() == [(row * 7) % 1000 for row in range(1000)]
    for other in sources[1:]:
        assert other.names == first.names and other.paths == first.paths
        assert all((other.labels[split] == first.labels[split]).all() for split in first.labels)
    for source in sources:
        rows = [(piece.split, piece.start) for piece in source.pieces()]
        assert len(set(rows)) == len(rows) == 4000


def test_images_are_decoded_to_one_size(layouts):
    for folder in layouts.values():
        source = opened(folder)
        assert next(source.pieces()).load().shape == (1, 3, 224, 224)
        assert "non-commercial" in source.notice and source.identity


def test_mistakes_are_one_line(tmp_path, layouts, miniatures):
    for source, message in ((None, "never downloaded"), (tmp_path / "none", "no folder")):
        with pytest.raises(UserError, match=message):
            open_source(SourceRequest(source, tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"1,000 of 1,000 classes have fewer than 2 train images: n01440764"):
        opened(tmp_path / "empty")
    cut = tmp_path / "cut"
    cut.mkdir()
    for path in layouts["tars"].iterdir():
        content = path.read_bytes()
        (cut / path.name).write_bytes(content[: len(content) // 2] if "train" in path.name else content)
    with pytest.raises(UserError, match=r"truncated or damaged|classes have fewer"):
        opened(cut)
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in layouts["tars"].iterdir():
        if "devkit" not in path.name:
            (bare / path.name).symlink_to(path)
    with pytest.raises(UserError, match="their labels are needed: ILSVRC2012_devkit_t12"):
        opened(bare)
