"""MLflow as a mirror of the runs on disk: one experiment per dataset, a parent run per invocation, a child per job.

The mirror is never the truth: a server that does not answer costs one warning, and what it missed is mirrored by the
next invocation that finds it alive (each run's `mirrored.json` says where it has been written, and whether to its
end). Processes that work on one folder write one after the other, and nothing twice.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierbench.database import make_database
from hierbench.errors import UserError
from hierbench.files import read_json_object, write_json
from hierbench.lock import wait_for_lock
from hierbench.store import Run, Store

if TYPE_CHECKING:
    from hierbench.plan import Job

Warn = Callable[[str], None]


def default_uri(runs: Path) -> str:
    """Return MLFLOW_TRACKING_URI, or a SQLite file in the output folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or sqlite_uri(runs / "mlflow.db", "give --mlflow URI, or --mlflow off")


def sqlite_uri(path: Path, instead: str) -> str:
    """Return the address of a SQLite file.

    Raises:
        UserError: the path has a character that would be read as the end of a path or as a code; it says what to do
            `instead`.
    """
    path = path.resolve()
    if found := [mark for mark in "?#%" if mark in str(path)]:
        raise UserError(f"the address of a database can not hold the {found[0]} of {path}; {instead}, or other --runs")
    return f"sqlite:///{path}"


class Mirror:
    """Writes finished jobs to MLflow; MLflow itself is imported when there is something to write."""

    def __init__(self, uri: str, runs: Path, dataset: str, title: str, warn: Warn, store: Store | None = None) -> None:
        self.uri, self.runs, self.dataset, self.title, self.warn = uri, runs, dataset, title, warn
        self.store = Store(runs) if store is None else store
        self._client: Any = None
        self._experiment = self._parent = ""

    def missing(self, plan: list[Job]) -> list[Job]:
        """Return the finished jobs that this MLflow has not seen."""
        return [job for job in plan if (run := self.store.run(job.id)).done and not self.has(run)]

    def has(self, run: Run) -> bool:
        """Whether this MLflow has seen a run."""
        known = self._known(run)
        return bool(known) and known.get("complete", True)

    def _known(self, run: Run) -> dict[str, Any]:
        """Return what this MLflow is known to have of a run, {} for nothing."""
        database = self.uri.removeprefix("sqlite:///")
        if database != self.uri and not Path(database).exists():
            return {}
        try:
            known = read_json_object(run.folder / "mirrored.json")
            return known if known["uri"] == self.uri else {}
        except (OSError, ValueError, KeyError):
            return {}

    def write(self, job: Job) -> None:
        """Mirror one job that has ended, well or not; after an error of MLflow's nothing more is tried."""
        if self.uri == "off":
            return
        run = self.store.run(job.id)
        try:
            lock = wait_for_lock(self.runs, "mirror")
            try:
                self._connect()
                if not (run.done and self.has(run)):
                    self._write_child(job, run)
            finally:
                lock.release(remove=True)
        except Exception as error:  # MLflow raises of every kind; none may stop a comparison
            self._give_up(error)

    def attach(self, table: Path) -> None:
        """Attach the leaderboard to the invocation's parent run, if there is one."""
        self._with_parent(lambda: self._client.log_artifact(self._parent, str(table)))

    def close(self, status: str) -> None:
        """End the invocation's parent run: FINISHED, FAILED or KILLED."""
        self._with_parent(lambda: self._client.set_terminated(self._parent, status))

    def _with_parent(self, call: Callable[[], object]) -> None:
        if self._parent and self.uri != "off":
            try:
                call()
            except Exception as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        self.warn(f"MLflow at {self.uri} does not take the results ({reason}); the runs on disk are complete")
        self.uri = "off"

    def _connect(self) -> None:
        if self._client is not None:
            return
        # Before the import: no telemetry, and a dead server is found out in seconds instead of minutes.
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ["DO_NOT_TRACK"] = "true"
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        import logging

        logging.getLogger("alembic").setLevel(logging.WARNING)
        from mlflow import MlflowClient

        make_database(self.uri, lambda uri: MlflowClient(tracking_uri=uri).get_experiment_by_name(self.dataset))
        client = MlflowClient(tracking_uri=self.uri)
        experiment = client.get_experiment_by_name(self.dataset)
        if experiment is None:
            artifacts = (self.runs / "mlartifacts").resolve().as_uri() if self.uri.startswith("sqlite:") else None
            self._experiment = client.create_experiment(self.dataset, artifact_location=artifacts)
        else:
            self._experiment = experiment.experiment_id
        self._parent = client.create_run(self._experiment, run_name=self.title).info.run_id
        self._client = client

    def _delete_half(self, attempt: str) -> None:
        """Delete the child that an attempt made, if it came so far."""
        where = f"tags.`hierbench.attempt` = '{attempt}'"
        for run in self._client.search_runs([self._experiment], where):
            self._client.delete_run(run.info.run_id)

    def _write_child(self, job: Job, run: Run) -> None:
        from mlflow.entities import Metric, Param, RunTag

        note = run.folder / "mirrored.json"
        known = self._known(run)
        if not known.get("complete", True):  # the server or this program was killed in the middle
            self._delete_half(str(known.get("attempt")))
        attempt = secrets.token_hex(16)  # written down before the child is made: no kill can leave one unknown
        write_json(note, {"uri": self.uri, "attempt": attempt, "complete": False})
        tags = {"mlflow.parentRunId": self._parent, "hierbench.id": job.id, "hierbench.folder": str(run.folder)}
        tags |= {"hierbench.attempt": attempt}
        started = int(1000 * run.status.get("started", time.time()))
        ended = started + int(1000 * run.status.get("seconds", 0))
        child = self._client.create_run(self._experiment, started, tags=tags, run_name=job.spec.label)
        child_id: str = child.info.run_id
        metrics = [Metric(*entry) for entry in _metrics(run, started)]
        for start in range(0, len(metrics), 1000):  # MLflow's limit per batch
            self._client.log_batch(child_id, metrics=metrics[start : start + 1000])
        params = [Param(name, str(value)) for name, value in _flat(job.spec.content())]
        self._client.log_batch(child_id, params=params[:100], tags=[RunTag("hierbench.method", job.spec.method.name)])
        for name in ("spec.json", "metrics.json", "history.csv", "environment.json"):
            if (run.folder / name).exists():
                self._client.log_artifact(child_id, str(run.folder / name))
        self._client.set_terminated(child_id, "FINISHED" if run.done else "FAILED", ended)
        if run.done:
            write_json(note, {"uri": self.uri, "run_id": child_id, "complete": True})
        else:
            note.unlink()  # another attempt is another run


def _metrics(run: Run, timestamp: int) -> Iterator[tuple[str, float, int, int]]:
    """Yield (name, value, timestamp, step) of every epoch and of the test set; MLflow allows no "@" in names."""
    if (run.folder / "history.csv").exists():
        for row in run.history():
            for name, value in row.items():
                if name != "epoch":
                    yield _allowed(name), value, timestamp, int(row["epoch"])
    if run.done:
        for name, value in run.metrics().get("test", {}).items():
            if value is not None:
                yield _allowed(f"test_{name}"), value, timestamp, 0


def _allowed(name: str) -> str:
    return re.sub(r"[^\w./ :-]", "_", name.replace("@", "_at_"))


def _flat(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value
