"""`hierbench data import`: from a Hugging Face dataset to files and a run; mistakes are one line each."""

import csv
import importlib.util
import io
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

if importlib.util.find_spec("datasets") is None:
    pytest.skip("needs the package datasets, the extra hf", allow_module_level=True)

BIRDS = ["barn owl", "tawny owl", "mute swan", "wren"]
TREE = "owls,barn owl\nowls,tawny owl\nothers,mute swan\nothers,wren\n"


@pytest.fixture(autouse=True)
def datasets(monkeypatch, tmp_path):
    """The package, which reaches no hub and keeps nothing outside of the test."""
    import datasets
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # of processes that are started; here it was read at the import
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / ".cache")
    datasets.disable_progress_bars()
    return datasets


def pictures(num, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) for _ in range(num)]


def jpeg(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=70)
    return file.getvalue()


def make(datasets, images, labels, label=None, **more):
    """A dataset with an image column, `picture`, a label column, `bird`, and others."""
    kinds = {"picture": datasets.Image(), "bird": label or datasets.ClassLabel(names=BIRDS)}
    features = datasets.Features(kinds | {name: kind for name, (kind, _) in more.items()})
    columns = {"picture": images, "bird": labels} | {name: values for name, (_, values) in more.items()}
    return datasets.Dataset.from_dict(columns, features=features)


def rows(folder):
    with (folder / "manifest.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.fixture
def saved(datasets, tmp_path):
    """The folder of a saved dataset, and its images per split: pixels for training, otherwise JPEG files."""
    images = {split: pictures(num, num) for split, num in (("train", 12), ("validation", 4), ("test", 8))}
    contents = {split: images[split] if split == "train" else list(map(jpeg, images[split])) for split in images}
    cells = {split: [{"bytes": x} if isinstance(x, bytes) else x for x in contents[split]] for split in images}
    parts = {split: make(datasets, cells[split], [i % 4 for i in range(len(cells[split]))]) for split in images}
    datasets.DatasetDict(parts | {"extra": parts["test"]}).save_to_disk(tmp_path / "birds")
    (tmp_path / "tree.csv").write_text(TREE)
    return tmp_path, contents


def test_from_a_saved_dataset_to_a_run(cli, saved):
    """Splits, classes, pixels and the bytes of files are those of the dataset; the printed command goes on."""
    folder, contents = saved
    done = cli(folder, "data", "import", "birds", "--output", "files").ok()
    assert done.out.splitlines()[0] == "birds: train 12, validation 4, test 8; 4 classes"
    assert "left out, because the dataset has train, validation and test: extra" in done.err
    found = rows(folder / "files")
    assert [row["split"] for row in found] == ["train"] * 12 + ["val"] * 4 + ["test"] * 8
    assert [row["label"] for row in found] == [BIRDS[i % 4] for num in (12, 4, 8) for i in range(num)]
    assert found[0]["image"] == "train/0000/0000000.png" and found[-1]["image"] == "test/0003/0000007.jpg"
    for row, content in zip(found, [x for split in contents.values() for x in split], strict=True):
        path = folder / "files" / row["image"]
        if isinstance(content, bytes):
            assert path.read_bytes() == content
        else:
            np.testing.assert_array_equal(pixels(path), content)
    command = done.out.splitlines()[1].partition("run: ")[2].replace("NAME", "birds").replace("TREE", "tree.csv")
    cli(folder, *command.split()[1:]).ok()
    file = folder / "birds.toml"
    text = file.read_text()
    assert 'splits = "column"' in text
    file.write_text(text.replace("image_size = [64, 64]", "image_size = [32, 32]").replace("epochs = 30", "epochs = 1"))
    assert "train 12, val 4, test 8; 4 classes" in cli(folder, "data", "prepare", "./birds.toml").ok().out
    prepared = np.load(folder / "data/prepared/birds/train-images.npy")
    expected = [np.moveaxis(image, 2, 0).tobytes() for image in contents["train"]]
    assert sorted(image.tobytes() for image in prepared) == sorted(expected)
    run = ["run", "--methods", "ce", "--types", "type-I", "--seeds", "1", "--dataset", "./birds.toml"]
    assert "| type-I " in cli(folder, *run, "--mlflow", "off").ok().out


def test_official_test_images_stay_test_images(cli, datasets, tmp_path):
    """Of a dataset with training and test images, a tenth of each training class is for validation."""
    images = pictures(32)
    labels = [i % 4 for i in range(24)]
    parts = {"train": make(datasets, images[:24], labels), "test": make(datasets, images[24:], labels[:8])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "birds")
    done = cli(tmp_path, "data", "import", "birds", "--output", "files").ok()
    assert done.err == "note: no split validation; 10% of each class of train are drawn for it\n"
    assert done.out.splitlines()[0] == "birds: train 20, train for validation 4, test 8; 4 classes"
    found = rows(tmp_path / "files")
    assert Counter((row["split"], row["label"]) for row in found if row["split"] == "val") == {
        ("val", label): 1 for label in BIRDS
    }
    for row in found:
        split, number = row["image"].split("/")[0], int(Path(row["image"]).stem)
        assert split == row["split"]
        expected = images[24 + number] if split == "test" else images[number]
        assert row["label"] == BIRDS[number % 4]
        np.testing.assert_array_equal(pixels(tmp_path / "files" / row["image"]), expected)
    assert len({row["image"].split("/", 1)[1] for row in found if row["split"] != "test"}) == 24
    again = cli(tmp_path, "data", "import", "birds", "--output", "again").ok()
    assert rows(tmp_path / "again") == found and again.err == done.err


def test_without_the_three_splits_shares_are_drawn(cli, datasets, tmp_path):
    """Text is a label as well, and a format that was saved does not matter."""
    images = pictures(24)
    text = datasets.Value("string")
    parts = {
        "train": make(datasets, images[:20], (BIRDS * 6)[:20], text),
        "a b": make(datasets, images[20:], BIRDS, text),
    }
    datasets.DatasetDict(parts).with_format("numpy").save_to_disk(tmp_path / "birds")
    parts["train"].save_to_disk(tmp_path / "one")
    (tmp_path / "tree.csv").write_text(TREE)
    done = cli(tmp_path, "data", "import", "birds", "--output", "files").ok()
    assert done.err == "note: no splits train, validation and test (train, a b); shares of all images will be drawn\n"
    found = rows(tmp_path / "files")
    assert [list(row) for row in found] == [["image", "label"]] * 24
    assert [row["label"] for row in found] == (BIRDS * 6)[:20] + BIRDS and found[20][
        "image"
    ] == "images/0000/0000020.png"
    for row, image in zip(found, images, strict=True):
        np.testing.assert_array_equal(pixels(tmp_path / "files" / row["image"]), image)
    done = cli(tmp_path, "data", "new", "birds", "--images", "files/manifest.csv", "--tree", "tree.csv").ok()
    assert "birds: 24 images read: train 16, val 4, test 4;" in done.out
    assert "(all)" in cli(tmp_path, "data", "import", "one", "--output", "other").ok().err


def test_a_folder_that_load_dataset_takes(cli, tmp_path):
    contents = [jpeg(image) for image in pictures(8)]
    for i, content in enumerate(contents):
        place = tmp_path / "photos" / BIRDS[i % 4]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i}.jpg").write_bytes(content)
    cli(tmp_path, "data", "import", "photos", "--output", "files").ok()
    found = rows(tmp_path / "files")
    assert {(row["label"], (tmp_path / "files" / row["image"]).read_bytes()) for row in found} == {
        (BIRDS[i % 4], content) for i, content in enumerate(contents)
    }


