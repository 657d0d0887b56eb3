"""Methods as Python gives them: names, paths, classes and instances become the options --methods and --set."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hierbench.api.method import Configured, Method, PostHoc
from hierbench.api.registry import find_method, is_installed
from hierbench.config.overrides import override_of
from hierbench.experiments.interface.source import file_of
from hierbench.utils.errors import UserError


def options_of(methods: Any, runs: Path) -> tuple[list[str], list[str]]:
    """Return the names and paths of methods, and `KEY=VALUE` for each hyperparameter that is given with them.

    Args:
        methods: one of what `hierbench.run` takes, or several.
        runs: folder of all runs, below which the source of a class of a notebook or script is kept.

    Raises:
        UserError: one is none of these; a name stands for two classes or for two sets of hyperparameters; or the source
            of a class cannot be kept.
    """
    several = isinstance(methods, Iterable) and not isinstance(methods, str | Path | Method)
    names: list[str] = []
    given: dict[str, tuple[str, dict[str, Any]]] = {}  # {name of a class: (reference, hyperparameters)}
    for item in methods if several else [methods]:
        if isinstance(item, str | Path):
            names += [part.strip() for part in str(item).split(",") if part.strip()]
            continue
        cls, values = _parts(item)
        reference = reference_of(cls, runs)
        known = given.setdefault(cls.name, (reference, values))
        if known[0] != reference:
            raise UserError(f"two classes have the name {cls.name!r}: {cls.__name__} and that of {known[0]}")
        if known[1] != values:
            raise UserError(
                f"{cls.name} is given twice with different hyperparameters; run them one after the other in one runs "
                "folder, and hierbench.board shows both"
            )
        names.append(reference)
    return list(dict.fromkeys(names)), [
        override_of(f"methods.{name}.{key}", value)
        for name, (_, values) in given.items()
        for key, value in values.items()
    ]


def _parts(item: Any) -> tuple[type[Method] | type[PostHoc], dict[str, Any]]:
    """Return class and hyperparameters: those given of a `Configured`, all of an instance."""
    if isinstance(item, Configured):
        return item.cls, _plain(item.cls, item.cls.Params.model_validate(dict(item.values)), item.values)
    if isinstance(item, Method | PostHoc):
        return type(item), _plain(type(item), item.params, type(item).Params.model_fields)
    if isinstance(item, type) and issubclass(item, Method | PostHoc):
        return item, {}
    raise UserError(f"a method is a name, a path, or a class or instance of Method or PostHoc, not {item!r}")


def _plain(cls: type[Method] | type[PostHoc], params: Any, names: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """Return hyperparameters as JSON; those that are None by default and now need not, and cannot, be set."""
    fields, values = cls.Params.model_fields, params.model_dump(mode="json")
    return {name: values[name] for name in names if not (values[name] is None and fields[name].default is None)}


def reference_of(cls: type[Method] | type[PostHoc], runs: Path) -> str:
    """Return the name or path by which any process finds a class; a UserError if there is none."""
    name: Any = getattr(cls, "name", None)
    if isinstance(name, str) and is_installed(name) and find_method(name).cls is cls:
        return name
    path = str(file_of(cls, runs))
    if "," in path:
        raise UserError(f"{path}: a path with a comma cannot be given; choose another runs folder")
    return path
