"""Worker processes: each runs one job after another and talks to its parent through a pipe.

On Linux a server process imports PyTorch once and forks for each worker; it computes nothing, so that no thread is lost
in a fork. Elsewhere libraries do not survive a fork, and each worker starts a Python of its own.
"""

import multiprocessing
import os
import sys
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any

from hierbench.execution.job_queue import Queue
from hierbench.execution.resources import Setting
from hierbench.execution.run_job import Outcome, can_compute, execute, record_death
from hierbench.runs.job import Job
from hierbench.runs.peers import POLL
from hierbench.utils.console import throttled
from hierbench.utils.errors import UserError
from hierbench.utils.processes import describe_exit, starting_children

FORKED = sys.platform == "linux"


def start_server() -> ForkServerContext | SpawnContext:
    """Return how workers start; where they are forked, their server is started, without waiting for its imports."""
    if not FORKED:
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    multiprocessing.set_forkserver_preload(["hierbench.execution.worker_imports"])
    with starting_children():
        forkserver.ensure_running()
    return multiprocessing.get_context("forkserver")


def run_in_workers(queue: Queue, setting: Setting) -> None:
    """Run the jobs of a queue in `setting.workers` processes."""
    workers: dict[int, Worker] = {}
    try:
        while queue.waiting or any(worker.job for worker in workers.values()):
            for slot in range(setting.workers):
                if slot in workers and workers[slot].job:
                    continue
                job = queue.take({worker.job.id for worker in workers.values() if worker.job})
                if job is None:
                    break
                if slot not in workers:
                    workers[slot] = Worker(setting, slot)
                workers[slot].start(job)
                queue.on_progress(job, 0.0, job.spec.train.rounds)  # shown while the worker starts
            gone = [slot for slot, worker in workers.items() if worker.job and not worker.poll(queue)]
            for slot in gone:
                del workers[slot]
            busy = [worker.connection for worker in workers.values() if worker.job]
            if queue.waiting and not busy:
                queue.follow()
            wait(busy, timeout=POLL)
    finally:
        for worker in workers.values():
            worker.stop()


class Worker:
    """A process that runs one job after another; `slot` decides which devices it uses."""

    def __init__(self, setting: Setting, slot: int) -> None:
        setting = setting.of_worker(slot)
        context = start_server()
        self.connection, theirs = context.Pipe()
        # A daemon may have no children, which a job on several devices has; it ends with the pipe in any case.
        work = (theirs, setting, dict(os.environ))
        daemon = setting.devices == 1
        self.process = context.Process(target=_work, args=work, daemon=daemon)
        with starting_children(forked=FORKED):
            self.process.start()
        theirs.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        """Send it a job."""
        self.job = job
        with suppress(OSError):  # it died while idle, which `poll` reports
            self.connection.send((job.spec.content(), job.references))

    def poll(self, queue: Queue) -> bool:
        """Forward its messages: ("progress", done, total), ("note", line), ("end", *outcome) or ("last", *outcome).

        Returns:
            Whether it still runs; False after it died or cannot use its device any more.
        """
        job = self.job
        if job is None:
            return True
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
                    if kind == "last":  # another worker takes its place
                        self.stop()
                    return bool(kind == "end")
        except (EOFError, OSError):
            self.process.join(5)
            reason = describe_exit(self.process.exitcode or 0)
            error = f"the worker process ended ({reason}); run the same command to resume from its last epoch"
            queue.end(job, record_death(queue.store.run(job.id), error))
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
    report = partial(_send, connection, "progress")
    note = partial(_send, connection, "note")
    while True:
        try:
            content, references = connection.recv()
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone
        try:
            outcome = execute(Job.received(content, *references), setting, throttled(report, 0.2), note)
        except UserError as error:  # the file of its method has gone
            outcome = Outcome("failed", str(error))
        _send(connection, "end" if outcome.state != "failed" or can_compute(setting.device) else "last", *outcome)


def _send(connection: Connection, *message: Any) -> None:
    try:
        connection.send(message)
    except OSError:
        os._exit(1)  # the parent is gone; the job has not failed and can be resumed
