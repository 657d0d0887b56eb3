"""Training on a Ray cluster: every job is a task; re-ranking stays with the driver, where the predictions are.

A task checks whether it sees the driver's runs folder. If so it works there, so that a job whose node died resumes from
its checkpoint on another. If not it works in a temporary folder and its files travel to the driver.
"""

import os
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import hierbench
from hierbench.execution.job_queue import Queue
from hierbench.execution.ray_connection import Progress, connected, our_environment, root_cause
from hierbench.execution.resources import Setting
from hierbench.execution.run_job import Outcome, describe_error, execute_when_free, receive_job, record_death
from hierbench.runs.job import Job
from hierbench.runs.record_reader import read_record
from hierbench.runs.store import Run
from hierbench.utils.console import say, throttled
from hierbench.utils.errors import UserError, error_line
from hierbench.utils.files import write_bytes
from hierbench.utils.lock import Lock, LostError

with our_environment():
    import ray
    from ray.exceptions import LocalRayletDiedError, RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

RETRIES = 3  # restarts of a job whose worker was lost
REPORT_EVERY = 0.5  # seconds
NOT_THE_ENGINE = {"methods", "benchmarks", "leaderboard"}  # a method has its own digest, in the spec

# Node, outcome, files where the storage is not shared, notes for the user; a driver of any version can read it.
Answer = tuple[str, tuple[Any, str], dict[str, bytes], list[str]]


def train_on_ray(queue: Queue, setting: Setting) -> None:
    """Train the jobs of a queue that train on the cluster at `setting.address`.

    Raises:
        KeyboardInterrupt: passed on; the cluster stops the tasks of a driver that has left.
        UserError: there is no cluster, or no node has the resources of a job.
        ConnectionError: the cluster is lost.
    """
    jobs = [job for job in queue.waiting if job.trains]
    queue.waiting = [job for job in queue.waiting if not job.trains]
    if not jobs:
        return
    # Ray prints the log of every raylet that dies; lost workers are reported below.
    with connected(setting.address) as node, Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        with NamedTemporaryFile(prefix=".shared-", dir=setting.runs) as probe:  # a node that sees it shares the folder
            _train(jobs, setting, Path(probe.name).name, queue, node)


def _train(jobs: Sequence[Job], setting: Setting, probe: str, queue: Queue, driver: str) -> None:
    resources = job_resources(setting)
    words = {"num_cpus": "CPU", "num_gpus": "GPU"}
    if not any(
        all(n["Resources"].get(words[k], 0) >= v for k, v in resources.items()) for n in ray.nodes() if n["Alive"]
    ):
        raise UserError(f"no node of the Ray cluster has the resources of a job: {resources}")
    on_driver = NodeAffinitySchedulingStrategy(driver, soft=False)
    progress = ray.remote(Progress).options(num_cpus=0, scheduling_strategy=on_driver).remote()
    task = ray.remote(run_task).options(max_retries=0, **resources)
    engine = engine_digest()
    losses = Counter[str]()

    def start(job: Job) -> Any:
        return task.remote(engine, task_arguments(job, setting, probe), progress)

    running = {start(job): job for job in jobs}
    while running:
        if not any(node["Alive"] for node in ray.nodes() if node["NodeID"] == driver):
            raise LocalRayletDiedError
        ended, _ = ray.wait(list(running), num_returns=len(running), timeout=REPORT_EVERY)
        with suppress(RayError):  # without the actor only the progress is missing
            news = ray.get(progress.take.remote(), timeout=REPORT_EVERY)
            for job in running.values():
                if job.id in news:
                    queue.on_progress(job, *news[job.id])
        for task_id in ended:
            job = running.pop(task_id)
            try:
                node, (state, error), files, notes = ray.get(task_id)
                for line in notes:
                    queue.note(f"{line} (on {node})")
                outcome = Outcome(state, error and f"{error} (on {node})")
                queue.end(job, _write_received(setting.store.run(job.id), files, outcome))
            except LocalRayletDiedError:  # nothing that this process starts can run any more
                raise
            except RayTaskError as error:  # outside `execute`, which turns errors into outcomes
                queue.end(job, Outcome("failed", f"a node could not run it: {error_line(error.cause)}"))
            except RayError as error:  # its process, its node, or the result with it
                losses[job.id] += 1
                if losses[job.id] > RETRIES:
                    lost = f"its worker was lost, {losses[job.id]} in all: {root_cause(error)}"
                    queue.end(job, record_death(setting.store.run(job.id), lost))
                else:
                    say(f"{job.spec.label}: its worker was lost; it is started again ({root_cause(error)})")
                    running[start(job)] = job


