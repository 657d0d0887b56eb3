"""Names that strangers chose: as text of a page, as names of files, and as links."""

import re
from hashlib import sha256
from typing import Any

from markupsafe import Markup, escape

from hierbench.utils.text import REPLACEMENT, one_line

MAX_TEXT_LENGTH = 300  # characters of one piece of text
LONGEST_NAME = 80  # of a title in a table
SLUG = re.compile(r"[a-z0-9][a-z0-9_.-]{0,59}")


def clean(value: Any, limit: int = MAX_TEXT_LENGTH) -> Any:
    """Return text on one line without characters that hide or reorder it; markup stays as it is.

    Every expression of every template passes here before it is escaped.
    """
    if type(value) is not str:
        return value
    return value if len(value) <= limit and value.isprintable() else one_line(value, limit)


def short_name(text: Any) -> str:
    """Return a title or name, short enough for a table."""
    return one_line(str(text), LONGEST_NAME)


def block(text: str, limit: int = 20_000) -> Markup:
    """Return text of several lines for a <pre>, escaped; unprintable characters are replaced."""
    return escape(printable(text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} more characters"))


def printable(text: str) -> str:
    """Return text of several lines with unprintable characters replaced."""
    return "".join(c if c.isprintable() or c == "\n" else REPLACEMENT for c in text.expandtabs(4))


def make_slug(name: str) -> str:
    """Return a name of a file or folder: the name itself where it is plain, else its plain part and a digest."""
    if SLUG.fullmatch(name) and not name.endswith("."):
        return name
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-")
    return "-".join(filter(None, [plain, sha256(name.encode(errors="replace")).hexdigest()[:12]]))


class Slugs:
    """Unique slugs."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def of(self, name: str) -> str:
        """Return the slug of a name, with a number where another has it."""
        plain = slug = make_slug(name)
        number = 1
        while slug in self.taken:
            number += 1
            slug = f"{plain}-{number}"
        self.taken.add(slug)
        return slug
