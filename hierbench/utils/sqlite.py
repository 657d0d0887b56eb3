"""SQLite databases that libraries make and write: whole or not at all, and never one in another place.

A library makes a database table by table, which a kill in the middle must not leave half-done. A database may have come
with a folder from elsewhere: it must not be a link out of the folder, nor say that files belong elsewhere.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from hierbench.utils.files import JOURNALS, LinkError, refuse_links, replacing

PREFIX = "sqlite:///"


def make_database(uri: str, make: Callable[[str], object]) -> None:
    """Let a library make a SQLite database under a temporary name, and rename it when it is whole.

    Does nothing where the database exists or is no SQLite file. Only one process may call it at a time.

    Args:
        uri: `sqlite:///` and a path, or of another kind.
        make: called with the address of a new file; makes the tables in it, and leaves no transaction open.

    Raises:
        OSError: the folder can not be written. What `make` raises is passed on.
    """
    path = Path(uri.removeprefix(PREFIX))
    if not uri.startswith(PREFIX) or path.name in ("", ":memory:") or path.exists():
        return
    with replacing(path) as temporary:
        make(f"{PREFIX}{temporary}")


def refuse_shared(path: Path) -> None:
    """Raise a LinkError where a database or one of its journals is a link, symbolic or hard: SQLite writes in place."""
    for suffix in ("", *JOURNALS):
        name = refuse_links(path.parent, path.name + suffix)
        if name.is_file() and name.stat().st_nlink > 1:
            raise LinkError(f"{name} has a second name elsewhere (a hard link); replace it by a copy")


def keep_artifacts(path: Path, experiment: str, location: str) -> None:
    """Let an MLflow database keep an experiment's artifacts beside it, also if it was moved or came from elsewhere.

    MLflow has no call for this; without it, artifacts would go to where the database says, anywhere on this machine.

    Args:
        path: of the SQLite file.
        experiment: its name.
        location: `file:` address of the folder.
    """
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        where = "select experiment_id, artifact_location from experiments where name = ? and artifact_location != ?"
        for number, before in database.execute(where, (experiment, location)).fetchall():
            database.execute("update experiments set artifact_location = ? where experiment_id = ?", (location, number))
            database.execute(
                "update runs set artifact_uri = ? || substr(artifact_uri, ?) "
                "where experiment_id = ? and substr(artifact_uri, 1, ?) = ?",
                (location, len(before) + 1, number, len(before) + 1, f"{before}/"),
            )
