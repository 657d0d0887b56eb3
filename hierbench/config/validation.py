"""Closed data, and a one-line description of the first problem with its content."""

from collections.abc import Iterator
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from hierbench.utils.errors import UserError, unknown_name


class Closed(BaseModel):
    """Immutable, typed data; an unknown key, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)


CLOSED = ConfigDict(extra="forbid", allow_inf_nan=False)  # of dataclasses that are data


Model = TypeVar("Model", bound=BaseModel)

LIMITS = {  # by pydantic's kind of error, with the names of its context
    "greater_than_equal": "it must be at least {ge}",
    "greater_than": "it must be above {gt}",
    "less_than_equal": "it must be at most {le}",
    "less_than": "it must be below {lt}",
    "literal_error": "it must be {expected}",
    "finite_number": "it must be a finite number",
    "string_too_short": "it must not be empty",
    "string_pattern_mismatch": "it must have the form {pattern}",
    "too_short": "it must have at least {min_length} entries",
    "too_long": "it must have at most {max_length} entries",
}
TYPES = {  # by the beginning of the kind
    "int": "it must be a whole number",
    "float": "it must be a number",
    "bool": "it must be true or false",
    "string": "it must be text",
    "list": "it must be a list",
    "tuple": "it must be a list",
    "dict": "it must be a section",
    "model": "it must be a section",
}


def validated(model: type[Model], content: dict[str, Any], where: str) -> Model:
    """Return the content as a closed model; a UserError of its first problem, which begins with `where`."""
    try:
        made = model.model_validate(content)
    except ValidationError as error:
        raise UserError(f"{where}: {first_problem(error, model)}") from None
    odd = _bool_as_number(content, made.model_dump(by_alias=True))
    if odd:
        raise UserError(f"{where}: {odd}: it must be a number")
    return made


def _bool_as_number(value: Any, read: Any, key: str = "") -> str:
    """Return `KEY = true` of the first truth value that pydantic has read as 1 or 0, else ""."""
    if isinstance(value, bool) and isinstance(read, int | float) and not isinstance(read, bool):
        return f"{key} = {str(value).lower()}"
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(value, dict) and isinstance(read, dict):
        pairs = [(f"{key}.{name}".lstrip("."), value, read.get(name)) for name, value in value.items()]
    elif isinstance(value, list | tuple) and isinstance(read, list | tuple):
        pairs = [(key, *pair) for pair in zip(value, read, strict=False)]
    return next(filter(None, (_bool_as_number(value, other, name) for name, value, other in pairs)), "")


def first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first problem with the content of a closed model."""
    # A misspelt key is unknown and missing: the unknown one is more helpful.
    first = min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
    parts = [str(part) for part in first["loc"]]
    location = ".".join(parts)
    if first["type"] == "extra_forbidden":
        return str(_unknown_key(parts, model))
    if first["type"] == "missing":
        return f"key {location} is missing"
    if first["type"] == "value_error":  # of a whole section
        return f"{location}: {first['ctx']['error']}".removeprefix(": ")
    return f"{location} = {toml_value(first['input'])}: {_requirement(first['type'], first.get('ctx', {}))}"


def toml_value(value: Any) -> str:
    """Return a value as a file has it, shortened."""
    return str(value).lower() if isinstance(value, bool) else repr(value)[:200]


def _requirement(kind: str, context: dict[str, Any]) -> str:
    """Return the requirement on a value, given the kind of pydantic's error."""
    text = LIMITS.get(kind)
    if text:
        return text.format(**{key: f"{v:g}" if isinstance(v, float) else v for key, v in context.items()})
    return next((text for beginning, text in TYPES.items() if kind.startswith(beginning)), "it is not allowed here")


def _unknown_key(parts: list[str], model: type[BaseModel]) -> UserError:
    """Return an error that lists only the keys of the section; the suggestion may be a key of another section."""
    section = model
    prefix = ""
    for part in parts[:-1]:
        inner = _fields(section).get(part)
        if inner is None:  # a model within a list or a union
            break
        section = inner
        prefix = f"{prefix}{part}."
    name = ".".join(parts)
    allowed_keys = [prefix + key for key in _fields(section)]
    near = [prefix + key for key in get_close_matches(parts[-1], _fields(section), n=1)]
    same = [key for key in _leaf_keys(model) if key.rpartition(".")[2] == parts[-1]]  # in other sections
    suggestions = near or get_close_matches(name, same, n=1, cutoff=0.0)
    return unknown_name("key", name, allowed_keys, suggestions[0] if suggestions else "")


def _fields(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """Return {key: model of the section, or None for a value}."""
    types = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    return {name: _section_model(type_) for name, type_ in types.items()}


def _section_model(type_: Any) -> type[BaseModel] | None:
    """Return the model of a section, which may be optional; None for a value."""
    parts = [part for part in get_args(type_) if part is not NoneType] if isinstance(type_, UnionType) else [type_]
    inner = parts[0] if len(parts) == 1 else None
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def _leaf_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of all values."""
    for name, section in _fields(model).items():
        if section is None:
            yield prefix + name
        else:
            yield from _leaf_keys(section, f"{prefix}{name}.")
