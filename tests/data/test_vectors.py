"""Features of the user's own: formats, preparation, and mistakes in one line."""

import numpy as np
import pytest
import torch

from hierbench.config.recipe import load_recipe
from hierbench.config.recipe_source import SourceSection
from hierbench.data import feature_split
from hierbench.data.feature_split import open_split
from hierbench.data.prepare import prepare
from hierbench.data.prepared import find, verify
from hierbench.data.user.template import TemplateRequest, write_recipe
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.utils.arrays import release
from hierbench.utils.errors import UserError


@pytest.fixture
def arrays(miniatures, tmp_path):
    with np.load(miniatures.features(tmp_path / "made") / "features.npz") as content:
        return dict(content)


def save(folder, arrays, kind="npz"):
    """Write arrays and their tree; return the path of the features."""
    if kind == "npz":
        np.savez(folder / "features.npz", **arrays)
        return folder / "features.npz"
    (folder / "features").mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / "features" / f"{name}.npy", array)
    return folder / "features"


def made(folder, arrays, kind="npz"):
    """The prepared dataset of arrays, by its file."""
    place = save(folder, arrays, kind)
    file = folder / "birds.toml"
    file.unlink(missing_ok=True)
    asked = TemplateRequest("birds", "", str(folder / "made/taxonomy.csv"), file, features=str(place))
    write_recipe(asked, lambda share: None, lambda line: None)
    return prepare(str(file), folder / "data")


def int8(arrays):
    scale = (np.abs(arrays["train"]).max(axis=0) / 127).astype(np.float32)
    rounded = {s: np.clip(np.rint(arrays[s] / scale), -127, 127).astype(np.int8) for s in ("train", "val", "test")}
    return arrays | rounded | {"scale": scale}


NAMES = np.array(["barn owl", "tawny owl", "eagle owl", "mute swan", "mallard", "wren"])
TAKEN = {  # what is given -> how far from the numbers of the plain file training may see others
    "as it is": (lambda a: a, 0.0),
    "half": (lambda a: a | {s: a[s].astype(np.float16) for s in ("train", "val", "test")}, 5e-3),
    "double, other byte order": (lambda a: a | {s: a[s].astype(">f8") for s in ("train", "val", "test")}, 0.0),
    "int8 with a scale": (int8, 3e-2),
    "labels by name": (lambda a: a | {f"{s}_labels": NAMES[a[f"{s}_labels"]] for s in ("train", "val", "test")}, 0.0),
    "one view": (lambda a: a | {s: a[s][None] for s in ("train", "val", "test")}, 0.0),
    "and other arrays": (lambda a: a | {"paths": NAMES}, 0.0),
}


@pytest.mark.parametrize("kind", ["npz", "npy"])
@pytest.mark.parametrize("name", TAKEN)
def test_training_sees_the_given_features(arrays, tmp_path, name, kind):
    change, tolerance = TAKEN[name]
    prepared, spec = made(tmp_path, change(arrays), kind), spec_of(tmp_path)
    split = open_split(prepared, "train", spec, torch.device("cpu"))
    batches = [torch.arange(120).flip(0)[:50], torch.arange(70)]
    for rows, (vectors, labels) in zip(batches, split.train_batches(batches), strict=True):
        assert vectors.dtype == torch.float32
        assert np.abs(vectors.numpy() - arrays["train"][rows]).max() <= tolerance
        assert (labels.numpy() == arrays["train_labels"][rows]).all()
    assert prepared.size("test") == 48 and prepared.hierarchy("height").classes == tuple(NAMES)


def spec_of(folder):
    from hierbench.api.registry import find_method
    from hierbench.execution.plan import make_spec

    recipe, prepared = load_recipe(str(folder / "birds.toml")), find("birds", folder / "data")
    return make_spec(recipe, prepared, find_method("ce"), "type-II", 0)


def test_classes_give_the_order_of_the_labels(arrays, tmp_path):
    order = np.array([3, 1, 0, 5, 4, 2])
    place = {f"{s}_labels": np.argsort(order)[arrays[f"{s}_labels"]] for s in ("train", "val", "test")}
    prepared = made(tmp_path, arrays | place | {"classes": NAMES[order]})
    names = np.array(prepared.hierarchy("height").classes)
    assert (names[prepared.arrays("test")[1]] == NAMES[arrays["test_labels"]]).all()


def test_each_step_draws_a_view(arrays, tmp_path):
    views = np.stack([arrays["train"], arrays["train"] + 100, arrays["train"] + 200])
    prepared, spec = made(tmp_path, arrays | {"train": views}), spec_of(tmp_path)
    assert spec.model.views == 3 and cached_backbone(spec.model).num_channels == 12
    split = open_split(prepared, "train", spec, torch.device("cpu"))
    torch.manual_seed(0)
    [(vectors, _)] = split.train_batches([torch.arange(120)])
    offset = np.rint((vectors.numpy() - arrays["train"]).mean(axis=1)).astype(int)
    assert set(offset) == {0, 100, 200}
    assert np.abs(vectors.numpy() - offset[:, None] - arrays["train"]).max() < 1e-4
    [(evaluated, _)] = split.eval_batches()
    assert (evaluated.numpy() == arrays["train"]).all()  # the first view


