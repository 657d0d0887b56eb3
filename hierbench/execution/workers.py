"""Worker processes: each runs one job after another and talks to its parent through a pipe.

On Linux a server process imports PyTorch once and forks for each worker; it computes nothing, so that no thread is lost
in a fork. Elsewhere libraries do not survive a fork, and each worker starts a Python of its own.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from hierbench.api.isolation import ending
from hierbench.execution.job_queue import Queue
from hierbench.execution.run_job import Outcome, execute, record_death
from hierbench.planning.resources import Setting
from hierbench.runs.job import Job
from hierbench.training.fabric import import_fabric
from hierbench.utils.console import throttled
from hierbench.utils.errors import UserError, one_line_of
from hierbench.utils.processes import without_main_script

FORKS = sys.platform == "linux"


def start_server() -> None:
    """Start the process that forks for each worker, without waiting for its imports; nothing if it runs."""
    if FORKS:
        from multiprocessing import forkserver

        multiprocessing.set_forkserver_preload(["hierbench.execution.preloaded"])
        with _ignored_interrupts():
            forkserver.ensure_running()


def seconds_to_start(setting: Setting) -> float:
    """Return how long workers take to start: one that does nothing is started, unless this process is the only one."""
    began = time.perf_counter()
    if setting.in_process:
        import_fabric()
    else:
        start_server()
        context = multiprocessing.get_context("forkserver") if FORKS else multiprocessing.get_context("spawn")
        process = context.Process(target=import_fabric)
        with _ignored_interrupts(), without_main_script():
            process.start()
        process.join()
    return time.perf_counter() - began


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which is the parent's to handle: they inherit this.

    Only the main thread can, and only there Ctrl-C arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Worker:
    """A process that runs one job after another; `slot` decides which devices it uses."""

    def __init__(self, setting: Setting, slot: int) -> None:
        setting = setting.of_worker(slot)
        start_server()
        context = multiprocessing.get_context("forkserver") if FORKS else multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # A daemon may have no children, which a job on several devices has; it ends with the pipe in any case.
        daemon = setting.devices == 1
        self.process: BaseProcess = context.Process(
            target=_work, args=(theirs, setting, dict(os.environ)), daemon=daemon
        )
        with _ignored_interrupts(), without_main_script():
            self.process.start()
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        """Send it a job."""
        self.job = job
        try:
            self.connection.send((job.spec.content(), job.references))
        except OSError:
            pass  # it died while idle, which `poll` reports

    def poll(self, queue: Queue) -> bool:
        """Forward what it reports of its job: ("progress", done, total), ("note", line) or ("end", *outcome).

        Returns:
            Whether it still runs; False after it died, or was stopped because its job is over.
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
                    queue.note(*content)
                else:
                    self.job = None
                    queue.end(job, Outcome(*content))
                    return True
        except (EOFError, OSError):
            self.process.join(5)
            how = ending(self.process.exitcode or 0)
            error = f"the worker process ended ({how}); run the same command to resume from its last epoch"
            record_death(queue.store.run(job.id), error)
            queue.end(job, Outcome("failed", error))
            return False
        return True

    def stop(self) -> None:
        """End the process at once."""
        self.process.terminate()
        self.process.join(5)
        self.process.kill()  # a method may ignore SIGTERM
        self.connection.close()


def _work(connection: Connection, setting: Setting, environment: dict[str, str]) -> None:
    """Run jobs until the parent closes the pipe or dies."""
    os.environ.clear()  # the server that forks has the variables of when it started
    os.environ.update(environment)
    sys.stdout = sys.stderr  # a method may print; standard output is for results
    report, note = partial(_send, connection, "progress"), partial(_send, connection, "note")
    while True:
        try:
            content, references = connection.recv()
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone
        try:
            job = Job.received(content, *references)
        except (UserError, MemoryError) as error:  # the method's file is gone or broken since the plan
            outcome = Outcome("failed", str(error) if isinstance(error, UserError) else one_line_of(error))
        else:
            outcome = execute(job, setting, throttled(report, 0.2), note)
        _send(connection, "end", *outcome)


def _send(connection: Connection, *message: Any) -> None:
    try:
        connection.send(message)
    except OSError:
        os._exit(1)  # the parent is gone; the job has not failed and can be resumed
