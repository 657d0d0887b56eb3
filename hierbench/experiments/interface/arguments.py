"""Checks of the arguments of `hierbench.run`, `board` and `score`, in the words of Python."""

import operator
from collections.abc import Sequence
from typing import Any

from hierbench.utils.errors import UserError, unknown_name


def check_known(name: str, value: Any, known: Sequence[str]) -> None:
    """Raise a UserError for a value that is none of the known ones."""
    if not isinstance(value, str) or value not in known:
        raise unknown_name(name, str(value), known)


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number, also of NumPy; a UserError for anything else, and below the least."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UserError(f"{name} is a whole number, got {value!r}") from None
    if number < least or isinstance(value, bool):
        raise UserError(f"{name} must be at least {least}, got {value!r}")
    return number
