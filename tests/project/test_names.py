"""Names in the project: no vague variables, and no two modules or classes share a name."""

import ast
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
            counts[path.relative_to(ROOT).as_posix()] += name in VAGUE
    assert counts.total() <= 60, counts.most_common(9)


def test_modules_and_classes_have_names_of_their_own():
    trees = modules("hierbench", "leaderboard")
    names = Counter(path.name for path in trees if path.name != "__init__.py")
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, count in (names + classes).items() if count > 1] == []
