"""Makes text from data safe to show: one line, nothing hidden, nothing that a terminal or markdown acts upon."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

REPLACEMENT = "\ufffd"


def one_line(text: str, limit: int | None = None) -> str:
    """Return text on one line.

    Runs of white space become a blank; unprintable characters (controls that a terminal acts upon, halves of surrogate
    pairs, marks that turn the direction of writing) become a replacement character; text longer than `limit`
    characters is cut.
    """
    line = "".join(char if char.isprintable() else REPLACEMENT for char in " ".join(text.split()))
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def markdown_escaped(text: str) -> str:
    """Return one line of markdown that shows the text verbatim and keeps a table's cell together.

    Characters that markdown acts upon get a backslash only where they would take effect: an underscore within a word,
    or a bracket that begins no link, is left as it is, readable in a terminal.
    """
    line = re.sub(r"[\\`*<|~]|&(?=#?\w+;)|\](?=[(\[:])", r"\\\g<0>", one_line(text))
    return re.sub(r"(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])", r"\_", line)


def counted(num: int, noun: str, verb: tuple[str, str] | None = None) -> str:
    """Return "1 file" or "2 files"; with `verb` ("is", "are") also that of the number."""
    text = f"{num} {noun}{'' if num == 1 else 's'}"
    return text if verb is None else f"{text} {verb[num != 1]}"


def listed(numbers: Sequence[int]) -> str:
    """Return numbers for a reader, three or more in a row as a range: 0-3, 7."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges(numbers))


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of successive numbers; two successive numbers are two runs."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [
        pair for run in runs for pair in ([(run[0], run[-1])] if len(run) > 2 else [(number, number) for number in run])
    ]


def is_path(method: str) -> bool:
    """Whether a method is given by path rather than by name."""
    return method.endswith(".py") or "/" in method


FOLDERS_OF_PATH = re.compile(r"""(^|(?<=[=\s,;"'\[{(]))(~|\.{1,2}|file:/*)?/([^"'\],;}]*/)?""")


def without_paths(content: Any) -> Any:
    """Return JSON types with the last part of every path in them."""
    if isinstance(content, Mapping):
        return {str(key): without_paths(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [without_paths(value) for value in content]
    return FOLDERS_OF_PATH.sub("", content) if isinstance(content, str) else content
