"""How a command ends that prints a table."""

from collections.abc import Sequence
from typing import NamedTuple

from hierbench.leaderboard.table import Table


class Shown(NamedTuple):
    """A table, if there is one, lines for standard error after it, and the exit code."""

    table: Table | None
    said: Sequence[str] = ()
    code: int = 0
