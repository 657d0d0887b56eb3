"""A user's dataset of birds: its file, its manifest, and its features in place of images."""

import csv

import numpy as np
import pandas as pd

from hierbench.data.prepare import prepare
from hierbench.data.user.template import TemplateRequest, write_recipe

FILE = """
dataset = "birds"
title = "Birds"
seeds = 1
[source]
images = "{images}"
tree = "{tree}"
splits = {splits}
[expected]
image_size = [16, 24]
[model]
backbone = "wrn10-1-s2"
[train]
epochs = 1
batch_size = 8
{rates}
[augment]
flip = true
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]
"""
RATES = "".join(f"[train.lr.type-{kind}]\nbackbone = 0.1\ntransform = 0.1\nclassifier = 0.1\n" for kind in ("I", "II"))
SHARES = "{val = 0.1, test = 0.2, seed = 0}"
NAMES = np.array(["barn owl", "tawny owl", "eagle owl", "mute swan", "mallard", "wren"])
SPLITS = ("train", "val", "test")


def write_file(folder, images="images", tree="taxonomy.csv", splits=SHARES, change=("", "")):
    """Write birds.toml; return its path."""
    file = folder / "birds.toml"
    text = FILE.format(images=images, tree=tree, splits=splits, rates=RATES)
    assert change[0] in text
    file.write_text(text.replace(*change) if change[0] else text)
    return str(file)


def write_second_file(folder, head):
    """Write birds-two.toml beside birds.toml: another recipe, whose images `head` names; return its path."""
    text = FILE.format(images="", tree="", splits=SHARES, rates=RATES).replace('"birds"', '"birds-two"')
    text = text[: text.index("[source]")] + head + text[text.index("[model]") :]
    (folder / "birds-two.toml").write_text(text)
    return str(folder / "birds-two.toml")


def manifest(folder, change=lambda rows: rows, kind="csv"):
    """Write list.csv or list.parquet: seven images of each class for training, one for validation, two for testing."""
    places = sorted((folder / "images").glob("*/*.jpg"))
    splits = ["train"] * 7 + ["val"] + ["test"] * 2
    rows = [[f"images/{p.parent.name}/{p.name}", p.parent.name, splits[i % 10]] for i, p in enumerate(places)]
    table = [["image", "label", "split"], *change(rows)]
    if kind == "parquet":
        pd.DataFrame(table[1:], columns=table[0]).to_parquet(folder / "list.parquet")
    else:
        with (folder / "list.csv").open("w", newline="") as file:
            csv.writer(file).writerows(table)


def edit(path, old, new):
    """Return a function that changes text of a file in a folder."""

    def change(folder):
        text = (folder / path).read_text()
        assert old in text
        (folder / path).write_text(text.replace(old, new))

    return change


def prepare_features(folder, arrays, kind="npz"):
    """Prepare features by their file; the tree is in `made/taxonomy.csv`."""
    features = folder / ("features.npz" if kind == "npz" else "features")
    if kind == "npz":
        np.savez(features, **arrays)
    else:
        features.mkdir(exist_ok=True)
        for name, array in arrays.items():
            np.save(features / f"{name}.npy", array)
    file = folder / "birds.toml"
    file.unlink(missing_ok=True)
    request = TemplateRequest(
        "birds", "", str(folder / "made/taxonomy.csv"), file, features=str(features), order="tree"
    )
    write_recipe(request, lambda share: None, lambda line: None)
    return prepare(str(file), folder / "data")


def int8_features(arrays):
    """Return features as int8 with a scale per column."""
    scale = (np.abs(arrays["train"]).max(axis=0) / 127).astype(np.float32)
    rounded = {s: np.clip(np.rint(arrays[s] / scale), -127, 127).astype(np.int8) for s in SPLITS}
    return arrays | rounded | {"scale": scale}
