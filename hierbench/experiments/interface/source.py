"""The file of a method's class: the one that it is in, or of a notebook's or script's class one written for it."""

import dis
import re
import sys
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from hierbench.api.method import Method, PostHoc
from hierbench.api.registry import find_method
from hierbench.experiments.interface.extraction import standalone
from hierbench.runs.store import Store
from hierbench.utils.errors import BrokenMethodError, UserError
from hierbench.utils.files import refuse_links, write_text

FOLDER = ".methods"  # in the runs folder
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
CALLS = ("PUSH_NULL", "PRECALL")
LOOPS = ("FOR_ITER", "SEND")  # their arguments are places, as those of jumps
PLAIN = (str, int, float, bool, tuple, type(None))  # attributes of a class that are compared


def file_of(cls: type[Method] | type[PostHoc], runs: Path) -> Path:
    """Return a file that holds a class alone, as `--methods` takes.

    That is its module's file if this is named as the method; else a file that is written below the runs folder, whose
    path depends on its text, with the class and what it needs of its module or notebook.

    Raises:
        UserError: there is no source of the class, or it does not stand alone.
    """
    name: Any = getattr(cls, "name", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UserError(f"the class {cls.__name__} must set name to letters, digits, _ and -, not {name!r}")
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is not None and cls.__module__ != "__main__" and Path(file).name == f"{name}.py":
        path = Path(file).resolve()
    else:
        text = standalone(cls)
        store = Store(runs)
        store.writable()
        folder = refuse_links(runs.resolve(), FOLDER, sha256(text.encode()).hexdigest()[:16])
        path = folder / f"{name}.py"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
    try:
        found = find_method(str(path))
    except BrokenMethodError as error:
        raise UserError(f"the source of {cls.__name__}, kept in {path}, does not stand alone: {error}") from None
    if different := _difference(cls, found.cls):
        raise UserError(
            f"the source of {cls.__name__} in {path} is not what is in memory: {different} differs; define the class "
            "again, in one piece (after editing a module, restart Python)"
        )
    return path


def _difference(one: type, other: type) -> str:
    """Return the name of the first function or plain attribute in which two classes differ, "" if none does."""
    a, b = _content(one), _content(other)
    return next((name for name in {**a, **b} if a.get(name, a) != b.get(name, b)), "")


def _content(cls: type, where: str = "") -> dict[str, Any]:
    """Return {name: what is compared} of a class's own functions, plain attributes and inner classes."""
    found: dict[str, Any] = {}
    for name, value in vars(cls).items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(function, FunctionType):
            if function.__module__ == cls.__module__:  # pydantic and dataclasses add functions of their own
                found[where + name] = _code(function.__code__)
        elif isinstance(value, type) and value.__qualname__ == f"{cls.__qualname__}.{name}":
            found |= _content(value, f"{where}{name}.")
            fields = getattr(value, "model_fields", {})
            found |= {f"{where}{name}.{field}": repr(info) for field, info in fields.items()}
        elif type(value) in PLAIN and not name.startswith("_"):
            found[where + name] = value
    return found


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
