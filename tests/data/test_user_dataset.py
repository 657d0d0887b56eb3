"""Datasets of users: listing, splits, trees, and mistakes, which are one line each and leave nothing half-written."""

import json
import os
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hierbench import Hierarchy
from hierbench.config.recipe import load_protocols, load_recipe, recipe_names
from hierbench.config.recipe_source import Splits
from hierbench.data.image import center_crop
from hierbench.data.prepare import prepare
from hierbench.data.user.division import divide, sizes
from hierbench.data.user.photographs import Photograph, with_validation
from hierbench.data.user.user_dataset import open_source
from hierbench.data.user.user_tree import read_users_tree
from hierbench.leaderboard.protocol import read_protocol
from hierbench.training.trainer import epoch_order
from hierbench.utils.errors import UserError
from tests.support.birds import edit, manifest, write_file, write_second_file


@pytest.fixture(scope="module")
def original(miniatures, tmp_path_factory):
    return miniatures.birds(tmp_path_factory.mktemp("original"), per_class=10)


@pytest.fixture
def birds(original, tmp_path):
    return shutil.copytree(original, tmp_path / "birds")


def names_of(source):
    return [piece.load.args[0].name for piece in source.pieces()]


def test_class_folders(birds):
    assert [recipe.protocol for recipe in load_protocols(write_file(birds))] == ["paper"]
    source = open_source(load_recipe(write_file(birds)))
    assert {split: len(rows) for split, rows in source.labels.items()} == {"train": 42, "val": 6, "test": 12}
    assert all(set(rows.tolist()) == set(range(6)) for rows in source.labels.values())
    assert next(iter(source.paths)) == "barn owl" and source.paths["wren"] == ("wren",)
    prepared = prepare(write_file(birds), birds / "data")
    assert prepared.meta["remark"] == "" and prepared.arrays("test")[0].shape == (12, 3, 16, 24)
    assert str(birds) not in json.dumps(prepared.meta)
    assert prepared.hierarchy("height").level_sizes == (3, 5, 6)


def test_nothing_is_written_into_the_users_images(birds):
    file = write_file(birds)
    images = Path(load_recipe(file).source.images)
    before = sorted(images.rglob("*"))
    for folder in (images, images / "data"):
        with pytest.raises(UserError, match="lies in the images of"):
            prepare(file, folder)
    assert sorted(images.rglob("*")) == before


def test_the_order_of_the_file_system_does_not_matter(birds, monkeypatch):
    first = names_of(open_source(load_recipe(write_file(birds))))
    real = os.scandir

    class Shuffled:
        def __init__(self, place):
            with real(place) as entries_there:
                self.entries = random.Random(1).sample(entries := list(entries_there), len(entries))

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(os, "scandir", Shuffled)
    assert names_of(open_source(load_recipe(write_file(birds)))) == first
    other = open_source(load_recipe(write_file(birds), ["source.splits.seed=1"]))
    assert names_of(other) != first and sorted(names_of(other)) == sorted(first)


def photographs(**counts):
    return [Photograph(f"{label}/{i}", label, "", 1, 1) for label, num in counts.items() for i in range(num)]


@pytest.mark.parametrize("num", range(1, 60))
def test_sizes_of_splits(num):
    for val, test in ((0.1, 0.2), (0.01, 0.01), (0.4, 0.5), (0.05, 0.9)):
        of_val, of_test = sizes(num, val, test)
        assert of_val + of_test < num and min(of_val, of_test) >= (num >= 3)
        if num > 20 and val + test < 0.9:
            assert abs(of_val - val * num) <= max(0.5, 1 - val * num) and abs(of_test - test * num) <= 1


def test_small_classes_are_named_and_adding_a_class_leaves_the_others(birds):
    splits = Splits(val=0.1, test=0.2)
    divided, remarks = divide(photographs(a=30, b=2, c=1), ["a", "b", "c"], splits)
    assert Counter(image.label for image in divided["train"]) == {"a": 21, "b": 1, "c": 1}
    assert Counter(image.label for image in divided["test"]) == {"a": 6, "b": 1}
    assert remarks == ["2 classes have too few images for val: b, c", "1 class has too few images for test: c"]
    more, _ = divide(photographs(a=30, b=2, c=1, d=9), ["d", "a", "b", "c"], splits)
    assert [image for image in more["test"] if image.label != "d"] == divided["test"]


