"""Tables in markdown, LaTeX, CSV and JSON, and what all kinds of tables print alike."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

from hierbench.config.sections import PAPER_METHODS
from hierbench.leaderboard.columns import PAPER, PAPER_BY_NAME, Column
from hierbench.leaderboard.letters import MOST_ROWS, compact, listed
from hierbench.leaderboard.statistics import METRICS, Cell, Row, ranked_rows
from hierbench.leaderboard.tex import template
from hierbench.utils.files import as_json_text
from hierbench.utils.text import markdown_escaped, one_line

if TYPE_CHECKING:
    from jinja2 import Template

    from hierbench.leaderboard.board import Board

TITLES = {column.name: (column.title, "up" if column.higher else "down") for column in PAPER}
HEADINGS = {column.name: column.heading for column in PAPER}
TEX_HEADINGS = {metric: rf"{title} $\{better}arrow$" for metric, (title, better) in TITLES.items()}
CITED = (
    "Rows with a number in brackets were printed by other authors, who trained in other settings. They are neither "
    "ranked nor counted as runs; in place of a number of runs it is said what each is the mean of."
)
MARKED = {"claimed": "claimed", "rejected": "not ranked"}  # verdicts that are said beside a row's number of runs


def shown_metrics(rows: Iterable[Row]) -> list[str]:
    """Return the metrics that at least one row has, in the paper's order."""
    known = {metric for row in with_values(list(rows)) for metric in row.metrics}
    return [metric for metric in METRICS if metric in known]


def shown_columns(board: Board) -> list[Column]:
    """Return the board's columns of which at least one row has a cell."""
    rows = with_values(board.rows)
    return [column for column in board.columns if any(column.name in row.metrics for row in rows)]


