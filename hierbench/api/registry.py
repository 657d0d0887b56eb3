"""Finding methods: files in `methods/`, files given by path, and the entry-point group `hierbench.methods`."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import io
import sys
import tokenize
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ValidationError

from hierbench.api.method import Method, Parameters, PostHoc
from hierbench.config.options import is_path
from hierbench.config.recipe import FEATURE_TYPES
from hierbench.config.validation import describe_params_error
from hierbench.utils.errors import BrokenMethodError, UserError, is_interrupt, one_line_of, unknown_name
from hierbench.utils.files import read_bytes

GROUP = "hierbench.methods"


@dataclass(frozen=True)
class Found:
    """A method that was found.

    Attributes:
        reference: how to find it again, in another process too: a name or a path.
        cls: the class itself.
        code: digest of its file, see `code_digest`.
        source: its file where that is not one of this project; None for the project's own methods.
    """

    reference: str
    cls: type[Method] | type[PostHoc]
    code: str
    source: Path | None = None

    @property
    def name(self) -> str:
        """As on the command line."""
        return self.cls.name

    def params(self, values: dict[str, Any]) -> BaseModel:
        """Return the method's hyperparameters with `values` in place of defaults; a UserError if they do not fit."""
        try:
            return self.cls.Params.model_validate(values)
        except ValidationError as error:
            raise describe_params_error(error, self.cls.Params, self.name) from None


@dataclass(frozen=True)
class Broken:
    """A method that could not be imported."""

    name: str
    reason: str


def _folder() -> Path:
    package = importlib.import_module("hierbench.methods")
    return Path(next(iter(package.__path__)))


def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def method_names() -> list[str]:
    """Return the names of all installed methods, without importing them."""
    files = {path.stem for path in _folder().glob("*.py") if not path.stem.startswith("_")}
    return sorted(files | set(_entries()))


def find_method(reference: str) -> Found:
    """Import one method by name or by path.

    Raises:
        UserError: an unknown name (the nearest is suggested), no such file, or a file that holds no valid method.
    """
    if is_path(reference):
        return _from_path(Path(reference))
    folder, entries = _folder(), _entries()
    file = folder / f"{reference}.py"
    if file.is_file():

        def own() -> Found:
            module = importlib.import_module(f"hierbench.methods.{reference}")
            return _checked(reference, _only_method(module, reference), file, reference)

        return _imported(reference, own, file.name)
    if reference in entries:

        def installed() -> Found:
            cls = entries[reference].load()
            name = getattr(sys.modules.get(getattr(cls, "__module__", "")), "__file__", None)
            source = Path(name) if name else None
            return replace(_checked(reference, cls, source, reference), source=source)

        return _imported(reference, installed)
    raise unknown_name("method", reference, method_names())


def find_all() -> Iterator[Found | Broken]:
    """Yield every installed method; one that is broken does not stop the others."""
    return map(find_or_broken, method_names())


def find_or_broken(reference: str) -> Found | Broken:
    """Import one method; a file that can not be imported is returned as such, an unknown name raises a UserError."""
    try:
        return find_method(reference)
    except BrokenMethodError as error:
        return Broken(reference, str(error))


def _from_path(path: Path) -> Found:
    if not path.is_file():
        raise UserError(f"no method file {path}")
    path = path.resolve()
    if path.is_relative_to(_folder().resolve()):
        return find_method(path.stem)
    module_name = f"hierbench_method_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is no Python file")
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[module_name] = module

    def given() -> Found:
        loader.exec_module(module)
        return replace(_checked(path.stem, _only_method(module, str(path)), path, str(path)), source=path)

    return _imported(str(path), given, path.name)


def _imported(what: str, load: Callable[[], Found], file_name: str = "") -> Found:
    """Import a method; whatever goes wrong becomes one line, with the last line that ran of the method's own file."""
    try:
        return load()
    except BrokenMethodError:
        raise
    except BaseException as error:  # a file may raise anything
        if is_interrupt(error) or isinstance(error, MemoryError):
            raise
        places = [(Path(f.f_code.co_filename).name, number) for f, number in traceback.walk_tb(error.__traceback__)]
        lines = [f" (line {number} of {name})" for name, number in places if name == file_name]
        line = lines[-1] if lines else ""
        raise BrokenMethodError(f"method {what} can not be imported: {one_line_of(error)}{line}") from error


def _only_method(module: ModuleType, what: str) -> Any:
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Method | PostHoc) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise BrokenMethodError(
            f"method {what}: the file must define exactly one Method or PostHoc, it defines {len(classes)}"
        )
    return classes[0]


def _checked(name: str, cls: Any, file: Path | None, reference: str) -> Found:
    if not (isinstance(cls, type) and issubclass(cls, Method | PostHoc)):
        raise BrokenMethodError(f"method {name}: {cls!r} is no Method or PostHoc")
    for attribute in ("name", "title", "source"):
        if not isinstance(getattr(cls, attribute, None), str):
            raise BrokenMethodError(f"method {name}: the class {cls.__name__} must set {attribute} to a string")
    types = cls.types
    if not isinstance(types, tuple) or not types or not set(types) <= set(FEATURE_TYPES):
        raise BrokenMethodError(f"method {name}: types must be a tuple of {' and '.join(FEATURE_TYPES)}, not {types!r}")
    if not isinstance(cls.version, str) or "\n" in cls.title:
        raise BrokenMethodError(f"method {name}: version must be a string, and title one line")
    if not (isinstance(cls.Params, type) and issubclass(cls.Params, Parameters)):
        raise BrokenMethodError(f"method {name}: Params must subclass Method.Params")
    if issubclass(cls, PostHoc) and cls.base == cls.name:
        raise BrokenMethodError(f"method {name}: it can not be its own base")
    if cls.name != name:
        raise BrokenMethodError(f"method {name}: its class says name = {cls.name!r}; file and name must agree")
    try:
        return Found(reference, cls, code_digest(file) if file else "")
    except (SyntaxError, UnicodeDecodeError, tokenize.TokenError) as error:
        raise BrokenMethodError(f"method {name} can not be read: {error}") from None


def code_digest(path: Path) -> str:
    """Return the digest of a Python file's code, see `digest_of_code`."""
    return digest_of_code(read_bytes(path))


def digest_of_code(content: bytes) -> str:
    """Return the SHA-256 of Python source without comments, docstrings and blank lines: only its code counts."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    with io.TextIOWrapper(io.BytesIO(content), encoding) as file:
        source = file.read()
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column] + "\n"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            text = node.body[0]
            alone = len(node.body) == 1 or node.body[1].lineno > (text.end_lineno or text.lineno)
            if alone:  # what shares a line with a docstring counts, docstring and all
                lines[text.lineno - 1 : text.end_lineno] = ["\n"] * ((text.end_lineno or text.lineno) - text.lineno + 1)
    kept = [line.rstrip() for line in lines if line.strip()]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()
