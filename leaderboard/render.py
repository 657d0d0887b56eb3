"""Tables in markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from hierbench.leaderboard.statistics import METRICS, Cell, Row
from hierbench.utils.files import as_json_text
from hierbench.utils.text import markdown_escaped, one_line

if TYPE_CHECKING:
    from jinja2 import Template

    from hierbench.leaderboard.board import Board

TITLES = {
    "top1": ("Top-1 accuracy", "up"),
    "mistake_severity": ("Mistake severity", "down"),
    "hierdist@1": ("HierDist@1", "down"),
    "hierdist@5": ("HierDist@5", "down"),
    "hierdist@20": ("HierDist@20", "down"),
}
LAST_LATIN = "\u0180"  # what TeX's standard fonts have, but for these
NOT_IN_TEX = frozenset("«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ")
ARROWS = {"up": "↑", "down": "↓"}


def shown_metrics(board: Board) -> list[str]:
    """Return the metrics that at least one row has, in the paper's order."""
    return [metric for metric in METRICS if any(metric in row.metrics for row in board.rows)]


def ordered_rows(board: Board) -> list[Row]:
    """Return the rows as the paper has them: type I before type II, methods by name within."""
    return sorted(board.rows, key=lambda row: (row.type, row.method))


def number(cell: Cell | None) -> str:
    """Return "mean +/- half-width" with the paper's digits, "-" where there is nothing."""
    if cell is None or cell.mean is None:
        return "-"
    width = "-" if cell.ci95 is None else f"{cell.ci95:.4f}"
    return f"{cell.mean:.2f} +/- {width}"


def seeds(row: Row) -> str:
    """Return how many of the planned runs there are."""
    return f"{row.n} of {row.planned}" if row.n < row.planned else str(row.n)


def markdown(board: Board) -> str:
    """Return a markdown table: competitive rows marked with *, best cells bold."""
    from tabulate import tabulate

    metrics, tuned = shown_metrics(board), any(row.tuning for row in board.rows)
    lines = []
    for row in ordered_rows(board):
        cells = [row.metrics.get(metric) for metric in metrics]
        texts = [f"**{number(cell)}**" if cell and cell.best else number(cell) for cell in cells]
        title = markdown_escaped(row.title) + (" *" if row.competitive else "")
        lines.append([row.type, title, *texts, seeds(row), *([_budget(row)] if tuned else [])])
    table = tabulate(lines, _headers(metrics, tuned=tuned), tablefmt="pipe", disable_numparse=True)
    return f"{table}\n\n{legend(board)}\n"


def html(board: Board) -> str:
    """Return the same as an HTML table for a notebook; whatever stands in the data is shown and nothing of it acts."""
    metrics, tuned = shown_metrics(board), any(row.tuning for row in board.rows)
    lines = []
    for row in ordered_rows(board):
        cells = [row.metrics.get(metric) for metric in metrics]
        texts = [f"<b>{number(cell)}</b>" if cell and cell.best else number(cell) for cell in cells]
        title = escape(one_line(row.title)) + (" *" if row.competitive else "")
        lines.append([escape(row.type), title, *texts, seeds(row), *([escape(_budget(row))] if tuned else [])])
    table = "".join(f"<tr>{''.join(f'<td>{text}</td>' for text in line)}</tr>" for line in lines)
    head = "".join(f"<th>{escape(text)}</th>" for text in _headers(metrics, tuned=tuned))
    about = f"{one_line(board.dataset)}, protocol {board.protocol}, distance {board.distance}. {board.remark}"
    return f"<table><caption>{escape(about)}</caption><thead><tr>{head}</tr></thead><tbody>{table}</tbody></table>"


def _headers(metrics: Sequence[str], *, tuned: bool) -> list[str]:
    names = [f"{TITLES[metric][0]} {ARROWS[TITLES[metric][1]]}" for metric in metrics]
    return ["Model", "Method", *names, "Runs", *(["Tuning"] if tuned else [])]


def _budget(row: Row) -> str:
    return f"{row.tuning['trials']} x {row.tuning['runs']}" if row.tuning else "-"


def legend(board: Board) -> str:
    """Return the line that explains the marks."""
    remark = f"\nSettings: {markdown_escaped(board.remark)}." if board.remark else ""
    if any(row.tuning for row in board.rows):
        remark = f" Tuning: configurations tried on validation data x runs of each.{remark}"
    return (
        f"{markdown_escaped(board.dataset)}, protocol {board.protocol}, distance {board.distance}. Mean +/- half-width "
        "of the 95% t-interval over runs.\n"
        "\\* competitive: mistake severity at most 0.05 above the smallest. **Bold**: best of the competitive."
        f"{remark}"
    )


def as_csv(board: Board) -> str:
    """Return CSV with numbers at full precision; a metric's columns are its mean and its half-width."""
    metrics = shown_metrics(board)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [name for metric in metrics for name in (metric, f"{metric} ci95", f"{metric} best")]
    writer.writerow(["type", "method", "title", "n", "planned", "competitive", *columns])
    for row in ordered_rows(board):
        cells = [row.metrics.get(metric, Cell(None, None)) for metric in metrics]
        values = [value for cell in cells for value in (cell.mean, cell.ci95, int(cell.best))]
        names = [row.type, one_line(row.method), one_line(row.title)]
        writer.writerow([*names, row.n, row.planned, int(row.competitive), *values])
    return text.getvalue()


def as_json(board: Board) -> str:
    """Return leaderboard.json; NaN becomes null."""
    return as_json_text(replace(board, rows=ordered_rows(board)).as_json())


def latex_escaped(text: str) -> str:
    """Return one line of text that TeX prints as it stands, a question mark for what its standard fonts lack."""
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


@cache
def tex_template(name: str) -> Template:
    """Return a template of this folder: << >>, <% %> and <# #>, so that TeX's own braces stay as they are."""
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
    return environment.from_string((resources.files("hierbench.leaderboard") / name).read_text(encoding="utf-8"))


def latex(board: Board) -> str:
    """Return a LaTeX document with the table in the paper's look; the table alone stands between two marked lines."""
    rows = ordered_rows(board)
    groups = [(kind, [row for row in rows if row.type == kind]) for kind in dict.fromkeys(row.type for row in rows)]
    return tex_template("table.tex.j2").render(
        board=board,
        groups=groups,
        metrics=shown_metrics(board),
        titles=TITLES,
        arrows={"up": r"$\uparrow$", "down": r"$\downarrow$"},
        number=number,
        seeds=seeds,
    )


FORMATS: dict[str, Callable[[Board], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
    "json": as_json,
}
