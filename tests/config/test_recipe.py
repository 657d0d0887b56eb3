"""Recipes, overrides and tuned hyperparameters: valid, or one line that names the mistake, for any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierbench.config.recipe import Recipe, load_recipe, parse_recipe, recipe_names
from hierbench.config.tuned_values import Tuned, read_tuned, write_tuned

PAPER = {  # dataset: backbone, batch, alpha, gamma (section 4 of the paper)
    "fgvc": ("resnet50", 64, 0.5, 1.0),
    "cifar100": ("wrn28-8", 64, 0.4, 2.0),
    "inat19": ("resnet50", 256, 0.4, 5.0),
    "tieredimagenet-h": ("resnet50", 256, 0.5, 3.0),
}
TABLE_1 = {  # height, classes, train, val, test
    "fgvc": (3, 100, 3334, 3333, 3333),
    "cifar100": (5, 100, 45_000, 5_000, 10_000),
    "inat19": (7, 1010, 187_385, 40_121, 40_737),
    "tieredimagenet-h": (12, 608, 425_600, 15_200, 15_200),
}
WEIGHTS = {"fgvc": "imagenet1k-v1", "cifar100": "none", "inat19": "imagenet1k-v1", "tieredimagenet-h": "pass"}


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_valid_and_named_as_its_file(name):
    recipe = load_recipe(name)
    assert recipe.dataset == name
    for method in recipe.methods:
        from hierbench.api.registry import find_method

        find_method(method).params(recipe.params_for(method))


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_configuration(name):
    recipe = load_recipe(name)
    backbone, batch, alpha, gamma = PAPER[name]
    assert (recipe.model.backbone, recipe.train.batch_size) == (backbone, batch)
    assert recipe.methods["haframe"] == {"alpha": alpha, "gamma": gamma}
    assert (recipe.train.epochs, recipe.train.momentum, recipe.train.weight_decay) == (100, 0.9, 5e-4)
    assert recipe.seeds == 5
    type_i, type_ii = recipe.train.lr.type_i, recipe.train.lr.type_ii
    assert (type_i.backbone, type_i.transform, type_i.classifier) == (0.01, 0.1, 0.1)
    assert (type_ii.backbone, type_ii.transform, type_ii.classifier) == (0.01, 0.01, 0.1)
    assert recipe.model.weights == WEIGHTS[name]
    expected = recipe.expected
    sizes = (expected.height, expected.level_sizes[-1], expected.train, expected.val, expected.test)
    assert sizes == TABLE_1[name] and len(expected.level_sizes) == expected.height


PUBLISHED_VALUES = {  # of methods that the paper does not compare
    "fgvc": {"hiercos": {"alpha": 0.1}},
    "cifar100": {
        "hiercos": {"alpha": 0.05},
        "soft_labels": {"beta": 30.0},
        "hxe": {"alpha": 0.1},
        "barz_denzler": {"head_weight": 0.1},
    },
    "inat19": {"hiercos": {"alpha": 1e-3}, "soft_labels": {"beta": 30.0}, "hxe": {"alpha": 0.1}},
    "tieredimagenet-h": {"hiercos": {"alpha": 1e-5}, "soft_labels": {"beta": 30.0}, "hxe": {"alpha": 0.1}},
}


@pytest.mark.parametrize("name", PUBLISHED_VALUES)
def test_the_published_values_of_other_methods(name):
    recipe = load_recipe(name)
    assert {key: value for key, value in recipe.methods.items() if key != "haframe"} == PUBLISHED_VALUES[name]


@pytest.mark.parametrize(("name", "largest"), [("inat19", 0.9), ("tieredimagenet-h", 0.6)])
def test_the_published_sweeps_are_the_grids(name, largest):
    grid = load_recipe(name).tune.grid
    assert grid["soft_labels"] == {"beta": (4.0, 5.0, 10.0, 15.0, 20.0, 30.0)}
    assert grid["hxe"]["alpha"][0] == 0.1 and grid["hxe"]["alpha"][-1] == largest


def test_overrides():
    recipe = load_recipe(
        "shapes", ["train.epochs=3", "model.backbone=wrn10-1", "train.lr.type-I.backbone = 0.5", "methods.ce={}"]
    )
    assert recipe.train.epochs == 3 and recipe.model.backbone == "wrn10-1"
    assert recipe.train.lr.type_i.backbone == 0.5


def test_a_method_may_have_learning_rates_of_its_own():
    lr = ["train.lr.type-I.backbone=0.5", "methods.haframe.lr.transform=1", "methods.ce.lr.classifier=0.2"]
    recipe = load_recipe("shapes", lr)
    assert recipe.params_for("haframe") == {"alpha": 0.4, "gamma": 4.0} and recipe.params_for("ce") == {}
    rates = {
        (method, kind): tuple(recipe.rates_for(method, kind).model_dump().values())
        for method in ("ce", "haframe", "flamingo")
        for kind in ("type-I", "type-II")
    }
    assert rates["ce", "type-I"] == (0.5, 0.15, 0.2) and rates["ce", "type-II"] == (0.1, 0.15, 0.2)
    assert rates["haframe", "type-II"] == (0.1, 1.0, 0.15) and rates["flamingo", "type-I"] == (0.5, 0.15, 0.15)
    assert isinstance(recipe.rates_for("haframe", "type-II").transform, float)  # one id however it is written
    assert parse_recipe(recipe.model_dump(), "again") == recipe


def test_points_of_learning_rates_are_written_as_a_table_or_by_their_names():
    content = load_recipe("shapes").model_dump()
    points = {"lr.classifier": (0.1, 1.0), "alpha": (0.5,)}
    for grid in ({"lr": {"classifier": [0.1, 1]}, "alpha": [0.5]}, {"lr.classifier": [0.1, 1], "alpha": [0.5]}):
        assert parse_recipe(content | {"tune": {"grid": {"haframe": grid}}}, "x").tune.grid == {"haframe": points}
    assert load_recipe("shapes", ["tune.grid.ce.lr.backbone=[1]"]).tune.grid == {"ce": {"lr.backbone": (1.0,)}}


def keys(model=Recipe, prefix=""):
    for name, field in model.model_fields.items():
        yield prefix + (field.alias or name)
        if hasattr(field.annotation, "model_fields"):
            yield from keys(field.annotation, f"{prefix}{field.alias or name}.")


KEYS = st.sampled_from([*keys(), "methods.ce.x", "methods.haframe.gamma", "tune.grid.haframe.gamma", "authors", ""])
VALUES = st.one_of(
    st.text(max_size=20),
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(
        ["[]", "{}", "[1, 'a']", "true", "1979-05-27", "07:32:00", "inf", "-nan", "0x10", "1e999", "'", '"\\ud800"']
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recipes")


OVERRIDES = st.lists(st.tuples(KEYS, VALUES).map("=".join), min_size=1, max_size=3).map("\0".join)
TEXTS = st.one_of(st.text(max_size=60), OVERRIDES).map(lambda text: text.encode("utf-8", "surrogatepass"))
TUNED_FILES = st.binary(max_size=80).map(lambda content: b"T" + content)


@given(st.one_of(TEXTS, TUNED_FILES))
def test_any_override_and_any_file_of_tuned_hyperparameters(targets, folder, content):
    targets.recipes(content, folder)


TUNED = Tuned(params={"gamma": 2.0}, study="s", date="d", sampler="tpe", trials=1, pruned=0, runs=1, mean=1.0)


@given(st.text(max_size=20), st.text(max_size=20))
def test_tuned_hyperparameters_come_back_as_they_were(folder, name, study):
    """JSON's strings are TOML's but for a few characters."""
    if any("\ud800" <= char <= "\udfff" for char in name + study):
        return
    file = folder / "found.toml"
    file.unlink(missing_ok=True)
    values = {("paper", name, "type-I"): TUNED.model_copy(update={"study": study, "params": {name: 1.5}})}
    write_tuned(file, values)
    assert read_tuned(file) == values
