"""Every switch between the two protocols: that it acts, where it should and nowhere else."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hierbench.api.registry import find_all, find_method
from hierbench.config.recipe import load_recipe, recipe_names
from hierbench.config.sections import Model
from hierbench.config.spec import Spec
from hierbench.data.loader import Split, evaluated_rows
from hierbench.data.prepare import prepare
from hierbench.execution.jobs import make_spec
from hierbench.models import build_classifier
from tests.support.jobs import plan_job

PUBLISHED = ("fgvc", "cifar100", "inat19", "tieredimagenet-h")
# row of docs/protocols.md: (dataset, key, paper, authors)
SWITCHES = {
    4: [(name, "evaluation.ddof", 1, 0) for name in PUBLISHED],
    5: [
        *((name, "evaluation.drop_last", False, True) for name in PUBLISHED),
        ("cifar100", "evaluation.drop_order", "class", "file"),
    ],
    8: [(name, "methods.haframe.s_min", "paper", "authors") for name in PUBLISHED],
    11: [(name, "model.type_i_pool", "average", "max") for name in ("fgvc", "inat19", "tieredimagenet-h")],
    12: [("cifar100", "model.type_i_units", 600, 0)],
    18: [("fgvc", "train.lr.type-II.transform", 0.01, 0.1)],
    22: [("fgvc", "data.jpeg_quality", 0, 75)],
    23: [("cifar100", "augment.last_offset", True, False)],
    30: [
        ("fgvc", "methods.hafeature.dissimilarity_levels", "all", (2,)),
        ("inat19", "methods.hafeature.dissimilarity_levels", "all", (2, 3, 4, 5, 6)),
        ("tieredimagenet-h", "methods.hafeature.dissimilarity_levels", "all", (5, 6, 7, 8, 9, 10, 11)),
    ],
    34: [("cifar100", "model.wrn_group_input", "activated", "raw")],
    38: [(name, "train.precision", "auto", "float32") for name in PUBLISHED],
    39: [
        ("cifar100", "methods.etf.features", "l2", "bn_l2"),
        *((name, "methods.etf.features", "l2", "bn") for name in ("fgvc", "inat19", "tieredimagenet-h")),
    ],
    40: [(name, "methods.barz_denzler.embedding_weight", 0.0, 0.1) for name in ("inat19", "tieredimagenet-h")],
}


def flat(content, prefix=""):
    """{dotted key: value} of nested sections."""
    if not isinstance(content, dict):
        return {prefix[:-1]: content}
    return {key: value for name, inner in content.items() for key, value in flat(inner, f"{prefix}{name}.").items()}


def settings(name, protocol):
    """All keys of a recipe under a protocol, with every method's hyperparameters filled in."""
    recipe = load_recipe(name, protocol=protocol)
    content = recipe.model_dump(by_alias=True)
    for method in find_all():
        content["methods"][method.name] = method.params(recipe.params_for(method.name)).model_dump()
    return flat(content)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_protocols_differ_in_these_keys_and_in_no_other(name):
    paper, authors = settings(name, "paper"), settings(name, "authors")
    expected = {key: tuple(values) for rows in SWITCHES.values() for dataset, key, *values in rows if dataset == name}
    differ = {key: (paper.get(key), authors.get(key)) for key in paper | authors if paper.get(key) != authors.get(key)}
    assert differ.pop("protocol") == ("paper", "authors")
    assert differ == expected


@pytest.mark.parametrize("name", recipe_names())
def test_row_38_the_authors_train_in_float32_on_any_device(name):
    recipe = load_recipe(name, ["evaluation.ddof=1"], "authors")
    assert (recipe.protocol, recipe.train.precision) == ("authors", "float32")
    assert recipe.evaluation.ddof == 1  # a switch can be set by itself


def spec_of(shapes, overrides=(), **options):
    return plan_job(shapes, *overrides, **options).spec


