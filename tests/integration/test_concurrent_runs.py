"""Several `hierbench run` on one folder at once, and a folder that cannot hold a database."""

import re
import shutil
import signal

import pytest

from tests.support.run_files import mirrored_in, statuses_in
from tests.support.short import SHORT
from tests.support.waiting import wait_for

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
STEPS = 5  # an epoch of 480 images in batches of 96


@pytest.fixture
def folder(tmp_path, data_dir, monkeypatch):
    monkeypatch.setenv("STEP_LOG", str(tmp_path / "log"))
    shutil.copytree(data_dir, tmp_path / "data")
    (tmp_path / "logged.py").write_text(METHOD)
    return tmp_path


def start(cli, folder, *arguments, seeds, epochs, jobs=1):
    options = (*SHORT, "--set", f"train.epochs={epochs}", "--seeds", seeds, "--jobs", jobs)
    return cli.start(folder, "run", "--methods", "./logged.py", "--dataset", "shapes", *options, *arguments)


def steps(folder):
    return (folder / "log").read_text().split()


def test_two_at_once_train_every_job_once(cli, folder):
    """Each of the four jobs needs 10 steps, so 40 in all say that none was trained twice, not even in part."""
    processes = [start(cli, folder, seeds=2, epochs=2) for _ in range(2)]
    first, second = [process.finish().ok() for process in processes]
    assert len(steps(folder)) == 4 * 2 * STEPS
    assert first.out == second.out and first.out.count("| 2 ") == 2
    assert "warning" not in first.err + second.err and "Traceback" not in first.err + second.err
    assert [status["state"] for status in statuses_in(folder / "runs").values()] == ["done"] * 4
    assert not list((folder / "runs").rglob(".*"))  # neither lock nor torn file is left
    assert len(mirrored_in(folder / "runs/mlflow.db")) == 4


def test_jobs_of_a_killed_process_resume_from_their_last_epoch(cli, folder):
    arguments = ("--types", "type-I", "--mlflow", "off")
    first = start(cli, folder, *arguments, seeds=2, epochs=4, jobs=2)  # both jobs are in its workers
    wait_for(lambda: list((folder / "runs").glob("*/checkpoint.pt")))
    first.kill(signal.SIGSTOP)  # so that it is in the middle of something when the other has started
    before = len(steps(folder))
    assert before < 2 * 4 * STEPS
    second = start(cli, folder, *arguments, seeds=2, epochs=4)
    while "waiting for it" not in (line := second.stderr.readline()):
        assert line, "it ended"
    assert re.search(r"note: logged type-I seed \d is with process \d+ on \S+; waiting for it", line)
    assert len(steps(folder)) == before
    first.kill()
    first.finish()
    _, table, errors = second.finish().ok()
    assert table.count("| 2 ") == 1 and "Traceback" not in errors, errors
    assert len(steps(folder)) < before + 2 * 4 * STEPS  # it went on from what there was
    assert len(steps(folder)) <= (2 * 4 + 2) * STEPS  # and repeated at most an epoch of each
    assert not list((folder / "runs").rglob(".*"))


RUN = ("run", "--methods", "./logged.py", "--dataset", "shapes", "--types", "type-I", "--seeds", "2", "--jobs", "1")


@pytest.mark.parametrize("mark", ["?", "#", "%"])
def test_a_folder_that_no_address_of_a_database_can_hold(cli, folder, mark):
    name = f"the {mark} runs"
    assert cli(folder, *RUN, *SHORT, "--runs", name).one_line(f"cannot hold the {mark} of", "--mlflow off")
    assert not (folder / name).exists()
    tune = ("tune", "--method", "haframe", "--dataset", "shapes", "--mlflow", "off", "--runs", name)
    assert cli(folder, *tune).one_line("choose another --runs")
