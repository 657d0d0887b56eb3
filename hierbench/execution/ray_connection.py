"""The connection to a Ray cluster: checked before anything starts, and watched: Ray ends a process that lost it."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, Literal

from hierbench.config.options import Device
from hierbench.utils.console import installing
from hierbench.utils.errors import UserError, foreign
from hierbench.utils.text import one_line

LOCAL = "local"  # a cluster of this machine alone, started for the command
TIMEOUT = 5.0  # seconds for a head node to answer
DEADLINE = 90.0  # seconds to join a cluster; Ray itself gives up after 60 where this machine is not a node of it
CHECK_EVERY = 5.0  # seconds between two questions
PATIENCE = (
    35.0  # seconds without an answer, beyond those between two, until a cluster is lost; after 60 Ray ends the process
)
LEAVE = 10.0  # seconds to leave a lost cluster
# Our defaults for what Ray reads from the environment: no usage statistics, and under `uv run` the working folder is
# not sent to every node and installed there.
OURS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
TOKEN = secrets.token_hex(32)  # of clusters started here; without it Ray leaves one in the user's home
RESUME = "finished jobs are kept; run the same command to resume"


def device_on_cluster(address: str | None, device: Device) -> Literal["cpu", "cuda"]:
    """Return the device that jobs will have on the cluster `_chosen(address)`; "auto" is "cuda" if it has a GPU.

    Raises:
        UserError: Ray is missing, no cluster answers, or it does not have what the jobs need.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError(f"--executor ray needs Ray, an extra; run: {installing('ray')}")
    if device == "mps":
        raise UserError("--executor ray trains on cpu or cuda, not on mps")
    import torch

    where = _chosen(address)
    has_gpu = torch.cuda.is_available() if where == LOCAL else bool(_resources(where).get("GPU"))
    if device == "cuda" and not has_gpu:
        raise UserError(f"--device cuda: the Ray cluster at {where} has no GPU")
    return "cuda" if device != "cpu" and has_gpu else "cpu"


def _chosen(address: str | None) -> str:
    """Return the cluster that is meant: HOST:PORT of its head node, "auto" for this machine's, or LOCAL.

    Raises:
        UserError: nothing listens at that address, where Ray itself would try for minutes.
    """
    where = address or os.environ.get("RAY_ADDRESS") or LOCAL
    if where in (LOCAL, "auto"):
        return where
    host, _, port = where.rpartition(":")
    if "/" in where or not host or not port.isdigit():
        raise UserError(f"--address: HOST:PORT of a cluster's head node, or auto; got {where!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster at {where}: {getattr(error, 'strerror', None) or error}") from None
    return where


def _resources(where: str) -> dict[str, float]:
    """Return the resources of a cluster, asked from a child process: Ray may hang, log for pages or end the process."""
    command = [sys.executable, "-P", "-m", "hierbench.execution.ray_connection", where]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=DEADLINE)
        answer: dict[str, float] | str = json.loads(asked.stdout)
    except subprocess.TimeoutExpired:
        answer = f"no Ray cluster at {where}: it cannot be joined within {DEADLINE:g} s"
    except ValueError:
        last = asked.stderr.strip().rpartition("\n")[2] or f"exit code {asked.returncode}"
        answer = f"cannot join the Ray cluster at {where}: {last}"
    if isinstance(answer, str):
        raise UserError(answer)
    return answer


@contextmanager
def connected(address: str | None) -> Iterator[Watch]:
    """Connect to a cluster, and leave it; a cluster of this machine alone ends with it.

    Raises:
        UserError: there is no cluster, or it refuses this process.
        ConnectionError: it is lost.
    """
    where = _chosen(address)
    with our_environment():
        import ray

        if ray.is_initialized():
            raise UserError("--executor ray: this process is already connected to a Ray cluster")
        leave = ray.shutdown
        try:
            yield _join(ray, where)
        except (ConnectionError, ray.exceptions.RayError) as error:
            leave = _abandon
            if isinstance(error, ConnectionError):
                raise
            raise ConnectionError(f"the Ray cluster at {where} is lost ({reason(error)}); {RESUME}") from None
        finally:
            leave()


