"""The effects of Ray on the calling process, and clusters that do not answer."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.short import SHORT
from tests.support.waiting import write_method

pytest.importorskip("ray")
# What Ray takes to notice a dead node, ms: seconds in place of half a minute.
NOTICED_SOON = {f"RAY_health_check_{name}": "500" for name in ("period_ms", "timeout_ms", "initial_delay_ms")}
FAST = ["--dataset", "shapes", "--types", "type-I", "--seeds", "1", "--mlflow", "off", "--json", *SHORT]
LOOK = """
import os
from hierbench.cli.main import main

before = dict(os.environ)
try:
    main()
finally:
    print("changed:", set(before.items()) ^ set(os.environ.items()) or "nothing")
"""


@pytest.fixture
def work(tmp_path):
    """A method that says where it runs, and an empty folder to start commands in, with a home of its own."""
    for name in ("project", "home"):
        (tmp_path / name).mkdir()
    write_method(tmp_path, "where")
    return tmp_path


def start(work, data_dir, *before):
    """Start a command, after the words `before`, with a cluster of this machine alone."""
    where = ["--runs", work / "runs", "--data-dir", data_dir, "--executor", "ray"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "UV"))}
    return subprocess.Popen(
        list(map(str, [*before, sys.executable, "-c", LOOK, "run", "--methods", work / "where.py", *FAST, *where])),
        cwd=work / "project",
        env=clean | {"HOME": str(work / "home")} | NOTICED_SOON,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    """Return standard output, without the last line, and standard error; nothing has changed in the process."""
    try:
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    out, _, changed = out.strip().rpartition("changed: ")
    assert changed == "nothing", (changed, err)
    return out, err


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("uv") is None, reason="no uv")
def test_uv_run_sends_nothing_of_the_working_folder(work, data_dir):
    """With more beside than Ray can send; its workers are this Python's, and nothing is written to the user's home."""
    with (work / "project/images.tar").open("wb") as file:
        file.truncate(600 * 2**20)
    process = start(work, data_dir, "uv", "run", "--no-project", "--offline")
    out, err = ended(process)
    assert process.returncode == 0, err
    assert [row["n"] for row in json.loads(out)["rows"]] == [1]
    import hierbench

    (place,) = work.glob("place-*")
    assert json.loads(place.read_text())[1:] == [sys.executable, hierbench.__file__, os.environ.get("PYTHONPATH")]
    assert not (work / "home/.ray").exists()


def child(parent, name):
    """Return the id of a process's child."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = status.read_text().partition(" (")
        except OSError:  # it has just ended
            continue
        program, _, fields = rest.rpartition(") ")
        if program == name and int(fields.split()[1]) == parent:
            return int(number)
    raise LookupError(name)


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")
@pytest.mark.parametrize("server", [pytest.param("gcs_server", marks=pytest.mark.soak), "raylet"])
def test_a_cluster_that_is_lost_in_the_middle_ends_the_command(work, data_dir, server):
    """The node of this machine in one line of ours; where the head node is lost, Ray itself ends the process."""
    (work / "hold").touch()
    process = start(work, data_dir)
    deadline = time.monotonic() + 120
    while not list(work.glob("place-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(child(process.pid, server), signal.SIGKILL)
    if server == "gcs_server":
        _, err = process.communicate(timeout=240)
        assert process.returncode and "The program will terminate" in err and "Traceback" not in err
        return
    _, err = ended(process)
    assert process.returncode == 1, err
    assert "Traceback" not in err
    (line,) = [line for line in err.splitlines() if "error" in line.lower()]
    assert line.startswith("hierbench: error: the Ray cluster at local is lost (The task's local raylet died)"), line
    assert line.endswith("finished jobs are kept; run the same command to resume")
    assert not list((work / "runs").glob(".shared-*"))


def test_a_dry_run_connects_to_nothing(cli, tmp_path, data_dir):
    where = ["--runs", tmp_path / "runs", "--data-dir", data_dir, "--executor", "ray:127.0.0.1:1"]
    done = cli(tmp_path, "run", "--dataset", "shapes", *where, "--dry-run")
    assert done.code == 0 and " to train" in done.out
    assert "on this machine" not in done.out  # the time of a cluster is not known
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--executor", "ray:127.0.0.1:1"], ["no Ray cluster at 127.0.0.1:1: Connection refused"]),
        (["--executor", "ray:192.0.2.1:1"], ["no Ray cluster at 192.0.2.1:1: "]),  # does not answer
    ],
)
def test_a_mistake_is_one_line(cli, tmp_path, monkeypatch, arguments, parts):
    monkeypatch.setattr("hierbench.execution.ray_connection.HEAD_NODE_SECONDS", 0.3)
    assert cli(tmp_path, "run", "--dataset", "shapes", "--runs", tmp_path / "runs", *arguments).one_line(*parts)
    assert not list(tmp_path.iterdir())


def test_without_ray(cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delenv("UV", raising=False)
    done = cli(tmp_path, "run", "--dataset", "shapes", "--executor", "ray", "--runs", tmp_path / "runs")
    assert done.one_line("pip install '.[ray]' in the checkout")