def test_images_of_one_group_are_on_one_side_of_every_split():
    """Also of a group with several classes; groups that given splits tear are counted."""
    classes = ["a", "b", "c"]
    images = [replace(image, group=f"site {i % 7}") for i, image in enumerate(photographs(a=30, b=30, c=9))]
    divided, remarks = divide(images, classes, Splits(val=0.2, test=0.3))
    splits_of = {}
    for split, part in divided.items():
        for image in part:
            splits_of.setdefault(image.group, set()).add(split)
    assert len(splits_of) == 7 and all(len(splits) == 1 for splits in splits_of.values())
    assert sum(map(len, divided.values())) == 69 and all(divided.values())
    assert "7 groups of images, each on one side" in remarks[0]
    torn = [replace(image, split=("train", "val", "test")[i % 3]) for i, image in enumerate(images)]
    _, remarks = divide(torn, classes, Splits.model_validate("column"))
    assert remarks[0].startswith("7 of 7 groups are in several splits: site 0, ")


@pytest.mark.parametrize("kind", ["column", "folder"])
def test_groups_are_read_and_written(cli, birds, kind):
    group_of = {}
    for number, path in enumerate(sorted((birds / "images").glob("*/*.jpg"))):
        group_of[path] = f"night{number % 4}"
    if kind == "column":
        lines = [
            f"images/{path.parent.name}/{path.name},{path.parent.name},{group}" for path, group in group_of.items()
        ]
        (birds / "list.csv").write_text("image,label,night\n" + "\n".join(lines))
        words = ("--images", "list.csv", "--group", "night")
    else:
        for path, group in group_of.items():
            (path.parent / group).mkdir(exist_ok=True)
            path.rename(path.parent / group / path.name)
        words = ("--images", "images", "--group", "folder")
    done = cli(birds, "data", "new", "mine", "--tree", "taxonomy.csv", *words).ok()
    assert "4 groups of images, each on one side of every split" in done.err
    ids = open_source(load_recipe(str(birds / "mine.toml"))).ids
    group_by_name = {path.name + path.parent.name: group for path, group in group_of.items()}
    sides = {}
    for split, names in ids.items():
        for name in names:
            path = Path(name)
            label = path.parent.parent.name if kind == "folder" else path.parent.name
            sides.setdefault(group_by_name[path.name + label], set()).add(split)
    assert len(sides) == 4 and all(len(splits) == 1 for splits in sides.values())


def test_validation_images_are_drawn_in_whole_groups():
    images = [replace(image, split="train", group=f"site {i % 9}") for i, image in enumerate(photographs(a=60, b=60))]
    images += [replace(image, name=f"test/{image.name}", split="test", group="") for image in photographs(a=9, b=9)]
    images[0] = replace(images[0], group="torn")
    images[-1] = replace(images[-1], group="torn")
    drawn = with_validation(images)
    splits_of = {}
    for before, image in zip(images, drawn, strict=True):
        assert (image.split == "test") == (before.split == "test")
        splits_of.setdefault(image.group or image.name, set()).add(image.split)
    assert splits_of.pop("torn") == {"train", "test"}
    assert all(len(splits) == 1 for splits in splits_of.values())
    assert {image.label for image in drawn if image.split == "val"} == {"a", "b"}


def test_folders_of_splits(original, miniatures, tmp_path):
    for split, num in (("train", 3), ("val", 1), ("test", 2)):
        miniatures.birds(tmp_path / split, per_class=num, root=f"../images/{split}")
    shutil.copy(original / "taxonomy.csv", tmp_path)
    source = open_source(load_recipe(write_file(tmp_path, splits='"folders"')))
    assert {split: len(rows) for split, rows in source.labels.items()} == {"train": 18, "val": 6, "test": 12}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_manifests(birds, kind):
    manifest(birds, kind=kind)
    by_column = open_source(load_recipe(write_file(birds, images=f"list.{kind}", splits='"column"')))
    assert {split: len(rows) for split, rows in by_column.labels.items()} == {"train": 42, "val": 6, "test": 12}
    by_shares = open_source(load_recipe(write_file(birds, images=f"list.{kind}")))
    assert sorted(names_of(by_shares)) == sorted(names_of(by_column))
    os.symlink(birds / "images", birds / "linked")
    manifest(birds, lambda rows: [[row[0].replace("images", "linked"), *row[1:]] for row in rows], kind)
    assert len(names_of(open_source(load_recipe(write_file(birds, images=f"list.{kind}"))))) == 60


