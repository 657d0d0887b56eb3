"""The pages of a published table, compared with new renderings of its records."""

import csv
import math
import os
import re
from pathlib import Path
from typing import Any

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import Format, render
from hierbench.leaderboard.settings import OF_RECIPE
from hierbench.runs.findings import ConsistencyCheck
from hierbench.sharing.publication_folder import PAGES, SUFFIXES
from hierbench.sharing.table_page import table_page
from hierbench.utils.files import read_text

MARKUP = re.compile(
    r"<[^>]*>|\{[a-z]+!\d+\}|\{\d+\}\{\*\}|\\[a-zA-Z]+|[^\w.+-]"
)  # of HTML, and of LaTeX with its colours
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
CLOSE = 1e-9  # relative, of means and intervals: another machine may add in another order


def compare_pages(path: Path, board: Board, finding: ConsistencyCheck) -> None:
    """Render each page beside a table again: another number is a rejection, another layout a note."""
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
        numbers = numbers_by_cell(text, format)
        expected = {
            cell: values
            for cell, values in numbers_by_cell(made, format).items()
            if cell in numbers and (cell[2] != "Tuning" or not board.records.notes)
        }
        differences = [
            f"{model} {method}, {title} is {' +/- '.join(numbers[model, method, title])}, the records give "
            f"{' +/- '.join(values)}"
            for (model, method, title), values in expected.items()
            if not is_same([*map(float, numbers[model, method, title])], [*map(float, values)])
        ]
        settings = _settings_in(made)
        untrue = [
            setting for setting in _settings_in(text) if setting not in settings and not setting.startswith(OF_RECIPE)
        ]
        if differences:
            finding.reject(f"{page.name}: {differences[0]}")
        elif untrue:
            finding.note(f"{page.name} says other settings than the records: {'; '.join(untrue)}")
        else:
            finding.note(f"{page.name} is not what this version writes of these records; the .json is")


def numbers_by_cell(page: str, format: Format) -> dict[tuple[str, str, str], list[str]]:
    """Return the numbers in the cells of a page's tables, by the row's first two texts and the column's heading."""
    if format == "csv":
        lines = [row for row in csv.reader(page.splitlines()) if row]
    elif format == "latex":
        lines = [re.split(r"(?<!\\)&", line.split("\\\\")[0]) for line in page.splitlines() if "&" in line]
    else:
        lines = [
            line.strip().strip("|").split("|")
            for line in page.splitlines()
            if line.startswith("|") and not line.startswith("|:")
        ]
    numbers: dict[tuple[str, str, str], list[str]] = {}
    heading = list[str]()
    model = ""
    for line in lines:
        cells = [" ".join(MARKUP.sub(" ", cell).split()) for cell in line]
        if len(cells) != len(heading) or not any(map(NUMBER.search, cells[2:])):
            heading = cells
            continue
        model = cells[0] or model
        for title, cell in zip(heading[2:], cells[2:], strict=True):
            numbers[model, cells[1], title] = NUMBER.findall(cell)
    return numbers


def _settings_in(text: str) -> list[str]:
    """Return the parts of the sentence of a page that says how its runs were trained."""
    match = re.search(r"Settings: (.*?)\.?(?= Evidence: |$)", text, re.MULTILINE)
    return match[1].split("; ") if match else []


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
