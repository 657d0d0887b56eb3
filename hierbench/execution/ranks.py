"""One job on several devices of a machine: a process per device, started, watched and ended together."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from hierbench.execution.train_job import Report, train_here
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.runs.store import Run
from hierbench.training.memory import count_micro_batches
from hierbench.utils.errors import one_line_of

JOIN_SECONDS = 10.0


class RankEndedError(RuntimeError):
    """A process of a job ended without saying why."""


def train_on_ranks(job: Job, setting: Setting, run: Run, report: Report, after_epoch: Callable[[], None]) -> None:
    """Train a job in `setting.devices` processes, one device each, and wait for them.

    Args:
        job: to train.
        setting: where and on what.
        run: the job's, guarded by the lock that this process has.
        report: called with the progress.
        after_epoch: called after each epoch.

    Raises:
        Exception: what the first process that failed raised; the others are ended.
        RankEndedError: a process was killed.
    """
    count_micro_batches(job.spec.train.batch_size, job.spec.train.micro_batch, setting.devices)  # before all else
    context = multiprocessing.get_context("spawn")
    port = _free_port()
    processes: list[BaseProcess] = []
    connections: dict[Connection, int] = {}
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: Ctrl-C is the parent's to handle
    try:
        for rank in range(setting.devices):
            ours, theirs = context.Pipe()
            work = (rank, port, theirs, setting, job.spec.content(), job.found.reference)
            processes.append(context.Process(target=_rank, args=work, daemon=True))
            processes[-1].start()
            theirs.close()
            connections[ours] = rank
        signal.signal(signal.SIGINT, before)
        _wait(connections, processes, {"report": report, "epoch": after_epoch, "guard": run.guard})
    finally:
        signal.signal(signal.SIGINT, before)
        for process in processes:
            process.kill()  # finished ones have gone already; nothing that is written can tear
        for process in processes:
            process.join(JOIN_SECONDS)
        for connection in connections:
            connection.close()


def _wait(
    connections: dict[Connection, int], processes: list[BaseProcess], answers: dict[str, Callable[..., None]]
) -> None:
    """Do what the first process asks, ("report", done, total), ("epoch",) or ("guard",), until all are done."""
    open_ones = dict(connections)
    while open_ones:
        for connection in wait(list(open_ones)):
            assert isinstance(connection, Connection)
            rank = open_ones[connection]
            try:
                message = connection.recv()
            except (EOFError, OSError):
                processes[rank].join(JOIN_SECONDS)
                code = processes[rank].exitcode
                raise RankEndedError(f"process {rank} of the job ended (exit code {code})") from None
            if isinstance(message, BaseException):
                raise message
            if message is None:
                del open_ones[connection]
                continue
            what, *content = message
            answers[what](*content)
            if what == "guard":
                with suppress(OSError):  # it has ended: found out above
                    connection.send("go on")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _rank(
    rank: int, port: int, connection: Connection, setting: Setting, content: dict[str, Any], reference: str
) -> None:
    """Be one process of a job."""
    sys.stdout = sys.stderr
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(setting.devices)}
    os.environ |= {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "OMP_NUM_THREADS": str(setting.threads or 1)}
    allowed = threading.Semaphore(0)
    threading.Thread(target=_listen, args=(connection, allowed), daemon=True).start()
    if setting.threads:
        torch.set_num_threads(setting.threads)

    def tell(*message: Any) -> None:
        connection.send(message)

    def ask() -> None:
        tell("guard")
        allowed.acquire()

    try:
        job = Job.received(content, reference)
        run = setting.store.run(job.id)
        if rank == 0:  # it alone writes
            train_here(job, setting, replace(run, guard=ask), partial(tell, "report"), partial(tell, "epoch"))
        else:
            train_here(job, setting, run, lambda done, total: None, lambda: None)
        connection.send(None)
    except BaseException as error:  # a method may raise anything; Ctrl-C is ignored here
        connection.send(_sendable(error))
        os._exit(1)  # not waiting for the others, which wait for this one


def _sendable(error: BaseException) -> BaseException:
    """Return the error, or one with its text where it cannot be sent; a note says where it was raised."""
    where = traceback.format_exc()
    copy: BaseException = RuntimeError(one_line_of(error))
    if not isinstance(error, KeyboardInterrupt):  # which would be taken for Ctrl-C where it arrives
        with suppress(Exception):  # an exception of foreign code
            copy = pickle.loads(pickle.dumps(error))
    copy.add_note(where)
    return copy


def _listen(connection: Connection, allowed: threading.Semaphore) -> None:
    """Let this process write when it may, and end it when the one that started it is gone."""
    try:
        while connection.recv():
            allowed.release()
    except (EOFError, OSError):
        os._exit(1)
