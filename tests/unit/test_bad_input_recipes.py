"""Overrides and tuned hyperparameters of any text: a valid recipe or one line that says what is wrong."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hierbench.config.recipe import Recipe, load_recipe
from hierbench.config.tuned import Tuned, read_tuned, write_tuned
from hierbench.utils.errors import UserError

FUZZED = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


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
@FUZZED
def test_any_override_and_any_file_of_tuned_hyperparameters(targets, folder, content):
    targets.recipes(content, folder)


@pytest.mark.parametrize(
    "override",
    [
        "train.epochs=" + "9" * 5000,  # more digits than Python turns into a number
        "train.epochs=" + "9" * 30,
        "train.batch_size=" + "9" * 30,
        "model.type_i_units=1000000000000",
        "augment.pad=1000000000000",
        "seeds=100000000000",
        "train.epochs=" + "[" * 100_000,
        "train.epochs=" + "{a=" * 20_000,
        "a." * 5000 + "b=1",
        "train.epochs=3\nseeds=1",  # a second line was read and left out
        "train.lr.type-I.backbone=nan",
        "train.epochs=\ud800",
        "train.epochs=3\0",
        "train.epochs=__import__('os').getcwd()",
    ],
    ids=range(14),
)
def test_an_override_that_asks_too_much_is_one_error(override):
    with pytest.raises(UserError):
        load_recipe("shapes", [override])


TUNED = Tuned(params={"gamma": 2.0}, study="s", date="d", sampler="tpe", trials=1, pruned=0, runs=1, mean=1.0)


@given(st.text(max_size=20), st.text(max_size=20))
@FUZZED
def test_tuned_hyperparameters_come_back_as_they_were(folder, name, study):
    """JSON's strings are TOML's but for a few characters."""
    if any("\ud800" <= char <= "\udfff" for char in name + study):
        return
    file = folder / "found.toml"
    file.unlink(missing_ok=True)
    found = {("paper", name, "type-I"): TUNED.model_copy(update={"study": study, "params": {name: 1.5}})}
    write_tuned(file, found)
    assert read_tuned(file) == found


@pytest.mark.parametrize(
    "content", [b"a = " + b"[" * 100_000, b"a = " + b"9" * 5000, b"\xff", b"[", b"paper = 3", b"[a.b.c]\nx=1", None]
)
def test_a_damaged_file_of_tuned_hyperparameters(tmp_path, content):
    file = tmp_path / "tuned.toml"
    file.write_bytes(content) if content else os.mkfifo(file)
    with pytest.raises(UserError, match=r"tuned\.toml is damaged .*tune again" if content else "not a regular file"):
        read_tuned(file)