EDGES = "parent,child\nanimal,owl\nanimal,swan\nowl,barn owl\nowl,tawny owl\n"


@pytest.mark.parametrize(
    ("name", "text", "paths"),
    [
        ("edges.csv", EDGES, [("owl", "barn owl"), ("owl", "tawny owl"), ("swan",)]),
        ("bare.csv", EDGES.partition("\n")[2], [("owl", "barn owl"), ("owl", "tawny owl"), ("swan",)]),
        ("up.csv", "a,animal\nb,animal\nc,b\nd,b\n", [("a",), ("b", "c"), ("b", "d")]),
        ("tops.csv", "parent,child\n,x\n,y\nx,a\nx,b\n", [("x", "a"), ("x", "b"), ("y",)]),
        ("root.csv", "parent,child\n,r\nr,x\nr,y\nx,a\nx,b\n", [("x", "a"), ("x", "b"), ("y",)]),
        ("lines.txt", "animal owl\nanimal swan\nowl tawny\nowl barn\n", [("owl", "barn"), ("owl", "tawny"), ("swan",)]),
        ("paths.csv", "group,class\nowl,barn\nowl,tawny\nDHC-1,DHC-1\n", None),
        (
            "long.csv",
            "l1,l2,l3\nowl,true,tawny\nowl,barn\nwren\n",
            [("owl", "barn"), ("owl", "true", "tawny"), ("wren",)],
        ),
    ],
)
def test_trees(tmp_path, name, text, paths):
    (tmp_path / name).write_text(text)
    reading = read_users_tree(str(tmp_path / name))
    read_paths = reading.paths
    assert reading.form == {"paths.csv": "paths", "long.csv": "paths", "lines.txt": "lines"}.get(name, "edges")
    expected = paths or [("owl", "barn"), ("owl", "tawny"), ("DHC-1", "DHC-1")]
    assert sorted(read_paths.values()) == sorted(expected)
    ours, theirs = Hierarchy.from_paths(read_paths), Hierarchy.read(tmp_path / name)
    assert ours.digest() == theirs.digest()


def test_a_shipped_tree():
    assert len(read_users_tree("cifar100").paths) == 100


def test_central_part():
    pixels = torch.arange(5 * 8).reshape(1, 5, 8).expand(3, 5, 8)
    assert (center_crop(pixels, (10, 10)) == pixels[:, :, 1:6]).all()
    assert (center_crop(pixels, (1, 2)) == pixels[:, 0:4, :]).all()
    assert center_crop(pixels[:, :1], (64, 64)).shape == (3, 1, 1)


def test_ignored_files_and_wrong_sizes_are_reported(cli, birds):
    for name in ("images/wren/notes.txt", "images/readme.md", "images/wren/b.txt", "images/.hidden"):
        (birds / name).write_text("x")
    for i in range(8):
        (birds / f"images/wren/{i}.jpg").unlink()
    write_file(birds, change=("image_size = [16, 24]", "image_size = [16, 24]\ntrain = 7"))
    done = cli(birds, "data", "prepare", "./birds.toml").ok()
    assert "3 files that are not images are ignored: .txt (2), .md (1)" in done.err
    assert "images per class: from 2 (wren) to 10 (barn owl), ratio 5; see train.sampling" in done.err
    assert "note: 1 class has too few images for val: wren" in done.err
    assert "[expected] in the file differs from the data: train 36 instead of 7" in done.err


