"""The image sets that are read from public copies: miniatures in their layouts, groups on one side, and the draw."""

import csv
import gzip
import zipfile
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from hierbench.config.recipe import load_recipe
from hierbench.data.datasets.copied_images import near_equal
from hierbench.data.group_splits import DRAWN_SHARES, draw_splits
from hierbench.data.prepare import prepare
from hierbench.data.source import SourceRequest
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.readers import shipped_paths
from hierbench.leaderboard.protocol import read_protocol
from hierbench.utils.errors import UserError

SETS = read_protocol().decide
RNG = np.random.default_rng(0)


def draw_image(path, size=(12, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)


def classes(name):
    return list(shipped_paths(name))


def make_folders(root, name, prefix="", counts=(("train", 4), ("valid", 2), ("test", 2))):
    for label in classes(name):
        for split, num in counts:
            folder = "QUESTION MARK" if label == "POLYGONIA" and split != "train" else label
            for number in range(num):
                draw_image(root / prefix / split / folder / f"{number + 1:03d}.jpg")


def make_plankton(root):
    for label in classes("plankton"):
        for number in range(4):
            draw_image(root / "train" / label / f"{number}.jpg")


def make_cars(root, official=False):
    names = classes("stanford-cars")
    labels = [place for place in range(len(names)) for _ in range(3)]
    for number, _ in enumerate(labels, 1):
        draw_image(root / "cars_train" / f"{number:05d}.jpg", (8, 8))
    meta = {"class_names": np.array([names], dtype=object)}
    if official:
        (root / "devkit").mkdir()
        rows = [(f"{number:05d}.jpg", label + 1) for number, label in enumerate(labels, 1)]
        savemat(
            root / "devkit/cars_train_annos.mat",
            {"annotations": np.array([rows], dtype=[("fname", "O"), ("class", "O")])},
        )
        savemat(root / "devkit/cars_meta.mat", meta)
    else:
        savemat(root / "cars_meta.mat", meta)
        (root / "train_perfect_preds.txt").write_text("".join(f"{label + 1}\n" for label in labels))


def make_gtsrb(root):
    lines = ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
    for label in classes("gtsrb"):
        for track in range(5):
            for frame in range(2):
                draw_image(root / f"GTSRB/Final_Training/Images/{label}/{track:05d}_{frame:05d}.ppm", (32, 32))
        lines.append(f"{int(label):05d}.ppm;32;32;0;0;31;31;{int(label)}")
        draw_image(root / f"GTSRB/Final_Test/Images/{int(label):05d}.ppm", (32, 32))
    shared = root / "GTSRB/Final_Training/Images/00014/00003_00001.ppm"  # a frame of a track that test has, too
    (root / "GTSRB/Final_Test/Images/00014.ppm").write_bytes(shared.read_bytes())
    (root / "GTSRB/Final_Test/GT-final_test.csv").write_text("\n".join(lines) + "\n")


def make_leaves(root):
    with open(root / "train.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "species", "margin1"])
        for number, label in enumerate(classes("leaves") * 10):
            writer.writerow([number, label, 0.1])
            draw_image(root / f"images/{number}.jpg")


def make_scenes(root, official=False):
    for label in classes("scenes15"):
        if official:
            for number in range(120):
                draw_image(root / f"MIT{label}" / f"image_{number:04d}.jpg", (4, 4))
        for split, num in () if official else (("train", 20), ("test", 3)):
            folder = label.capitalize() if split == "train" else label
            for number in range(num):
                draw_image(root / f"data/{split}/{folder}/image_{number:04d}.jpg", (4, 4))


def make_eth80(root, official=False):
    for number, label in enumerate(classes("eth80"), 1):
        for thing in range(1, 11):
            for view in range(2):
                folder = f"{label}{thing}" if official else f"{number}/{thing}"
                draw_image(root / folder / f"{label}{thing}-{view:03d}-000.png")
                draw_image(root / folder / "maps" / f"{label}{thing}-{view:03d}-000.png")


def make_fashion(root):
    for prefix, num in (("train", 100), ("t10k", 20)):
        pixels = RNG.integers(0, 256, (num, 28, 28), dtype=np.uint8)
        labels = np.arange(num, dtype=np.uint8) % 10
        for kind, header, values in (("images-idx3", 16, pixels), ("labels-idx1", 8, labels)):
            with gzip.open(root / f"{prefix}-{kind}-ubyte.gz", "wb") as file:
                file.write(bytes(header) + values.tobytes())


def make_omniglot(root):
    (root / "python").mkdir()
    Image.new("RGB", (5, 5)).save(root / "black.bmp")
    header = (root / "black.bmp").read_bytes()[:54]
    for number, part in ((1, classes("omniglot")[:130]), (2, classes("omniglot")[100:])):  # some are in both
        with zipfile.ZipFile(root / f"python/images_background_small{number}.zip", "w") as archive:
            for place, label in enumerate(part):
                alphabet, _, character = label.rpartition(" ")
                for drawer in range(1, 21):
                    name = f"{alphabet}/{character}/{place:04d}_{drawer:02d}.png"
                    archive.writestr(f"images_background_small{number}/{name}", header + RNG.bytes(80))


MAKERS = {
    "plankton": make_plankton,
    "stanford-cars": make_cars,
    "gtsrb": make_gtsrb,
    "instruments": lambda root: make_folders(root, "instruments"),
    "butterflies": lambda root: make_folders(root, "butterflies"),
    "leaves": make_leaves,
    "scenes15": make_scenes,
    "cards": lambda root: make_folders(root, "cards", "dataset"),
    "eth80": make_eth80,
    "fashion-mnist": make_fashion,
    "omniglot": make_omniglot,
}
OFFICIAL = {
    "stanford-cars": lambda root: make_cars(root, official=True),
    "scenes15": lambda root: make_scenes(root, official=True),
    "eth80": lambda root: make_eth80(root, official=True),
    "cards": lambda root: make_folders(root, "cards"),
}


def open_set(name, root):
    module = import_module(f"hierbench.data.datasets.{name.replace('-', '_')}")
    return module.open_source(SourceRequest(root, root / "downloads"))


@pytest.mark.parametrize(("name", "make"), [*MAKERS.items(), *OFFICIAL.items()])
def test_a_miniature_is_read_split_and_compared(tmp_path, name, make):
    make(tmp_path)
    source = open_set(name, tmp_path)
    tree = Hierarchy.from_paths(source.paths)
    assert tuple(tree.level_sizes) == load_recipe(name).expected.level_sizes
    ids = [image for split in source.ids.values() for image in split]
    assert len(set(ids)) == len(ids) == sum(map(len, source.labels.values()))
    counts = [np.bincount(labels, minlength=tree.num_classes) for labels in source.labels.values()]
    assert all(count.min() >= 1 for count in counts)
    assert "not those of the copy that was measured" in source.remarks[0]
    pieces = [piece for piece in source.pieces() if piece.start == 0]
    assert all(piece.load().shape == (1, 3, *source.image_size) for piece in pieces)
    again = open_set(name, tmp_path)
    assert again.ids == source.ids


def test_the_units_of_each_set_are_on_one_side(tmp_path):
    for name in ("eth80", "gtsrb", "omniglot"):
        (tmp_path / name).mkdir()
        MAKERS[name](tmp_path / name)
    side = {image: split for split, images in open_set("eth80", tmp_path / "eth80").ids.items() for image in images}
    objects = {(image.rsplit("/", 1)[0], split) for image, split in side.items()}
    assert len(objects) == 80 and Counter(split for _, split in objects) == {"train": 40, "val": 16, "test": 24}
    gtsrb = open_set("gtsrb", tmp_path / "gtsrb")
    tracks = {(i.split("/")[-2], i.split("/")[-1][:5], s) for s in ("train", "val") for i in gtsrb.ids[s]}
    assert len(tracks) == 43 * 5 - 1 and len({track[:2] for track in tracks}) == len(tracks)
    assert not any(folder == "00014" and track == "00003" for folder, track, _ in tracks)
    assert "2 training images are left out" in gtsrb.remarks[1]
    drawers = {(i[-6:-4], s) for s, images in open_set("omniglot", tmp_path / "omniglot").ids.items() for i in images}
    assert Counter(split for _, split in drawers) == {"train": 12, "val": 3, "test": 5} and len(drawers) == 20


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 25)), min_size=40, max_size=90),
    st.integers(0, 1000),
)
def test_groups_are_whole_and_every_class_has_its_shares(images, seed):
    """Groups of a class each: a group of several would be drawn with the first."""
    targets = np.array([target for target, _ in images] + [0, 1, 2, 3] * 3)
    groups = np.array([100 * target + group for target, group in images] + [*range(1000, 1012)])
    splits = draw_splits(targets, groups, [""] * len(targets), seed)
    assert all(len({splits[i] for i in np.flatnonzero(groups == group)}) == 1 for group in set(groups.tolist()))
    for target in range(4):
        counts = Counter(splits[i] for i in np.flatnonzero(targets == target))
        num = sum(counts.values())
        largest = max(Counter(groups[targets == target].tolist()).values())
        assert counts["train"] and counts["val"] and counts["test"]
        for split, share in DRAWN_SHARES.items():
            assert counts[split] <= max(largest, round(share * num), 1)
    assert splits == draw_splits(targets, groups, [""] * len(targets), seed)


