"""Whether the class that a file defines is the one in memory: its code, its attributes, and the values that it uses."""

import ast
import dis
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from pydantic import BaseModel
from torch import Tensor, nn

ANNOTATIONS = ("__annotate__", "__annotate_func__")  # functions that Python 3.14 makes; annotations are not compared
CALLS = ("PUSH_NULL", "PRECALL")
LOOPS = ("FOR_ITER", "SEND")  # their arguments are places, as those of jumps
CHANGING = ("add", "append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update")
RELATIVE, ABSOLUTE = 1e-5, 1e-6  # how far computed floats may differ; the second in parts of the largest


def difference(one: type, other: type, namespace: Mapping[str, Any], text: str) -> str:
    """Return the name of the first thing in which two classes differ, "" if none does.

    Compared are functions with their defaults, attributes, own base and inner classes, and of each module value that a
    function uses the same. Tensors and arrays may differ by rounding. Not compared, and so taken as the same, are:
    objects of foreign classes that have neither an equality nor a text of their own, such as generators of random
    numbers; iterators; what an imported module holds; values that the functions of the text change themselves, such as
    caches and counters; what a class body uses without keeping it; what raises an error when it is compared.

    Args:
        one: the class in memory.
        other: the class that the file defines.
        namespace: the values of the first one's module or notebook.
        text: of the file.
    """
    return _Comparison(one, other, namespace, _changed(ast.parse(text))).values(one, other, one.__name__)


class _Comparison:
    """Compares values pair by pair, each pair once; what is returned is a name, "" for the same."""

    def __init__(self, one: type, other: type, namespace: Mapping[str, Any], changed: set[str]) -> None:
        self.modules, self.namespace, self.changed = (one.__module__, other.__module__), namespace, changed
        self.top = f"{one.__qualname__}."
        self.seen: dict[tuple[int, int], Any] = {}  # with the values, so that no other gets their address

    def values(self, a: Any, b: Any, name: str) -> str:
        """Compare values; `name` is what they are called."""
        if a is b or (id(a), id(b)) in self.seen:
            return ""
        self.seen[id(a), id(b)] = (a, b)
        if isinstance(a, type) and isinstance(b, type):
            if (a.__module__, b.__module__) == self.modules:
                return self._classes(a, b) if a.__qualname__ == b.__qualname__ else name
            return "" if self._paired(a, b) else name
        if type(a) is not type(b) and not self._paired(type(a), type(b)):
            return name
        try:
            if isinstance(a, FunctionType):
                return self._functions(a, b, name)
            if isinstance(a, Tensor | np.ndarray) and a.dtype != object:
                return "" if _close(a, b) else name
            one, two = self._parts(a), self._parts(b)
            if one is None or two is None:
                return "" if self._alike(a, b) else name
        except Exception:  # foreign objects may do anything
            return ""
        if len(one) != len(two):
            return name
        return self._all(one, two, name) or self.values(type(a), type(b), name)

    def _classes(self, one: type, other: type) -> str:
        a, b = self._content(one), self._content(other)
        where = f"{one.__qualname__}.".removeprefix(self.top)
        for name in {**a, **b}:
            if name not in a or name not in b:
                if not name.startswith("_") or isinstance(a.get(name, b.get(name)), FunctionType):  # others are caches
                    return where + name
            elif found := self.values(a[name], b[name], where + name):
                return found
        return self._all(one.__bases__, other.__bases__, f"{where}base")

    def _all(self, one: Any, two: Any, name: str) -> str:
        return next((found for a, b in zip(one, two, strict=False) if (found := self.values(a, b, name))), "")

    def _functions(self, a: FunctionType, b: FunctionType, name: str) -> str:
        if _code(a.__code__) != _code(b.__code__):
            return name
        free: list[Any] = [
            [
                cell.cell_contents
                for one, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
                if one not in self.changed
            ]
            for f in (a, b)
        ]
        defaults: list[Any] = [[function.__defaults__, function.__kwdefaults__] for function in (a, b)]
        if found := self._all(defaults[0], defaults[1], name) or self._all(free[0], free[1], name):
            return found
        used = {} if a.__globals__ is b.__globals__ else _globals(a.__code__)  # a decorator's module is the same one
        shared = [one for one in used if one in self.namespace and one in b.__globals__ and one not in self.changed]
        return next(
            (found for one in shared if (found := self.values(self.namespace[one], b.__globals__[one], one))), ""
        )

    def _content(self, cls: type) -> dict[str, Any]:
        """Return what is compared of a class: not what Python, pydantic and dataclasses add to it."""
        found: dict[str, Any] = {}
        for name, value in vars(cls).items():
            if name in ANNOTATIONS:
                continue
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if isinstance(function, FunctionType):
                if function.__module__ == cls.__module__ and function.__code__.co_filename != "<string>":
                    found[name] = value
            elif not (name.startswith("_") and name.endswith("_")) and name not in self.changed:
                found[name] = value
        return found | (dict(cls.model_fields) if issubclass(cls, BaseModel) else {})

    def _paired(self, a: Any, b: Any) -> bool:
        """Whether two classes have the same name, and the same module or the two that are compared."""
        modules = (a.__module__, b.__module__)
        return a.__qualname__ == b.__qualname__ and (modules == self.modules or modules[0] == modules[1])

    def _parts(self, value: Any) -> list[Any] | None:
        """Return the values that a value consists of, None if they are not known."""
        if isinstance(value, property):
            return [value.fget, value.fset]
        if isinstance(value, staticmethod | classmethod):
            return [value.__func__]
        if isinstance(value, MethodType):
            return [value.__func__, value.__self__]
        if isinstance(value, cached_property):
            return [value.func]
        if isinstance(value, np.ndarray):
            return [value.shape, *value.flat]
        if isinstance(value, partial):
            return [value.func, value.args, value.keywords]
        if type(value).__module__ in self.modules or isinstance(value, nn.Module):
            state: Any = object.__getstate__(value)
            parts = [
                part for one in (state if isinstance(state, tuple) else [state]) for part in self._kept(value, one)
            ]
            return parts + (_items(value) or [])
        return [value.__wrapped__] if callable(getattr(value, "__wrapped__", None)) else _items(value)

    def _kept(self, value: Any, state: dict[str, Any] | None) -> list[Any]:
        """Return the attributes of an object by name, without those that its own functions compute or change."""
        computed = [name for name in state or () if isinstance(getattr(type(value), name, None), cached_property)]
        return [item for item in sorted((state or {}).items()) if item[0] not in {*computed, *self.changed}]

    def _alike(self, a: Any, b: Any) -> bool:
        """Whether values are equal, have the same text, or one without an own meaning, such as an address."""
        try:
            if a == b:
                return True
        except Exception:  # an equality that is no bool
            pass
        one, two = repr(a).replace(self.modules[1], self.modules[0]), repr(b).replace(self.modules[1], self.modules[0])
        return one == two or " at 0x" in one or hasattr(a, "__next__")


