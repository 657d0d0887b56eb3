"""Images and features whose label is a node above the classes: kept for `answers`, or trained on (`labels_above`)."""

import json
import shutil

import numpy as np
import pytest
import torch

from hierbench.data.prepared import find
from hierbench.runs.answer_file import read_answers
from hierbench.runs.record_reader import read_records
from hierbench.training.trainer import node_targets
from tests.support.birds import RATES

SMALL_RUN = ("--seeds", "1", "--jobs", "1", "--mlflow", "off")


@pytest.fixture(scope="module")
def folder(cli, tmp_path_factory):
    """A run on four classes in two groups, with three more images whose label is a group."""
    folder = tmp_path_factory.mktemp("above")
    generator = np.random.default_rng(0)
    (folder / "tree.csv").write_text("group,class\nowl,barn\nowl,tawny\nswan,mute\nswan,black\n")
    rows = ["image,label,split"]
    for name in ("barn", "tawny", "mute", "black", "owl", "swan"):
        for number in range(9 if name not in ("owl", "swan") else 2):
            path = folder / "images" / f"{name}-{number}.png"
            path.parent.mkdir(exist_ok=True)
            write_png(path, generator.integers(0, 256, size=(16, 16, 3), dtype=np.uint8))
            rows.append(f"images/{name}-{number}.png,{name},{('train', 'val', 'test')[number % 3]}")
    (folder / "list.csv").write_text("\n".join(rows) + "\n")
    (folder / "birds.toml").write_text(RECIPE + RATES)
    return folder


RECIPE = """
dataset = "birds"
title = "Birds"
seeds = 1
[source]
images = "list.csv"
tree = "tree.csv"
splits = "column"
[expected]
image_size = [16, 16]
[model]
backbone = "wrn10-1-s2"
[train]
epochs = 1
batch_size = 4
[augment]
flip = true
mean = [0.5, 0.5, 0.5]
std = [0.25, 0.25, 0.25]
"""


def write_png(path, pixels):
    from PIL import Image

    Image.fromarray(pixels).save(path)


def test_they_are_prepared_apart(cli, folder):
    done = cli(folder, "data", "prepare", "./birds.toml").ok()
    assert "4 images are labelled with a node above the classes: not trained on" in done.said
    prepared = find("birds", folder / "data")
    assert prepared.splits == ["train", "val", "test", "above"] and prepared.size("test") == 12
    images, labels = prepared.arrays("above")
    assert labels.tolist() == [1, 1, 2, 2] and images.shape == (4, 3, 16, 16)
    assert [name.rsplit("/", 1)[-1] for name in prepared.ids("above")] == [
        "owl-0.png", "owl-1.png", "swan-0.png", "swan-1.png"
    ]  # fmt: skip


def test_answers_count_them(cli, folder):
    options = ("--dataset", "./birds.toml", "--jobs", "1", "--mlflow", "off")
    cli(folder, "run", "--methods", "ce", "--types", "type-I", *options).ok()
    done = cli(folder, "answers", "--dataset", "./birds.toml", "--rules", "argmax_leaf,majority", "--json").ok()
    (run,) = read_records(folder / "runs")
    answers = read_answers(run.folder)
    assert answers.above.tolist() == [1, 1, 2, 2] and len(answers.nodes["majority"]) == 16
    (row,) = (row for row in json.loads(done.out)["rows"] if row["rule"] == "argmax_leaf")
    right = (answers.nodes["argmax_leaf"][:12] == 3 + run.predictions()[1]).sum()
    assert row["correct"] == pytest.approx(100 * right / 16)  # a class is never a node above the classes
    shown = cli(folder, "answers", "--dataset", "./birds.toml", "--rules", "argmax_leaf").ok().out
    assert "4 of the images are labelled with a node above the classes." in shown
    cli(folder, "publish", "--dataset", "./birds.toml", "--output", "boards").ok()
    assert cli(folder, "verify", "boards").ok().code == 0


