"""Text and templates for LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from hierbench.utils.text import one_line

if TYPE_CHECKING:
    from jinja2 import Template

LAST_LATIN = "\u0180"  # TeX's standard fonts have the characters before it, except these
NOT_IN_TEX = frozenset("«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ")


def latex_escaped(text: str) -> str:
    """Return one line of text that TeX prints literally, with a question mark for what its standard fonts lack."""
    special = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **dict.fromkeys(NOT_IN_TEX, "?"),
        **{char: "\\" + char for char in "&%$#_{}"},
    }
    return "".join(special.get(char, char if char < LAST_LATIN else "?") for char in one_line(text))


def template(name: str, known: Mapping[str, Any]) -> Template:
    """Return a template of this folder; it uses << >>, <% %> and <# #>, because TeX needs the braces.

    Args:
        name: of the file.
        known: values and functions that it may use besides the filter `tex`.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # TeX, escaped by the filter below
    )
    environment.filters["tex"] = latex_escaped
    environment.globals |= known
    return environment.from_string((resources.files("hierbench.leaderboard") / name).read_text(encoding="utf-8"))
