"""A handful of the soak test's kills, and a real MLflow server that is killed in the middle."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support.run_files import mirrored_in

SOAK = Path(__file__).resolve().parents[1] / "tools/soak.py"
RUN = (
    "run", "--methods", "ce,crm", "--dataset", "shapes", "--types", "type-I", "--seeds", "1", "--jobs", "1",
    "--set", "train.batch_size=96", "--set", "train.epochs=1",
)  # fmt: skip


@pytest.mark.soak
def test_nothing_is_lost_or_counted_twice_by_a_handful_of_kills():
    """Of training and preparing; `test_tune_command.py` kills a search, and the soak test all three."""
    command = [sys.executable, str(SOAK), "--kills", "4", "--forked", "--only", "training", "--only", "preparing"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and re.search(r"^[4-9] kills, nothing lost$", done.stdout, re.M), (
        done.stdout + done.stderr
    )
    assert all(re.search(rf"^{kind}: [1-9] kills", done.stdout, re.M) for kind in ("training", "preparing"))


@contextlib.contextmanager
def server(folder, port):
    """Serve a database as `mlflow server` does; yields a function that kills it."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/server.db",
        "--artifacts-destination",
        str(folder / "store"),
    ]
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    try:
        for _ in range(1200):
            assert process.poll() is None, (folder / "server.log").read_text()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                break
            time.sleep(0.1)
        yield kill
    finally:
        kill()


@pytest.mark.soak
def test_a_server_that_is_killed_in_the_middle_gets_the_rest_from_the_next_command(
    cli, tmp_path, data_dir, monkeypatch
):
    from mlflow import MlflowClient

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = ("--data-dir", str(data_dir), "--runs", str(tmp_path / "runs"), "--mlflow", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")

    with server(tmp_path, port) as kill, monkeypatch.context() as patch:
        real, batches = MlflowClient.log_batch, []

        def log_batch(*arguments, **options):
            batches.append(1)
            if len(batches) == 3:  # the first job is written, of the second there is a child without anything
                kill()
            return real(*arguments, **options)

        patch.setattr(MlflowClient, "log_batch", log_batch)
        code, out, err = cli(tmp_path, *RUN, *where)
    assert len(batches) == 3 and code == 0 and out.count("| 1 ") == 2
    assert err.count("warning") == 1 and "does not take the results" in err and "Traceback" not in err
    with server(tmp_path, port):
        code, again, err = cli(tmp_path, *RUN, *where)
        assert (code, again) == (0, out) and "warning" not in err and "2 cached" in err
        code, again, err = cli(tmp_path, *RUN, *where)
        assert code == 0 and "warning" not in err
    children = mirrored_in(tmp_path / "server.db")
    assert [status for _, status in children] == ["FINISHED"] * 2 and len(dict(children)) == 2
