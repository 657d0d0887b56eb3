"""The .csv and .tex beside a published table, against the table that its records give."""

import csv
import io
import math
import os
import re
from pathlib import Path

from hierbench.experiments.verification.findings import Finding
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.render import as_csv, latex
from hierbench.utils.files import read_text

CLOSE = 1e-9  # relative, of means and intervals: another machine may add in another order
BETWEEN = re.compile(r"[\s,;]+")  # statements of a caption may come in any order


def compare_copies(path: Path, board: Board, finding: Finding, *, same_text: bool, all_columns: bool) -> None:
    """Reject a table whose .csv or .tex, where there is one, says something else than its records.

    Args:
        path: of the table's .json.
        board: that the records give, with the evidence that the table claims.
        finding: of the table.
        same_text: whether the text below the .md is all the records', so that the caption of the .tex must be it too.
        all_columns: whether the board has the values of all columns; those that it lacks are not compared.
    """
    if os.path.lexists(place := path.with_suffix(".csv")):
        if difference := _difference(read_text(place), as_csv(board), all_columns=all_columns):
            finding.reject(f"the .csv: {difference}")
    if all_columns and os.path.lexists(place := path.with_suffix(".tex")):
        (given, caption), (made, its_caption) = (_split(text) for text in (read_text(place), latex(board)))
        lines = zip(given, [*made, *[""] * len(given)], strict=False)
        odd = next((number for number, (line, own) in enumerate(lines, 1) if line != own), None)
        if odd is not None or len(given) != len(made):
            where = "it lacks lines" if odd is None else f"{given[odd - 1].strip()!r}"
            finding.reject(f"the .tex is not what the records give: {where}")
        elif same_text and caption != its_caption:
            finding.reject("the caption of the .tex is not what the records give")
        elif not same_text:
            finding.note("the caption of the .tex is not compared, as the text below the .md differs")


def _difference(given: str, made: str, *, all_columns: bool) -> str:
    """Return the first place where two .csv differ, "" if none."""
    (heads, *rows), (own_heads, *own_rows) = (list(csv.reader(io.StringIO(text))) for text in (given, made))
    if not all_columns:
        heads, rows = _of_columns(heads, rows, own_heads)
    if heads != own_heads or len(rows) != len(own_rows):
        return "its columns or rows are not those that the records give"
    for row, own in zip(rows, own_rows, strict=True):
        if len(row) != len(heads):
            return f"the row {' '.join(row[:2])} has {len(row)} values"
        for name, value, right in zip(heads, row, own, strict=True):
            if value != right and not _close(value, right):
                return f"{name} of {' '.join(own[:2])} is {value!r}, the records give {right!r}"
    return ""


def _of_columns(heads: list[str], rows: list[list[str]], names: list[str]) -> tuple[list[str], list[list[str]]]:
    places = [place for place, name in enumerate(heads) if name in names]
    return [heads[place] for place in places], [[row[place] for place in places] for row in rows]


def _close(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=CLOSE, abs_tol=CLOSE)
    except ValueError:
        return False


def _split(text: str) -> tuple[list[str], list[str]]:
    r"""Return the lines of a .tex without its caption, and the words of that in order of the alphabet."""
    before, start, rest = text.partition(r"\caption{")
    caption, end, after = rest.partition("\\end{table*}")
    return [*before.split("\n"), start, end, *after.split("\n")], sorted(BETWEEN.split(caption.replace(".", " ")))
