"""Errors a user can cause, the suggestion for a misspelt name, and exceptions of foreign code in one line."""

import shlex
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hierbench.utils.text import one_line

MAX_ERROR = 4000  # characters of an error; exceptions of foreign code and names in damaged data may have a million
MAX_NAME = 100  # characters of an unknown name, so that the rest is still shown


class UserError(ValueError):
    """A mistake the user can correct: printed as one line, exit code 2, never a traceback."""


@dataclass(frozen=True)
class Argument:
    """An argument as an error names it: of Python, `columns="a,b"`, and as the option that a command has of it."""

    name: str
    value: Any = None  # None: the name alone
    option_name: str = ""  # where it is another one

    def __str__(self) -> str:
        """Return it as in a call."""
        value = f'"{self.value}"' if isinstance(self.value, str) else "" if self.value is None else repr(self.value)
        return f"{self.name}={value}"

    @property
    def option(self) -> str:
        """It as on the command line."""
        name = f"--{self.option_name or self.name.replace('_', '-')}"
        return name if self.value is None or self.value is True else f"{name} {shlex.quote(str(self.value))}"


class InputError(UserError):
    """A mistake in an argument, or one that an argument can correct; `arguments` are those that the message names."""

    def __init__(self, message: str, *arguments: Argument) -> None:
        super().__init__(message)
        self.arguments = arguments

    @property
    def argument(self) -> str:
        """The name of the first argument."""
        return self.arguments[0].name if self.arguments else ""

    @property
    def value(self) -> Any:
        """The value of the first argument that the message names."""
        return self.arguments[0].value if self.arguments else None


def named_arguments(error: BaseException | None) -> list[Argument]:
    """Return the arguments that an error, or one that it was raised for, names."""
    arguments = list[Argument]()
    while error is not None:
        arguments += error.arguments if isinstance(error, InputError) else ()
        error = error.__cause__ or error.__context__
    return arguments


def as_options(error: BaseException) -> str:
    """Return the text of an error with options of the command line in place of arguments of Python."""
    text = str(error)
    for argument in sorted(named_arguments(error), key=lambda argument: -len(str(argument))):
        text = text.replace(str(argument), argument.option)
    return text


class BrokenMethodError(UserError):
    """A method's file that cannot be imported or holds no method."""


def unknown_name(kind: str, name: str, choices: Iterable[str], meant: str | None = None) -> UserError:
    """Return the error for a name that is not among `choices`, with the nearest one suggested.

    Args:
        kind: the kind of thing that it names.
        name: as given.
        choices: all that are possible; the error lists them.
        meant: the suggestion, "" for no suggestion; None for the nearest known name.
    """
    names = sorted(choices)
    if meant is None:
        meant = nearest(name, names)
    hint = f"did you mean {meant!r}? " if meant else ""
    return UserError(f"unknown {kind} {one_line(name, MAX_NAME)!r}; {hint}known: {', '.join(names)}")


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return the nearest known name, first of all one that differs only in case; "" if no name is near."""
    names = list(choices)
    same = next((other for other in names if other.casefold() == name.casefold()), "")
    return same or next(iter(get_close_matches(name, names, n=1, cutoff=0.4)), "")


def error_line(error: BaseException) -> str:
    """Return the type and text of any exception in one line, of its type alone where the text cannot be had.

    At most `MAX_ERROR` characters, as a record keeps it.
    """
    try:
        text = str(error)
    except BaseException:  # an exception of foreign code may raise here, too
        text = ""
    return one_line(f"{type(error).__name__}: {text}", MAX_ERROR).rstrip(":")


def line_in(error: BaseException, file_name: str) -> str:
    """Return the last line of a file that ran before an error, as in " (line 2 of mine.py)", or ""."""
    places = [(Path(f.f_code.co_filename).name, number) for f, number in traceback.walk_tb(error.__traceback__)]
    return next((f" (line {number} of {name})" for name, number in reversed(places) if name == file_name), "")


@contextmanager
def foreign_errors(
    problem: Callable[[BaseException], Exception], passing: type[Exception] = UserError
) -> Iterator[None]:
    """Raise `problem` of any exception of foreign code, but for the user's Ctrl-C and errors that are `passing`."""
    try:
        yield
    except BaseException as error:  # libraries, drivers and methods raise errors of any type
        if isinstance(error, passing) or is_interrupt(error):
            raise
        raise problem(error) from error


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception is the user's Ctrl-C; a worker ignores that, so there it comes from a method."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
