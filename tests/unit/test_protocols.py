"""Every switch between the two protocols: that it acts, where it should and nowhere else."""

import copy
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
from hierbench.leaderboard.statistics import summarise
from hierbench.methods.haframe import minimum_similarity
from hierbench.models import build_classifier
from hierbench.planning.plan import check_request, make_plan, make_spec
from hierbench.training.fabric import make_fabric
from hierbench.training.prediction import predict
from hierbench.utils.errors import UserError

PUBLISHED = ("fgvc", "cifar100", "inat19", "tieredimagenet-h")
# row of docs/protocols.md: (dataset, key, paper, authors)
SWITCHES = {
    4: [(name, "evaluation.ddof", 1, 0) for name in PUBLISHED],
    5: [
        *((name, "evaluation.drop_last", False, True) for name in PUBLISHED),
        ("cifar100", "evaluation.drop_order", "class", "file"),
    ],
    6: [(name, "collapse.self_duality", "norm", "square") for name in PUBLISHED],
    7: [(name, "collapse.deviation", "absolute", "raw") for name in PUBLISHED],
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


def settings(name, protocol, overrides=()):
    """All keys of a recipe under a protocol, with every method's hyperparameters filled in."""
    recipe = load_recipe(name, overrides, protocol)
    content = recipe.model_dump(by_alias=True)
    for found in find_all():
        content["methods"][found.name] = found.params(recipe.params_of(found.name)).model_dump()
    return flat(content)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_protocols_differ_in_these_keys_and_in_no_other(name):
    paper, authors = settings(name, "paper"), settings(name, "authors")
    expected = {key: (one, two) for rows in SWITCHES.values() for dataset, key, one, two in rows if dataset == name}
    differ = {key: (paper.get(key), authors.get(key)) for key in paper | authors if paper.get(key) != authors.get(key)}
    assert differ.pop("protocol") == ("paper", "authors")
    assert differ == expected


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_has_both_protocols(name):
    assert load_recipe(name, protocol="authors").protocol == "authors"
    assert load_recipe(name, ["evaluation.ddof=1"], "authors").evaluation.ddof == 1  # a switch can be set by itself


def test_the_protocol_is_chosen_by_its_option():
    with pytest.raises(UserError, match="choose a protocol with --protocol"):
        load_recipe("shapes", ["protocol=authors"])
    with pytest.raises(UserError, match="unknown key 'authors'"):
        load_recipe("shapes", ["authors.model.type_i_units=3"])


def spec_of(shapes, overrides=(), protocol="paper", method="ce", kind="type-I"):
    recipe = load_recipe("shapes", overrides, protocol)
    return make_plan(recipe, shapes, [find_method(method)], [kind], 1)[0].spec


def test_a_result_records_its_protocol_and_every_switch(shapes):
    content = spec_of(shapes, protocol="authors", method="haframe", kind="type-II").content()
    recorded = flat(content)
    assert recorded["protocol"] == "authors" and recorded["method.params.s_min"] == "authors"
    for key in (
        "evaluation.ddof",
        "evaluation.drop_last",
        "evaluation.drop_order",
        "model.type_i_pool",
        "model.type_i_units",
        "model.wrn_group_input",
        "augment.last_offset",
        "augment.crop",
        "dataset.jpeg_quality",
        "dataset.distance",
        "train.lr.transform",
        "train.precision",
    ):
        assert key in recorded
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
    one, two = flat(before.content()), flat(after.content())
    assert len([key for key in one if one[key] != two[key]]) == 1


def test_row_4_the_interval():
    values = [1.0, 2.0, 4.0, 3.0, 5.0]
    narrow, wide = summarise(values, ddof=0), summarise(values, ddof=1)
    assert narrow.mean == wide.mean
    assert narrow.ci95 == pytest.approx(2.7764451051977987 * np.std(values) / 5**0.5)
    assert wide.ci95 / narrow.ci95 == pytest.approx((5 / 4) ** 0.5)  # 11.8 % wider
    assert summarise([3.0], ddof=0).ci95 is None


def published_spec(shapes, name, protocol="authors", seed=0, **sections):
    """The spec of a paper's dataset, whose images are not here; only its settings count."""
    recipe = load_recipe(name, ["train.precision=float32"], protocol)
    return make_spec(recipe, shapes, find_method("ce"), "type-I", seed).model_copy(update=sections)


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


def test_row_5_cifar100_drops_what_its_files_hold_last_and_eight_at_random(shapes):
    labels = np.random.default_rng(0).permutation(np.arange(10_000) % 100)
    specs = [published_spec(shapes, "cifar100", seed=seed) for seed in (0, 1)]
    for spec in specs:
        assert dropped_rows(spec, labels, "test").tolist() == list(range(9984, 10_000))
    one, other = (dropped_rows(spec, labels[:5000], "val") for spec in specs)
    assert one.tolist() == dropped_rows(specs[0], labels[:5000], "val").tolist()  # the same in every epoch
    assert set(one) != set(other)  # the shuffled order is the run's
    by_seed = [dropped_rows(published_spec(shapes, "cifar100", seed=seed), labels[:5000], "val") for seed in range(50)]
    assert np.concatenate(by_seed).mean() == pytest.approx(2500, abs=300) and {len(rows) for rows in by_seed} == {8}


def test_row_5_keeps_a_split_that_is_smaller_than_a_batch(shapes):
    spec = published_spec(shapes, "fgvc")
    for size, split in ((100, "test"), (512, "test"), (63, "val"), (128, "val")):
        assert len(dropped_rows(spec, np.arange(size) % 3, split)) == 0


def test_row_5_acts_on_validation_and_test_and_not_on_training(shapes):
    def sizes(*overrides):
        spec = spec_of(shapes, overrides)
        splits = [Split(shapes, name, spec, torch.device("cpu")) for name in ("train", "val", "test")]
        return [sum(len(y) for _, y in split.eval_batches()) for split in splits]

    assert sizes() == [960, 192, 384]
    assert sizes("evaluation.drop_last=true") == [960, 128, 256]  # validation is one whole batch of 128
    assert sizes("evaluation.drop_last=true", "train.batch_size=50") == [960, 150, 256]


def test_row_5_leaves_the_other_predictions_as_they_are(shapes):
    torch.manual_seed(0)
    cls = find_method("ce").cls
    model = build_classifier(cls, shapes.hierarchy("height"), "type-I", Model(backbone="wrn10-1-s4"))
    results = {}
    for drop in ("false", "true"):
        spec = spec_of(shapes, [f"evaluation.drop_last={drop}"])
        results[drop] = predict(make_fabric("cpu", "float32"), model, Split(shapes, "test", spec, torch.device("cpu")))
    kept = torch.from_numpy(evaluated_rows(shapes.arrays("test")[1], "test", spec))
    assert len(kept) == 256
    assert torch.equal(results["true"][1], results["false"][1][kept])
    assert torch.allclose(results["true"][0], results["false"][0][kept], atol=1e-5)


def test_row_8_s_min_is_the_code_s(cifar100):
    modes = {mode: minimum_similarity(cifar100.distances, 2.0, mode) for mode in ("paper", "authors")}
    assert modes["paper"] == pytest.approx(-0.30) and modes["authors"] == pytest.approx(-0.300071, abs=1e-6)


@pytest.mark.parametrize(("key", "value"), [("type_i_pool", "max"), ("type_i_units", 0)])
def test_rows_11_and_12_change_type_one_alone(cifar100, key, value):
    cls = find_method("ce").cls
    plain = Model(backbone="wrn10-1")
    switched = plain.model_copy(update={key: value})
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    same = {}
    for kind in ("type-I", "type-II"):
        outputs = []
        for model in (plain, switched):
            torch.manual_seed(0)
            outputs.append(build_classifier(cls, cifar100, kind, model).eval()(images))
        same[kind] = torch.equal(*outputs)
    assert same == {"type-I": False, "type-II": True}


def test_row_18_is_a_learning_rate_of_type_two_alone():
    paper, authors = load_recipe("fgvc").train.lr, load_recipe("fgvc", protocol="authors").train.lr
    assert paper.type_i == authors.type_i
    assert authors.type_ii == paper.type_ii.model_copy(update={"transform": 0.1})


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
    with pytest.raises(UserError, match="jpeg_quality is only for fgvc"):
        check_request(load_recipe("shapes", ["data.jpeg_quality=75"]), [find_method("ce")], ["type-I"])


def test_row_23_changes_the_crops_alone(shapes):
    batches = {}
    for value in ("true", "false"):
        torch.manual_seed(0)
        split = Split(shapes, "train", spec_of(shapes, [f"augment.last_offset={value}"]), torch.device("cpu"))
        batches[value] = [*split.train_batches([torch.arange(512)]), *split.eval_batches()]
    assert not torch.equal(batches["true"][0][0], batches["false"][0][0])
    for one, two in zip(batches["true"][1:], batches["false"][1:], strict=True):
        assert torch.equal(one[0], two[0])


@pytest.mark.parametrize("levels", [[1], [2, 3], [1, 2, 3, 4]])
def test_row_30_leaves_out_levels_of_one_term_alone(cifar100, levels):
    cls = find_method("hafeature").cls
    torch.manual_seed(0)
    whole = cls(cifar100, 16)
    part = cls(cifar100, 16, cls.Params(dissimilarity_levels=levels))
    part.load_state_dict(copy.deepcopy(whole.state_dict()))
    features, targets = torch.randn(32, 16), torch.randint(0, 100, (32,))
    order = torch.randperm(32)
    all_terms = whole.loss_in_order(whole(features), targets, order)
    terms = part.loss_in_order(part(features), targets, order)
    for name in ("cross_entropy", "jsd", "weights"):
        assert torch.equal(terms[name], all_terms[name])
    alone = []
    for level in (1, 2, 3, 4):
        single = cls(cifar100, 16, cls.Params(dissimilarity_levels=[level]))
        single.load_state_dict(copy.deepcopy(whole.state_dict()))
        alone.append(single.loss_in_order(single(features), targets, order)["dissimilarity"])
    assert terms["dissimilarity"].item() == pytest.approx(sum(alone[level - 1].item() for level in levels), rel=1e-5)
    assert all_terms["dissimilarity"].item() == pytest.approx(sum(loss.item() for loss in alone), rel=1e-5)
    assert min(loss.item() for loss in alone) > 0


def test_row_30_refuses_levels_that_are_not_there(cifar100):
    cls = find_method("hafeature").cls
    for levels in ([0], [5]):
        with pytest.raises(ValueError, match="must lie in 1 to 4"):
            cls(cifar100, 16, cls.Params(dissimilarity_levels=levels))


def test_row_34_changes_wide_resnets_alone(cifar100):
    cls = find_method("ce").cls
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    outputs = []
    for form in ("activated", "raw"):
        torch.manual_seed(0)
        model = Model(backbone="wrn10-1", wrn_group_input=form)
        outputs.append(build_classifier(cls, cifar100, "type-I", model).eval()(images))
    assert not torch.allclose(*outputs, atol=1e-2)
    recipe = load_recipe("cifar100", ["model.backbone=resnet50"], "authors")
    with pytest.raises(UserError, match=r"wrn_group_input = raw .* not of resnet50: add --set model.wrn_group_input="):
        check_request(recipe, [find_method("ce")], ["type-I"])


@pytest.mark.parametrize("name", recipe_names())
def test_row_38_the_authors_train_in_float32_on_any_device(name):
    assert load_recipe(name, protocol="authors").train.precision == "float32"


@pytest.mark.parametrize("row", SWITCHES)
def test_the_page_says_what_is_switched(row):
    """The table row of docs/protocols.md with the number has the key, except for its dataset-wide prefix."""
    text = (Path(__file__).parents[2] / "docs/protocols.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith(f"| {row} |")]
    assert {line.split("|")[2].strip(" `") for line in lines} == {key for _, key, _, _ in SWITCHES[row]}


@pytest.mark.parametrize(
    ("name", "param", "value"),
    [
        ("soft_labels", "reduction", "mean"),
        ("hxe", "normalised", True),
        ("conditional_softmax", "normalised", True),
    ],
)
def test_row_41_divides_the_loss_by_a_constant(cifar100, name, param, value):
    """So neither protocol switches it: it would only be another learning rate."""
    cls = find_method(name).cls
    torch.manual_seed(0)
    plain = cls(cifar100, 16).double()
    scaled = cls(cifar100, 16, cls.Params(**{param: value})).double()
    scaled.load_state_dict(plain.state_dict())
    ratios = []
    for seed in range(3):
        torch.manual_seed(seed)
        features, targets = torch.randn(8, 16, dtype=torch.float64), torch.randint(0, 100, (8,))
        one, other = (sum(model.loss(model(features), targets).values()) for model in (plain, scaled))
        ratios.append((one / other).item())
    assert min(ratios) > 20 and max(ratios) / min(ratios) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (["augment.crop=random-resized"], "augment: crop = random-resized pads nothing"),
        (["augment.pad=0", "augment.last_offset=false"], "augment: last_offset = false needs a pad"),
        (["evaluation.ddof=2"], "evaluation.ddof = 2"),
        (["evaluation.drop_order=file"], "evaluation: drop_order = file needs drop_last = true"),
        (["model.type_i_pool=mean"], "model.type_i_pool = 'mean'"),
    ],
)
def test_settings_that_contradict_each_other(override, message):
    with pytest.raises(UserError, match=message):
        load_recipe("shapes", override)
