"""Images of a Hugging Face dataset as a dataset's own: from a saved folder to a run; mistakes are one line each."""

import importlib.util
import io
import sys

import numpy as np
import pytest
from PIL import Image

from hierbench.data.image import UnreadableImageError
from hierbench.data.user.huggingface import image_content

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


def new(cli, folder, images="birds"):
    """A dataset's file of 32x32 images and one epoch."""
    cli(folder, "data", "new", "feathers", "--images", images, "--tree", "tree.csv").ok()
    file = folder / "feathers.toml"
    text = file.read_text()
    file.write_text(text.replace("image_size = [64, 64]", "image_size = [32, 32]").replace("epochs = 30", "epochs = 1"))
    return text


def test_from_a_saved_dataset_to_a_run(cli, saved):
    """Splits, classes and pixels are those of the dataset; nothing is written beside it."""
    folder, contents = saved
    before = {path: path.read_bytes() for path in (folder / "birds").rglob("*") if path.is_file()}
    text = new(cli, folder)
    assert 'splits = "column"' in text and 'images = "birds"' in text
    assert "train 12, val 4, test 8; 4 classes" in cli(folder, "data", "prepare", "./feathers.toml").ok().out
    prepared = np.load(folder / "data/prepared/feathers/train-images.npy")
    expected = [np.moveaxis(image, 2, 0).tobytes() for image in contents["train"]]
    assert sorted(image.tobytes() for image in prepared) == sorted(expected)
    labels = np.load(folder / "data/prepared/feathers/test-labels.npy")
    assert np.bincount(labels).tolist() == [2] * 4
    run = ["run", "--methods", "ce", "--types", "type-I", "--seeds", "1", "--dataset", "./feathers.toml"]
    assert "| type-I " in cli(folder, *run, "--mlflow", "off").ok().out
    assert {path: path.read_bytes() for path in (folder / "birds").rglob("*") if path.is_file()} == before
    (folder / "birds").rename(folder / "gone")
    assert "are gone; using what was prepared" in cli(folder, *run, "--mlflow", "off").ok().err


def test_official_test_images_stay_test_images(cli, datasets, tmp_path):
    """Of a dataset with training and test images, a tenth of each training class is for validation."""
    images, labels = pictures(32), [i % 4 for i in range(24)]
    parts = {"train": make(datasets, images[:24], labels), "test": make(datasets, images[24:], labels[:8])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "birds")
    (tmp_path / "tree.csv").write_text(TREE)
    new(cli, tmp_path)
    assert "train 20, val 4, test 8" in cli(tmp_path, "data", "prepare", "./feathers.toml").ok().out
    test = np.load(tmp_path / "data/prepared/feathers/test-images.npy")
    assert sorted(x.tobytes() for x in test) == sorted(np.moveaxis(x, 2, 0).tobytes() for x in images[24:])


def test_without_train_and_test_shares_are_drawn(cli, datasets, tmp_path):
    """Text is a label as well, and a format that was saved does not matter."""
    dataset = make(datasets, pictures(24), BIRDS * 6, datasets.Value("string"))
    dataset.with_format("numpy").save_to_disk(tmp_path / "birds")
    (tmp_path / "tree.csv").write_text(TREE)
    assert "splits = {val = 0.1" in new(cli, tmp_path)
    file = tmp_path / "feathers.toml"
    file.write_text(file.read_text().replace("splits = {val = 0.1, test = 0.2, seed = 0}", 'splits = "column"'))
    cli(tmp_path, "data", "prepare", "./feathers.toml").one_line("has no train and test", "write splits = {val")


def test_mistakes_are_one_line_and_leave_nothing(cli, datasets, tmp_path):
    first, second = pictures(2)
    label = datasets.ClassLabel(names=["a", "b"])
    kinds = {
        "two-labels": (make(datasets, [first], [0], order=(label, [1])), "has 2 label columns bird, order; choose it"),
        "two-images": (
            make(datasets, [first], [0], mask=(datasets.Image(), [second])),
            "2 image columns picture, mask",
        ),
        "no-label": (make(datasets, [first], [0]).remove_columns("bird"), "has no label column"),
        "none": (make(datasets, [first, second], [0, None]), "row 1 has no label (bird is None)"),
        "unknown": (make(datasets, [first, second], [0, -1]), "row 1 has no label (bird is -1)"),
        "blank": (
            make(datasets, [first] * 2, ["x", " "], datasets.Value("string")),
            "row 1 has no label (bird is ' ')",
        ),
        "absent": (make(datasets, [first] * 11 + [None], [0, 1, 2, 3] * 3), "cannot be read (there is no image)"),
        "damaged": (make(datasets, [{"bytes": b"no"}] * 12, [0, 1, 2, 3] * 3), "12 images cannot be read"),
    }
    (tmp_path / "tree.csv").write_text(TREE)
    for name, (made, message) in kinds.items():
        made.save_to_disk(tmp_path / name)
        done = cli(tmp_path, "data", "new", "feathers", "--images", name, "--tree", "tree.csv")
        assert done.code == 2 and message in done.err.splitlines()[-1], done.err
    places = {"hf:no-such/birds": "dataset hf:no-such/birds cannot be loaded", "nowhere": "no folder of"}
    for name, message in places.items():
        cli(tmp_path, "data", "new", "feathers", "--images", name, "--tree", "tree.csv").one_line(message)
    assert not (tmp_path / "feathers.toml").exists()


def test_without_the_package(cli, saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.delenv("UV", raising=False)
    done = cli(saved[0], "data", "new", "feathers", "--images", "birds", "--tree", "tree.csv")
    done.one_line("run: pip install '.[hf]' in the checkout")


def test_a_file_outside_the_dataset_is_not_read(tmp_path):
    """A dataset may name any file of the machine in place of an image's bytes."""
    inside, outside = tmp_path / "given/1.png", tmp_path / "mine/secret.png"
    for path in (inside, outside):
        path.parent.mkdir()
        Image.new("RGB", (8, 8)).save(path)
    assert image_content({"bytes": None, "path": str(inside)}, str(tmp_path / "given")) == inside.read_bytes()
    for path in (outside, tmp_path / "given/../mine/secret.png"):
        with pytest.raises(UnreadableImageError, match="outside the dataset"):
            image_content({"bytes": None, "path": str(path)}, str(tmp_path / "given"))