def _join(ray: Any, where: str) -> Watch:
    own = dict[str, Any]()
    if where == LOCAL:
        own["include_dashboard"] = False
        os.environ.setdefault("RAY_AUTH_TOKEN", TOKEN)

    def problem(error: BaseException) -> UserError:
        what = "Ray cannot start on this machine" if where == LOCAL else f"cannot join the Ray cluster at {where}"
        why = reason(error)
        if isinstance(error, ConnectionError) and where not in (LOCAL, "auto"):  # its head node answers
            why = f"this machine must be one of its nodes (ray start --address={where}), with its token if it has one"
        return UserError(f"{what}: {why}")

    with foreign(problem), redirect_stdout(sys.stderr):  # Ray raises many types, and documents none
        ray.init(address=where, log_to_driver=False, logging_level="error", **own)
        return Watch(ray, where)


def _abandon() -> None:
    """Leave a lost cluster: where its head node hangs, so do Ray's shutdown and the end of the process."""
    import ray

    def end() -> None:
        sys.stdout.flush()
        os._exit(1)

    thread = threading.Thread(target=ray.shutdown, daemon=True)
    thread.start()
    thread.join(LEAVE)
    if thread.is_alive():
        atexit.register(end)


def reason(error: BaseException) -> str:
    """Return the first sentence of the root cause of an error of Ray's; what follows it is advice on Ray."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(str(error).strip().split(". ")[0] or type(error).__name__, 300)


class Watch:
    """Detects that a cluster is lost before Ray does, which then ends the process without telling its caller."""

    def __init__(self, ray: Any, where: str) -> None:
        self.where, self.node = where, ray.get_runtime_context().get_node_id()
        self._answered, self._here = time.monotonic(), True
        threading.Thread(target=self._look, args=(ray,), daemon=True).start()  # a head node may hang, and so its caller

    def _look(self, ray: Any) -> None:
        """Ask the head node for its nodes every few seconds."""
        while ray.is_initialized():
            with suppress(Exception):  # of any type, and no answer
                self._here = any(node["Alive"] for node in ray.nodes() if node["NodeID"] == self.node)
                self._answered = time.monotonic()
            time.sleep(CHECK_EVERY)

    def check(self) -> None:
        """Raise a ConnectionError if the head node no longer answers, or Ray has stopped on this machine."""
        silent = time.monotonic() - self._answered
        if silent > PATIENCE:
            raise ConnectionError(f"the Ray cluster at {self.where} is lost (no answer for {silent:.0f} s); {RESUME}")
        if not self._here:
            raise self.stopped()

    def stopped(self) -> ConnectionError:
        """Return the error for a node of this machine that has died."""
        return ConnectionError(f"Ray has stopped on this machine, a node of the cluster at {self.where}; {RESUME}")


class Progress:
    """An actor on the driver's node, which tasks write and the driver reads; this module needs no PyTorch."""

    def __init__(self) -> None:
        self.news: dict[str, tuple[float, int]] = {}

    def put(self, job_id: str, done: float, total: int) -> None:
        """Note the epochs that a job has done, and its epochs in all."""
        self.news[job_id] = done, total

    def take(self) -> dict[str, tuple[float, int]]:
        """Return what has been noted since the last call."""
        news, self.news = self.news, {}
        return news


@contextmanager
def our_environment() -> Iterator[None]:
    """Set what Ray reads from the environment on import and on connecting; afterwards all is as before."""
    before = dict(os.environ)
    for name, value in OURS.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":  # for `_resources`: print a cluster's resources, or why they are not known
    try:
        with redirect_stdout(sys.stderr), connected(sys.argv[1]):
            content = importlib.import_module("ray").cluster_resources()
    except (UserError, ConnectionError) as error:
        content = str(error)
    print(json.dumps(content))
