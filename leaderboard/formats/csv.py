"""The records of a table as CSV."""

import csv
import io
from typing import Any

from hierbench.leaderboard.table import Table

FORMULA = ("=", "+", "-", "@")  # beginnings of a cell that a spreadsheet computes


def render(table: Table) -> str:
    """Return the records with their keys as header, numbers at full precision, nothing for None."""
    records = table.as_records()
    text = io.StringIO()
    names = list(dict.fromkeys(name for record in records for name in record))
    names = names or [*table.keys] or [column.rstrip(" ↑↓") for column in table.columns]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _disarm_formula(value) for name, value in record.items()} for record in records)
    return text.getvalue()


def _disarm_formula(value: Any) -> Any:
    """Return a value that no spreadsheet computes: an apostrophe stands before text that begins like a formula."""
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
