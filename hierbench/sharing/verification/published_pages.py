"""The pages of a published table, compared with new renderings of its records."""

import math
import os
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.settings import OF_RECIPE
from hierbench.leaderboard.tables.board_table import TYPICAL_WIDTHS
from hierbench.runs.findings import ConsistencyCheck
from hierbench.sharing.publication_folder import PAGES, SUFFIXES
from hierbench.sharing.table_page import table_page
from hierbench.utils.files import read_text

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
CONTEXT = 30  # characters around a number that differs
# What a page says of the place where it was written: elsewhere more may have been found, or another recipe is known.
OF_PLACE = re.compile(
    rf"Evidence: \d+ runs? [a-z ]+(?:[;,] \d+ [a-z ]+)*\.|; (?:{OF_RECIPE}|the recipe plans )(?:[^;.\n]|\.(?=\S))*"
)
CLOSE = 1e-9  # relative, of means and intervals: another machine may add in another order


def compare_pages(path: Path, board: Board, finding: ConsistencyCheck) -> None:
    """Write each page beside a table again: another number, anywhere in it, is a rejection, other words are a note."""
    for format in PAGES:
        page = path.with_suffix(SUFFIXES[format])
        if not os.path.lexists(page):
            if format == "markdown":
                finding.note(f"{page.name} is missing")
            continue
        text = _read_text(page)
        made = table_page(board, path.parent) if format == "markdown" else render(board.table, format)
        if text == made:
            continue
        if TYPICAL_WIDTHS not in made:  # no predictions are here, from which the line follows
            text = re.sub(rf"^.*{TYPICAL_WIDTHS}.*$", "", text, flags=re.MULTILINE)
        difference = first_other_number(OF_PLACE.sub("", text), OF_PLACE.sub("", made))
        if not difference:
            finding.note(f"{page.name} has the numbers that the records give; its words were not checked")
        elif board.records.notes:  # of requests that are ignored, which have the budgets
            finding.note(f"{page.name} has other numbers, and requests cannot be read: {difference}")
        else:
            finding.reject(f"{page.name}: {difference}")


def first_other_number(text: str, made: str) -> str:
    """Return the first place where the numbers of a page, in their order, are not those of another, or ""."""
    pairs = zip_longest(NUMBER.finditer(text), NUMBER.finditer(made))
    for match, expected in pairs:
        if match is None or expected is None or not is_same(float(match[0]), float(expected[0])):
            near = "its end" if match is None else repr(_around(text, match.start()))
            return f"near {near} the records give {'nothing' if expected is None else expected[0]}"
    return ""


def _around(text: str, place: int) -> str:
    return " ".join(text[max(0, place - CONTEXT) : place + CONTEXT].split())


def _read_text(page: Path) -> str:
    """Return a page, "" where it cannot be read."""
    try:
        return read_text(page)
    except (OSError, ValueError):
        return ""


def is_same(value: Any, right: Any) -> bool:
    """Whether two values of a table are equal, numbers up to their rounding."""
    if isinstance(value, list) and isinstance(right, list):
        return len(value) == len(right) and all(map(is_same, value, right))
    if all(isinstance(number, int | float) and not isinstance(number, bool) for number in (value, right)):
        return math.isclose(value, right, rel_tol=CLOSE, abs_tol=CLOSE)
    return bool(value == right)
