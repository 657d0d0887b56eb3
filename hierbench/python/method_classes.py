"""Methods as Python gives them: names, paths, classes and instances become the options --methods and --set."""

import ast
import builtins
import inspect
import linecache
import re
import symtable
import sys
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib.util import resolve_name
from pathlib import Path
from types import FunctionType
from typing import Any

from hierbench.api.method import AnyMethod, Configured, Method, PostHoc
from hierbench.api.registry import check_class, find_method, is_installed
from hierbench.config.overrides import format_override
from hierbench.runs.store import Store
from hierbench.utils.errors import BrokenMethodError, UserError
from hierbench.utils.files import refuse_links, write_text

METHOD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")  # a dot would divide the key of a hyperparameter


def method_options(methods: Any, runs: Path) -> tuple[list[str], list[str]]:
    """Return the names and paths of methods, and `KEY=VALUE` for each hyperparameter that is given with them.

    Args:
        methods: one or several, as for `hierbench.run`.
        runs: folder of all runs, below which the source of a class of a notebook or script is kept.

    Raises:
        UserError: one is of another type; a name stands for two classes or two sets of hyperparameters; or the source
            of a class cannot be kept.
    """
    several = isinstance(methods, Iterable) and not isinstance(methods, str | Path | Method)
    names: list[str] = []
    reference_by_name: dict[str, tuple[str, dict[str, Any]]] = {}  # {name of a class: (reference, hyperparameters)}
    for item in methods if several else [methods]:
        if isinstance(item, str | Path):
            names += [part.strip() for part in str(item).split(",") if part.strip()]
            continue
        cls, values = _class_and_hyperparameters(item)
        reference = _class_reference(cls, runs)
        earlier = reference_by_name.setdefault(cls.name, (reference, values))
        if earlier != (reference, values):
            raise UserError(f"{cls.name} is given twice with different hyperparameters or classes; give one at a time")
        names.append(reference)
    return list(dict.fromkeys(names)), [
        format_override(f"methods.{name}.{key}", value)
        for name, (_, values) in reference_by_name.items()
        for key, value in values.items()
    ]


def _class_and_hyperparameters(item: Any) -> tuple[AnyMethod, dict[str, Any]]:
    """Return class and hyperparameters: the given ones of a `Configured`, all of an instance."""
    if isinstance(item, Configured):
        return item.cls, _without_defaults(item.cls, item.cls.Params.model_validate(dict(item.values)), item.values)
    if isinstance(item, Method | PostHoc):
        return type(item), _without_defaults(type(item), item.params, type(item).Params.model_fields)
    if isinstance(item, type) and issubclass(item, Method | PostHoc):
        return item, {}
    raise UserError(f"a method is a name, a path, or a class or instance of Method or PostHoc, not {item!r}")


def _without_defaults(cls: AnyMethod, params: Any, names: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """Return hyperparameters as JSON, without unset ones: TOML has no None."""
    fields = cls.Params.model_fields
    values = params.model_dump(mode="json")
    return {name: values[name] for name in names if not (values[name] is None and fields[name].default is None)}


def _class_reference(cls: AnyMethod, runs: Path) -> str:
    """Return the name or path of a class for other processes."""
    name = str(getattr(cls, "name", None))
    if not METHOD_NAME.fullmatch(name):
        raise UserError(f"the class {cls.__name__} must set name to letters, digits, _ and -, not {name!r}")
    if is_installed(name) and find_method(name).cls is cls:
        return name
    check_class(name, cls)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is not None and cls.__module__ != "__main__" and Path(file).name == f"{name}.py":
        path = Path(file).resolve()
    else:
        text = _class_source(cls)
        Store(runs).check_writable()
        path = refuse_links(runs.resolve(), ".methods", sha256(text.encode()).hexdigest()[:16]) / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    if "," in str(path):
        raise UserError(f"{path}: a path with a comma cannot be given; choose another runs folder")
    try:
        find_method(str(path))
    except BrokenMethodError as error:
        raise UserError(f"the source of {cls.__name__}, kept in {path}, is not self-contained: {error}") from None
    return str(path)


def _class_source(cls: type) -> str:
    """Return the text of a file: a class and the imports that it uses; a UserError if it needs anything else."""
    namespace = vars(sys.modules.get(cls.__module__, builtins))
    source, imports = _find_source(cls, namespace)
    if not source or cls.__qualname__ != cls.__name__:
        raise UserError(f"the source of {cls.__name__} cannot be found; define it at the top level of a cell or a file")
    used = sorted(_globals(symtable.symtable(source, "<source>", "exec")) - {cls.__name__})
    local_names = {
        name for name, value in namespace.items() if value is not vars(builtins).get(name, cls) and name[:2] != "__"
    }
    outside = ", ".join(name for name in used if name in local_names - imports.keys())
    if outside:
        raise UserError(f"{cls.__name__} needs {outside}, defined beside it: move that into the class, or import it")
    needed = dict.fromkeys(line for name in ["annotations", *used] for line in imports.get(name, []))
    head = f'"""Method {cls.__name__}, kept from the notebook or script that defined it."""'
    return "\n\n".join(filter(None, [head, "\n".join(needed), source])) + "\n"


def _find_source(cls: type, namespace: Mapping[str, Any]) -> tuple[str, dict[str, list[str]]]:
    """Return the source of a class, and {name: statements} of the imports at the top level around it."""
    cells = namespace.get("In", []) if "get_ipython" in namespace else []  # of a notebook, as they ran
    functions = [inspect.unwrap(member) for member in vars(cls).values() if isinstance(member, FunctionType)]
    files = [str(namespace.get("__file__") or ""), *(function.__code__.co_filename for function in functions)]
    list(map(linecache.checkcache, files))  # one may have been edited
    texts = [*map(str, cells), *("".join(linecache.getlines(file)) for file in dict.fromkeys(files))]
    source = ""
    imports = dict[str, list[str]]()
    for text in texts:
        try:
            tree = ast.parse(text)
            symbols = symtable.symtable(text, "<text>", "exec").get_symbols()
        except (SyntaxError, ValueError):
            continue  # a cell that never ran
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                source = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
            elif isinstance(node, ast.Import | ast.ImportFrom):
                line = ast.get_source_segment(text, node) or ""
                if isinstance(node, ast.ImportFrom) and node.level:
                    home = resolve_name("." * node.level + (node.module or ""), str(namespace["__package__"]))
                    line = ast.unparse(ast.ImportFrom(home, node.names, 0))
                for alias in node.names:
                    imports.setdefault(alias.asname or alias.name.partition(".")[0], []).append(line)
        for symbol in symbols:
            if symbol.is_assigned():  # an import that the name does not refer to
                imports.pop(symbol.get_name(), None)
    return source, imports


def _globals(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a text takes from its module, in annotations too."""
    symbols = [symbol for symbol in table.get_symbols() if symbol.is_referenced() and symbol.is_global()]
    direct_globals = {symbol.get_name() for symbol in symbols}
    return direct_globals.union(*map(_globals, table.get_children()))
