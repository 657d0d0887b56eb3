"""Finds methods, in `methods/`, by path, or in the entry-point group `hierbench.methods`, and starts new ones."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import resources
from importlib.metadata import entry_points
from os.path import isfile  # False where a name is too long for a file, which `Path.is_file` raises as an OSError
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from hierbench.api.code import digest_of_code as digest_of_code
from hierbench.api.code import identity_code
from hierbench.api.method import AnyMethod, Method, Parameters, PostHoc
from hierbench.config.completion import METHODS_GROUP, method_folder
from hierbench.config.completion import method_names as method_names
from hierbench.config.sections import FEATURE_TYPES, METHOD_GROUPS, PAPER_METHODS
from hierbench.config.spec import Spec
from hierbench.config.validation import validated
from hierbench.utils.errors import BrokenMethodError, UserError, error_line, foreign_errors, line_in, unknown_name
from hierbench.utils.files import read_bytes, write_text
from hierbench.utils.text import is_path
from hierbench.utils.user_code import run_file

PUBLISHED_SUFFIX = re.compile(r"-[0-9a-f]{12}$")  # of the names of published sources: the digest of the code
BASE_ONLY_NAME = re.compile(r"_[a-z0-9][a-z0-9_-]*")  # names of files that are only bases of other methods


@dataclass(frozen=True)
class LoadedMethod:
    """A method that was imported, and how any process can import it again."""

    reference: str  # a name or path by which any process can find it
    cls: AnyMethod
    digest: str  # of the code in its file, see `digest_of_code`
    source: Path | None = None  # its file; None for the project's own methods

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.cls.name

    @property
    def code(self) -> str:
        """What the id of a run has as its code: the digest of a user's file; see `identity_code` for our own."""
        return identity_code(self.name, self.cls.version) if self.source is None else self.digest

    def is_method_of(self, spec: Spec) -> bool:
        """Whether a run is of this method, in this version, and of a user's file with this code."""
        method = spec.method
        return (method.name, method.version, method.code) == (self.name, self.cls.version, self.code)

    @property
    def trains(self) -> bool:
        """Whether it trains, rather than re-ranks."""
        return not issubclass(self.cls, PostHoc)

    def params(self, values: dict[str, Any]) -> BaseModel:
        """Return the method's hyperparameters with `values` in place of defaults; a UserError if one is invalid."""
        return validated(self.cls.Params, values, f"hyperparameters of {self.name}")


@dataclass(frozen=True)
class BrokenMethod:
    """A method that could not be imported."""

    name: str
    reason: str


def method_group(name: str) -> list[str]:
    """Return the methods that a name stands for: those of the paper, all with these first, or itself."""
    if name == "paper":
        return list(PAPER_METHODS)
    if name == "all":
        return [*PAPER_METHODS, *(other for other in method_names() if other not in PAPER_METHODS)]
    return [name]


def is_installed(name: str) -> bool:
    """Whether a method has this name; one that begins with _ is found as a base and listed nowhere."""
    return name in method_names() or (bool(BASE_ONLY_NAME.fullmatch(name)) and isfile(method_folder() / f"{name}.py"))


def find_method(reference: str) -> LoadedMethod:
    """Import one method by name or by path.

    Raises:
        UserError: an unknown name (the nearest is suggested), no such file, or a file without a valid method.
    """
    if is_path(reference):
        return _from_path(Path(reference))
    file = method_folder() / f"{reference}.py"
    if isfile(file):
        with _import_errors(reference, file.name):
            module = importlib.import_module(f"hierbench.methods.{reference}")
            return replace(_check_method(reference, _only_method(module, reference), file, reference), source=None)
    for entry in entry_points(group=METHODS_GROUP, name=reference):
        with _import_errors(reference):
            cls = entry.load()
            name = getattr(sys.modules.get(getattr(cls, "__module__", "")), "__file__", None)
            return _check_method(reference, cls, Path(name) if name else None, reference)
    if isfile(f"{reference}.py"):
        raise UserError(f"unknown method {reference!r}; a file is given by its path: did you mean './{reference}.py'?")
    raise unknown_name("method", reference, [*METHOD_GROUPS, *method_names()])


def find_all() -> Iterator[LoadedMethod | BrokenMethod]:
    """Yield every installed method; a broken one does not stop the others."""
    return map(find_or_broken, method_names())


def find_or_broken(reference: str) -> LoadedMethod | BrokenMethod:
    """Import one method; return a `BrokenMethod` if its file cannot be imported; a UserError for an unknown name."""
    try:
        return find_method(reference)
    except BrokenMethodError as error:
        return BrokenMethod(reference, str(error))