def with_values(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows that say which metrics a table has: those without a finished run only where there are no others.

    They have an empty cell of every metric, also of HierDist@20 on a tree of fewer classes.
    """
    return [row for row in rows if row.n or row.citation is not None] or rows


def ordered_rows(board: Board) -> list[Row]:
    """Return the rows in the paper's order: type I before type II, its methods before others, by name.

    Scored rows come last, but for those that other authors printed.
    """

    def place(row: Row) -> tuple[bool, bool, str, bool, str]:
        return row.citation is not None, row.scored, row.type, row.method not in PAPER_METHODS, row.method

    return sorted(board.rows, key=place)


def cited_sources(board: Board) -> dict[str, int]:
    """Return the number in brackets of each source that the board's rows cite, from 1 in the order of the table."""
    sources = dict.fromkeys(row.citation["source"] for row in ordered_rows(board) if row.citation)
    return {source: number for number, source in enumerate(sources, 1)}


def mark_of(row: Row, sources: dict[str, int]) -> str:
    """Return what follows the title of a row that other authors printed, "" for other rows."""
    return f" [{sources[row.citation['source']]}]" if row.citation else ""


def citations(board: Board) -> list[str]:
    """Return the lines that say whose numbers the rows with a number in brackets are; none without such rows."""
    sources = cited_sources(board)
    cited = {row.citation["source"]: row.citation for row in board.rows if row.citation}
    lines = [f"[{sources[name]}] {name}; {cited[name]['where']}. {cited[name]['setting']}." for name in sources]
    return [CITED, *lines] if lines else []


def number(cell: Cell | None, best: str = "{}", digits: int = 2) -> str:
    """Return "mean +/- half-width", by default with the paper's digits, in the format `best` if it is; "-" without.

    Of one scored file it is "mean [low, high]".
    """
    if cell is None or cell.mean is None:
        return "-"
    if cell.interval is not None:
        spread = "[{:.{digits}f}, {:.{digits}f}]".format(*cell.interval, digits=digits)
    else:
        spread = f"+/- {'-' if cell.ci95 is None else f'{cell.ci95:.4f}'}"
    text = f"{cell.mean:.{digits}f} {spread}"
    return best.format(text) if cell.best else text


def seeds(row: Row) -> str:
    """Return how many runs are finished, "n of planned" while some are not; for a cited row what its numbers are of."""
    if row.citation is not None:
        return row.citation["sample"]
    number = f"{row.n} of {row.planned}" if row.n < row.planned else str(row.n)
    return f"{number}, {MARKED[row.verdict]}" if row.verdict in MARKED else number


def lacking(row: Row) -> str:
    """Return which seeds of the table a row lacks, "" for a row that has all."""
    if not row.lacking:
        return ""
    return f"lacks seed{'s' if len(row.lacking) > 1 else ''} {listed(row.lacking)}; not ranked"


def pipe_table(lines: Sequence[Sequence[str]], headings: Sequence[str]) -> str:
    """Return a markdown table of escaped texts."""
    from tabulate import tabulate

    return tabulate(lines, headings, tablefmt="pipe", disable_numparse=True)


def csv_text(records: Sequence[dict[str, Any]]) -> str:
    """Return CSV with the keys of the first record as header, floats at full precision, nothing for None."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def metric_columns(row: Row, metrics: Sequence[str], *, groups: bool = False) -> dict[str, Any]:
    """Return a row's CSV columns: of each metric its mean, its half-width, whether it is best, and its tie groups."""
    found: dict[str, Any] = {}
    for metric in metrics:
        cell = row.metrics.get(metric, Cell(None, None))
        found |= {metric: cell.mean, f"{metric} ci95": cell.ci95, f"{metric} best": int(cell.best)}
        if groups:
            found[f"{metric} groups"] = " ".join(cell.groups)
    return found


def _table(board: Board, escaped: Callable[[str], str], best: str, letters: str) -> tuple[list[list[str]], list[str]]:
    """Return lines and headings of a table: competitive rows have a *.

    Args:
        board: the table.
        escaped: makes text from data safe.
        best: the format of the best cells.
        letters: the format of the tie groups, behind the number.
    """
    columns, tuned, sources = shown_columns(board), any(row.tuning for row in board.rows), cited_sources(board)

    def shown(cell: Cell | None, digits: int) -> str:
        return number(cell, best, digits) + (letters.format(compact(cell.groups)) if cell and cell.groups else "")

    lines = []
    for row in ordered_rows(board):
        title = escaped(row.title) + (" *" if row.competitive else mark_of(row, sources))
        title += f" ({lacking(row)})" if row.lacking else ""
        numbers = [shown(row.metrics.get(column.name), column.digits) for column in columns]
        budget = f"{row.tuning['trials']} x {row.tuning['runs']}" if row.tuning else "-"
        lines.append([escaped(row.type), title, *numbers, escaped(seeds(row)), *([escaped(budget)] if tuned else [])])
    heads = [escaped(column.heading) for column in columns]
    return lines, ["Model", "Method", *heads, "Runs", *(["Tuning"] if tuned else [])]


def markdown(board: Board) -> str:
    """Return a markdown table: competitive rows marked with *, best cells bold, then the letters of tie groups."""
    return f"{pipe_table(*_table(board, markdown_escaped, '**{}**', ' {}'))}\n\n{legend(board)}\n"


def html(board: Board) -> str:
    """Return the same as an HTML table for a notebook, unranked rows grey; any markup in the data is escaped."""
    lines, headings = _table(board, lambda text: escape(one_line(text)), "<b>{}</b>", " <sup>{}</sup>")
    grey = [' style="color:#767676"' if row.lacking else "" for row in ordered_rows(board)]
    table = "".join(
        f"<tr{style}>{''.join(f'<td>{text}</td>' for text in line)}</tr>"
        for style, line in zip(grey, lines, strict=True)
    )
    head = "".join(f"<th>{text}</th>" for text in headings)
    about = f"{one_line(board.dataset)}, protocol {board.protocol}, distance {board.distance}. {board.remark}"
    said = [f"Evidence: {board.evidence}."] if board.evidence else []
    about = " ".join(filter(None, [about, meaning_of_letters(board), *said, *citations(board)]))
    return f"<table><caption>{escape(about)}</caption><thead><tr>{head}</tr></thead><tbody>{table}</tbody></table>"


def html_page(board: Board) -> str:
    """Return the HTML table as a page of its own."""
    return page_of(f"{board.dataset}, protocol {board.protocol}", html(board))


def page_of(title: str, fragment: str) -> str:
    """Return a page of HTML that has a title, which is escaped, and a fragment."""
    head = f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>{escape(one_line(title))}</title>'
    return f"{head}\n{fragment}\n</html>\n"


def meaning_of_letters(board: Board) -> str:
    """Return the sentence that explains the letters, "" for a table without."""
    held = [
        sum(bool(row.metrics[column.name].groups) for row in board.rows if column.name in row.metrics)
        for column in shown_columns(board)
    ]
    tests = sum(rows * (rows - 1) // 2 for rows in held)
    if len(board.seeds) > 1 and len(ranked_rows(board.rows)) > MOST_ROWS:
        return f"No letters: they are for tables of at most {MOST_ROWS} ranked rows."
    if not tests:
        return ""
    number = "1 comparison" if tests == 1 else f"all {tests:,} comparisons"
    return (
        "Letters: rows that share none in a column differ significantly there (p below 0.05 after Holm's correction "
        f"over {number} of the table)."
    )


def legend(board: Board) -> str:
    """Return the lines that explain the marks."""
    lines = [
        f"{markdown_escaped(board.dataset)}, protocol {board.protocol}, distance {board.distance}. Mean +/- half-width "
        "of the 95% t-interval over runs.",
        r"\* competitive: mistake severity at most 0.05 above the smallest. **Bold**: best of the competitive.",
    ]
    if any(row.tuning for row in board.rows):
        lines[-1] += " Tuning: configurations tried on validation data x runs of each."
    if letters := meaning_of_letters(board):
        lines.append(letters)
    if units := units_of(board):
        lines.append(markdown_escaped(units))
    if board.remark:
        lines.append(f"Settings: {markdown_escaped(board.remark)}.")
    if board.evidence:
        lines.append(f"Evidence: {board.evidence}.")
    cited = citations(board)
    if cited:
        lines += ["", cited[0], "", *(f"- {markdown_escaped(line)}" for line in cited[1:])]
    return "\n".join(lines)


def units_of(board: Board) -> str:
    """Return a sentence on the units of the columns that are not the paper's, "" where there are none."""
    titles: dict[str, list[str]] = {}
    for column in shown_columns(board):
        if column.name not in PAPER_BY_NAME:
            titles.setdefault(f"in {column.unit}" if column.unit else "between 0 and 1", []).append(column.title)
    parts = [f"{', '.join(of)} {unit}" for unit, of in titles.items()]
    return f"{'; '.join(parts)}." if parts else ""


def as_csv(board: Board) -> str:
    """Return CSV with numbers at full precision.

    A table of runs has the seeds that a row lacks and the tie groups, separated by blanks; one of verified runs a
    column verdict; one with rows of other authors the columns sample and source.
    """
    metrics, cited = [column.name for column in shown_columns(board)], bool(cited_sources(board))
    verified = any(row.verdict for row in board.rows)
    return csv_text(
        [
            {
                "type": row.type,
                "method": one_line(row.method),
                "title": one_line(row.title),
                "n": row.n,
                "planned": row.planned,
                "competitive": int(row.competitive),
                **({"lacking": " ".join(map(str, row.lacking))} if board.seeds else {}),
                **metric_columns(row, metrics, groups=bool(board.seeds)),
                **({name: (row.citation or {}).get(name) for name in ("sample", "source")} if cited else {}),
                **({"verdict": row.verdict} if verified else {}),
            }
            for row in ordered_rows(board)
        ]
    )


def as_json(board: Board) -> str:
    """Return leaderboard.json; NaN becomes null."""
    return as_json_text(replace(board, rows=ordered_rows(board)).as_json())


def tex_template(name: str) -> Template:
    """Return a template of this folder that knows how cells are printed."""
    known = {"headings": TEX_HEADINGS, "number": number, "seeds": seeds, "compact": compact, "lacking": lacking}
    known |= {"marked": MARKED}
    return template(name, known)


def latex(board: Board) -> str:
    """Return a LaTeX document with the table in the paper's look; two comments mark the table itself."""
    rows = ordered_rows(board)
    groups = [(kind, [row for row in rows if row.type == kind]) for kind in dict.fromkeys(row.type for row in rows)]
    sources = cited_sources(board)
    return tex_template("table.tex.j2").render(
        board=board,
        groups=groups,
        columns=shown_columns(board),
        units=units_of(board),
        letters=meaning_of_letters(board),
        mark=lambda row: mark_of(row, sources),
        citations=citations(board),
    )


FORMATS: dict[str, Callable[[Board], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
    "json": as_json,
    "html": html_page,
}
