"""Mistakes in a recipe, an override or a file of tuned hyperparameters. The wording is pinned here."""

import os

import pytest

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe, parse_recipe
from hierbench.config.tuned_values import read_tuned
from hierbench.execution.jobs import check_request
from tests.support.messages import check_message

OVERRIDES = {  # of the recipe shapes; several are separated by spaces
    "train.epoch=3": "unknown key 'train.epoch'; did you mean 'train.epochs'",
    "epochs=3": "unknown key 'epochs'; did you mean 'train.epochs'",
    "trian.epochs=3": "unknown key 'trian'",
    "train.lr.type-III.backbone=1": "unknown key 'train.lr.type-III'",
    "train.lr.type-I.head=1": "^recipe shapes: unknown key 'train.lr.type-I.head'; known: train.lr.type-I.backbone, "
    "train.lr.type-I.classifier, train.lr.type-I.transform$",
    "evaluation.ddofs=1": "^recipe shapes: unknown key 'evaluation.ddofs'; did you mean 'evaluation.ddof'? known: "
    "evaluation.ddof, evaluation.drop_last, evaluation.drop_order, evaluation.tested$",
    # A key of another section: that one is meant.
    "data.backbone=x": "^recipe shapes: unknown key 'data.backbone'; did you mean 'model.backbone'? known: "
    "data.dataset, data.jpeg_quality$",
    "authors.model.type_i_units=3": "unknown key 'authors'",
    "protocol=authors": "choose a protocol with --protocol",
    "train.epochs=0": "train: epochs = 0 and steps = 0: the length is one of the two",
    "train.epochs=many": "train.epochs = 'many': it must be a whole number",
    "train.batch_size=1": "train.batch_size = 1",
    "augment.mean=[0.5]": "augment.mean",
    "augment.mean=[0.5,true,0.5]": "augment.mean = true: it must be a number",
    "train.lr.type-II.backbone=true": "train.lr.type-II.backbone = true: it must be a number",
    "methods.ce.lr.backbone=true": "lr.backbone = true: it must be a number",
    "tune.grid.ce.lr.backbone=[1,true]": "it must be a number",
    "seeds=1001": "seeds = 1001: it must be at most 1000",
    "train.weight_decay=nan": "train.weight_decay",
    "train.epochs=\ud800": "is not valid UTF-8",
    "train.epochs=3\nseeds=1": "train.epochs = ",  # a second line was read and left out
    "train.epochs": "--set takes KEY=VALUE",
    "=3": "--set takes KEY=VALUE",
    "title.x=3": "title is a value, not a section",
    "distance=width": "distance = 'width'",
    "methods.ce.lr.backbone=-1": "recipe shapes: methods.ce: lr.backbone = -1: it must be above 0$",
    "methods.ce.lr.backbone=nan": "methods.ce: lr.backbone = nan: it must be a finite number$",
    "methods.ce.lr=0.1": "methods.ce: lr = 0.1: it must be a section$",
    "augment.crop=random-resized": "augment: crop = random-resized pads nothing",
    "augment.pad=0 augment.last_offset=false": "augment: last_offset = false needs a pad",
    "evaluation.drop_order=file": "evaluation: drop_order = file needs drop_last = true",
}


def tuned(content):
    def read(folder):
        (folder / "tuned.toml").write_bytes(content)
        read_tuned(folder / "tuned.toml")

    return read


def from_a_pipe(folder):
    os.mkfifo(folder / "tuned.toml")
    read_tuned(folder / "tuned.toml")


def beside_a_file(folder):
    (folder / "kitchen.toml").touch()
    load_recipe("kitchen")


def checked(name, *overrides, protocol="paper"):
    return lambda _: check_request(load_recipe(name, overrides, protocol), [find_method("ce")], ["type-I"])


CALLS = [
    *(
        (message, lambda _, o=overrides: load_recipe("shapes", o.split(" ")))
        for overrides, message in OVERRIDES.items()
    ),
    ("unknown recipe 'shape'; did you mean 'shapes'", lambda _: load_recipe("shape")),
    ("unknown recipe 'kitchen'; did you mean ./kitchen.toml?", beside_a_file),
    ("key title is missing", lambda _: parse_recipe({"dataset": "x"}, "recipe x")),
    ("jpeg_quality is only for fgvc", checked("shapes", "data.jpeg_quality=75")),
    (
        "wrn_group_input = raw is a switch of wide ResNets, not of resnet50: add --set model.wrn_group_input=",
        checked("cifar100", "model.backbone=resnet50", protocol="authors"),
    ),
    *(
        (["tuned.toml is damaged", "tune again"], tuned(content))
        for content in (b"a = " + b"[" * 100_000, b"a = " + b"9" * 5000, b"\xff", b"[", b"paper = 3", b"[a.b.c]\nx=1")
    ),
    ("not a regular file", from_a_pipe),
]


@pytest.mark.parametrize(("message", "call"), CALLS)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, message, call):
    monkeypatch.chdir(tmp_path)
    check_message(message, call, tmp_path)