def test_a_training_image_of_a_group_that_test_has_is_left_out():
    targets, groups = np.zeros(8, dtype=np.int64), np.array([0, 0, 1, 2, 3, 4, 5, 6])
    fixed = ["test", "train", "train", "train", "train", "train", "train", "train"]
    splits = draw_splits(targets, groups, fixed, 0, {"val": 2})
    assert splits[:2] == ["test", ""] and Counter(splits[2:]) == {"train": 4, "val": 2}


@pytest.mark.parametrize("name", SETS)
def test_near_equal_images_are_groups_of_two_or_more(name):
    groups = near_equal(name)
    names = [image for group in groups for image in group]
    assert all(len(group) > 1 for group in groups) and len(set(names)) == len(names)


def test_an_unknown_class_and_a_small_one_are_errors(tmp_path):
    make_folders(tmp_path, "instruments", counts=(("train", 3),))
    draw_image(tmp_path / "train/kazoo/001.jpg")
    with pytest.raises(UserError, match="'kazoo' is no class of instruments"):
        open_set("instruments", tmp_path)
    for path in (tmp_path / "train/kazoo").iterdir():
        path.unlink()
    next((tmp_path / "train/Xylophone").iterdir()).unlink()
    with pytest.raises(UserError, match="fewer than 3 images of Xylophone"):
        open_set("instruments", tmp_path)


def test_a_set_is_prepared_and_says_what_it_is_not(tmp_path):
    make_eth80(tmp_path)
    prepared = prepare("eth80", tmp_path / "data", tmp_path)
    assert "not the whole dataset: train 80 instead of 1640" in prepared.meta["remark"]
    assert prepared.arrays("test")[0].shape == (48, 3, 128, 128) and prepared.meta["image_size"] == [128, 128]


@pytest.mark.parametrize(
    ("name", "file"),
    [("fashion-mnist", "t10k-labels-idx1-ubyte.gz"), ("omniglot", "python/images_background_small1.zip")],
)
def test_a_damaged_file_is_one_line(tmp_path, name, file):
    MAKERS[name](tmp_path)
    path = Path(tmp_path / file)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(UserError, match=r"cannot be read|complete zip|labels from 0 to 9"):
        open_set(name, tmp_path)
