"""Features of the user's own: formats, preparation, and mistakes in one line."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hierbench.config.recipe import load_recipe
from hierbench.data import feature_split
from hierbench.data.feature_split import Pieces, open_split
from hierbench.data.prepared import find, verify
from hierbench.data.user.user_dataset import if_current
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.training.trainer import epoch_order
from hierbench.utils.arrays import release
from hierbench.utils.errors import UserError
from tests.support.birds import NAMES, int8_features, prepare_features


@pytest.fixture
def arrays(miniatures, tmp_path):
    with np.load(miniatures.features(tmp_path / "made") / "features.npz") as content:
        return dict(content)


TAKEN = {  # what is given -> how far from the numbers of the plain file training may see others
    "as it is": (lambda a: a, 0.0),
    "half": (lambda a: a | {s: a[s].astype(np.float16) for s in ("train", "val", "test")}, 5e-3),
    "double, other byte order": (lambda a: a | {s: a[s].astype(">f8") for s in ("train", "val", "test")}, 0.0),
    "int8 with a scale": (int8_features, 3e-2),
    "labels by name": (lambda a: a | {f"{s}_labels": NAMES[a[f"{s}_labels"]] for s in ("train", "val", "test")}, 0.0),
    "one view": (lambda a: a | {s: a[s][None] for s in ("train", "val", "test")}, 0.0),
    "and other arrays": (lambda a: a | {"paths": NAMES}, 0.0),
}


@pytest.mark.parametrize("kind", ["npz", "npy"])
@pytest.mark.parametrize("name", TAKEN)
def test_training_sees_the_given_features(arrays, tmp_path, name, kind):
    change, tolerance = TAKEN[name]
    prepared, spec = prepare_features(tmp_path, change(arrays), kind), spec_of(tmp_path)
    split = open_split(prepared, "train", spec, torch.device("cpu"))
    batches = [torch.arange(120).flip(0)[:50], torch.arange(70)]
    for rows, (vectors, labels) in zip(batches, split.train_batches(batches), strict=True):
        assert vectors.dtype == torch.float32
        assert np.abs(vectors.numpy() - arrays["train"][rows]).max() <= tolerance
        assert (labels.numpy() == arrays["train_labels"][rows]).all()
    assert prepared.size("test") == 48 and prepared.hierarchy("height").classes == tuple(NAMES)


def spec_of(folder):
    from hierbench.api.registry import find_method
    from hierbench.execution.jobs import make_spec

    recipe, prepared = load_recipe(str(folder / "birds.toml")), find("birds", folder / "data")
    return make_spec(recipe, prepared, find_method("ce"), "type-II", 0)


def test_classes_give_the_order_of_the_labels(arrays, tmp_path):
    order = np.array([3, 1, 0, 5, 4, 2])
    place = {f"{s}_labels": np.argsort(order)[arrays[f"{s}_labels"]] for s in ("train", "val", "test")}
    prepared = prepare_features(tmp_path, arrays | place | {"classes": NAMES[order]})
    names = np.array(prepared.hierarchy("height").classes)
    assert (names[prepared.arrays("test")[1]] == NAMES[arrays["test_labels"]]).all()


def test_each_step_draws_a_view(arrays, tmp_path):
    views = np.stack([arrays["train"], arrays["train"] + 100, arrays["train"] + 200])
    prepared, spec = prepare_features(tmp_path, arrays | {"train": views}), spec_of(tmp_path)
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
    same = [prepare_features(tmp_path, arrays, kind).digest for kind in ("npz", "npy")]
    assert len(set(same)) == 1
    changed = arrays["test"].copy()
    changed[3, 4] += 1e-3
    small = int8_features(arrays)
    others = [arrays | {"test": changed}, small, small | {"scale": small["scale"] * 2}]
    assert len({same[0], *(prepare_features(tmp_path, other).digest for other in others)}) == 4
    file = tmp_path / "data/prepared/birds/test-features.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match="does not match its digest"):
        verify("birds", tmp_path / "data")


def test_rows_are_gathered_from_the_mapped_file_and_given_back(arrays, tmp_path, monkeypatch):
    """Only the rows of a batch of a large file are in memory; they can be read again."""
    prepared, spec = prepare_features(tmp_path, arrays), spec_of(tmp_path)
    given_back = []
    monkeypatch.setattr(feature_split, "MAX_RESIDENT_BYTES", 1000)
    monkeypatch.setattr(feature_split, "RELEASED_BYTES", 1000)
    monkeypatch.setattr(feature_split, "release", lambda array: (given_back.append(array.nbytes), release(array)))
    split = open_split(prepared, "train", spec, torch.device("cpu"))
    assert split.images.data_ptr() == split.mapped.ctypes.data  # nothing is copied
    rows = torch.arange(120).flip(0)
    for _ in range(2):
        parts = [vectors for vectors, _ in split.train_batches(rows.split(30))]
        assert (torch.cat(parts).numpy() == arrays["train"][rows]).all()
    assert given_back == [120 * 12 * 4] * 8


def test_a_file_that_is_sampled_in_blocks_is_read_piece_by_piece(arrays, tmp_path, monkeypatch):
    """Once in an epoch; the vectors are those of the rows, also of pieces that had left the memory."""
    prepared, spec = prepare_features(tmp_path, arrays), spec_of(tmp_path)
    spec = spec.model_copy(update={"train": spec.train.model_copy(update={"sampling": "blocks"})})
    sizes = {"MAX_RESIDENT_BYTES": 1000, "PIECE": 7, "PIECES_AT_A_TIME": 3}
    for name, size in sizes.items():
        monkeypatch.setattr(feature_split, name, size)
    monkeypatch.setattr("hierbench.training.trainer.PIECE", 7)
    monkeypatch.setattr("hierbench.training.trainer.PIECES_AT_A_TIME", 3)
    split = open_split(prepared, "train", spec, torch.device("cpu"))
    read = []
    monkeypatch.setattr(
        Pieces, "_read", lambda pieces, number, of=Pieces._read: (read.append(number), of(pieces, number))
    )
    for epoch in range(2):
        torch.manual_seed(epoch)
        order = epoch_order(split.labels, 120, "blocks")
        parts = [vectors for vectors, _ in split.train_batches(order.split(10))]
        assert (torch.cat(parts).numpy() == arrays["train"][order]).all()
    assert len(read) <= 2 * 18 and set(read) == set(range(18))  # of 120 rows, the last piece having one
    assert next(iter(open_split(prepared, "val", spec, torch.device("cpu")).eval_batches()))[0].dtype == torch.float32


def test_a_file_that_is_not_mapped_is_not_given_back():
    release(np.arange(3))


@pytest.mark.parametrize("kind", ["npz", "npy"])
@pytest.mark.parametrize("has_classes", [False, True])
def test_old_features_of_numbered_classes_are_prepared_again(arrays, tmp_path, kind, has_classes):
    """Classes were in the order of texts, 0, 10, 2; an array `classes` keeps its own order."""
    numbers = np.array(["0", "1", "2", "3", "10", "11"])
    tree = "".join(f"{'ab'[int(n) % 2]},{n}\n" for n in numbers)
    (tmp_path / "made/taxonomy.csv").write_text(f"group,class\n{tree}")
    order = np.sort(numbers)
    arrays.pop("classes", None)
    prepared = prepare_features(tmp_path, arrays | ({"classes": order} if has_classes else {}), kind)
    paths = sorted(prepared.meta["paths"], key=lambda path: path[-1])
    old, lines = replace(prepared, meta=prepared.meta | {"paths": paths}), []
    recipe = load_recipe(str(tmp_path / "birds.toml"))
    assert if_current(recipe, prepared, lines.append) is prepared and not lines
    assert (if_current(recipe, old, lines.append) is old) is has_classes
    assert has_classes or "preparing it again" in lines[0]
