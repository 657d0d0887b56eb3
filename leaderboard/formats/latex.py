"""LaTeX, in the look of the paper's tables, to be input in a document."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from hierbench.leaderboard.formats._text import Style, legend_lines
from hierbench.leaderboard.table import Cell, Flag, Interval, Line, Table
from hierbench.utils.text import one_line

LATEX_MARKS = {"▲": r"$\bigtriangleup$", "▼": r"$\bigtriangledown$"}  # of TeX itself, filled ones need a package
LATEX_ARROWS = {"↑": r"$\uparrow$", "↓": r"$\downarrow$", **LATEX_MARKS}
FLAGS = {"yes": r"\cellcolor{green!15} \cmark", "no": r"\cellcolor{red!15} \xmark"}
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: "\\" + char for char in "&%$#_{}"},
}
LAST_LATIN = "\u0180"  # TeX's standard fonts have the characters before it, except these
NOT_IN_TEX = frozenset("«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ")


def render(table: Table) -> str:
    r"""Return the table for `\input`; a comment names the packages that it needs."""
    style = Style(latex_escaped, underlined=r"\underline{{{}}}", arrow=r"\textsuperscript{{{}}}", star="")
    lines = [
        [
            style.shown(cell) if place < table.merged else _tex_cell(cell, line, style)
            for place, cell in enumerate(line.cells)
        ]
        for line in table.rows
    ]
    merged = [[_span(lines, row, place) for place in range(table.merged)] for row in range(len(lines))]
    notes = list(map(latex_escaped, table.notes))
    light, dark = ("Light: ", "Dark: ") if table.star else ("", "Bold: ")
    return _render(
        table=table,
        heads=list(map(latex_escaped, table.columns)),
        form=_column_forms(table),
        lines=list(zip(lines, merged, strict=True)),
        above=list(map(latex_escaped, table.above)),
        notes=[*notes[:1], *map(latex_escaped, legend_lines(table, light, dark, "Underlined: ")), *notes[1:]],
        items=list(map(latex_escaped, table.items)),
        checked=any(isinstance(cell, Flag) and cell.kind in FLAGS for line in table.rows for cell in line.cells),
    )


def _tex_cell(cell: Cell, line: Line, style: Style) -> str:
    """Return a cell, shaded where its row has a star, darker where it is bold; grey in a row that is not ranked."""
    if isinstance(cell, Flag) and cell.kind in FLAGS:
        return FLAGS[cell.kind]
    text = style.shown(cell)
    strong = isinstance(cell, Interval) and cell.strong
    for arrow, command in LATEX_MARKS.items():
        text = text.replace(arrow, command)
    if strong and not line.starred:
        text = rf"\textbf{{{text}}}"
    shade = rf"\cellcolor{{blue!{35 if strong else 15}}}" if line.starred else ""
    return shade + (r"\color{gray}" if line.kind == "lacking" else "") + text


def _column_forms(table: Table) -> str:
    """Return LaTeX's forms of the columns: text to the left, numbers centred."""
    return "".join("c" if number else "l" for number in table.numeric)


def _span(lines: Sequence[Sequence[str]], row: int, place: int) -> int:
    """Return the number of rows of a merged cell, 0 if an earlier row has printed it."""

    def key(number: int) -> Sequence[str]:
        return lines[number][: place + 1]

    if row and key(row - 1) == key(row):
        return 0
    end = row
    while end < len(lines) and key(end) == key(row):
        end += 1
    return end - row


def latex_escaped(text: str) -> str:
    """Return one line of text that TeX prints literally, with a question mark for characters outside its fonts."""
    special = {
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        **LATEX_ARROWS,
        **dict.fromkeys(NOT_IN_TEX, "?"),
        **SPECIAL,
    }
    escaped = "".join(special.get(char, char if char < LAST_LATIN else "?") for char in one_line(text))
    return escaped.replace("+/-", r"$\pm$")


def _render(**content: object) -> str:
    """Return the filled template; it uses << >>, <% %> and <# #>, because TeX needs the braces."""
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
        autoescape=False,  # TeX, escaped before
    )
    text = (resources.files("hierbench.leaderboard.formats") / "table.tex.j2").read_text(encoding="utf-8")
    return environment.from_string(text).render(content)