NEW = ("data", "new", "birds", "--images", "images", "--tree", "taxonomy.csv")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images: (images / "robin").mkdir(), "class folders without an image: robin"),
        (
            lambda images: (images / "wren").rename(images / "Wren"),
            "no leaf for class 'Wren' (the tree has 'wren'); no images for leaf 'wren'",
        ),
    ],
)
def test_data_new_names_classes_that_do_not_fit(cli, birds, change, message):
    change(birds / "images")
    cli(birds, *NEW).one_line(message)
    assert not (birds / "birds.toml").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data", "new", "fgvc", *NEW[3:]), "the name of a built-in"),
        ((*NEW, "--backbone", "resnt50"), "resnet50"),
        ((*NEW, "--backbone", "timm:test_coatnet"), "has no weights to download"),
        ((*NEW, "--output", "no/birds.toml"), "no such folder"),
        ((*NEW, "--output", "taxonomy.csv"), "is there already"),
    ],
)
def test_data_new_writes_nothing_after_a_mistake(cli, birds, words, message):
    cli(birds, *words).one_line(message)
    assert {path.name for path in birds.iterdir()} == {"images", "taxonomy.csv"}


def test_data_new_writes_sizes_and_measured_colours(cli, birds):
    (birds / "sub").mkdir()
    assert "train 42, val 6, test 12; levels 3, 5, 6" in cli(birds, *NEW, "--output", "sub/b.toml").ok().out
    recipe = load_recipe(str(birds / "sub/b.toml"))
    assert recipe.source.images == str(birds / "sub/../images") and recipe.expected.level_sizes == (3, 5, 6)
    train = prepare(recipe, birds / "data").arrays("train")[0] / 255.0
    assert np.abs(train.mean(axis=(0, 2, 3)) - recipe.augment.mean).max() < 1e-3
    assert np.abs(train.std(axis=(0, 2, 3)) - recipe.augment.std).max() < 1e-3


def test_data_new_describes_a_frozen_network(cli, birds):
    cli(birds, *NEW, "--backbone", "timm:test_vit", "--resize", "center-crop").ok()
    recipe = load_recipe(str(birds / "birds.toml"))
    assert recipe.model.frozen and recipe.model.weights == "default" and recipe.augment.mean is None
    assert recipe.expected.image_size == (160, 160) and recipe.source.resize == "center-crop"


@pytest.fixture
def new(cli, birds):
    """Describes images of birds, and returns how that ended and the splits that were found."""

    def new(images):
        (birds / "a.toml").unlink(missing_ok=True)
        words = ("data", "new", "a", "--images", images, "--tree", "taxonomy.csv", "--output", "a.toml")
        return cli(birds, *words).ok(), load_recipe(str(birds / "a.toml")).source.splits

    return new


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_data_new_keeps_the_splits_of_a_manifest(birds, new, kind):
    manifest(birds, kind=kind)
    done, splits = new(f"list.{kind}")
    assert "train 42, val 6, test 12" in done.out and splits.kind == "column"


def test_data_new_divides_a_manifest_without_splits(birds, new):
    manifest(birds)
    edit("list.csv", "label,split", "label,part")(birds)
    assert new("list.csv")[1].val == 0.1


@pytest.fixture
def divided(original, birds):
    for split in ("train", "val", "test"):
        shutil.copytree(original / "images", birds / "divided" / split)
    return birds / "divided"


def test_data_new_keeps_split_folders(new, divided):
    assert "train 60, val 60, test 60" in new("divided")[0].out


def test_data_new_takes_a_missing_validation_from_training(new, divided):
    shutil.rmtree(divided / "val")
    done, _ = new("divided")
    assert "train 54, val 6, test 60" in done.out and "a tenth of each class of train is taken, 6 images" in done.err


def test_data_new_tests_on_a_validation_folder_alone(new, divided):
    shutil.rmtree(divided / "val")
    (divided / "test").rename(divided / "Validation")
    done, _ = new("divided")
    assert "train 54, val 6, test 60" in done.out and "those of Validation are the test images" in done.err


def test_options_of_other_datasets_are_refused(cli, birds):
    write_file(birds)
    prepare_it, run = ["data", "prepare", "./birds.toml"], ["run", "--dataset", "./birds.toml"]
    cli(birds, *run, "--source", "images").one_line("is read where its file says")
    cli(birds, *prepare_it).ok()
    for command, message in (
        ([*prepare_it, "--source", "images"], "is read where its file says"),
        ([*run, "--source", "images"], "is read where its file says"),
        ([*run, "--source", "images", "--dry-run"], "is read where its file says"),
        ([*prepare_it, "--allow-missing"], "for inat19 and tieredimagenet-h, whose"),
        ([*run, "--protocol", "authors"], "no section [authors]"),
        ([*run, "--set", "dataset=x"], "choose a recipe with --dataset"),
    ):
        cli(birds, *command).one_line(message)
    source_options = [part for key in ("images=a", "tree=b", "splits=folders") for part in ("--set", f"source.{key}")]
    cli(birds, "run", "--dataset", "shapes", *source_options).one_line("source is for")


