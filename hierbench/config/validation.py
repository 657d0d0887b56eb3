"""What is wrong with a recipe or with hyperparameters, in one line that names the key."""

from __future__ import annotations

from difflib import get_close_matches

from pydantic import BaseModel, ValidationError

from hierbench.utils.errors import UserError, unknown_name


def describe_params_error(error: ValidationError, model: type[BaseModel], method: str) -> UserError:
    """Return the one-line error for a method's bad hyperparameters."""
    return UserError(f"hyperparameters of {method}: {first_problem(error, model)}")


def first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    """Return what is wrong first with the content of a closed model."""
    first = error.errors()[0]
    location = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return str(_unknown_key([str(part) for part in first["loc"]], model))
    if first["type"] == "missing":
        return f"key {location} is missing"
    message = f"{first['msg'][0].lower()}{first['msg'][1:]}"
    if first["type"] == "value_error":  # of a whole section
        return f"{location}: {first['ctx']['error']}"
    return f"{location} = {first['input']!r}: {message}"


def _unknown_key(parts: list[str], model: type[BaseModel]) -> UserError:
    """Return the error that lists the keys of the section alone; a key of another section may be suggested."""
    section, prefix = model, ""
    for part in parts[:-1]:
        if (inner := _inner(section).get(part)) is None:  # a model within a list or a union
            break
        section, prefix = inner, f"{prefix}{part}."
    name, known = ".".join(parts), [prefix + name for name in _names(section)]
    near = [prefix + key for key in get_close_matches(parts[-1], _names(section), n=1)]
    same = [key for key in _keys(model) if key.rpartition(".")[2] == parts[-1]]  # in other sections
    meant = near or get_close_matches(name, same, n=1, cutoff=0.0)
    return unknown_name("key", name, known, meant[0] if meant else "")


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _inner(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return the sections of a closed model."""
    kinds = zip(_names(model), (field.annotation for field in model.model_fields.values()), strict=True)
    return {name: kind for name, kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)}


def _keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return all dotted keys of a closed model."""
    sections = _inner(model)
    return [
        key
        for name in _names(model)
        for key in (_keys(sections[name], f"{prefix}{name}.") if name in sections else [prefix + name])
    ]
