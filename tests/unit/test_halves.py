"""What a program leaves that is killed while it writes, and who removes it."""

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hierbench.runs.store import Store
from hierbench.utils.files import make_database, remove_abandoned, temporary_beside, write_text
from hierbench.utils.processes import process_is_gone

KILLED = """
import os, sys
from pathlib import Path
from hierbench.utils.files import write_atomically
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
    """Its tables are made one after the other; a library finds half of them and cannot go on."""
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
from pathlib import Path
from hierbench.experiments.tuning.study import Record
def killer(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("optuna.db"):  # not the bytecode of the library
        os.kill(os.getpid(), 9)
sys.addaudithook(killer)
Record(sys.argv[1], "s", Path(sys.argv[2]))
"""
    from hierbench.experiments.tuning.study import Record

    storage = f"sqlite:///{tmp_path}/optuna.db"
    assert subprocess.run([sys.executable, "-c", code, storage, tmp_path]).returncode == -9
    left = os.listdir(tmp_path)
    assert not (tmp_path / "optuna.db").exists() and len(left) == 2 and sum(".study" in name for name in left) == 1
    assert Record(storage, "s", tmp_path).trials() == []
    assert os.listdir(tmp_path) == ["optuna.db"]


def left_by(pid, path):
    """Name a temporary file of a process."""
    name = temporary_beside(path).name.split(".")
    name[-2] = str(pid)
    (path.parent / ".".join(name)).touch()
    return path.parent / ".".join(name)


def test_a_zombie_has_left_what_it_did_not_finish(tmp_path):
    zombie = os.fork()
    if not zombie:
        os._exit(0)
    try:
        while Path(f"/proc/{zombie}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        left = left_by(zombie, tmp_path / "lock")
        assert process_is_gone(str(zombie)) and not process_is_gone(str(os.getpid()))
        remove_abandoned(tmp_path)
        assert not left.exists()
    finally:
        os.waitpid(zombie, 0)


def test_what_killed_commands_left_in_finished_folders_and_at_the_top_is_removed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    store = Store(tmp_path)
    run = store.run("a" * 64)
    run.plan({"a": 1})
    left = [left_by(gone.pid, place) for place in (run.folder / "lock", tmp_path / "probe", tmp_path / "table.md")]
    store.writable()
    store.ask_for(["a" * 64])
    assert not any(path.exists() for path in left)
    assert sorted(os.listdir(run.folder)) == ["spec.json", "status.json"] and os.listdir(tmp_path) == ["a" * 64]


def test_a_killed_look_whether_runs_can_be_written_leaves_what_the_next_removes(tmp_path):
    code = """
import os, sys
from pathlib import Path
from hierbench.runs.store import Store
def killer(event, arguments):
    if event == "os.remove" and "probe" in str(arguments[0]):
        os.kill(os.getpid(), 9)
sys.addaudithook(killer)
Store(Path(sys.argv[1])).writable()
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    assert len(os.listdir(tmp_path)) == 1
    Store(tmp_path).ask_for([])
    assert os.listdir(tmp_path) == []
