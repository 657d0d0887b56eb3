"""Mistakes in images, manifests, trees, features and archives: one line, and nothing is prepared; the wording."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from hierbench.config.recipe import load_protocols, load_recipe
from hierbench.data.prepare import prepare
from hierbench.data.user.division import divide
from hierbench.data.user.photographs import Photograph
from hierbench.data.user.user_tree import read_users_tree
from tests.support import miniatures
from tests.support.birds import (
    NAMES,
    SHARES,
    SPLITS,
    edit,
    int8_features,
    manifest,
    prepare_features,
    write_file,
    write_second_file,
)
from tests.support.crafted import png
from tests.support.messages import check_message


def remove(path):
    return lambda folder: shutil.rmtree(folder / path) if (folder / path).is_dir() else (folder / path).unlink()


def write(path, content):
    return lambda folder: (folder / path).write_bytes(content)


def several(*changes):
    return lambda folder: [change(folder) for change in changes]


def semicolons(path):
    return lambda folder: (folder / path).write_text((folder / path).read_text().replace(",", ";"))


def copy_class(folder):
    shutil.copytree(folder / "images/wren", folder / "images/robin")


def split_folders(*names):
    return lambda folder: [shutil.copytree(folder / "images", folder / "divided" / name) for name in names]


def listed(name, splits='"column"'):
    return several(edit("birds.toml", '"images"', f'"{name}"'), edit("birds.toml", SHARES, splits))


OF_COLUMN, DIVIDED = listed("list.csv"), listed("divided", '"folders"')
DATASETS = [  # changes of a dataset with class folders
    (copy_class, "the images do not fit the tree taxonomy.csv: no leaf for class 'robin'"),
    (several(remove("images/wren"), remove("images/mallard")), "2 leaves without images: 'mallard', 'wren'"),
    (edit("taxonomy.csv", "\nwren", "\nWren"), "no leaf for class 'wren' (the tree has 'Wren')"),
    (edit("taxonomy.csv", ",mute swan", ",Mute_swan"), "'mute swan' (the tree has 'Mute_swan')"),
    (edit("taxonomy.csv", "\nwren", "\nwren,winter wren"), "'wren' (an inner node, not a leaf)"),
    (edit("taxonomy.csv", "waterfowl,ducks", "owls,ducks,waterfowl"), "no leaf for class 'mallard'"),
    (remove("taxonomy.csv"), "no tree"),
    (lambda folder: (folder / "images/wren/x.JPG").mkdir(), "images/wren/x.JPG is a folder, not an image"),
    (several(remove("images/wren"), lambda folder: (folder / "images/wren").mkdir()), "without an image: wren"),
    (lambda folder: os.symlink("nowhere", folder / "images/wren/x.png"), "x.png cannot be read"),
    (remove("images"), "no folder of images"),
    (remove("birds.toml"), "no file"),
    (edit("birds.toml", "seeds = 1", "seeds = "), "is not valid TOML: Invalid value (at line 4"),
    (edit("birds.toml", "tree =", "tres ="), "unknown key 'source.tres'; did you mean 'source.tree'"),
    (edit("birds.toml", "test =", "tst ="), "unknown key 'source.splits.tst'; did you mean"),
    (edit("birds.toml", "val = 0.1", "val = 0.9"), "leave nothing to train on"),
    (edit("birds.toml", SHARES, '"folder"'), "unknown word 'folder'; did you mean 'folders'"),
    (edit("birds.toml", SHARES, '"column"'), "needs a manifest"),
    (edit("birds.toml", 'images = "images"', ""), "give images or features"),
    (edit("birds.toml", 'images = "images"', 'images = "images"\nfeatures = "b"'), "not both"),
    (edit("birds.toml", "images =", "features ="), "splits is for images"),
    (edit("birds.toml", f"splits = {SHARES}", ""), "key splits is missing"),
    (edit("birds.toml", "[source]", "[sources]"), "unknown key 'sources'; did you mean 'source'"),
    (edit("birds.toml", '"birds"', '"../birds"'), "dataset = '../birds' must be up to 64 letters"),
    (edit("birds.toml", '"birds"', '"cifar100"'), "the name of a built-in"),
    (several(split_folders(*SPLITS), listed("divided", SHARES)), 'write splits = "folders"'),
    (several(split_folders("train", "validate", "test"), DIVIDED), "'validate'; did you mean 'val'"),
    (several(split_folders("val", "test"), DIVIDED), "needs folders train, and val or test"),
    (several(split_folders("train", "val", "valid"), DIVIDED), "two folders of one split, val and valid"),
    (several(manifest, OF_COLUMN, edit("list.csv", "label,split", "label,splt")),
     "has no column 'split' (did you mean 'splt'?); its columns: image"),
    (several(manifest, OF_COLUMN, semicolons("list.csv"), edit("list.csv", "\n", ";a,b\n")),
     "has no column 'image'; is the separator ;? then save it as .csv"),
    (several(write("list.parquet", b"PAR1 no table"), listed("list.parquet", SHARES)), "is not a Parquet file"),
    *((several(lambda folder, c=change: manifest(folder, c), OF_COLUMN), message) for change, message in [
        (lambda rows: [["images/x.jpg", "wren", "val"], ["y.jpg", "wren", "val"], *rows],
         "2 of 62 images are missing: images/x.jpg, y.jpg"),
        (lambda rows: [*rows, ["./" + rows[0][0], *rows[0][1:]]],
         "row 61: ./images/barn owl/0.jpg is listed twice, before in row 1"),
        (lambda rows: [[*rows[0][:2], "tset"], *rows[1:]], "row 1: unknown split 'tset'; did you mean 'test'"),
        (lambda rows: [["images/wren", "wren", "val"], *rows], "row 1: images/wren is a folder, not an image"),
        (lambda rows: [*rows, ["a.jpg", "", "val"]], "row 61: the label is empty"),
        (lambda rows: [*rows, ["a", "b", "val", ""]], "not a CSV file in UTF-8 (Error tokenizing data. C error: E"),
        (lambda rows: [*rows, ["a.jpg", "b", 'val"']], "row 61: unknown split 'val\"'"),
        (lambda rows: [], "lists no images"),
        (lambda rows: [row for row in rows if row[1:] != ["wren", "train"]],
         "classes without a training image: wren"),
        (lambda rows: [[row[0], row[1].title(), row[2]] for row in rows], "'Wren' (the tree has 'wren')"),
    ]),
]  # fmt: skip


def dataset(change):
    def call(folder):
        file = write_file(folder)
        change(folder)
        before = sorted(folder.rglob("*"))
        try:
            prepare(file, folder / "data")
        finally:
            assert sorted(folder.rglob("*")) == before

    return call


def authors(section):
    """A section of the authors' protocol, which the paper's does not read."""

    def call(folder):
        file = write_file(folder, change=("[augment]", f"{section}\n[augment]"))
        load_recipe(file)
        load_protocols(file)

    return call


def second(head):
    def call(folder):
        write_file(folder)
        load_recipe(write_second_file(folder, f"{head}\n[expected]\nimage_size = [8, 8]\n"))

    return call


def tree(text):
    def call(folder):
        (folder / "tree.csv").write_text(text)
        read_users_tree(str(folder / "tree.csv"))

    return call


TREES = {
    "a,b\nb,a\nb,c\n": "node 'b' is in a cycle",
    "r,a\nr,b\na,b\na,c\n": "node 'b' has several parents: 'r' and 'a'; --parents first,",
    "r,a\nr,b\na,c\nx,y\ny,z\nz,x\n": "in a cycle",
}


def nan(values, row):
    changed = values.copy()
    changed[row, 3] = np.nan
    return changed


FEATURES = [  # what is changed
    (lambda a: {"val": nan(a["val"], 7)}, "val: row 7 has a value that is not finite"),
    (lambda a: {s: a[s].astype(np.float64) * 1e300 for s in SPLITS}, "train: row 0 has a value that is not finite"),
    (lambda a: {"val": None}, "has no array 'val'; it has 'train', 'train_labels'"),
    (lambda a: {"test_labels": None}, "has no array 'test_labels'"),
    (lambda a: {"val_labels": a["val_labels"][1:]}, "val_labels is [23], but val has 24 rows"),
    (lambda a: {"val_labels": np.eye(6)[a["val_labels"]]}, "val_labels is [24, 6]"),
    (lambda a: {"test": a["test"][:, :5]}, "test has 5 numbers a row, train has 12"),
    (lambda a: {"test": a["test"][:, 0]}, "test is [48], not [N, D]"),
    (lambda a: {"test": a["test"][:0], "test_labels": a["test_labels"][:0]}, "test is [0, 12]"),
    (lambda a: {"val": np.stack([a["val"]] * 3)}, "val has 3 views; evaluation takes one"),
    (lambda a: {"val": a["val"].astype(np.float64)}, "val holds float64, train float32"),
    (lambda a: {"train": a["train"] > 0}, "train holds bool, not real numbers"),
    (lambda a: {"train_labels": a["train_labels"] + 1}, "6 in row 5 is out of range"),
    (lambda a: {"train_labels": np.array(["Wren"] * 120)}, "did you mean 'wren'"),
    (lambda a: {"train_labels": np.minimum(a["train_labels"], 4)}, "have no row in train, first 'wren'"),
    (lambda a: {"classes": np.array([*NAMES[:5], "robin"])}, "no leaf for class 'robin'"),
    (lambda a: {"classes": NAMES[:5]}, "no features for leaf 'wren'"),
    (lambda a: {"classes": NAMES[[0, 0, 1, 2, 3, 4]]}, "different names"),
    (lambda a: {"scale": np.ones(12)}, "scale is for integers, and train holds float32"),
    (lambda a: int8_features(a) | {"scale": np.ones(3)}, "scale is not [12] positive numbers"),
    (lambda a: {"classes": np.array([None] * 6, dtype=object)}, "a pickle, which is never read"),
]


def features(change):
    def call(folder):
        with np.load(folder / "made/features.npz") as file:
            arrays = dict(file)
        changed = {key: value for key, value in (arrays | change(arrays)).items() if value is not None}
        prepare_features(folder, changed)

    return call


def truncated(target):
    return lambda name, content: content[: len(content) // 2] if name.endswith(target) else content


def dropped(target):
    return lambda name, content: None if target in name else content


ZIPS = [  # of Tiny ImageNet
    (truncated("n01443537_3.JPEG"), "train/n01443537/images/n01443537_3.JPEG cannot be read"),
    (truncated("val_7.JPEG"), "image tiny-imagenet-200/val/images/val_7.JPEG cannot be read"),
    (dropped("wnids.txt"), "no item named 'tiny-imagenet-200/wnids.txt'"),
    (dropped("train/n01443537"), "class n01443537 has 0 train images"),
    (dropped("val/images/val_3."), "val_annotations.txt lists val_3.JPEG, which is not in val/images"),
    (lambda n, c: b"n00000000" if n == "wnids.txt" else c, "does not list the 200 classes"),
    (lambda n, c: b"val_0.JPEG n01443537" if "annotations" in n else c, "a line that is not"),
    (lambda n, c: b"" if "annotations" in n else c, "lists no images"),
]


def tiny_imagenet(change=lambda name, content: content, end=None):
    def call(folder):
        archive = miniatures.tiny_imagenet(folder / "tiny.zip", change=change)
        archive.write_bytes(archive.read_bytes()[:end])
        prepare("tiny-imagenet", folder / "data", archive)

    return call


def spoil(num, change):
    return lambda folder: [change(path) for path in sorted(folder.rglob("*.png"))[:num]]


PICTURES = [  # of CIFAR-100
    (lambda folder: (folder / "train/apple").rename(folder / "train/quince"), "quince is not a class of CIFAR-100"),
    (remove("test/apple"), "class apple needs 2 images in train/apple"),
    (lambda folder: shutil.copytree(folder / "test", folder / "more/test"), "apple_s_000000.png twice"),
    (lambda folder: next((folder / "test/apple").iterdir()).write_bytes(b"x"), "cannot be read"),
    (spoil(20, lambda path: path.write_bytes(b"x")), "^20 images cannot be read"),
    (spoil(2, lambda path: Image.new("RGB", (64, 64)).save(path)), "has 64x64 pixels, not"),
    (spoil(1, lambda path: path.write_bytes(png(9400, 9400, b""))), "has 9400x9400 pixels, not 32x32"),
]


def cifar100(change):
    def call(folder):
        pictures = miniatures.cifar100_pictures(folder / "pictures")
        change(pictures)
        prepare("cifar100", folder / "data", pictures)

    return call


def cub(line):
    def call(folder):
        birds = miniatures.cub(folder / "birds", part=True)
        (birds / "images.txt").write_text(line)
        prepare("cub-frozen", folder / "data", birds)

    return call


def grocery(line):
    def call(folder):
        store = miniatures.grocery(folder / "store")
        (store / "dataset/test.txt").write_text(line)
        prepare("grocery", folder / "data", store)

    return call


def fgvc(change):
    def call(folder):
        change(miniatures.fgvc(folder / "fgvc") / "fgvc-aircraft-2013b/data")
        prepare("fgvc", folder / "data", folder / "fgvc")

    return call


def two_images_a_class(folder):
    photographs = [Photograph(label, label, "", 1, 1) for label in "aabb"]
    divide(photographs, ["a", "b"], load_recipe(write_file(folder)).source.splits)


CALLS = [
    *((message, dataset(change)) for change, message in DATASETS),
    ("there are no val images", two_images_a_class),
    ("unknown key 'train.epochz'", authors("[authors.train]\nepochz = 1")),
    ("[authors]: train.epochs is a value", authors("[authors.train.epochs]\na = 1")),
    ("[authors]: seeds is a value", authors("[authors.seeds]\na = 1")),
    ("data = 'cifar100' is not the file of your dataset", second('data = "cifar100"')),
    ("no file", second('data = "./none.toml"')),
    ("names itself", second('data = "./birds-two.toml"')),
    ("or a section [source], not both", second('data = "./birds.toml"\n[source]\nimages = "x"')),
    ("data.dataset", second("data = 3")),
    ("those that its file names", lambda _: load_recipe("cifar100", ["data=shapes"])),
    ("those that its file names", lambda _: load_recipe("cifar100", ["data.dataset=shapes"])),
    *((message, tree(text)) for text, message in TREES.items()),
    ("neither a file nor", lambda _: read_users_tree("cifar1000")),
    *((message, features(change)) for change, message in FEATURES),
    ("key augment is missing", lambda _: load_recipe("photos", ["model.backbone=resnet50"])),
    ("features-128 has no backbone that could be trained", lambda _: load_recipe("photos", ["model.frozen=false"])),
    ("weights needs a backbone", lambda _: load_recipe("photos", ["model.weights=random"])),
    ("input_size needs a backbone", lambda _: load_recipe("photos", ["model.input_size=[8,8]"])),
    ("section augment is for images", lambda _: load_recipe("photos", ["augment.pad=2"])),
    *((message, tiny_imagenet(change)) for change, message in ZIPS),
    ("tiny.zip is not a complete zip file", tiny_imagenet(end=-1000)),
    ("nowhere.zip does not exist", lambda folder: prepare("tiny-imagenet", folder / "data", folder / "nowhere.zip")),
    *((message, cifar100(change)) for change, message in PICTURES),
    *(("has a line that is not", cub(line)) for line in ("1 ../../x.jpg\n", "1 /x.jpg\n", "x.jpg\n")),
    ("has a line", grocery("test/../../x.jpg, 0, 0")),
    ("has a line", grocery("test/a/b.jpg, 81, 0")),
    ("no file train.txt", lambda folder: prepare("grocery", folder / "data", folder / "images")),
    ("--source takes the folder", lambda folder: prepare("fgvc", folder / "data", folder / "images")),
    ("0000012.jpg cannot be read", fgvc(lambda data: (data / "images/0000012.jpg").write_bytes(b"\xff\xd8 cut"))),
    ("contradicts", fgvc(edit("images_family_val.txt", "Boeing 707", "Boeing 747"))),
]  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = miniatures.birds(tmp_path_factory.mktemp("birds"), per_class=10)
    miniatures.features(folder / "made")
    return folder


@pytest.mark.parametrize(("message", "call"), CALLS)
def test_a_mistake_is_one_line_and_leaves_nothing(original, tmp_path, message, call):
    folder = shutil.copytree(original, tmp_path / "birds")
    check_message(message, call, folder)
    assert not (folder / "data").exists()
