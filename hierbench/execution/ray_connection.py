"""The connection to a Ray cluster: checked before anything starts, watched, and closed without a trace.

Ray changes its caller's process (environment, signal handlers, logging), and ends it when the head node is lost.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib.util
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, Literal

from hierbench.config.options import Device
from hierbench.utils.console import installing
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

LOCAL = "local"  # a cluster of this machine alone, started for the command
TIMEOUT = 5.0  # seconds for a head node to answer
DEADLINE = 90.0  # seconds to join a cluster; Ray itself gives up after 60 where this machine is not a node of it
CHECK_EVERY = 5.0  # seconds
PATIENCE = 40.0  # seconds without an answer until a cluster is lost; after 60 Ray ends the process
LEAVE = 10.0  # seconds to leave a lost cluster
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # an empty frame of HTTP/2: length, type, flags, stream (RFC 9113, 6.5)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS  # how a client begins (RFC 9113, 3.4)
# Our defaults for what Ray reads from the environment: no usage statistics, and under `uv run` the working folder is
# not sent to every node and installed there.
UV = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
OURS = {"RAY_USAGE_STATS_ENABLED": "0", UV: "0"}
TOKEN = secrets.token_hex(32)  # of clusters started here; without it Ray leaves one in the user's home
RESUME = "finished jobs are kept; run the same command to resume"


def chosen(address: str | None) -> str:
    """Return the cluster that is meant: HOST:PORT of its head node, "auto" for this machine's, or LOCAL."""
    return address or os.environ.get("RAY_ADDRESS") or LOCAL


def device_on_cluster(address: str | None, device: Device) -> Literal["cpu", "cuda"]:
    """Return the device that jobs will have on the cluster `chosen(address)`; "auto" is "cuda" if it has a GPU.

    Raises:
        UserError: Ray is missing, no cluster answers, or it does not have what the jobs need.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError(f"--executor ray needs Ray, an extra; run: {installing('ray')}")
    if device == "mps":
        raise UserError("--executor ray trains on cpu or cuda, not on mps")
    import torch

    where = chosen(address)
    has_gpu = torch.cuda.is_available() if where == LOCAL else bool(_resources(where).get("GPU"))
    if device == "cuda" and not has_gpu:
        raise UserError(f"--device cuda: the Ray cluster at {where} has no GPU")
    return "cuda" if device != "cpu" and has_gpu else "cpu"


def _resources(where: str) -> dict[str, float]:
    """Return the resources of a cluster, asked from a child process: Ray may hang, log for pages or end the process."""
    knock(where)
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


def knock(where: str) -> None:
    """Raise a UserError unless a head node answers: Ray itself would try for minutes."""
    if where in (LOCAL, "auto"):
        return
    host, _, port = where.rpartition(":")
    if "/" in where or not host or not port.isdigit():
        raise UserError(f"--address: HOST:PORT of a cluster's head node, or auto; got {where!r}")
    if reason := silence(where):
        raise UserError(f"no Ray cluster at {where}: {reason}")


def silence(address: str) -> str:
    """Return why no head node answers at HOST:PORT, "" if one does; it speaks gRPC, that is HTTP/2."""
    host, _, port = address.rpartition(":")
    answer = b""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return ""
            connection.sendall(PREFACE)
            while len(answer) < len(SETTINGS) and (more := connection.recv(len(SETTINGS) - len(answer))):
                answer += more
    except (OSError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
    is_settings = len(answer) == len(SETTINGS) and answer[3] == SETTINGS[3]
    return "" if is_settings else "what answers there is not the head node of a Ray cluster"


@contextmanager
def connected(address: str | None) -> Iterator[Watch]:
    """Connect to a cluster, and leave it; a cluster of this machine alone ends with it.

    Raises:
        UserError: there is no cluster, or it refuses this process.
        ConnectionError: it is lost.
    """
    where = chosen(address)
    knock(where)
    with unchanged():
        ray = load()
        if ray.is_initialized():
            raise UserError("--executor ray: this process is already connected to a Ray cluster")
        leave = ray.shutdown
        try:
            watch = _join(ray, where)
            try:
                yield watch
            except ConnectionError:
                leave = _abandon
                raise
            except ray.exceptions.RayError as error:
                leave = _abandon
                raise ConnectionError(f"the Ray cluster at {where} is lost ({reason(error)}); {RESUME}") from None
        finally:
            leave()


def _join(ray: Any, where: str) -> Watch:
    constants, own = ray._private.ray_constants, dict[str, Any]()
    switch = getattr(constants, UV, None)  # Ray may have been imported earlier, without `OURS`
    if os.environ[UV] == OURS[UV]:
        setattr(constants, UV, False)
    if where == LOCAL:
        own["include_dashboard"] = False
        os.environ.setdefault("RAY_AUTH_TOKEN", TOKEN)
    try:
        with redirect_stdout(sys.stderr):
            ray.init(address=where, log_to_driver=False, logging_level="error", **own)
        return Watch(ray, where)
    except Exception as error:  # Ray raises many types, and documents none
        what = "Ray cannot start on this machine" if where == LOCAL else f"cannot join the Ray cluster at {where}"
        why = reason(error)
        if isinstance(error, ConnectionError) and where not in (LOCAL, "auto"):  # its head node answers
            why = f"this machine must be one of its nodes (ray start --address={where}), with its token if it has one"
        raise UserError(f"{what}: {why}") from None
    finally:
        setattr(constants, UV, switch)


def _abandon() -> None:
    """Leave a lost cluster: where its head node hangs, so do Ray's shutdown and the end of the process."""
    import ray

    def end() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    thread = threading.Thread(target=ray.shutdown, daemon=True)
    thread.start()
    thread.join(LEAVE)
    if thread.is_alive():
        atexit.register(end)