def _from_path(path: Path) -> LoadedMethod:
    if not isfile(path):
        raise UserError(f"no method file {path}")
    path = path.resolve()
    if path.is_relative_to(method_folder().resolve()):
        return find_method(path.stem)
    problem = _import_problem(str(path), path.name)
    module = run_file(path, "method", problem, passing=BrokenMethodError)
    with foreign_errors(problem, passing=BrokenMethodError):
        return _check_method(PUBLISHED_SUFFIX.sub("", path.stem), _only_method(module, str(path)), path, str(path))


def _import_errors(subject: str, file_name: str = "") -> AbstractContextManager[None]:
    """Turn any error of an import into one line, with the last line of the method's own file that ran."""
    return foreign_errors(_import_problem(subject, file_name), passing=BrokenMethodError)


def _import_problem(subject: str, file_name: str) -> Callable[[BaseException], BrokenMethodError]:
    return lambda error: BrokenMethodError(
        f"method {subject} cannot be imported: {error_line(error)}{line_in(error, file_name)}"
    )


def _only_method(module: ModuleType, subject: str) -> Any:
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Method | PostHoc) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        problem = f"the file must define exactly one Method or PostHoc, it defines {len(classes)}"
        raise BrokenMethodError(f"method {subject}: {problem}")
    return classes[0]


def _check_method(name: str, cls: Any, file: Path | None, reference: str) -> LoadedMethod:
    if not (isinstance(cls, type) and issubclass(cls, Method | PostHoc)):
        raise BrokenMethodError(f"method {name}: {cls!r} is not a Method or PostHoc")
    check_class(name, cls)
    return LoadedMethod(reference, cls, digest_of_code(read_bytes(file)) if file else "", file)


def check_class(name: str, cls: AnyMethod) -> None:
    """Raise a BrokenMethodError unless a class has the declarations of a method, under this name."""
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
    if "lr" in cls.Params.model_fields:
        raise BrokenMethodError(f"method {name}: a hyperparameter cannot be called lr, a method's learning rates")
    if issubclass(cls, PostHoc):
        _check_bases(name, cls)
    if name in METHOD_GROUPS:
        group_words = "every method" if name == "all" else "the methods of the paper"
        raise BrokenMethodError(f"method {name}: the name stands for {group_words}; choose another")
    if cls.name != name:
        raise BrokenMethodError(f"method {name}: its class sets name = {cls.name!r}; file and name must agree")


def _check_bases(name: str, cls: type[PostHoc]) -> None:
    """Raise a BrokenMethodError unless a post-hoc method names its bases, each once, and not itself."""
    base: Any = cls.base
    bases = (base,) if isinstance(base, str) else base
    if not isinstance(bases, tuple) or not bases or not all(isinstance(base, str) and base for base in bases):
        raise BrokenMethodError(f"method {name}: base must be a method's name, or a tuple of them, not {base!r}")
    if cls.name in bases:
        raise BrokenMethodError(f"method {name}: it cannot be its own base")
    if len(set(bases)) < len(bases):
        raise BrokenMethodError(f"method {name}: base names a method twice: {', '.join(bases)}")


def new_method(name: str, folder: Path) -> Path:
    """Write the commented template of a method called `name` and return its path.

    Raises:
        UserError: the name is invalid or taken, or there is no such folder.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name) or name in METHOD_GROUPS:
        raise UserError(f"a method's name is lower-case letters, digits, - and _, starting with a letter; got {name!r}")
    path = folder / f"{name}.py"
    if path.exists() or name in method_names():
        raise UserError(f"method {name} already exists" + (f": {path}" if path.exists() else ""))
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    template = resources.files("hierbench.api").joinpath("method.py.tmpl").read_text(encoding="utf-8")
    class_name = "".join(part.capitalize() for part in re.split("[-_]", name)) + "Method"
    write_text(path, template.replace("NAME", name).replace("CLASS", class_name))
    return path


class InstalledMethods:
    """The installed methods, each imported once."""

    def __init__(self) -> None:
        self._names = frozenset(method_names())  # asking for each name reads the metadata of all packages
        self._found: dict[str, LoadedMethod | None] = {}

    def installed(self, name: str) -> LoadedMethod | None:
        """Return the installed method of a name, or None if it cannot be imported."""
        if name not in self._found:
            is_known = name in self._names or (name.startswith("_") and is_installed(name))
            method = find_or_broken(name) if "/" not in name and is_known else None
            self._found[name] = None if isinstance(method, BrokenMethod) else method
        return self._found[name]

    def matching(self, spec: Spec) -> LoadedMethod | None:
        """Return the installed method if the run is of it."""
        method = self.installed(spec.method.name)
        return method if method is not None and method.is_method_of(spec) else None
