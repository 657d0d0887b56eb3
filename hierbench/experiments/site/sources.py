"""What the file of a method says of it, read without importing it: a stranger's code is never run."""

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from hierbench.experiments.site.names import block, printable

LONGEST = 60_000  # characters of a file that a page shows


Hyperparameter = tuple[str, str, str, str, str]  # name, type, default, bounds and what it is tuned over, as text


@dataclass(frozen=True)
class About:
    """What a method's class declares.

    Attributes:
        title, source, version: as declared, "" where they are not plain strings.
        doc: the docstrings of the file and the class, with the method's formula.
        base: what it re-ranks, "" for a method that trains.
        hyperparameters: in the order of the file.
    """

    title: str = ""
    source: str = ""
    version: str = "1"
    doc: str = ""
    types: str = ""
    base: str = ""
    hyperparameters: tuple[Hyperparameter, ...] = ()


def about_method(source: str, name: str) -> About:
    """Return what the class of a method declares in its file; nothing where the file is no Python."""
    try:
        tree = ast.parse(source)
        found = [node for node in tree.body if isinstance(node, ast.ClassDef) and _strings(node).get("name") == name]
        if not found:
            return About()
        cls, names = found[0], _strings(found[0])
        docs = [ast.get_docstring(tree), ast.get_docstring(cls)]
        return About(
            title=names.get("title", ""),
            source=names.get("source", ""),
            version=names.get("version", "1"),
            doc="\n\n".join(filter(None, docs)),
            types=names.get("types", "type-I, type-II"),
            base=names.get("base", ""),
            hyperparameters=tuple(_hyperparameters(cls)),
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return About()


def _strings(cls: ast.ClassDef) -> dict[str, str]:
    """Return the class attributes that are strings, or tuples of strings."""
    found = {}
    for node in cls.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = _literal(getattr(node, "value", None))
        if isinstance(target, ast.Name) and isinstance(value, str):
            found[target.id] = value
        elif isinstance(target, ast.Name) and isinstance(value, tuple):
            found[target.id] = ", ".join(map(str, value))
    return found


def _literal(node: ast.AST | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _hyperparameters(cls: ast.ClassDef) -> Iterator[Hyperparameter]:
    """Yield what the class `Params` of a method declares."""
    declared = [inner.body for inner in cls.body if isinstance(inner, ast.ClassDef) and inner.name == "Params"]
    for node in itertools.chain(*declared):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        value, given = node.value, dict[str, str]()
        default = ast.unparse(value) if value else ""
        if isinstance(value, ast.Call):
            given = {word.arg: ast.unparse(word.value) for word in value.keywords if word.arg}
            default = ast.unparse(value.args[0]) if value.args else given.get("default", "")
        bounds = ", ".join(f"{sign} {given[key]}" for key, sign in (("low", "≥"), ("high", "≤")) if key in given)
        yield node.target.id, ast.unparse(node.annotation), default, bounds or "–", given.get("grid", "–")


def highlighted(source: str) -> Markup:
    """Return Python source for a <pre> with Pygments' classes of tokens, all of it escaped."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    if len(source) > LONGEST:
        return block(source, LONGEST)
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    return Markup(highlight(printable(source), lexer, HtmlFormatter(nowrap=True)))
