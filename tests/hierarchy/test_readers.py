"""Trees of any content: a right tree or a ValueError, in bounded time and memory."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierbench import Hierarchy
from hierbench.hierarchy.node_paths import MAX_DEPTH, MOST_CELLS, MOST_CLASSES

CELLS = st.sampled_from(
    ["a", "b", "c", "x", "", " ", "a ", "#", '"', ",", "\0", "\x1c", "\u2028", "é", "9" * 30, "_root"]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trees")


@given(st.integers(0, 15), st.binary(max_size=200))
def test_any_bytes(targets, folder, form, content):
    targets.trees(bytes([form]) + content, folder)


@given(st.integers(0, 15), st.lists(st.lists(CELLS, max_size=4), max_size=6))
def test_nearly_trees(targets, folder, form, rows):
    text = "\n".join((", " if form & 1 else " ").join(row) for row in rows)
    targets.trees(bytes([form]) + text.encode(), folder)


@given(st.lists(st.tuples(CELLS, CELLS), max_size=8), st.none() | st.lists(CELLS, max_size=4))
def test_any_edges(edges, classes):
    try:
        tree = Hierarchy.from_edges(edges, classes)
    except ValueError:
        return
    assert (tree.distances == tree.distances.T).all() and tree.distances.max() <= tree.height


def fails_soon(build, message):
    began = time.process_time()
    with pytest.raises(ValueError, match=message):
        build()
    assert time.process_time() - began < 10


def test_a_tree_that_is_too_deep_or_too_wide(monkeypatch):
    deep = 60_000
    chain = [(str(i), str(i + 1)) for i in range(deep)]
    fails_soon(
        lambda: Hierarchy.from_edges([*chain, *((str(i), f"leaf {i}") for i in range(deep))]), "classes|levels deep"
    )
    fails_soon(lambda: Hierarchy.from_edges([*chain, ("0", "leaf")]), f"lies more than {MAX_DEPTH} levels deep")
    fails_soon(lambda: Hierarchy.from_paths({"a": ["b"] * 300 + ["a"], "c": ["c"]}), "levels deep")
    page = Path(__file__).parents[2].joinpath("docs/threat-model.md").read_text(encoding="utf-8")
    assert f"{MOST_CELLS:,} cells, {MAX_DEPTH} levels and {MOST_CLASSES:,} classes" in page
    monkeypatch.setattr("hierbench.hierarchy.edges.MOST_CLASSES", 5000)
    many = {str(i): (str(i),) for i in range(5001)}
    fails_soon(lambda: Hierarchy.from_paths(many), "at most 5,000 classes")


def test_many_second_parents_below_a_long_chain():
    chain = [(str(i), str(i + 1)) for i in range(30_000)]
    twice = [(str(i), f"leaf {i % 9}") for i in range(29_000, 30_000)]
    fails_soon(lambda: Hierarchy.from_edges([*chain, *twice]), "two parents")


def test_a_csv_with_one_endless_row(tmp_path, monkeypatch):
    (tmp_path / "tree.csv").write_text("a,b\n" * 1000 + "," * 300_000 + "x\n")
    fails_soon(lambda: Hierarchy.read(tmp_path / "tree.csv"), "line 1001 has more than 256 columns")
    monkeypatch.setattr("hierbench.hierarchy.edges.MOST_CLASSES", 5000)
    (tmp_path / "tree.csv").write_text("group,class\n" + "".join(f"a,{i}\n" for i in range(5002)))
    fails_soon(lambda: Hierarchy.read(tmp_path / "tree.csv"), "at most 5,000 classes")
    (tmp_path / "tree.csv").write_text("a," + "x" * 1_000_000)
    fails_soon(lambda: Hierarchy.read(tmp_path / "tree.csv"), "field larger than field limit")


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "folder", "large"])
def test_a_tree_that_is_not_a_file_or_too_large(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(OSError, match=r"not a regular file|more than 64 MiB"):
        Hierarchy.read(tmp_path / name)


def test_numbers_of_any_length_are_sorted_as_numbers():
    """Python turns no more than 4,300 digits into a number; as text they compare the same."""
    names = ["n2", "n10", "n" + "1" * 5000, "n" + "0" * 5000 + "3", "n" + "9" * 5000, "n007"]
    tree = Hierarchy.from_paths({f"{name} {leaf}": (name, f"{name} {leaf}") for name in names for leaf in "ab"})
    order = [names[i // 2] for i in np.argsort(tree.level_targets[:, 0], kind="stable")[::2]]
    assert order == ["n2", names[3], "n007", "n10", names[2], names[4]]
