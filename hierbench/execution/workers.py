"""Worker processes: each runs one job after another and talks to its parent through a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from hierbench.api.isolation import ending
from hierbench.execution.job_queue import Queue
from hierbench.execution.run_job import TakenError, execute
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.utils.console import throttled
from hierbench.utils.errors import UserError, one_line_of


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

    def start(self, job: Job) -> None:
        """Send it a job."""
        self.job = job
        try:
            self.connection.send((job.spec.content(), job.found.reference))
        except OSError:
            pass  # it died while idle: `poll` finds out

    def poll(self, queue: Queue) -> bool:
        """Do what it says about its job: ("progress", done, total), ("note", line), ("end", error) or ("taken",).

        Returns:
            Whether it is still there; False where it has died, or was stopped because its job is over.
        """
        job = self.job
        assert job is not None
        if queue.is_over(job):
            self.stop()
            return False
        try:
            while self.connection.poll():
                kind, *content = self.connection.recv()
                if kind == "progress":
                    queue.on_progress(job, *content)
                elif kind == "note":
                    queue.note(content[0])
                else:
                    self.job = None
                    if kind == "end":
                        queue.end(job, content[0])
                    else:
                        queue.waiting.append(job)
                    return True
        except (EOFError, OSError):
            self.process.join(5)
            how = ending(self.process.exitcode or 0)
            queue.end(job, f"the worker process ended ({how}); run the same command to resume from its last epoch")
            return False
        return True

    def stop(self) -> None:
        """End the process at once."""
        self.process.terminate()
        self.process.join(5)
        self.process.kill()  # a method may have it ignore the first
        self.connection.close()


def _work(connection: Connection[Any, Any], setting: Setting) -> None:
    """Run jobs until the parent closes the pipe or dies."""
    sys.stdout = sys.stderr  # a method may print; results alone go to standard output
    if setting.threads:
        torch.set_num_threads(setting.threads)
    try:
        while True:
            content, reference = connection.recv()
            try:
                job = Job.received(content, reference)
            except (UserError, MemoryError) as error:  # the method's file has gone or broken since the plan
                connection.send(("end", str(error) if isinstance(error, UserError) else one_line_of(error)))
                continue
            report, note = throttled(partial(_send, connection, "progress"), 0.2), partial(_send, connection, "note")
            try:
                connection.send(("end", execute(job, setting, report, note)))
            except TakenError:
                connection.send(("taken",))
    except (EOFError, OSError):
        os._exit(1)  # the parent is gone


def _send(connection: Connection[Any, Any], *message: Any) -> None:
    try:
        connection.send(message)
    except OSError:
        os._exit(1)  # the parent is gone; the job itself has not failed and can be resumed
