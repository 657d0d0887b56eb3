"""A class of a notebook or script as a file of its own: its source, and the definitions that this needs."""

import ast
import builtins
import importlib.util
import inspect
import linecache
import os
import symtable
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from hierbench.api.method import Method, PostHoc
from hierbench.utils.errors import UserError

LARGEST = 100_000  # characters of a value that is written down
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def standalone(cls: type) -> str:
    """Return the text of a Python file that defines a class, and before it what the class needs of its module.

    Imports, functions, classes and assignments are copied from the cells or the file that they are in; numbers, texts
    and containers of them are written as they are now.

    Raises:
        UserError: no source is known, it is within a function, or it needs what has no source.
    """
    if cls.__qualname__ != cls.__name__:
        raise UserError(f"{cls.__qualname__} is defined within a function or class; define it at the top level")
    module = sys.modules.get(cls.__module__)
    if module is None:
        raise UserError(f"the source of {cls.__name__} cannot be found: no module {cls.__module__}")
    return _File(cls, vars(module)).text()


class _File:
    """Collects the statements of a file, each after those that it needs."""

    def __init__(self, cls: type, namespace: Mapping[str, Any]) -> None:
        self.cls, self.namespace = cls, namespace
        self.texts = list(_texts(namespace))
        self.imports: dict[str, None] = {}
        self.others: dict[str, None] = {}
        self.asked: set[str] = {cls.__name__}

    def text(self) -> str:
        """Return the text of the file."""
        source, node = self._definition(self.cls)
        self._add_needs(source, node)
        future = {
            _segment(text, statement)
            for text, tree in self.texts
            for statement in tree.body
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        }
        head = f'"""Method {self.cls.__name__}, kept from the notebook or script that defined it."""'
        parts = [head, "\n".join([*sorted(future), *self.imports]), *self.others, source]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _definition(self, value: Any) -> tuple[str, Definition]:
        """Return the source of a class or function, and its statement."""
        texts = [(text, ast.parse(text)) for text in _texts_of_code(value, self.namespace)]
        for text, tree in reversed([*self.texts, *texts]):
            for node in reversed(list(_statements(tree.body))):
                if isinstance(node, Definition) and node.name == value.__name__:
                    return _segment(text, node), node
        raise UserError(f"the source of {value.__name__} cannot be found; define it in a notebook's cell or in a file")

    def _add_needs(self, source: str, node: ast.stmt) -> None:
        for name in sorted(_names(source, node)):
            if name in self.namespace and name not in self.asked:
                self.asked.add(name)
                self._add(name, self.namespace[name])

    def _add(self, name: str, value: Any) -> None:
        """Add what defines a name, after what that needs."""
        if name == "__name__" or value is getattr(builtins, name, self):
            return  # every file has these
        if isinstance(value, type | FunctionType) and (value.__module__, value.__qualname__) == (
            self.cls.__module__,
            name,
        ):
            if isinstance(value, type) and issubclass(value, Method | PostHoc):
                raise UserError(
                    f"{self.cls.__name__} needs {name}, another method that is defined beside it, and a method's file "
                    f"holds one; write what they share as functions"
                )
            source, node = self._definition(value)
            self._add_needs(source, node)
            self.others[source] = None
        elif (literal := _literal(value)) is not None:
            self.others[f"{name} = {literal}"] = None
        elif not self._add_statement(name) and not self._add_import(name, value):
            raise UserError(
                f"{self.cls.__name__} needs {name} ({type(value).__name__}), whose definition cannot be found or "
                "repeated; define it by one assignment, or within the class"
            )

    def _add_statement(self, name: str) -> bool:
        """Add the last statement that binds a name; of imports all, as `import a.b` and `import a.c` both bind a."""
        found = [(text, s) for text, tree in self.texts for s in _top(tree.body) if name in _bound(s)]
        if not found or isinstance(found[-1][1], ast.AugAssign):
            return False
        text, last = found[-1]
        if isinstance(last, ast.Import):
            self.imports |= {_segment(of, s): None for of, s in found if isinstance(s, ast.Import)}
        elif isinstance(last, ast.ImportFrom):
            self.imports[self._absolute(text, last)] = None
        else:
            source = _segment(text, last)
            self._add_needs(source, last)
            self.others[source] = None
        return True

    def _absolute(self, text: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return _segment(text, node)
        package = str(self.namespace.get("__package__") or "")
        name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        return ast.unparse(ast.ImportFrom(name, node.names, 0))

    def _add_import(self, name: str, value: Any) -> bool:
        """Add the import of what a star import or a program has put into the namespace."""
        if isinstance(value, ModuleType):
            self.imports[f"import {value.__name__} as {name}"] = None
            return True
        home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if not isinstance(home, str) or not isinstance(own, str) or home in ("__main__", self.cls.__module__):
            return False
        if getattr(sys.modules.get(home), own, None) is not value:
            return False
        self.imports[f"from {home} import {own}" + (f" as {name}" if own != name else "")] = None
        return True


def _texts(namespace: Mapping[str, Any]) -> Iterator[tuple[str, ast.Module]]:
    """Yield the cells of a notebook in the order in which they ran, or the text of a module's file."""
    if "get_ipython" in namespace and isinstance(namespace.get("In"), list):
        texts = [str(cell) for cell in namespace["In"]]
    else:
        texts = ["".join(_lines(str(namespace.get("__file__") or "")))]
    for text in texts:
        try:
            yield text, ast.parse(text)
        except (SyntaxError, ValueError):
            continue  # a cell that never ran


def _texts_of_code(value: Any, namespace: Mapping[str, Any]) -> list[str]:
    """Return the texts of a namespace that the code of its class or function was compiled from, as far as known."""
    members = [value] if isinstance(value, FunctionType) else list(vars(value).values())
    functions = [inspect.unwrap(getattr(member, "fget", None) or member) for member in members]
    own = [one for one in functions if isinstance(one, FunctionType) and one.__globals__ is namespace]
    names = dict.fromkeys(one.__code__.co_filename for one in own)
    return [text for text in ("".join(_lines(name)) for name in names) if text]


def _lines(file: str) -> list[str]:
    if os.path.exists(file):
        linecache.checkcache(file)  # it may have been edited
    return linecache.getlines(file) if file else []


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body that may be repeated elsewhere: not the program behind `__name__`."""
    for node in body:
        if not (isinstance(node, ast.If) and any(getattr(n, "id", "") == "__name__" for n in ast.walk(node.test))):
            yield node


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements and those within if, try and with."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            inner = [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            yield from _statements([*inner, *(s for handler in getattr(node, "handlers", []) for s in handler.body)])


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds, as far as it can be repeated: none for a loop."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, Definition):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        return {
            name.id for name in names if isinstance(name.ctx, ast.Store)
        }  # U[0] = 1 changes U, and does not bind it
    if isinstance(node, ast.If | ast.Try):
        inner = [s for s in _statements([node]) if not isinstance(s, ast.If | ast.Try)]
        return {name for statement in inner for name in _bound(statement)}
    return set()


def _segment(text: str, node: ast.stmt) -> str:
    """Return the source of a statement, of a definition with its decorators and comments."""
    if not isinstance(node, Definition):
        return textwrap.dedent(ast.get_source_segment(text, node, padded=True) or "")
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))


def _names(source: str, node: ast.stmt) -> set[str]:
    """Return the names that a statement takes from its module, in annotations too."""
    found: set[str] = set()

    def visit(table: symtable.SymbolTable) -> None:
        for symbol in table.get_symbols():
            bound_here = symbol.is_assigned() or symbol.is_imported()
            free = not bound_here if table.get_type() == "module" else symbol.is_global()
            if symbol.is_referenced() and free:
                found.add(symbol.get_name())
        for child in table.get_children():
            visit(child)

    visit(symtable.symtable(source, "<source>", "exec"))
    inner = {name for s in ast.walk(node) if isinstance(s, ast.ClassDef) for b in s.body for name in _bound(b)}
    notes = [getattr(part, field, None) for part in ast.walk(node) for field in ("annotation", "returns")]
    kept = {name.id for note in notes if note is not None for name in ast.walk(note) if isinstance(name, ast.Name)}
    return found | (kept - inner)  # postponed annotations are not in the table


def _literal(value: Any) -> str | None:
    """Return a number, text or container of them as Python writes it; None for anything else."""
    try:
        text = repr(value)
        if len(text) <= LARGEST and type(parsed := ast.literal_eval(text)) is type(value) and parsed == value:
            return text
    except Exception:  # a foreign repr, or a comparison that is no bool
        pass
    return None