@pytest.mark.parametrize("command", [["prepare", "./birds.toml"], ["new"], ["new", "--backbone", "timm:test_vit"]])
def test_every_unreadable_image_is_counted_and_named(cli, birds, command):
    """Of every split, and where a frozen backbone needs no mean."""
    if "new" in command:
        command = [command[0], "birds", "--images", "images", "--tree", "taxonomy.csv", *command[1:]]
    else:
        write_file(birds)
    for i in range(10):
        file = birds / f"images/wren/{i}.jpg"
        file.write_bytes(file.read_bytes()[:200] if i else b"")
    done = cli(birds, "data", *command)
    line = done.err.strip().splitlines()[-1]
    assert done.code == 2 and line.startswith("hierbench: error: 10 images cannot be read: image "), done.err
    assert line.count("images/wren/") == 10 and line.count("the file is empty") == 1
    assert (birds / "birds.toml").exists() == ("prepare" in command)


def test_a_folder_that_may_not_be_read_is_named(birds, monkeypatch):
    scan = os.scandir

    def refuse(place):
        if str(place).endswith("wren"):
            raise PermissionError(13, "Permission denied", str(place))
        return scan(place)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"images/wren cannot be read \(Permission denied\)"):
        open_source(load_recipe(write_file(birds)))


def test_balanced_sampling():
    labels = torch.tensor([0] * 70 + [1] * 20 + [2] * 7 + [4] * 3)[torch.randperm(100)]
    drawn = torch.zeros(100)
    for epoch in range(200):
        torch.manual_seed(epoch)
        rows = epoch_order(labels, 96, "balanced")
        torch.manual_seed(epoch)
        assert (rows == epoch_order(labels, 96, "balanced")).all()  # on every rank, and after a restart
        counts = labels[rows].bincount(minlength=5)
        assert counts.tolist() == [24, 24, 24, 0, 24]
        times = rows.bincount(minlength=100)
        for label in (0, 1, 2, 4):  # within a class no image is ahead of another by more than one
            assert times[labels == label].max() - times[labels == label].min() <= 1
        drawn += times
    expected = torch.tensor([24 / 70, 24 / 20, 24 / 7, 0, 24 / 3])[labels] * 200
    assert ((drawn - expected).abs() <= 4 * expected.sqrt()).all()
    sums = torch.stack([labels[epoch_order(labels, 98, "balanced")].bincount(minlength=5) for _ in range(300)]).sum(0)
    assert (sums[[0, 1, 2, 4]] - 300 * 24.5).abs().max() < 4 * (300 * 0.25) ** 0.5  # who gets one more is drawn
    torch.manual_seed(3)
    natural = epoch_order(labels, 96, "natural")
    torch.manual_seed(3)
    assert (natural == torch.randperm(100)[:96]).all()


