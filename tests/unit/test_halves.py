"""What a program leaves that is killed while it writes, and who removes it."""

import os
import sqlite3
import subprocess
import sys

import pytest

from hierbench.database import make_database
from hierbench.files import remove_abandoned, temporary_beside, write_text

KILLED = """
import os, sys
from pathlib import Path
from hierbench.files import write_atomically
write_atomically(Path(sys.argv[1]), lambda file: (file.write(b"half"), file.flush(), os.kill(os.getpid(), 9)))
"""


def test_the_next_who_writes_a_file_removes_what_was_half_written_of_it(tmp_path):
    for name in ("table.md", "other.md"):
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)])
    halves = sorted(path.name for path in tmp_path.iterdir())
    assert len(halves) == 2 and all(name.endswith(".tmp") for name in halves)
    living = temporary_beside(tmp_path / "table.md")
    elsewhere = living.with_name(halves[1].replace(living.name.split(".")[-3], "0123abcd"))
    for path in (living, elsewhere, tmp_path / ".tmp", tmp_path / "table.md.1.2.tmp"):
        path.touch()
    write_text(tmp_path / "table.md", "whole")
    kept = {"table.md", halves[0], living.name, elsewhere.name, ".tmp", "table.md.1.2.tmp"}
    assert set(os.listdir(tmp_path)) == kept  # of living processes, of other machines and of other files
    remove_abandoned(tmp_path)
    assert set(os.listdir(tmp_path)) == kept - {halves[0]}


def test_a_database_is_there_when_it_is_whole(tmp_path):
    """Its tables are made one after the other; a library finds half of them and can not go on."""
    final, asked = tmp_path / "a.db", []

    def make(uri, fail=False):
        asked.append(uri)
        database = sqlite3.connect(uri.removeprefix("sqlite:///"))
        database.execute("create table first (x)")
        assert not final.exists()
        database.close()
        if fail:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        make_database(f"sqlite:///{final}", lambda uri: make(uri, fail=True))
    assert list(tmp_path.iterdir()) == []
    make_database(f"sqlite:///{final}", make)
    assert list(tmp_path.iterdir()) == [final]
    for uri in (f"sqlite:///{final}", "sqlite://", "sqlite:///:memory:", "http://server", "postgresql://server/db"):
        make_database(uri, make)
    assert len(asked) == 2


def test_a_search_that_is_killed_while_its_database_is_made_begins_again(tmp_path):
    code = """
import os, sys, threading
from hierbench.search import Search, Space
def killer(event, arguments):
    if event == "os.rename" and "optuna" in str(arguments[1]):
        os.kill(os.getpid(), 9)
sys.addaudithook(killer)
Search(sys.argv[1], "s", Space({"alpha": (0.3,)}, {}, 1), "grid")
"""
    from hierbench.search import Search, Space

    storage = f"sqlite:///{tmp_path}/optuna.db"
    assert subprocess.run([sys.executable, "-c", code, storage]).returncode == -9
    assert not (tmp_path / "optuna.db").exists() and len(os.listdir(tmp_path)) == 1
    assert Search(storage, "s", Space({"alpha": (0.3,)}, {}, 1), "grid").next().params == {"alpha": 0.3}
    assert os.listdir(tmp_path) == ["optuna.db"]
