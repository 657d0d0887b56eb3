"""Errors a user can cause, and the suggestion that goes with a misspelt name."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A mistake the user can mend: printed as one line, exit code 2, never a traceback."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for a name that is not among `known`, with the nearest one suggested."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UserError(f"unknown {kind} {name!r}; {hint}known: {', '.join(names)}")
