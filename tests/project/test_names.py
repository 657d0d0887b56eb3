"""Names in the project: no vague variables, and no two modules or classes share a name."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# They name nothing. Some stay: the side `left`, and locals of methods, whose code is part of the ids of published runs.
VAGUE = set(
    "asked found given held here how it its known left of one ones own "
    "said there thing things told wanted what whole".split()
)


def modules(*folders):
    """{path: syntax tree} of the project's files, without the copies of methods that came with published runs."""
    paths = [
        path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if "published" not in path.parts
    ]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@pytest.mark.parametrize("folders", [("hierbench", "methods", "leaderboard"), ("tests", "examples", "docs")])
def test_variables_have_no_vague_names(folders):
    counts = Counter()
    for path, tree in modules(*folders).items():
        for node in ast.walk(tree):
            name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else None
            is_hypothesis = name == "given" and folders[0] == "tests"
            counts[path.relative_to(ROOT).as_posix()] += name in VAGUE and not is_hypothesis
    most = 37 if folders[0] == "hierbench" else 60
    assert counts.total() <= most, counts.most_common(9)


def test_modules_and_classes_have_names_of_their_own():
    trees = modules("hierbench", "leaderboard")
    names = Counter(path.name for path in trees if path.name != "__init__.py")
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in (names + classes).items() if count > 1] == []


def assigned_names(tree):
    """Names that a file binds, and its functions' parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def is_packed(node):
    """Whether a statement assigns several unrelated values, `a, b = x, y`; a swap does not."""
    if not isinstance(node, ast.Assign) or not all(isinstance(n, ast.Tuple) for n in (node.targets[0], node.value)):
        return False
    left, right = (sorted(map(ast.unparse, side.elts)) for side in (node.targets[0], node.value))
    return left != right


def test_statements_assign_one_thing():
    nodes = [node for tree in modules("hierbench", "methods", "leaderboard").values() for node in ast.walk(tree)]
    assert sum(map(is_packed, nodes)) <= 3
    assert sum(isinstance(node, ast.NamedExpr) for node in nodes) <= 40


def test_a_constant_means_one_thing():
    values = {}
    for path, tree in modules("hierbench", "methods", "leaderboard").items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
                values.setdefault(node.targets[0].id, {})[ast.unparse(node.value)] = path.name
    assert {name: list(places.values()) for name, places in values.items() if len(places) > 1} == {}


def test_no_name_begins_with_a_position():
    names = [name for tree in modules("hierbench", "methods", "leaderboard").values() for name in assigned_names(tree)]
    assert [name for name in names if re.match("(own|given|wanted|known|of)_", name)] == []


def test_private_names_are_not_used_by_tests():
    text = "\n".join(path.read_text(encoding="utf-8") for path in modules("tests"))
    assert re.findall(r"from hierbench[\w.]* import [^\n]*\b_[a-z]\w*", text) == []
    assert re.findall(r"setattr\(\"?hierbench[\w.]*\._[a-z]\w*", text) == []
