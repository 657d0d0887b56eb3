"""Received folders: a link or a folder in the place of a file is not followed.

Nothing outside a folder of runs or data is read, changed or removed, whatever lies where a command expects a file.
"""

import contextlib
import os
import re
import shutil
import sqlite3

import pytest

from hierbench.runs.store import Store
from hierbench.utils.processes import this_machine
from tests.support.run_files import mirrored_in, spec_of

SECRET = "-----BEGIN PRIVATE KEY-----"
SMALL = ("--set", "train.epochs=1", "--set", "train.batch_size=96", "--set", "model.backbone=wrn10-1-s4")
RUN = ("run", "--methods", "ce,crm", "--dataset", "shapes", "--types", "type-I", "--seeds", "1", "--jobs", "1", *SMALL)
TUNE = ("tune", "--method", "haframe", "--dataset", "shapes", "--jobs", "1", *SMALL)
TUNE += ("--set", "tune.grid.haframe.alpha=[0.3]", "--set", "tune.grid.haframe.gamma=[2]", "--set", "tune.runs=1")
TABLE = ("leaderboard", "--dataset", "shapes")
PUBLISH = ("publish", "--dataset", "shapes", "--output", "published")
PICTURE = ("plot", "severity", "--dataset", "shapes")
REPORT = ("report", "--dataset", "shapes", "--rows", "ce:type-I,crm:type-I")
PREPARE = ("data", "prepare", "shapes", "--force")
COMMANDS = {
    "run": RUN, "tune": TUNE, "table": TABLE, "publish": PUBLISH, "plot": PICTURE,
    "report": REPORT, "prepare": PREPARE,
}  # fmt: skip
RECORDS = ("spec.json", "status.json", "metrics.json", "history.csv", "environment.json")
IN_A_RUN = (*RECORDS, "predictions.npz", "checkpoint.pt", "damaged")
IN_RUNS = ("mirrored.jsonl", "mlartifacts", "mlflow.db", "optuna.db", "requests.jsonl")
IN_RUNS += ("leaderboard-shapes.md", "plots", "CE")
IN_DATA = ("prepared", "prepared/shapes", "prepared/.shapes.partial", "prepared/shapes/train-images.npy")
IN_DATA += ("prepared/shapes/meta.json", "prepared/shapes/checked.json", "prepared/.shapes.partial/train-rows.npy")
PLACES = [f"runs/CE/{name}" for name in IN_A_RUN] + [f"runs/{name}" for name in IN_RUNS]
PLACES += [f"data/{name}" for name in IN_DATA]


def content(folder):
    """Return the bytes, times and kinds of all files in a folder."""
    files = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        files[str(path.relative_to(folder))] = (data, status.st_mtime_ns, status.st_mode)
    return files


@pytest.fixture(scope="module")
def sent(cli, data_dir, tmp_path_factory):
    """Finished runs, a database of MLflow's, a remembered plan and prepared data."""
    folder = tmp_path_factory.mktemp("sent")
    shutil.copytree(data_dir / "prepared", folder / "data/prepared")
    done = cli(folder, *RUN)
    assert done.code == 0, done.said
    return folder


@pytest.fixture
def work(sent, tmp_path):
    shutil.copytree(sent, tmp_path / "work")
    return tmp_path / "work"


def cross_entropy(work):
    """Return the id of the only run that was trained."""
    (run,) = (run for run in Store(work / "runs").runs() if spec_of(run)["method"]["name"] == "ce")
    return run.folder.name


def put(work, outside, place, kind):
    """Put a link or a folder in the place of a file; its target looks like that file."""
    path = work / place.replace("CE", cross_entropy(work))
    path.parent.mkdir(parents=True, exist_ok=True)
    outside.mkdir(exist_ok=True)
    target, is_folder = (
        outside / "victim",
        path.is_dir() or place.endswith(("damaged", "plots", "CE")),
    )
    is_folder = is_folder or place.endswith(("mlartifacts", "partial", "prepared"))
    if kind == "folder":
        if path.is_file():
            path.unlink()
        path.mkdir(exist_ok=True)
        (path / "mine.txt").write_text("mine")
        return path
    if is_folder:
        if path.exists():
            path.rename(target)
        target.mkdir(exist_ok=True)
        for name in ("train-rows.npy", "checkpoint.pt", "status.json", "notes.txt"):
            if not (target / name).exists():
                (target / name).write_text(SECRET)
        for number in range(60):
            (target / f"{number:064x}.json").write_text(SECRET)
        os.symlink(target, path)
    else:
        path.unlink(missing_ok=True)
        target.write_text(SECRET)
        os.symlink(target, path)
    return path


