import hashlib
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierbench import Hierarchy

RAGGED = {
    "ash": ("plant", "tree", "ash"),
    "fern": ("plant", "fern"),
    "dog": ("animal", "mammal", "canine", "dog"),
    "cat": ("animal", "mammal", "cat"),
    "owl": ("animal", "owl"),
}


@st.composite
def trees(draw):
    """Random trees as {class: path}; inner nodes may have one child, leaves any depth."""
    num_inner = draw(st.integers(1, 8))
    parents = [draw(st.integers(-1, i - 1)) for i in range(num_inner)]

    def chain(node):
        return () if node < 0 else (*chain(parents[node]), f"node{node}")

    leaves = draw(st.lists(st.integers(-1, num_inner - 1), min_size=2, max_size=14))
    paths = {f"leaf{i}": (*chain(node), f"leaf{i}") for i, node in enumerate(leaves)}
    order = draw(st.permutations(sorted(paths)))
    return {name: paths[name] for name in order}


def edges_of(paths):
    return sorted({edge for path in paths.values() for edge in pairwise(("root", *path))})


@given(trees(), st.sampled_from(["height", "depth"]))
def test_distances_equal_the_definition(reference, paths, kind):
    tree = Hierarchy.from_paths(paths, kind)
    chains = list(paths.values())
    expected = [[reference.lca_distance(a, b, chains, kind) for b in chains] for a in chains]
    assert tree.distances.tolist() == expected
    assert tree.height == max(map(len, chains))


@given(trees())
def test_edges_and_paths_give_the_same_tree(paths):
    from_paths = Hierarchy.from_paths(paths)
    from_edges = Hierarchy.from_edges(edges_of(paths), list(paths))
    assert from_edges.digest() == from_paths.digest()
    assert from_edges.level_sizes == from_paths.level_sizes


@given(trees())
def test_levels(paths):
    tree = Hierarchy.from_paths(paths)
    num_classes, num_levels = tree.level_targets.shape
    assert (num_classes, num_levels) == (len(paths), tree.height)
    assert tree.level_targets[:, -1].tolist() == list(range(num_classes))
    for level, size in enumerate(tree.level_sizes):
        assert sorted(set(tree.level_targets[:, level])) == list(range(size))
        same_node = tree.level_targets[:, None, level] == tree.level_targets[None, :, level]
        for i, a in enumerate(paths.values()):
            for j, b in enumerate(paths.values()):
                padded = [p + p[-1:] * (tree.height - len(p)) for p in (a, b)]
                assert same_node[i, j] == (i == j or padded[0][: level + 1] == padded[1][: level + 1])
    for level, parents in enumerate(tree.parents):
        assert (parents[tree.level_targets[:, level + 1]] == tree.level_targets[:, level]).all()


@given(trees(), st.randoms())
def test_relabelling_permutes_the_distances(paths, random):
    names = list(paths)
    random.shuffle(names)
    tree, moved = Hierarchy.from_paths(paths), Hierarchy.from_paths({name: paths[name] for name in names})
    order = [tree.classes.index(name) for name in names]
    assert (moved.distances == tree.distances[np.ix_(order, order)]).all()
    assert (moved.level_targets[:, :-1] == tree.level_targets[order, :-1]).all()


def test_ragged_by_hand():
    tree = Hierarchy.from_paths(RAGGED)
    assert tree.height == 4
    assert tree.level_sizes == (2, 4, 5, 5)
    assert tree.distances[0].tolist() == [0, 2, 4, 4, 4]  # ash: fern meets it in "plant", two above ash
    assert tree.distances[2].tolist() == [4, 4, 0, 2, 3]
    deep = Hierarchy.from_paths(RAGGED, "depth")
    assert deep.distances[0].tolist() == [0, 3, 4, 4, 4]
    assert deep.distances[2].tolist() == [4, 4, 0, 2, 3]
    assert tree.level_targets[4, 2:].tolist() == [tree.level_targets[:, 2].tolist()[4], 4]
    assert (tree.level_targets[4] != tree.level_targets[3]).tolist() == [False, True, True, True]


def test_sorted_leaves_and_given_order():
    edges = [("r", "b"), ("r", "a"), ("a", "y"), ("a", "x")]
    assert Hierarchy.from_edges(edges).classes == ("b", "x", "y")
    assert Hierarchy.from_edges(edges, ["y", "b", "x"]).classes == ("y", "b", "x")


