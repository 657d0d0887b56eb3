"""The connection to a Ray cluster, and the device that its jobs will have."""

from __future__ import annotations

import importlib
import importlib.util
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from typing import Any, Literal

from hierbench.config.options import Device
from hierbench.utils.console import install_command
from hierbench.utils.errors import UserError, foreign_errors
from hierbench.utils.text import one_line

LOCAL = "local"  # a cluster of this machine alone, started for the command
HEAD_NODE_SECONDS = 5.0  # seconds for a head node to answer
# Our defaults for Ray's environment variables: no usage statistics, and under `uv run` the working folder is
# not sent to every node and installed there.
OURS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
TOKEN = secrets.token_hex(32)  # of clusters started here; without it Ray leaves one in the user's home
RESUME = "finished jobs are kept; run the same command to resume"


def device_on_cluster(address: str | None, device: Device) -> Literal["cpu", "cuda"]:
    """Return the device of jobs on the cluster at an address; "auto" is "cuda" if the cluster has a GPU.

    Raises:
        UserError: Ray is missing, no cluster answers, or it lacks the resources of the jobs.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError(f"--executor ray needs Ray, an extra; run: {install_command('ray')}")
    if device == "mps":
        raise UserError("--executor ray trains on cpu or cuda, not on mps")
    import torch

    where = _cluster_address(address)
    if where == LOCAL:
        has_gpu = torch.cuda.is_available()
    else:
        with connected(where):
            has_gpu = bool(importlib.import_module("ray").cluster_resources().get("GPU"))
    if device == "cuda" and not has_gpu:
        raise UserError(f"--device cuda: the Ray cluster at {where} has no GPU")
    return "cuda" if device != "cpu" and has_gpu else "cpu"


def _cluster_address(address: str | None) -> str:
    """Return the cluster to use: HOST:PORT of its head node, "auto" or LOCAL; a UserError where nothing listens."""
    where = address or os.environ.get("RAY_ADDRESS") or LOCAL
    if where in (LOCAL, "auto"):
        return where
    host, _, port = where.rpartition(":")
    if "/" in where or not host or not port.isdigit():
        raise UserError(f"--executor ray: HOST:PORT of a cluster's head node, or auto; got {where!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), HEAD_NODE_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster at {where}: {getattr(error, 'strerror', None) or error}") from None
    return where


@contextmanager
def connected(address: str | None) -> Iterator[str]:
    """Connect to a cluster, yield the id of this machine's node, and leave it; a local cluster ends with the block.

    Raises:
        UserError: there is no cluster, or it refuses this process.
        ConnectionError: it is lost, as Ray noticed after a timeout of its own.
    """
    where = _cluster_address(address)
    options = dict[str, Any](include_dashboard=False) if where == LOCAL else {}

    def problem(error: BaseException) -> UserError:
        problem_text = (
            "Ray cannot start on this machine" if where == LOCAL else f"cannot join the Ray cluster at {where}"
        )
        why = root_cause(error)
        if isinstance(error, ConnectionError) and where not in (LOCAL, "auto"):  # its head node answers
            why = f"this machine must be one of its nodes (ray start --address={where}), with its token if it has one"
        return UserError(f"{problem_text}: {why}")

    with our_environment():
        import ray

        if ray.is_initialized():
            raise UserError("--executor ray: this process is already connected to a Ray cluster")
        if where == LOCAL:
            os.environ.setdefault("RAY_AUTH_TOKEN", TOKEN)
        try:
            # Ray raises many undocumented types; its workers could import from the folder that it starts in.
            with foreign_errors(problem), redirect_stdout(sys.stderr), chdir(sys.prefix):
                ray.init(address=where, log_to_driver=False, logging_level="error", **options)
            yield ray.get_runtime_context().get_node_id()
        except ray.exceptions.RayError as error:
            raise ConnectionError(f"the Ray cluster at {where} is lost ({root_cause(error)}); {RESUME}") from None
        finally:
            ray.shutdown()


def root_cause(error: BaseException) -> str:
    """Return the first sentence of the root cause of an error of Ray's; the sentences after it are advice on Ray."""
    while error.__cause__ is not None:
        error = error.__cause__
    return one_line(str(error).strip().split(". ")[0] or type(error).__name__, 300)


class Progress:
    """An actor on the driver's node, which tasks write and the driver reads; this module needs no PyTorch."""

    def __init__(self) -> None:
        self.news: dict[str, tuple[float, int]] = {}

    def put(self, job_id: str, done: float, total: int) -> None:
        """Note the epochs that a job has done, and its epochs in all."""
        self.news[job_id] = done, total

    def take(self) -> dict[str, tuple[float, int]]:
        """Return the lines that were noted since the last call."""
        news = self.news
        self.news = {}
        return news


@contextmanager
def our_environment() -> Iterator[None]:
    """Set the variables that Ray reads on import and on connecting; afterwards the environment is as before."""
    before = dict(os.environ)
    for name, value in OURS.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
