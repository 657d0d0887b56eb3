"""The methods of all tables: the place of their code, its declarations, and their rows; received code is never run."""

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from hierbench.leaderboard.statistics import Row
from hierbench.runs.method_files import source_folders
from hierbench.runs.record import Record
from hierbench.sharing.site.content import SiteTable
from hierbench.sharing.site.file_names import Slugs, block, printable, short_name
from hierbench.sharing.sources import find_source

MAX_SOURCE_LENGTH = 60_000  # characters of a file that a page shows
Hyperparameter = tuple[str, str, str, str, str]  # name, type, default, bounds and tuning range, as text
Key = tuple[str, str]  # name and digest of the code


@dataclass(frozen=True)
class MethodRecord:
    """The declarations of a method's class.

    Attributes:
        title, source, version: as declared, "" where they are not plain strings.
        doc: the docstrings of the file and the class, with the method's formula.
        base: the method that it re-ranks, "" for a method that trains.
        hyperparameters: in the order of the file.
    """

    title: str = ""
    source: str = ""
    version: str = "1"
    doc: str = ""
    types: str = ""
    base: str = ""
    hyperparameters: tuple[Hyperparameter, ...] = ()


@dataclass
class MethodPage:
    """A method as it ran, in one version of its code.

    Attributes:
        name, code: as the specs of its runs say.
        title: of its rows, or declared in its file.
        text: its file, "" without a file of this digest.
        file: its path in the folder of the tables, "" for a file of this project.
        cells: (table, row, folder of the table's page) of its rows.
    """

    name: str
    code: str
    slug: str
    title: str
    text: str = ""
    file: str = ""
    about: MethodRecord = field(default_factory=MethodRecord)
    cells: list[tuple[SiteTable, Row, str]] = field(default_factory=list)


class Methods:
    """The methods of a site, found as its tables are added."""

    def __init__(self) -> None:
        self.known: dict[Key, MethodPage] = {}
        self._slugs = Slugs()

    def add(self, table: SiteTable, row: Row, folder: str) -> MethodPage | None:
        """Return the method of a row, with the row among its cells; None for predictions made elsewhere."""
        if row.scored or not row.runs:
            return None
        run = table.board.records[row.runs[0]]
        name, code = key = run.job.method.name, run.method_digest
        if key not in self.known:
            text, file = self._source(table, run)
            about = about_method(text, name) if text else MethodRecord()
            title = short_name(about.title or row.title)
            self.known[key] = MethodPage(name, code, self._slugs.of(name), title, text, file, about)
        self.known[key].cells.append((table, row, folder))
        return self.known[key]

    def _source(self, table: SiteTable, run: Record) -> tuple[str, str]:
        """Return the text of the file whose code has the digest, and its path if it was published; "" without one."""
        path, content = find_source(run, source_folders(table.records)) or (None, b"")
        return content.decode(errors="replace"), path.relative_to(table.folder).as_posix() if path else ""


def about_method(source: str, name: str) -> MethodRecord:
    """Return the declarations of a method's class in its file; {} if the file is not Python."""
    try:
        tree = ast.parse(source)
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and _strings(node).get("name") == name]
        if not classes:
            return MethodRecord()
        cls = classes[0]
        names = _strings(classes[0])
        docs = [ast.get_docstring(tree), ast.get_docstring(cls)]
        return MethodRecord(
            title=names.get("title", ""),
            source=names.get("source", ""),
            version=names.get("version", "1"),
            doc="\n\n".join(filter(None, docs)),
            types=names.get("types", "type-I, type-II"),
            base=names.get("base", ""),
            hyperparameters=tuple(_hyperparameters(cls)),
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return MethodRecord()


def _strings(cls: ast.ClassDef) -> dict[str, str]:
    """Return the class attributes that are strings, or tuples of strings."""
    strings: dict[str, str] = {}
    pairs: list[tuple[Any, Any]] = []
    for node in cls.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):  # name, title = "crm", "CRM"
            pairs += zip(target.elts, value.elts, strict=False)
        else:
            pairs.append((target, value))
    for target, value in pairs:
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if isinstance(target, ast.Name) and texts:
            strings[target.id] = ", ".join(texts)
    return strings


def _hyperparameters(cls: ast.ClassDef) -> Iterator[Hyperparameter]:
    """Yield the declarations of the class `Params` of a method."""
    declared = [inner.body for inner in cls.body if isinstance(inner, ast.ClassDef) and inner.name == "Params"]
    for node in itertools.chain(*declared):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        value = node.value
        defaults = dict[str, str]()
        default = ast.unparse(value) if value else ""
        if isinstance(value, ast.Call):
            defaults = {word.arg: ast.unparse(word.value) for word in value.keywords if word.arg}
            default = ast.unparse(value.args[0]) if value.args else defaults.get("default", "")
        bounds = ", ".join(f"{sign} {defaults[key]}" for key, sign in (("low", "≥"), ("high", "≤")) if key in defaults)
        yield node.target.id, ast.unparse(node.annotation), default, bounds or "–", defaults.get("grid", "–")


def highlighted(source: str) -> Markup:
    """Return Python source for a <pre> with Pygments' classes of tokens, all of it escaped."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    if len(source) > MAX_SOURCE_LENGTH:
        return block(source, MAX_SOURCE_LENGTH)
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    return Markup(highlight(printable(source), lexer, HtmlFormatter(nowrap=True)))