def test_formats_that_hierbench_does_not_read_become_png(cli, datasets, tmp_path):
    deep = np.arange(1024, dtype=np.uint16).reshape(32, 32) * 60
    file = io.BytesIO()
    Image.fromarray(pictures(1)[0]).save(file, "BMP")
    make(datasets, [deep, {"bytes": file.getvalue()}], [0, 1]).save_to_disk(tmp_path / "birds")
    cli(tmp_path, "data", "import", "birds", "--output", "files").ok()
    first, second = [tmp_path / "files" / row["image"] for row in rows(tmp_path / "files")]
    np.testing.assert_array_equal(pixels(first), deep)
    np.testing.assert_array_equal(pixels(second), pictures(1)[0])
    assert first.suffix == second.suffix == ".png"


def test_mistakes_are_one_line_and_leave_nothing(cli, datasets, tmp_path):
    first, second = pictures(2)
    label = datasets.ClassLabel(names=["a", "b"])
    kinds = {
        "two-labels": make(datasets, [first], [0], order=(label, [1])),
        "two-texts": make(datasets, [first], ["x"], datasets.Value("string"), url=(datasets.Value("string"), ["y"])),
        "two-images": make(datasets, [first], [0], mask=(datasets.Image(), [second])),
        "no-label": make(datasets, [first], [0]).remove_columns("bird"),
        "no-image": make(datasets, [first], [0]).remove_columns("picture"),
        "none": make(datasets, [first, second], [0, None]),
        "unknown": make(datasets, [first, second], [0, -1]),
        "blank": make(datasets, [first, second], ["x", " "], datasets.Value("string")),
        "absent": make(datasets, [first, None], [0, 1]),
        "damaged": make(datasets, [{"bytes": b"GIF89a"}, {"bytes": b"no image"}], [0, 1]),
    }
    for name, made in kinds.items():
        made.save_to_disk(tmp_path / name)
    datasets.DatasetDict({}).save_to_disk(tmp_path / "empty")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/a.parquet").write_bytes(b"PAR1")
    (tmp_path / "there").mkdir()
    before = set(tmp_path.iterdir()) | {tmp_path / ".cache"}

    def refused(name, *parts, options=("--output", "files")):
        done = cli(tmp_path, "data", "import", name, *options)
        done._replace(err=done.err.partition("will be drawn\n")[2] or done.err).one_line(*parts)
        assert set(tmp_path.iterdir()) <= before

    refused("two-labels", "the dataset has 2 label columns, bird, order; choose one: --label COLUMN")
    refused(
        "two-labels",
        "unknown label column 'birds'; did you mean 'bird'?",
        options=("--output", "x", "--label", "birds"),
    )
    refused("two-texts", "2 label columns, bird, url")
    refused("two-images", "the dataset has 2 image columns, picture, mask; choose one: --image COLUMN")
    refused("no-label", "the dataset has no label column")
    refused("no-image", "the dataset has no image column")
    refused("none", "split all, row 1 has no label (bird is None)", "save_to_disk")
    refused("unknown", "split all, row 1 has no label (bird is -1)")
    refused("blank", "split all, row 1 has no label (bird is ' ')")
    refused("absent", "image of split all, row 1 cannot be read (there is none)")
    refused(
        "damaged", "2 images cannot be read: image of split all, row 0", "row 1 cannot be read (the format is unknown"
    )
    refused("empty", "empty has no rows")
    refused("nothing", "dataset nothing cannot be loaded (EmptyDatasetError")
    refused("broken", "dataset broken cannot be loaded (ArrowInvalid")
    refused("no-such/birds", "dataset no-such/birds cannot be loaded", "Couldn't reach 'no-such/birds' on the Hub")
    refused("two-labels", "there is there already; remove it", options=("--output", "there"))
    refused("two-labels", "no such folder as a", options=("--output", "a/b"))
    chosen = cli(tmp_path, "data", "import", "two-labels", "--output", "files", "--label", "order").ok()
    assert "1 classes" in chosen.out and rows(tmp_path / "files")[0]["label"] == "b"
    cli(tmp_path, "data", "import", "two-images", "--output", "masks", "--image", "mask").ok()
    np.testing.assert_array_equal(pixels(tmp_path / "masks/images/0000/0000000.png"), second)