def test_the_digest_is_of_numbers_type_and_scale(arrays, tmp_path):
    same = [made(tmp_path, arrays, kind).digest for kind in ("npz", "npy")]
    assert len(set(same)) == 1
    one = arrays["test"].copy()
    one[3, 4] += 1e-3
    small = int8(arrays)
    others = [arrays | {"test": one}, small, small | {"scale": small["scale"] * 2}]
    assert len({same[0], *(made(tmp_path, other).digest for other in others)}) == 4
    file = tmp_path / "data/prepared/birds/test-features.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match="does not match its digest"):
        verify("birds", tmp_path / "data")


def nan(values, row):
    changed = values.copy()
    changed[row, 3] = np.nan
    return changed


WRONG = {  # what is changed -> the error
    "nan": (lambda a: {"val": nan(a["val"], 7)}, "val: row 7 has a value that is not finite"),
    "infinite in float32": (
        lambda a: {s: a[s].astype(np.float64) * 1e300 for s in ("train", "val", "test")},
        "train: row 0 has a value that is not finite",
    ),
    "no split": (lambda a: {"val": None}, "has no array 'val'; it has 'train', 'train_labels'"),
    "no labels": (lambda a: {"test_labels": None}, "has no array 'test_labels'"),
    "fewer labels": (lambda a: {"val_labels": a["val_labels"][1:]}, r"val_labels is \[23\], but val has 24 rows"),
    "one-hot labels": (lambda a: {"val_labels": np.eye(6)[a["val_labels"]]}, r"val_labels is \[24, 6\]"),
    "wider": (lambda a: {"test": a["test"][:, :5]}, "test has 5 numbers a row, train has 12"),
    "flat": (lambda a: {"test": a["test"][:, 0]}, r"test is \[48\], not \[N, D\]"),
    "empty": (lambda a: {"test": a["test"][:0], "test_labels": a["test_labels"][:0]}, r"test is \[0, 12\]"),
    "views of val": (lambda a: {"val": np.stack([a["val"]] * 3)}, "val has 3 views; evaluation takes one"),
    "two types": (lambda a: {"val": a["val"].astype(np.float64)}, "val holds float64, train float32"),
    "truth values": (lambda a: {"train": a["train"] > 0}, "train holds bool, not real numbers"),
    "no class": (lambda a: {"train_labels": a["train_labels"] + 1}, "6 in row 5 is out of range"),
    "no such name": (lambda a: {"train_labels": np.array(["Wren"] * 120)}, "did you mean 'wren'"),
    "class without a row": (lambda a: {"train_labels": np.minimum(a["train_labels"], 4)}, "no row in train.*'wren'"),
    "unknown classes": (lambda a: {"classes": np.array([*NAMES[:5], "robin"])}, "no leaf for class 'robin'"),
    "too few classes": (lambda a: {"classes": NAMES[:5]}, "no features for leaf 'wren'"),
    "a class twice": (lambda a: {"classes": NAMES[[0, 0, 1, 2, 3, 4]]}, "different names"),
    "scale of floats": (lambda a: {"scale": np.ones(12)}, "scale is for integers, and train holds float32"),
    "scale of others": (lambda a: int8(a) | {"scale": np.ones(3)}, r"scale is not \[12\] positive numbers"),
    "a pickle": (lambda a: {"classes": np.array([None] * 6, dtype=object)}, "a pickle, which is never read"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_features_is_one_line(arrays, tmp_path, name):
    change, message = WRONG[name]
    changed = {key: value for key, value in (arrays | change(arrays)).items() if value is not None}
    with pytest.raises(UserError, match=message) as error:
        made(tmp_path, changed)
    assert "\n" not in str(error.value) and find("birds", tmp_path / "data") is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"tree": "t"}, "give images or features"),
        ({"tree": "t", "images": "a", "features": "b"}, "not both"),
        ({"tree": "t", "features": "a", "splits": "column"}, "splits is for images"),
        ({"tree": "t", "images": "a"}, "key splits is missing"),
    ],
)
def test_a_section_names_images_or_features(section, message):
    with pytest.raises(ValueError, match=message):
        SourceSection.model_validate(section)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.backbone=resnet50", "key augment is missing"),
        ("model.frozen=false", "features-128 has no backbone that could be trained"),
        ("model.weights=random", "weights needs a backbone"),
        ("model.input_size=[8,8]", "input_size needs a backbone"),
        ("augment.pad=2", "section augment is for images"),
    ],
)
def test_options_for_images_are_refused_on_features(override, message):
    with pytest.raises(UserError, match=message):
        load_recipe("photos", [override])


def test_rows_are_gathered_from_the_mapped_file_and_given_back(arrays, tmp_path, monkeypatch):
    """Only the rows of a batch of a large file are in memory; they can be read again."""
    prepared, spec = made(tmp_path, arrays), spec_of(tmp_path)
    given_back = []
    monkeypatch.setattr(feature_split, "LARGE", 1000)
    monkeypatch.setattr(feature_split, "RELEASED", 1000)
    monkeypatch.setattr(feature_split, "release", lambda array: (given_back.append(array.nbytes), release(array)))
    split = open_split(prepared, "train", spec, torch.device("cpu"))
    assert split.images.data_ptr() == split.mapped.ctypes.data  # nothing is copied
    rows = torch.arange(120).flip(0)
    for _ in range(2):
        parts = [vectors for vectors, _ in split.train_batches(rows.split(30))]
        assert (torch.cat(parts).numpy() == arrays["train"][rows]).all()
    assert given_back == [120 * 12 * 4] * 8


def test_a_file_that_is_not_mapped_is_not_given_back():
    release(np.arange(3))
