"""A table of plain text with sentences below it, printed as markdown, LaTeX or HTML; each escapes it in its own way."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from hierbench.leaderboard.render import page_of, pipe_table
from hierbench.leaderboard.tex import latex_escaped, template
from hierbench.utils.text import markdown_escaped, one_line

ARROWS = {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}


class Bold(str):
    """The text of a cell that is printed bold."""

    __slots__ = ()


@dataclass(frozen=True)
class Sheet:
    """Headings and lines of cells, sentences above and below them, and then items of a list."""

    title: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str]
    items: Sequence[str] = ()
    above: Sequence[str] = ()

    def markdown(self) -> str:
        """Return a pipe table, a line per sentence, and a list."""
        lines = [[_strong(cell, markdown_escaped(cell), "**{}**") for cell in line] for line in self.lines]
        table = [pipe_table(lines, [markdown_escaped(text) for text in self.headings]), ""] if lines else []
        above = [*map(markdown_escaped, self.above), ""] if self.above and (lines or self.notes) else self.above
        items = ["", *(f"- {markdown_escaped(text)}" for text in self.items)] if self.items else []
        return "\n".join([*above, *table, *map(markdown_escaped, self.notes), *items, ""])

    def latex(self) -> str:
        """Return a LaTeX document with a table that may span pages; two comments mark the table itself."""
        return template("sheet.tex.j2", {"cell": _tex_cell}).render(sheet=self)

    def html(self) -> str:
        """Return a page of HTML."""
        return page_of(self.title, self.fragment())

    def fragment(self) -> str:
        """Return the HTML of the page's body, as a notebook shows it."""
        head = "".join(f"<th>{_safe(text)}</th>" for text in self.headings)
        body = "".join(
            f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>"
            for line in ([_strong(cell, _safe(cell), "<b>{}</b>") for cell in line] for line in self.lines)
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>\n" if self.lines else ""
        above, notes = ("".join(f"<p>{_safe(text)}</p>\n" for text in of) for of in (self.above, self.notes))
        items = "".join(f"<li>{_safe(text)}</li>" for text in self.items)
        return above + table + notes + (f"<ul>{items}</ul>" if items else "")


def _safe(text: str) -> str:
    return escape(one_line(text))


def _tex_cell(text: str) -> str:
    parts = [ARROWS.get(part) or latex_escaped(part) for part in re.split(f"([{''.join(ARROWS)}])", text)]
    return _strong(text, " ".join(filter(None, parts)), r"\textbf{{{}}}")


def _strong(cell: str, text: str, form: str) -> str:
    return form.format(text) if isinstance(cell, Bold) else text