def _items(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        keys = sorted(value) if all(isinstance(key, str) for key in value) else list(value)
        return [part for key in keys for part in (key, value[key])]
    return list(value) if isinstance(value, list | tuple | deque) else None


def _close(a: Any, b: Any) -> bool:
    """Whether two tensors or arrays have the same type and shape, and the same values up to rounding."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if isinstance(a, Tensor):
        a, b = ((t.double() if t.is_floating_point() else t).detach().cpu().numpy() for t in (a, b))
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    largest = np.max(np.abs(a[np.isfinite(a)]), initial=0.0)
    return bool(np.allclose(a, b, rtol=RELATIVE, atol=ABSOLUTE * largest, equal_nan=True))


def _code(code: CodeType) -> list[tuple[str, str]]:
    """Return what a function does, without where it is.

    How a method is called depends on whether its module is imported in the same text (CALLS), and with it the jumps.
    """
    found = []
    for step in dis.get_instructions(code):
        if isinstance(step.argval, CodeType):
            found += _code(step.argval)
        elif step.opname not in CALLS:
            name = "LOAD_ATTR" if step.opname == "LOAD_METHOD" else step.opname
            found.append((name, "" if "JUMP" in name or name in LOOPS else repr(step.argval)))
    return found


def _globals(code: CodeType) -> dict[str, None]:
    """Return the names that a function and those within it take from their module, in their order."""
    found: dict[str, None] = {}
    for step in dis.get_instructions(code):
        if isinstance(step.argval, CodeType):
            found |= _globals(step.argval)
        elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found[step.argval] = None
    return found


def _changed(tree: ast.Module) -> set[str]:
    """Return the names of the values and attributes that functions change, other than by `self.name = ...`."""
    found: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        nodes = list(ast.walk(function))
        own = {node.arg for node in nodes if isinstance(node, ast.arg)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        making = function.name in ("__init__", "__post_init__", "__new__")
        for node in nodes:
            if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
                names = set(_path(node.value if making or isinstance(node, ast.Subscript) else node))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                changing = node.func.attr in CHANGING or node.func.attr.rstrip("_") + "_" == node.func.attr
                names = set(_path(node.func.value)) if changing else set()
            else:
                continue
            found |= names - own
        found |= {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return found


def _path(node: ast.expr) -> Iterator[str]:
    """Yield the names in `a.b[c].d`: a, b and d."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Attribute):
            yield node.attr
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