def test_a_name_that_follows_itself_is_a_node_and_its_child():
    tree = Hierarchy.from_paths({"DHC-1": ("dH", "DHC-1", "DHC-1"), "DHC-6": ("dH", "DHC-6", "DHC-6")})
    assert (tree.height, tree.distances[0, 1]) == (3, 2)


@pytest.mark.parametrize("header", ["family,kind,class\n", ""])
@pytest.mark.parametrize("backwards", [False, True])
def test_csv_with_and_without_header_in_either_direction(tmp_path, header, backwards):
    rows = [("f", "k", "x"), ("f", "k", "y"), ("f", "z"), ("g", "w")]
    if backwards:
        header = ",".join(header.strip().split(",")[::-1]) + "\n" if header else ""
        rows = [row[::-1] for row in rows]
    path = tmp_path / "tree.csv"
    path.write_text(header + "\n".join(",".join(row) + "," * (3 - len(row)) for row in rows), encoding="utf-8")
    tree = Hierarchy.read(path)
    assert tree.classes == ("x", "y", "z", "w")
    assert tree.distances.tolist() == [[0, 1, 2, 3], [1, 0, 2, 3], [2, 2, 0, 3], [3, 3, 3, 0]]
    assert Hierarchy.read(path, classes=["w", "z", "y", "x"]).classes == ("w", "z", "y", "x")


def test_a_file_without_header_whose_first_class_is_alone(tmp_path):
    (tmp_path / "t.csv").write_text("plant,fern\nanimal,cat\nanimal,dog\n", encoding="utf-8")
    assert Hierarchy.read(tmp_path / "t.csv", header=False).classes == ("fern", "cat", "dog")


def test_lines(tmp_path):
    path = tmp_path / "isa.txt"
    path.write_text("# a comment\nroot a\nroot b\n\na y\na x\n", encoding="utf-8")
    assert Hierarchy.read(path).classes == ("b", "x", "y")


def test_arrays_cannot_be_changed():
    tree = Hierarchy.from_paths(RAGGED)
    with pytest.raises(ValueError, match="read-only"):
        tree.distances[0, 1] = 0


def test_digest_sees_order_and_distance():
    names = list(RAGGED)
    digests = {
        Hierarchy.from_paths(RAGGED).digest(),
        Hierarchy.from_paths(RAGGED, "depth").digest(),
        Hierarchy.from_paths({name: RAGGED[name] for name in names[::-1]}).digest(),
    }
    assert len(digests) == 3


def digest_by_lists(tree):
    """The formula that ids of runs rest on: the JSON of lists of all numbers."""
    content = [tree.classes, tree.height, tree.level_targets.tolist(), tree.distances.tolist()]
    return hashlib.sha256(json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()


@given(trees(), st.sampled_from(["height", "depth"]))
def test_digest_is_that_of_the_lists(paths, kind):
    named = {f"{name} \u00e9": (*path[:-1], f"{name} \u00e9") for name, path in paths.items()}
    tree = Hierarchy.from_paths(named, kind)
    assert tree.digest() == digest_by_lists(tree)


@pytest.mark.parametrize("height", [9, 10, 99, 100, 256])
def test_digest_of_a_deep_tree(height):
    deep = tuple(f"n{level}" for level in range(height - 1))
    tree = Hierarchy.from_paths({"low": (*deep, "low"), "next": (*deep, "next"), "high": ("high",)})
    assert (tree.height, tree.distances.max()) == (height, height)
    assert tree.digest() == digest_by_lists(tree)


def test_more_classes_than_columns_at_a_time(monkeypatch):
    at_once = Hierarchy.from_paths(RAGGED)
    monkeypatch.setattr("hierbench.hierarchy.distances.DISTANCE_COLUMNS", 2)
    assert (Hierarchy.from_paths(RAGGED).distances == at_once.distances).all()
    assert at_once.distances.dtype == np.int16


def test_height_and_depth_differ_on_tiered_imagenet(shared):
    path = shared / "data/making-better-mistakes/tiered_imagenet_isa.txt"
    height, depth = (Hierarchy.read(path, distance=kind).distances for kind in ("height", "depth"))
    assert np.triu(height != depth, 1).sum() == 50_383


def test_cifar100_equals_the_oracle(shared, cifar100):
    oracle = np.load(shared / "oracles/hierarchy-cifar100.npz")
    assert (cifar100.distances == oracle["distances"]).all()
    assert (cifar100.level_targets[:, ::-1] == oracle["levels_fine_to_coarse"]).all()