def test_without_the_package(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.delenv("UV", raising=False)
    cli(tmp_path, "data", "import", "birds", "--output", "files").one_line("run: pip install 'hierbench[hf]'")
    monkeypatch.setenv("UV", "uv")  # as in `uv run`, whose environment has no pip
    cli(tmp_path, "data", "import", "birds", "--output", "files").one_line("run: uv sync --inexact --extra hf")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_what_is_interrupted_does_not_look_whole(cli, datasets, tmp_path, how):
    """Ctrl-C removes what was written; of a killed command, the next one removes it."""
    images = [{"bytes": jpeg(image)} for image in pictures(50)] * 400
    make(datasets, images, [i % 4 for i in range(len(images))]).save_to_disk(tmp_path / "birds")
    process = cli.start(tmp_path, "data", "import", "birds", "--output", "files")
    end = time.monotonic() + 120
    while not list(tmp_path.glob(".files.*/images")):
        assert time.monotonic() < end and not (tmp_path / "files").exists()
        time.sleep(0.01)
    process.kill(how)
    assert process.finish().code == (130 if how == signal.SIGINT else -how)
    assert not (tmp_path / "files").exists() and len(list(tmp_path.glob(".files.*"))) == (how == signal.SIGKILL)
    datasets.load_from_disk(tmp_path / "birds").select(range(8)).save_to_disk(tmp_path / "few")
    cli(tmp_path, "data", "import", "few", "--output", "files").ok()
    assert len(rows(tmp_path / "files")) == 8 and sorted(os.listdir(tmp_path)) == ["birds", "few", "files"]


def test_a_file_outside_the_dataset_is_not_read(cli, datasets, tmp_path):
    """A Parquet file may name any file of the machine in place of an image's bytes."""

    (tmp_path / "mine").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "mine/secret.png")
    features = datasets.Features(
        {
            "image": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")},
            "label": datasets.Value("string"),
        }
    )
    rows = {"image": [{"bytes": None, "path": str(tmp_path / "mine/secret.png")}] * 2, "label": ["a", "b"]}
    found = datasets.Dataset.from_dict(rows, features=features).cast_column("image", datasets.Image(decode=False))
    (tmp_path / "given").mkdir()
    import pyarrow.parquet

    pyarrow.parquet.write_table(found.data.table, tmp_path / "given/train.parquet")
    cli(tmp_path, "data", "import", "given", "--output", "out").one_line("outside the dataset")
    assert not (tmp_path / "out").exists()
