"""HTML: a page, a part of one, and the output of a notebook cell; any markup in the data is escaped."""

from __future__ import annotations

from html import escape
from importlib import resources

from markupsafe import Markup

from hierbench.leaderboard.table import COMPARISON_ARROWS, Cell, Flag, Interval, Line, Number, Table, Text
from hierbench.utils.text import one_line


def render(table: Table) -> str:
    """Return a page of HTML that stands on its own and can be read on a telephone."""
    from jinja2 import Environment, PackageLoader

    pages = Environment(loader=PackageLoader(__package__, ""), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    parts = {"style": Markup(style()), "table": Markup(fragment(table))}
    return pages.get_template("page.html.j2").render(title=one_line(table.title), **parts) + "\n"


def notebook(table: Table) -> str:
    """Return the HTML that a notebook shows."""
    return f'<div class="hierbench">\n<style>\n{style()}</style>\n{fragment(table)}</div>\n'


def style() -> str:
    """Return the style sheet of tables, which the site has too."""
    return (resources.files("hierbench.leaderboard.formats") / "table.css").read_text(encoding="utf-8")


def fragment(table: Table, name: str = "Table") -> str:
    """Return a table with its sentences as a part of a page, called `name` for readers that cannot see it.

    Any markup in the data is escaped.
    """
    numeric = table.numeric
    heads = "".join(_head(text, number) for text, number in zip(table.columns, numeric, strict=True))
    rows = "\n".join(_html_row(line, table.merged) for line in table.rows)
    grid = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_safe(name)}">'
        f'<table class="board sortable" aria-label="{_safe(name)}">\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>\n"
    )
    star = f'<span class="star">★</span> {_safe(table.star)}. ' if table.star else ""
    bold = f"<b>Bold</b>: {_safe(table.bold)}. " if table.bold else ""
    bold += f"<u>Underlined</u>: {_safe(table.underline)}. " if table.underline else ""
    arrows = (
        f"{COMPARISON_ARROWS['better']} better, {COMPARISON_ARROWS['worse']} {_safe(table.arrows)}. "
        if table.arrows
        else ""
    )
    width = any(isinstance(cell, Interval) and cell.ci95 is not None for line in table.rows for cell in line.cells)
    marks = star + bold + arrows + ("±: half the width of the 95% interval." if width else "")
    parts = [*([marks] if marks else []), *map(_safe, table.notes)]
    legend = "".join(f"<p>{text}</p>\n" for text in parts)
    items = "".join(f"<li>{_safe(text)}</li>\n" for text in table.items)
    above = "".join(f"<p>{_safe(text)}</p>\n" for text in table.above)
    below = f'<div class="legend">\n{legend}</div>\n' if legend else ""
    return above + (grid if table.rows else "") + below + (f"<ul>\n{items}</ul>\n" if items else "")


def _safe(text: str) -> str:
    return escape(one_line(text))


def _head(text: str, number: bool) -> str:
    kind = ' class="n" data-sort="number"' if number else ' data-sort="text"'
    first = ' data-first="descending"' if text.endswith("↑") else ""
    return f'<th scope="col"{kind}{first}>{_safe(text).replace(" ↑", "&#160;↑").replace(" ↓", "&#160;↓")}</th>'


def _html_row(line: Line, head: int) -> str:
    """Return a row with cell `head` as its heading."""
    kind = line.kind or ("on" if line.starred else "")
    tags = f' class="{kind}"' if kind else ""
    cells = "".join(_html_cell(cell, place == head) for place, cell in enumerate(line.cells))
    return f"<tr{tags}>{cells}</tr>"


def _html_cell(cell: Cell, heads_row: bool) -> str:
    if isinstance(cell, Flag):
        return f'<td><span class="verdict {cell.kind}">{_safe(cell.text)}</span></td>' if cell.text else "<td></td>"
    small = f"<small><bdi>{_safe(cell.small)}</bdi></small>" if cell.small else ""
    if isinstance(cell, Text):
        star = ' <span class="star" title="competitive">★<span class="unseen"> competitive</span></span>'
        inner = f"{_link(cell.text, cell.link)}{star if cell.star else ''}{small}"
        return f'<th scope="row">{inner}</th>' if heads_row else f"<td>{inner}</td>"
    if isinstance(cell, Number):
        number = str(cell)
        return f'<td class="n">{"–" if number == "-" else number.replace("-", "−")}{small}</td>'
    if cell.mean is None:
        return f'<td class="n">–{small}</td>'
    mean = cell.printed_mean
    tag = "b" if cell.strong else "u" if cell.underlined else "span"
    shown = f"<{tag}>{mean}</{tag}>"
    width = "" if cell.ci95 is None and cell.bounds is None else f" <small>{cell.spread('±&#8239;')}</small>"
    arrow = ""
    if cell.versus:
        sign = f'{COMPARISON_ARROWS[cell.versus]}<span class="unseen"> {cell.versus}</span>'
        arrow = f' <small class="{cell.versus}">{sign}</small>'
    return f'<td class="n">{shown.replace("-", "−")}{width}{arrow}{small}</td>'


def _link(text: str, link: str) -> str:
    shown = f"<bdi>{_safe(text)}</bdi>"
    return f'<a href="{escape(link)}">{shown}</a>' if link else shown
