"""SQLite databases that libraries create and write.

A library creates a database table by table, and a kill in between must not leave half of it.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from hierbench.utils.files import replacing

PREFIX = "sqlite:///"


def make_database(uri: str, make: Callable[[str], object]) -> None:
    """Let a library create a SQLite database under a temporary name, and rename it when complete.

    Does nothing if the database exists or `uri` is not a SQLite file. Only one process may call it at a time. `make`
    gets the URI of a new file, creates the tables and leaves no transaction open.
    """
    path = Path(uri.removeprefix(PREFIX))
    if not uri.startswith(PREFIX) or path.name in ("", ":memory:") or path.exists():
        return
    with replacing(path) as temporary:
        make(f"{PREFIX}{temporary}")


def keep_artifacts(path: Path, experiment: str, location: str) -> None:
    """Make an MLflow database keep an experiment's artifacts at a `file:` URI, even after it was moved.

    MLflow has no call for this; without it, artifacts would go where the folder was before.
    """
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        where = "select experiment_id, artifact_location from experiments where name = ? and artifact_location != ?"
        for number, before in database.execute(where, (experiment, location)).fetchall():
            database.execute("update experiments set artifact_location = ? where experiment_id = ?", (location, number))
            moved = "update runs set artifact_uri = ? || substr(artifact_uri, ?) where experiment_id = ? "
            moved += "and substr(artifact_uri, 1, ?) = ?"
            length = len(before) + 1
            database.execute(moved, (location, length, number, length, f"{before}/"))
