"""SQLite databases that are made by a library: table by table, which a kill in the middle must not leave half-done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hierbench.files import remove_abandoned, sync_folder, temporary_beside

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
    remove_abandoned(path.parent, path.name)
    temporary = temporary_beside(path)
    try:
        make(f"{PREFIX}{temporary}")
        temporary.replace(path)
    finally:
        for left in path.parent.glob(f"{temporary.name}*"):
            left.unlink()
    sync_folder(path.parent)
