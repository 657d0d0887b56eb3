"""Trees with a mistake: one line that names the node. The wording is pinned here."""

import pytest

from hierbench import Hierarchy
from tests.support.messages import check_message

R_AB = [("r", "a"), ("r", "b")]
EDGES = [
    ([("r", "a"), ("a", "b"), ("b", "a")], None, "node 'a' is in a cycle"),
    ([("a", "b"), ("b", "c"), ("c", "a")], None, "node 'a' is in a cycle"),
    ([("a", "a")], None, "node 'a' is in a cycle"),
    ([("r", "a"), ("a", "x"), ("p", "q"), ("q", "p")], None, "node 'p' is in a cycle"),
    ([*R_AB, ("a", "x"), ("b", "x")], None, "node 'x' has two parents: 'a' and 'b'"),
    ([("r", "a"), ("s", "b")], None, "two roots: 'r' and 's'"),
    ([("r", "a"), ("r", "a")], None, "'a' is listed twice"),
    (R_AB, ["a", "b", "a"], "duplicate class 'a'"),
    (R_AB, ["a", "b", "c"], "unknown class 'c'"),
    (R_AB, ["a"], "'b' of the tree is not among"),
    ([("r", "a"), ("a", "b"), ("r", "c")], ["a", "c"], "'a' is also the parent"),
    ([("r", "a")], None, "at least two classes"),
    ([], None, "no edges"),
    ([(0, 1), (0, 2)], None, "names of nodes must be strings, got 0 in the edge (0, 1)"),
    ([("r", "a"), ("r", None)], None, "names of nodes must be strings, got None in the edge ('r', None)"),
    ([("r", "a"), ("r", "")], None, "has an empty name"),
    ([("r", "a"), ("r",)], None, "an edge must be a pair (parent, child), got ('r',)"),
    ([1, 2], None, "an edge must be a pair"),
]
PATHS = [
    ({"x": ("a", "x"), "y": ("a", "x", "y")}, "'x' is also the parent"),
    ({"x": ("a", "y"), "y": ("a", "y")}, "class 'x' must end in the class"),
    ({"x": (), "y": ("y",)}, "class 'x' must end"),
    ({"x": ("", "x"), "y": ("y",)}, "class 'x' has an empty name"),
    ({"x": (7, "x"), "y": ("y",)}, "names of nodes must be strings, got 7 on the path of class 'x'"),
]
FILES = [
    ("t.txt", "a b\nb c d\n", "t.txt: line 2 is not 'parent child': 'b c d'"),
    ("t.txt", "r a\na b\nb a\n", "t.txt: node 'a' is in a cycle"),
    ("t.csv", "", "t.csv: the file is empty"),
    ("t.csv", "group,class\nf,x\nf,x\n", "t.csv: line 3: duplicate class 'x'"),
]


def read(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return Hierarchy.read(folder / name)


CALLS = [
    *((message, lambda _, e=edges, c=classes: Hierarchy.from_edges(e, c)) for edges, classes, message in EDGES),
    *((message, lambda _, p=paths: Hierarchy.from_paths(p)) for paths, message in PATHS),
    *((message, lambda folder, n=name, t=text: read(folder, n, t)) for name, text, message in FILES),
    ("distance must be one of", lambda _: Hierarchy.from_edges(R_AB, distance="width")),
]


@pytest.mark.parametrize(("message", "call"), CALLS)
def test_a_mistake_names_the_node(tmp_path, message, call):
    check_message(message, call, tmp_path, kind=ValueError)
