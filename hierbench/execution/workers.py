"""Worker processes: each runs one job after another and talks to its parent through a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from hierbench.api.isolation import ending
from hierbench.api.registry import find_method
from hierbench.config.spec import Spec
from hierbench.execution.run_job import execute
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.runs.peers import OnProgress
from hierbench.runs.repair import Note
from hierbench.utils.console import throttled
from hierbench.utils.errors import UserError, one_line_of
from hierbench.utils.lock import Holder


class Worker:
    """A process that runs one job after another and talks through a pipe; `slot` says which devices are its own."""

    def __init__(self, setting: Setting, slot: int = 0) -> None:
        self.slot = slot
        setting = setting.of_worker(slot)
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # A daemon may have no children of its own, which a job on several devices has; it leaves with the pipe anyway.
        daemon = setting.devices == 1
        self.process: BaseProcess = context.Process(target=_work, args=(theirs, setting), daemon=daemon)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: Ctrl-C is the parent's to handle
        try:
            self.process.start()
        finally:
            signal.signal(signal.SIGINT, before)
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job, dead: Collection[Holder] = ()) -> None:
        """Send it a job; `dead` as for `execute`."""
        self.job = job
        try:
            self.connection.send((job.spec.content(), job.found.reference, dead))
        except OSError:
            pass  # it died while idle: `poll` finds out

    def poll(self, on_progress: OnProgress, end: Callable[[Job, str | None], None], note: Note) -> bool:
        """Read what it said: ("progress", done, total), ("note", line) or ("end", error); return False if it is dead.

        `end` gets what `execute` returns.
        """
        assert self.job is not None
        try:
            while self.connection.poll():
                kind, *content = self.connection.recv()
                if kind == "end":
                    self._end(content[0], end)
                    return True
                if kind == "note":
                    note(content[0])
                else:
                    on_progress(self.job, *content)
        except (EOFError, OSError):
            self.process.join(5)
            how = ending(self.process.exitcode or 0)
            self._end(f"the worker process ended ({how}); run the same command to go on from its last epoch", end)
            return False
        return True

    def _end(self, error: str | None, end: Callable[[Job, str | None], None]) -> None:
        job, self.job = self.job, None
        assert job is not None
        end(job, error)

    def stop(self) -> None:
        """End the process at once."""
        self.process.terminate()
        self.process.join(5)
        self.process.kill()  # a method may have it ignore the first
        self.connection.close()


def free_slot(setting: Setting, workers: Sequence[Worker]) -> int:
    """Return the first slot that none of the workers has."""
    taken = {worker.slot for worker in workers}
    return next(slot for slot in range(setting.workers) if slot not in taken)


def _work(connection: Connection[Any, Any], setting: Setting) -> None:
    """Run jobs until the parent closes the pipe or dies."""
    sys.stdout = sys.stderr  # a method may print; results alone go to standard output
    if setting.threads:
        torch.set_num_threads(setting.threads)
    try:
        while True:
            content, reference, dead = connection.recv()
            try:
                job = Job(Spec.model_validate(content), find_method(reference))
            except (UserError, MemoryError) as error:  # the method's file has gone or broken since the plan
                connection.send(("end", str(error) if isinstance(error, UserError) else one_line_of(error)))
                continue
            report, note = throttled(partial(_send, connection, "progress"), 0.2), partial(_send, connection, "note")
            connection.send(("end", execute(job, setting, report, note, dead)))
    except (EOFError, OSError):
        os._exit(1)  # the parent is gone


def _send(connection: Connection[Any, Any], *message: Any) -> None:
    try:
        connection.send(message)
    except OSError:
        os._exit(1)  # the parent is gone; the job itself has not failed and goes on another time