def test_sampling_in_blocks(monkeypatch):
    """Every row once, shuffled within a few pieces of neighbours at a time."""
    monkeypatch.setattr("hierbench.training.trainer.PIECE", 10)
    monkeypatch.setattr("hierbench.training.trainer.PIECES_AT_A_TIME", 3)
    torch.manual_seed(0)
    order = epoch_order(torch.zeros(95), 90, "blocks")
    pools = [set((rows // 10).tolist()) for rows in order.split(30)]
    assert len(order.unique()) == 90 and order.max() < 95
    assert all(len(pool) in (3, 4) for pool in pools) and (order[:30].sort().values != order[:30]).any()
    torch.manual_seed(0)
    assert (order == epoch_order(torch.zeros(95), 90, "blocks")).all()  # on every rank, and after a restart
    assert (order[:30] // 10).unique().tolist() != [0, 1, 2]


def test_a_link_to_a_folder_above_is_left_out(cli, birds):
    """Also as a class, above the images, and in a class that is a link itself; a link to the side is followed."""
    (birds / "images/wren").rename(birds / "elsewhere")
    os.symlink(birds / "elsewhere", birds / "images/wren")
    for target, link in (("..", "all"), (birds / "images", "wren/up"), (".", "robin"), ("..", "mallard/x")):
        os.symlink(target, birds / "images" / link)
    (birds / "images/mallard/again").mkdir()
    os.symlink(birds / "images/mallard/again", birds / "images/mallard/more")  # one folder by two names
    (birds / "images/mallard/0.jpg").rename(birds / "images/mallard/again/0.jpg")
    done = cli(birds, "data", "new", "birds", "--images", "images", "--tree", "taxonomy.csv").ok()
    assert "birds: 60 images read: train 42, val 6, test 12" in done.out
    for link in ("all", "wren/up", "robin", "mallard/x"):
        assert f"the link {link} is left out: it leads to a folder above it" in done.err
    assert "6 classes, height 3, nodes per level 3, 5, 6" in done.err


@pytest.fixture
def two_recipes(birds):
    """A dataset's file, and a second recipe of its images."""
    return load_recipe(write_file(birds)), load_recipe(write_second_file(birds, 'data = "./birds.toml"\n'))


def test_a_second_recipe_has_a_name_of_its_own_and_the_images_of_the_first(birds, two_recipes):
    first, second = two_recipes
    assert (second.dataset, second.data.dataset, second.expected) == ("birds-two", "birds", first.expected)
    assert prepare(second, birds / "data").folder == prepare(first, birds / "data").folder
    assert [path.name for path in (birds / "data/prepared").iterdir()] == ["birds"]


def test_a_record_of_a_second_recipe_finds_its_images_by_digest(birds, two_recipes):
    from hierbench.config.spec import DatasetSpec
    from hierbench.data.prepared import find_for_spec

    dataset = prepare(two_recipes[0], birds / "data")
    spec = DatasetSpec(name="birds-two", digest=dataset.digest, hierarchy="", distance="height")
    assert find_for_spec(spec, birds / "data").folder == dataset.folder
    assert find_for_spec(spec.model_copy(update={"digest": "0"}), birds / "data") is None


def test_commands_take_a_second_recipe(cli, birds, two_recipes):
    prepare(two_recipes[0], birds / "data")
    run = ["run", "--methods", "ce", "--types", "type-I", "--dataset", "./birds-two.toml", "--mlflow", "off"]
    done = cli(birds, *run, "--json").ok()
    assert json.loads(done.out)["dataset"] == "birds-two" and "preparing" not in done.err
    cli(birds, "leaderboard", "--dataset", "birds-two").ok()
    assert "birds: unchanged" in cli(birds, "data", "verify", "./birds-two.toml").ok().out


def test_a_second_recipe_of_another_size_is_prepared_apart(birds, two_recipes):
    prepare(two_recipes[0], birds / "data")
    small = load_recipe(write_second_file(birds, 'data = "birds.toml"\n[expected]\nimage_size = [8, 8]\n'))
    assert prepare(small, birds / "data").meta["image_size"] == [8, 8]
    assert sorted(path.name for path in (birds / "data/prepared").iterdir()) == ["birds", "birds-8x8"]


def test_the_images_of_a_built_in_recipe():
    """Some recipes are of images that have another of the same name; none can be given others."""
    names = {name: load_recipe(name).data.dataset for name in recipe_names()}
    assert {name: data for name, data in names.items() if name != data} == {
        "cifar100-frozen": "cifar100",
        "cifar100-small": "cifar100",
        "grocery-frozen": "grocery",
        "tiny-imagenet-frozen": "tiny-imagenet",
        "cifar100-lite2": "cifar100",
        "grocery-finetuned": "grocery",
        "cub-lite2": "cub100",
        "grocery-lite2": "grocery",
        "tiny-imagenet-lite2": "tiny-imagenet",
        "cub-frozen": "cub100",
        "cub-finetuned": "cub100",
        "cifar100-finetuned": "cifar100",
        "tiny-imagenet-small": "tiny-imagenet",
        **{f"{name}-lite2": name for name in read_protocol().decide},
    }
    for name, data in names.items():
        assert load_recipe(name).expected == load_recipe(data).expected