def test_a_result_records_its_protocol_and_every_switch(shapes):
    content = spec_of(shapes, protocol="authors", method="haframe", kind="type-II").content()
    recorded = flat(content)
    assert recorded["protocol"] == "authors" and recorded["method.params.s_min"] == "authors"
    assert {"augment.crop", "dataset.distance", "dataset.jpeg_quality", "train.precision"} <= recorded.keys()
    assert Spec.model_validate(content).id == spec_of(shapes, protocol="authors", method="haframe", kind="type-II").id


@pytest.mark.parametrize(
    "override",
    [
        "evaluation.ddof=0",
        "evaluation.drop_last=true",
        "model.type_i_pool=max",
        "model.type_i_units=0",
        "model.wrn_group_input=raw",
        "augment.last_offset=false",
        "train.lr.type-I.transform=0.1",
    ],
)
def test_a_switch_makes_another_job_and_no_other_change(shapes, override):
    before, after = spec_of(shapes), spec_of(shapes, [override])
    assert before.id != after.id
    old, new = flat(before.content()), flat(after.content())
    assert len([key for key in old if old[key] != new[key]]) == 1


def published_spec(shapes, name, protocol="authors", seed=0):
    """The spec of a paper's dataset, whose images are not here; only its settings count."""
    recipe = load_recipe(name, ["train.precision=float32"], protocol)
    return make_spec(recipe, shapes, find_method("ce"), "type-I", seed)


def dropped_rows(spec, labels, name):
    kept = evaluated_rows(labels, name, spec)
    assert (np.diff(kept) > 0).all()  # in the order of the split
    return np.setdiff1d(np.arange(len(labels)), kept)


# The published pipeline's batches: 256 in test, those of the training in validation.
SIZES = [("fgvc", "test", 5), ("cifar100", "test", 16), ("inat19", "test", 33), ("tieredimagenet-h", "test", 96)]
SIZES += [("fgvc", "val", 5), ("cifar100", "val", 8), ("inat19", "val", 185), ("tieredimagenet-h", "val", 96)]


@pytest.mark.parametrize(("name", "split", "num_dropped"), SIZES)
def test_row_5_how_many_examples_are_left_out(shapes, name, split, num_dropped):
    expected = load_recipe(name).expected
    size, num_classes = getattr(expected, split), expected.level_sizes[-1]
    labels = np.random.default_rng(0).permutation(np.arange(size) % num_classes)
    assert len(dropped_rows(published_spec(shapes, name, "paper"), labels, split)) == 0
    assert len(dropped_rows(published_spec(shapes, name), labels, "train")) == 0
    gone = dropped_rows(published_spec(shapes, name), labels, split)
    assert len(gone) == num_dropped
    if name == "cifar100":
        return
    kept = np.setdiff1d(np.arange(size), gone)
    assert labels[gone].min() >= labels[kept].max()  # those of the last classes,
    last = labels[gone].min()  # and of the class that is cut the last ones
    assert gone[labels[gone] == last].min() > kept[labels[kept] == last].max(initial=-1)


def test_row_5_cifar100_drops_the_last_images_of_its_files_and_eight_at_random(shapes):
    labels = np.random.default_rng(0).permutation(np.arange(10_000) % 100)
    specs = [published_spec(shapes, "cifar100", seed=seed) for seed in range(50)]
    assert dropped_rows(specs[0], labels, "test").tolist() == list(range(9984, 10_000))
    by_seed = [dropped_rows(spec, labels[:5000], "val") for spec in specs]
    assert by_seed[0].tolist() == dropped_rows(specs[0], labels[:5000], "val").tolist()  # the same in every epoch
    assert set(by_seed[0]) != set(by_seed[1])  # the shuffled order is the run's
    assert np.concatenate(by_seed).mean() == pytest.approx(2500, abs=300) and {len(rows) for rows in by_seed} == {8}