def check(cli, work, outside, place, kind, *names):
    path = put(work, outside, place, kind)
    mine = content(path) if kind == "folder" else {}
    before = content(outside)
    for name in names:
        done = cli(work, *COMMANDS[name])
        assert done.code in (0, 1, 2) and SECRET not in done.said, done.said
        assert content(outside) == before, (name, done.said)
    others = {name: data for name, (data, *_) in content(work).items() if SECRET.encode() in data}
    assert set(others) <= {str(path.relative_to(work))} | {n for n in others if "/damaged/" in n}, others.keys()
    if kind == "folder":
        assert any(path.name == "mine.txt" for path in work.rglob("*")) and mine


QUICK = [
    ("runs/CE", "link", "run"),
    ("runs/CE/damaged", "link", "run"),
    ("runs/CE/history.csv", "link", "run"),
    ("runs/mlflow.db", "link", "run"),
    ("runs/CE/metrics.json", "folder", "run"),
    ("runs/plots", "link", "plot"),
    ("data/prepared", "link", "run"),
    ("data/prepared/shapes", "link", "prepare"),
    ("data/prepared/.shapes.partial", "link", "prepare"),
    ("data/prepared/.shapes.partial/train-rows.npy", "link", "prepare"),
    ("data/prepared/shapes", "folder", "prepare"),
]


@pytest.fixture
def few(monkeypatch):
    """As `data_dir` is made."""
    from hierbench.data.datasets import shapes

    monkeypatch.setattr(shapes, "PER_CLASS", {"train": 20, "val": 4, "test": 8})


@pytest.mark.parametrize(("place", "kind", "command"), QUICK)
def test_files_outside_the_folder_stay_unchanged(cli, work, few, tmp_path, place, kind, command):
    check(cli, work, tmp_path / "outside", place, kind, command)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["link", "folder"])
@pytest.mark.parametrize("place", PLACES)
def test_every_command_with_an_unexpected_file_at_every_place(cli, work, few, tmp_path, place, kind):
    check(cli, work, tmp_path / "outside", place, kind, *COMMANDS)


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_is_not_the_run_s_own_file_is_not_published(cli, work, tmp_path, name):
    path = work / "runs" / cross_entropy(work) / name
    target = tmp_path / "there"
    path.rename(target)  # the right content: its digest says nothing
    os.symlink(target, path)
    done = cli(work, *PUBLISH)
    assert not (work / "published/shapes").exists() and done.code == 2, done.said
    named = name in done.said and "symbolic link" in done.said
    assert named or re.search("(is|are) (damaged|rejected)", done.said)  # the table is then not complete


def test_of_a_moved_folder_nothing_goes_where_it_was(cli, work):
    """Though its database says that the artifacts go there."""
    before = len(mirrored_in(work / "runs" / "mlflow.db"))
    (work / "runs").rename(work / "moved")
    done = cli(work, *RUN, "--set", "train.epochs=2", "--runs", "moved")
    assert done.code == 0 and "warning" not in done.said and not (work / "runs").exists()
    assert len(mirrored_in(work / "moved" / "mlflow.db")) == 2 * before


def test_a_moved_folder_is_not_mirrored_again(cli, work):
    before = mirrored_in(work / "runs" / "mlflow.db")
    assert len(before) == 2 and {status for _, status in before} == {"FINISHED"}
    (work / "runs").rename(work / "moved")
    done = cli(work, *RUN, "--runs", "moved")
    assert done.code == 0 and mirrored_in(work / "moved" / "mlflow.db") == before, done.said


def parents(runs):
    query = "select r.run_uuid, r.status from runs r where r.run_uuid not in "
    query += "(select run_uuid from tags where key = 'mlflow.parentRunId') order by r.start_time"
    with contextlib.closing(sqlite3.connect(runs / "mlflow.db")) as connection:
        return connection.execute(query).fetchall()


def test_the_parent_run_of_a_killed_command_is_ended_by_the_next(cli, work):
    ((parent, status),) = parents(work / "runs")
    assert status == "FINISHED"
    dead = os.fork()
    if not dead:
        os._exit(0)
    os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    with contextlib.closing(sqlite3.connect(work / "runs/mlflow.db")) as connection, connection:
        connection.execute("update runs set status = 'RUNNING' where run_uuid = ?", (parent,))
        for pid, expected in ((os.getppid(), "RUNNING"), (dead, "KILLED")):  # a zombie, as its parent has not waited
            owner = f"{this_machine()} {pid}"
            connection.execute("update tags set value = ? where key = 'hierbench.process'", (owner,))
            connection.commit()
            (work / "runs/mirrored.jsonl").unlink()  # all of it is cached; so MLflow is asked
            done = cli(work, *RUN)
            assert done.code == 0 and (parent, expected) in parents(work / "runs"), done.said
    os.waitpid(dead, 0)
