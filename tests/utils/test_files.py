"""Partial files of killed programs, and their removal."""

import os
import subprocess
import sys
import time
from pathlib import Path

from hierbench.runs.store import Store
from hierbench.utils.files import remove_abandoned, temporary_beside, write_text

KILLED = """
import os, sys
from pathlib import Path
from hierbench.utils.files import write_atomically
write_atomically(Path(sys.argv[1]), lambda file: (file.write(b"half"), file.flush(), os.kill(os.getpid(), 9)))
"""


def test_the_next_writer_of_a_file_removes_its_partial_copies(tmp_path):
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


SEARCH = """
import os, sys
from pathlib import Path
from hierbench.studies.tuning.trial_record import TrialRecord
def killer(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("optuna.db"):  # not the bytecode of the library
        os.kill(os.getpid(), 9)
sys.addaudithook(killer)
TrialRecord(sys.argv[1], "s", Path.cwd())
"""


def test_a_search_that_is_killed_while_its_database_is_made_begins_again(cli, tmp_path):
    from hierbench.studies.tuning.trial_record import TrialRecord

    storage = f"sqlite:///{tmp_path}/optuna.db"
    assert cli.start(tmp_path, storage, python=("-c", SEARCH)).finish().code == -9
    names = os.listdir(tmp_path)
    assert not (tmp_path / "optuna.db").exists() and len(names) == 2 and sum(".study" in name for name in names) == 1
    assert TrialRecord(storage, "s", tmp_path).trials() == []
    assert os.listdir(tmp_path) == ["optuna.db"]


def test_files_of_killed_commands_are_removed(tmp_path):
    run = Store(tmp_path).run("a" * 64)
    run.plan({"a": 1})
    zombie, paths = subprocess.Popen([sys.executable, "-c", ""]), []
    while Path(f"/proc/{zombie.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    for path in (run.folder / "lock", tmp_path / "probe", tmp_path / "table.md"):
        *name, _, suffix = temporary_beside(path).name.split(".")
        paths.append(path.with_name(".".join([*name, str(zombie.pid), suffix])))
        paths[-1].touch()
    Store(tmp_path).check_writable()
    Store(tmp_path).tidy(["a" * 64])
    zombie.wait()
    assert not any(path.exists() for path in paths)
    assert sorted(os.listdir(run.folder)) == ["spec.json", "status.json"] and os.listdir(tmp_path) == ["a" * 64]