def test_a_label_of_two_nodes_is_refused(cli, folder, tmp_path):
    shutil.copytree(folder / "images", tmp_path / "images")
    (tmp_path / "tree.csv").write_text("order,group,class\nA,same,barn\nA,owl,tawny\nB,same,mute\nB,swan,black\n")
    (tmp_path / "list.csv").write_text((folder / "list.csv").read_text().replace(",owl,", ",same,"))
    shutil.copy(folder / "birds.toml", tmp_path)
    cli(tmp_path, "data", "prepare", "./birds.toml").one_line("its label 'same' stands for several nodes of the tree")


@pytest.fixture(scope="module")
def trained_above(folder, tmp_path_factory):
    """The same images, of which those of the training split are trained on, and features of them."""
    place = tmp_path_factory.mktemp("trained above")
    shutil.copytree(folder / "images", place / "images")
    for name in ("tree.csv", "list.csv"):
        shutil.copy(folder / name, place)
    recipe = (folder / "birds.toml").read_text().replace("[source]", "[source]\nlabels_above = true")
    (place / "birds.toml").write_text(recipe)
    return place


def test_training_labels_may_be_above_the_classes(cli, trained_above):
    """`owl-0` and `swan-0` are of the training split: K + n, and to the loss the node n."""
    done = cli(trained_above, "data", "prepare", "./birds.toml").ok()
    assert "2 training images are labelled with a node above the classes" in done.said
    prepared = find("birds", trained_above / "data")
    assert prepared.size("train") == 14 and prepared.arrays("train")[1].tolist()[-2:] == [4 + 1, 4 + 2]
    assert prepared.arrays("above")[1].tolist() == [1, 2] and "images of birds" not in done.said
    labels = torch.from_numpy(prepared.arrays("train")[1])
    nodes = node_targets(labels, prepared.hierarchy("height"))
    assert nodes.tolist() == [*(3 + labels[:-2]).tolist(), 1, 2]
    options = ("--dataset", "./birds.toml", "--types", "type-II", *SMALL_RUN)
    cli(trained_above, "run", "--methods", "ce,hxe,flamingo,crm", *options).ok()
    losses = {record.job.method.name: record for record in read_records(trained_above / "runs")}
    assert set(losses) == {"ce", "hxe", "flamingo", "crm"} and all(record.done for record in losses.values())
    line = cli(trained_above, "run", "--methods", "ce,haframe", *options).one_line("haframe learns from classes alone")
    assert "2 training labels are above the classes" in line and "--methods ce, or" in line


def test_features_may_have_such_training_labels(cli, trained_above):
    generator = np.random.default_rng(1)
    names = {"train": ["barn", "tawny", "mute", "black", "owl", "swan"], "val": ["barn", "mute"], "test": ["tawny"]}
    arrays = {split: generator.random((len(some), 5), dtype=np.float32) for split, some in names.items()}
    np.savez(trained_above / "vectors.npz", **arrays, **{f"{s}_labels": np.array(some) for s, some in names.items()})
    new = ("data", "new", "vectors", "--features", "vectors.npz", "--tree", "tree.csv")
    assert "2 training rows are labelled above the classes: labels_above = true" in cli(trained_above, *new).ok().err
    options = ("--dataset", "./vectors.toml", "--types", "type-II", "--set", "train.epochs=2", *SMALL_RUN)
    cli(trained_above, "run", "--methods", "conditional_softmax", *options).ok()
    assert find("vectors", trained_above / "data").arrays("train")[1].tolist() == [0, 1, 2, 3, 5, 6]
    recipe = (trained_above / "vectors.toml").read_text().replace("labels_above = true", "")
    (trained_above / "vectors.toml").write_text(recipe)
    done = cli(trained_above, "data", "prepare", "./vectors.toml")
    assert done.code == 2 and "train_labels: 'owl' in row 4 is the node of level 1, not a class" in done.err
