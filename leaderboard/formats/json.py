"""A table as JSON."""

from hierbench.leaderboard.table import Table
from hierbench.utils.files import as_json_text


def render(table: Table) -> str:
    """Return the content of the table; NaN becomes null."""
    content = {"rows": table.as_records()} if table.content is None else table.content
    return as_json_text({"schema": 1, **content})