def load() -> Any:
    """Import Ray under `OURS`, which it reads on import and on connecting; inside `unchanged`."""
    for name, value in OURS.items():
        os.environ.setdefault(name, value)
    import ray

    return ray


def reason(error: BaseException) -> str:
    """Return the first sentence of the root cause of an error of Ray's; what follows it is advice on Ray."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(str(error).strip().split(". ")[0] or type(error).__name__, 300)


class Watch:
    """Detects that a cluster is lost before Ray does, which then ends the process without telling its caller."""

    def __init__(self, ray: Any, where: str) -> None:
        context = ray.get_runtime_context()
        self.ray, self.where, self.head, self.node = ray, where, context.gcs_address, context.get_node_id()
        self._answered = self._checked = time.monotonic()

    def check(self) -> None:
        """Look at the cluster every few seconds.

        Raises:
            ConnectionError: the head node no longer answers, or Ray has stopped on this machine.
        """
        now = time.monotonic()
        if now - self._checked < CHECK_EVERY:
            return
        self._checked = now
        if why := silence(self.head):
            if now - self._answered > PATIENCE:
                raise ConnectionError(f"the Ray cluster at {self.where} is lost ({self.head}: {why}); {RESUME}")
            return
        self._answered = now
        if not any(node["Alive"] for node in self.ray.nodes() if node["NodeID"] == self.node):
            raise self.stopped()

    def stopped(self) -> ConnectionError:
        """Return the error for a node of this machine that has died."""
        return ConnectionError(f"Ray has stopped on this machine, a node of the cluster at {self.where}; {RESUME}")


@contextmanager
def unchanged() -> Iterator[None]:
    """Restore what Ray changes in its caller's process: environment, import path, signals, hooks, logging."""
    environment, path, hook, faults = dict(os.environ), list(sys.path), sys.excepthook, faulthandler.is_enabled()
    logger, factory = logging.getLogger("ray"), logging.getLogRecordFactory()
    logs = logger.level, logger.propagate, list(logger.handlers)
    main = threading.current_thread() is threading.main_thread()  # the only one that may set signal handlers
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()} if main else {}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:], sys.excepthook = path, hook
        logging.setLogRecordFactory(factory)
        logger.level, logger.propagate, logger.handlers[:] = logs
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)
        if not faults:
            faulthandler.disable()


if __name__ == "__main__":  # for `_resources`: print a cluster's resources, or why they are not known
    try:
        with redirect_stdout(sys.stderr), connected(sys.argv[1]):
            content = load().cluster_resources()
    except (UserError, ConnectionError) as error:
        content = str(error)
    print(json.dumps(content))
