"""Several `hierbench run` on one folder at once, folders that can not be written, and a server that dies."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

METHOD = '''"""A method that keeps a log of its training steps."""
import os
from hierbench.methods.ce import CrossEntropy

class Logged(CrossEntropy):
    name = title = source = "logged"

    def loss(self, outputs, targets):
        log = os.open(os.environ["STEP_LOG"], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(log, f"{os.getpid()}\\n".encode())
        os.close(log)
        return super().loss(outputs, targets)
'''
STEPS = 10  # an epoch of 960 images in batches of 96


@pytest.fixture
def folder(tmp_path, data_dir):
    shutil.copytree(data_dir, tmp_path / "data")
    (tmp_path / "logged.py").write_text(METHOD)
    return tmp_path


def start(folder, *arguments, seeds, epochs, jobs=1):
    options = ("--methods", "./logged.py", "--dataset", "shapes", "--seeds", str(seeds), "--jobs", str(jobs))
    sets = ("--set", f"train.epochs={epochs}", "--set", "train.batch_size=96")
    return subprocess.Popen(
        [sys.executable, "-m", "hierbench", "run", *options, *sets, *arguments],
        cwd=folder,
        env=os.environ | {"STEP_LOG": str(folder / "log")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def steps(folder):
    return (folder / "log").read_text().split()


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_two_at_once_train_every_job_once(folder):
    """Each of the six jobs needs 20 steps, so 120 in all say that none was trained twice, not even in part."""
    processes = [start(folder, seeds=3, epochs=2, jobs=jobs) for jobs in (1, 2)]
    (first, errors), (second, more) = [process.communicate(timeout=400) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors + more
    assert len(steps(folder)) == 6 * 2 * STEPS and len(set(steps(folder))) > 1
    assert first == second and first.count("| 3 ") == 2
    assert errors.count("done: ") >= 1 and "warning" not in errors + more and "Traceback" not in errors + more
    runs = list((folder / "runs").glob("*/status.json"))
    assert len(runs) == 6 and {json.loads(path.read_text())["state"] for path in runs} == {"done"}
    assert not list((folder / "runs").rglob(".*"))  # neither lock nor torn file is left
    with sqlite3.connect(folder / "runs/mlflow.db") as database:
        children = "select count(*) from tags t join runs r on t.run_uuid = r.run_uuid where t.key = 'hierbench.id'"
        assert database.execute(f"{children} and r.lifecycle_stage = 'active'").fetchone() == (6,)


def test_what_a_killed_process_had_is_taken_over_from_its_last_epoch(folder):
    arguments = ("--types", "type-I", "--mlflow", "off")
    first = start(folder, *arguments, seeds=2, epochs=40, jobs=2)  # both jobs are in its workers
    wait_for(lambda: len(list((folder / "runs").glob("*/.lock.2"))) == 2)
    second = start(folder, *arguments, seeds=2, epochs=40)
    said = second.stderr.readline
    while "waiting for it" not in (line := said()):
        assert line, "it ended"
    assert re.search(r"note: logged type-I seed \d is with process \d+ on \S+; waiting for it", line)
    wait_for(lambda: len(list((folder / "runs").glob("*/checkpoint.pt"))) == 2)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    table, errors = second.communicate(timeout=400)
    assert second.returncode == 0 and table.count("| 2 ") == 1, errors
    assert "Traceback" not in errors and errors.count("done: ") == 2
    assert steps(folder).count(str(second.pid)) < 2 * 40 * STEPS  # it went on
    assert len(steps(folder)) < (2 * 40 + 2 * 3) * STEPS  # and repeated an epoch or two at most
    assert not list((folder / "runs").rglob(".*"))
