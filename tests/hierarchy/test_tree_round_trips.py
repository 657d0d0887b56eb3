"""A random tree, written in every form, reads back as itself; the order of rows and columns is that of the classes."""

import csv
import io
import json

import networkx
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from hierbench import Hierarchy
from hierbench.hierarchy.readers import canonical_text, read_tree
from hierbench.hierarchy.tree_options import TreeOptions

LETTERS = st.text("abcdefgh\u00e9 '-.", min_size=1, max_size=6).map(str.strip).filter(lambda name: name.strip("-. '"))


@st.composite
def trees(draw):
    """{class: path} of 2 to 12 classes, ragged, with chains and with names that several parents share."""
    num = draw(st.integers(2, 12))
    leaves = draw(st.lists(LETTERS.map("leaf {}".format), min_size=num, max_size=num, unique=True))
    groups = [()]
    for number in range(draw(st.integers(0, 6))):
        above = draw(st.sampled_from(groups))
        groups.append((*above, f"node {number}"))
    paths = {leaf: (*draw(st.sampled_from(groups)), leaf) for leaf in leaves}
    return paths if max(map(len, paths.values())) > 1 else {leaf: ("all", leaf) for leaf in leaves}


def table_text(rows, separator=","):
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
    return text.getvalue()


def path_rows(paths):
    width = max(map(len, paths.values()))
    rows = [[*path, *[""] * (width - len(path))] for path in paths.values()]
    return [f"level {i + 1}" for i in range(width)], rows


def edges_of(paths):
    return list(dict.fromkeys(pair for path in paths.values() for pair in zip(("root", *path), path, strict=False)))


def nested_of(paths):
    nested = {}
    for path in paths.values():
        below = nested
        for name in path:
            below = below.setdefault(name, {})
    return nested


def objects_of(nested):
    return [{"title": name, "below": objects_of(below)} if below else {"title": name} for name, below in nested.items()]


def newick_of(nested):
    parts = ((name.replace("'", "''"), below) for name, below in nested.items())
    return ",".join(f"({newick_of(below)})'{name}':1" if below else f"'{name}'" for name, below in parts)


def forms_of(paths):
    """{file name: content}, and objects for Python, of one tree."""
    header, rows = path_rows(paths)
    edges, nested = edges_of(paths), nested_of(paths)
    number = {name: i + 1 for i, name in enumerate(dict.fromkeys(["root", *(child for _, child in edges)]))}
    ids = [["id", "parent_id", "name"], [1, "", "root"], *([number[b], number[a], b] for a, b in edges)]
    yield "paths.csv", canonical_text(paths)
    yield "semicolons.csv", table_text([header, *rows], ";")
    yield "tabs.txt", table_text([header, *rows], "\t")
    yield "edges.csv", table_text([["parent", "child"], *edges])
    yield "up.csv", table_text([["child", "parent"], *((b, a) for a, b in edges)])
    yield "ids.tsv", table_text(ids, "\t")
    yield "dicts.json", json.dumps(nested)
    yield "objects.json", json.dumps({"title": "root", "below": objects_of(nested)})
    yield "records.json", json.dumps([dict(zip(header, row, strict=True)) for row in rows])
    yield "class-path.json", json.dumps({leaf: list(path) for leaf, path in paths.items()})
    yield "child-parent.json", json.dumps({b: a for a, b in edges})
    yield "tree.nwk", f"({newick_of(nested)})root;"
    yield None, pd.DataFrame(rows, columns=header)
    yield None, networkx.DiGraph(edges)
    yield None, nested


@given(trees())
def test_every_form_reads_back_as_itself(tmp_path_factory, paths):
    folder = tmp_path_factory.mktemp("forms")
    for name, content in forms_of(paths):
        if name is not None:
            (folder / name).write_text(content, encoding="utf-8")
        source = content if name is None else folder / name
        try:
            read = read_tree(source).paths
        except ValueError as error:  # a list of lists names each class's group once, which could be either
            assert "two ways" in str(error) and name == "class-path.json", (name, error)
            continue
        assert read == paths, name


@given(trees(), st.randoms(use_true_random=False))
def test_rows_and_columns_in_another_order_are_the_same_tree(paths, random):
    header, rows = path_rows(paths)
    order = list(range(len(header)))
    random.shuffle(order)
    random.shuffle(rows)
    frame = pd.DataFrame([[row[i] for i in order] for row in rows], columns=[header[i] for i in order])
    assert read_tree(frame).paths == paths
    chosen = TreeOptions(columns=",".join(header))
    assert list(read_tree(frame, chosen).paths) == [next(filter(None, reversed(row))) for row in rows]


OTHERS = {  # columns that are no part of a tree: header, and the cell of a row
    "id": str,
    "image": "img_{}.jpg".format,
    "uuid": "{:032x}".format,
    "color": "#{:06x}".format,
    "weight": lambda row: f"0.{row:03}",
    "count": lambda row: str(row * row % 7),
    "split": lambda row: ("train", "test")[row % 2],
    "is_native": lambda row: ("yes", "no")[row % 3 > 0],
    "author": lambda row: ("L.", "Smith 1900", "Gm.")[row % 3],
    "common_name": "the {} thing".format,
    "source": lambda _: "web",
}
RANKS = (["superclass", "class"], ["order", "family", "species"], ["order", "family", "genus", "class"])


@given(trees(), st.sets(st.sampled_from(sorted(OTHERS)), min_size=1, max_size=3), st.data())
def test_columns_beside_a_tree_never_become_a_part_of_it(tmp_path_factory, paths, others, data):
    """In tables of ranks, of names with their parents, and of whole paths: the same tree, or an error."""
    path = tmp_path_factory.mktemp("beside") / "tree.csv"
    ranks = data.draw(st.sampled_from(RANKS))
    complete = {leaf: [*above[:-1], *["rest"] * len(ranks)][: len(ranks) - 1] for leaf, above in paths.items()}
    complete = {
        leaf: (*("/".join(above[: i + 1]) for i in range(len(above))), leaf) for leaf, above in complete.items()
    }
    parents = [(b, "" if a == "root" else a) for a, b in edges_of(paths)]
    for header, rows, meant in (
        (ranks, list(complete.values()), complete),
        (["name", "parent"], parents, paths),
        (["taxonomy"], [["|".join(above)] for above in paths.values()], paths),
    ):
        columns = list(zip(header, zip(*rows, strict=True), strict=True))
        columns += [(name, map(OTHERS[name], range(len(rows)))) for name in sorted(others)]
        columns = data.draw(st.permutations(columns))
        text = [[name for name, _ in columns], *zip(*(cells for _, cells in columns), strict=True)]
        path.write_text(table_text(text), encoding="utf-8")
        try:
            read = Hierarchy.read(path)
        except ValueError:
            continue
        tree = Hierarchy.from_paths(meant)
        assert sorted(read.classes) == sorted(tree.classes), text
        order = [read.classes.index(name) for name in tree.classes]
        assert (read.distances[order][:, order] == tree.distances).all(), text