def job_resources(setting: Setting) -> dict[str, float]:
    """Return the resources that a job needs on a node, in Ray's terms."""
    if setting.device != "cuda":
        return {"num_cpus": setting.devices * (setting.threads or 1)}
    return {"num_cpus": setting.devices, "num_gpus": setting.devices / setting.jobs_per_gpu}


def engine_digest() -> str:
    """Return the SHA-256 of the package's own source, without methods, recipes and tables."""
    root = Path(hierbench.__file__).parent
    digest = sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if name.parts[0] not in NOT_THE_ENGINE:
            digest.update(f"{name.as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def task_arguments(job: Job, setting: Setting, probe: str) -> dict[str, Any]:
    """Return the arguments of a task: plain values, which a node of any version can read."""
    file = Path(job.method.reference)
    weights = setting.weights and setting.weights.resolve()
    return {
        "spec": job.spec.content(),
        "reference": job.method.reference,
        "source": file.read_bytes() if file.suffix == ".py" else None,
        "setting": vars(replace(setting, executor="local", workers=1, weights=weights)),
        "probe": probe,
    }


def _write_received(run: Run, files: dict[str, bytes], outcome: Outcome) -> Outcome:
    """Write the files that a node sent, the status last: a run that arrived incomplete is not done."""
    if not files:
        return outcome
    try:
        with Lock(run.folder) as lock:  # another command may have trained the same job
            for name in [] if read_record(run.folder).done else sorted(files, key=lambda name: name == "status.json"):
                lock.check()
                write_bytes(run.folder / name, files[name])
    except (OSError, LostError) as error:
        return Outcome("failed", describe_error(error, run.folder))
    return outcome


# The rest runs on the nodes.


def run_task(engine: str, order: dict[str, Any], progress: Any) -> Answer:
    """Run one job on this node."""
    node = socket.gethostname()
    if engine != engine_digest():
        return node, ("failed", "the hierbench that is installed there is not the driver's"), {}, []
    with TemporaryDirectory(prefix="hierbench-") as folder:
        reference = order["reference"]
        if order["source"] is not None:  # the user's file is on the driver
            reference = str(Path(folder) / Path(reference).name)
            Path(reference).write_bytes(order["source"])
        job = receive_job(order["spec"], reference)
        if isinstance(job, Outcome):
            return node, (job.state, job.error), {}, []
        setting = Setting(**order["setting"])
        shared = (setting.runs / order["probe"]).exists()
        if not shared:
            setting = replace(setting, runs=Path(folder) / "runs")
        notes: list[str] = []

        def report(done: float, total: int) -> None:
            with suppress(Exception):  # the actor has gone, which does not matter to the job
                progress.put.remote(job.id, done, total)

        outcome = execute_when_free(job, setting, throttled(report, REPORT_EVERY), notes.append)
        # Not the spec, which the driver has, and hidden files, which are not finished.
        names = [] if shared else [path for path in setting.store.run(job.id).folder.glob("[!.]*") if path.is_file()]
        files = {path.name: path.read_bytes() for path in names if path.name != "spec.json"}
        return node, (outcome.state, outcome.error), files, notes
