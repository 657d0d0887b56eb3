"""One job on several devices of a machine: a process per device, started, watched and ended together."""

import multiprocessing
import os
import pickle
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

from hierbench.execution.resources import Setting
from hierbench.runs.job import Job
from hierbench.runs.store import Run
from hierbench.training.memory import count_micro_batches
from hierbench.utils.errors import error_line
from hierbench.utils.processes import describe_exit, starting_children

JOIN_SECONDS = 10.0
Report = Callable[[float, int], None]  # epochs done, epochs in all
Train = Callable[[Job, Setting, Run, Report, Callable[[], None]], None]


def train_on_ranks(
    train: Train, job: Job, setting: Setting, run: Run, report: Report, after_epoch: Callable[[], None]
) -> None:
    """Train a job in `setting.devices` processes, one device each, under the lock that this process has.

    `train` is called in each of them; the first alone reports and writes.

    Raises:
        Exception: the exception of the first process that failed, or that it was killed; the others are ended.
    """
    count_micro_batches(job.spec.train.batch_size, job.spec.train.micro_batch, setting.devices)  # refuse it early
    context = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ranks: dict[Connection, BaseProcess] = {}
    try:
        with starting_children():
            for rank in range(setting.devices):
                ours, theirs = context.Pipe()
                work = (train, rank, port, theirs, setting, job.spec.content(), job.method.reference)
                ranks[ours] = context.Process(target=_rank, args=work, daemon=True, name=f"process {rank}")
                ranks[ours].start()
                theirs.close()
        _serve(ranks, {"report": report, "epoch": after_epoch, "guard": run.guard})
    finally:
        for process in ranks.values():
            process.kill()  # files are written atomically, never in part
        for connection, process in ranks.items():
            process.join(JOIN_SECONDS)
            connection.close()


def _serve(ranks: dict[Connection, BaseProcess], calls: dict[str, Callable[..., None]]) -> None:
    """Handle messages of the first process, ("report", done, total), ("epoch",) or ("guard",), until all are done."""
    working = dict(ranks)
    while working:
        for connection in wait(list(working)):
            assert isinstance(connection, Connection)
            try:
                message = connection.recv()
                if isinstance(message, tuple):
                    calls[message[0]](*message[1:])
                    connection.send("go on")
            except (EOFError, ConnectionError):
                process = working[connection]
                process.join(JOIN_SECONDS)
                raise RuntimeError(
                    f"{process.name} of the job ended ({describe_exit(process.exitcode or 0)})"
                ) from None
            if isinstance(message, BaseException):
                raise message
            if message is None:
                del working[connection]


def _rank(
    train: Train,
    rank: int,
    port: int,
    connection: Connection,
    setting: Setting,
    content: dict[str, Any],
    reference: str,
) -> None:
    """Run as one process of a job."""
    sys.stdout = sys.stderr
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(setting.devices)}
    os.environ |= {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "OMP_NUM_THREADS": str(setting.threads or 1)}
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if setting.threads:
        torch.set_num_threads(setting.threads)

    def call(*message: Any) -> None:
        connection.send(message)
        connection.recv()

    try:
        job = Job.received(content, reference)
        run = setting.store.run(job.id)
        if rank == 0:  # the only one that writes
            guarded = replace(run, guard=partial(call, "guard"))
            train(job, setting, guarded, partial(call, "report"), partial(call, "epoch"))
        else:
            train(job, setting, run, lambda done, total: None, lambda: None)
        connection.send(None)
    except BaseException as error:  # a method may raise anything; Ctrl-C is ignored here
        connection.send(_sendable(error))
        os._exit(1)  # without waiting for the other processes, which wait for this one


def _sendable(error: BaseException) -> BaseException:
    """Return the error, or its text where it cannot be pickled; a note has the traceback."""
    copy: BaseException = RuntimeError(error_line(error))
    if not isinstance(error, KeyboardInterrupt):  # which the receiver would take for Ctrl-C
        with suppress(Exception):  # an exception of foreign code
            copy = pickle.loads(pickle.dumps(error))
    copy.add_note(traceback.format_exc())
    return copy


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