def test_row_5_keeps_a_split_that_is_smaller_than_a_batch(shapes):
    spec = published_spec(shapes, "fgvc")
    for size, split in ((100, "test"), (512, "test"), (63, "val"), (128, "val")):
        assert len(dropped_rows(spec, np.arange(size) % 3, split)) == 0


@pytest.mark.parametrize(
    ("overrides", "sizes"),
    [
        ([], [480, 96, 192]),
        (["evaluation.drop_last=true", "train.batch_size=64"], [480, 64, 192]),  # the test split is smaller than 256
        (["evaluation.drop_last=true", "train.batch_size=50"], [480, 50, 192]),
    ],
)
def test_row_5_acts_on_validation_and_test_and_not_on_training(shapes, overrides, sizes):
    spec = spec_of(shapes, overrides)
    for name, size in zip(("train", "val", "test"), sizes, strict=True):
        labels = shapes.arrays(name)[1]
        batches = Split(shapes, name, spec, torch.device("cpu")).eval_batches()
        evaluated = torch.cat([y for _, y in batches]).tolist()
        assert len(evaluated) == size and evaluated == labels[evaluated_rows(labels, name, spec)].tolist()


@pytest.mark.parametrize(
    ("key", "value", "kinds"),
    [
        ("type_i_pool", "max", ["type-I"]),
        ("type_i_units", 0, ["type-I"]),
        ("wrn_group_input", "raw", ["type-I", "type-II"]),
    ],
)
def test_rows_11_12_and_34_change_the_networks_of_these_types(cifar100, key, value, kinds):
    plain = Model(backbone="wrn10-1")
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    changed = []
    for kind in ("type-I", "type-II"):
        outputs = []
        for model in (plain, plain.model_copy(update={key: value})):
            torch.manual_seed(0)
            outputs.append(build_classifier(find_method("ce").cls, cifar100, kind, model).eval()(images))
        if not torch.equal(*outputs):
            changed.append(kind)
    assert changed == kinds


def test_row_22_re_saves_the_images(tmp_path, miniatures):
    source = miniatures.fgvc(tmp_path)
    paper = prepare("fgvc", tmp_path / "data", source)
    authors = prepare("fgvc", tmp_path / "data", source, jpeg_quality=75)
    assert (paper.folder.name, authors.folder.name) == ("fgvc", "fgvc-jpeg75")
    assert paper.digest != authors.digest and paper.meta["paths"] == authors.meta["paths"]
    for split in ("train", "val", "test"):
        (ours, labels), (theirs, their_labels) = paper.arrays(split), authors.arrays(split)
        assert (labels == their_labels).all()
        difference = np.abs(ours.astype(int) - theirs)
        assert 0 < difference.mean() < 12  # noise images; a photograph loses less


def test_row_23_changes_the_crops_alone(shapes):
    batches = {}
    for value in ("true", "false"):
        torch.manual_seed(0)
        split = Split(shapes, "train", spec_of(shapes, [f"augment.last_offset={value}"]), torch.device("cpu"))
        batches[value] = [*split.train_batches([torch.arange(256)]), *split.eval_batches()]
    assert not torch.equal(batches["true"][0][0], batches["false"][0][0])
    for batch, same_batch in zip(batches["true"][1:], batches["false"][1:], strict=True):
        assert torch.equal(batch[0], same_batch[0])


@pytest.mark.parametrize("levels", [[0], [5]])
def test_row_30_refuses_missing_levels(cifar100, levels):
    cls = find_method("hafeature").cls
    with pytest.raises(ValueError, match="must lie in 1 to 4"):
        cls(cifar100, 16, cls.Params(dissimilarity_levels=levels))


@pytest.mark.parametrize("row", SWITCHES)
def test_the_page_lists_all_switches(row):
    """The table row of docs/protocols.md with the number has the key, except for its dataset-wide prefix."""
    text = (Path(__file__).parents[2] / "docs/protocols.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith(f"| {row} |")]
    assert {line.split("|")[2].strip(" `") for line in lines} == {key for _, key, _, _ in SWITCHES[row]}
