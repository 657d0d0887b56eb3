"""MLflow as a mirror of the runs on disk: one experiment per dataset, a parent run per invocation, a child per job.

The mirror is never the truth: a server that does not answer costs one warning, and what it missed is mirrored by the
next invocation that finds it alive. A job is found in MLflow by a tag with its id, so none is mirrored twice, also
after its folder was moved. Each run's `mirrored.json` says which server has it, so that it need not be asked, and which
attempt to write it was the last, so that one that was killed half-way can be deleted. Processes that work on one folder
write one after the other.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import parse_json_object, read_bytes, read_json_object, refuse_links, write_bytes, write_json
from hierbench.utils.lock import Lock, is_gone, this_process
from hierbench.utils.sqlite import keep_artifacts, make_database, refuse_shared

if TYPE_CHECKING:
    from hierbench.runs.job import Job

Warn = Callable[[str], None]


def default_uri(runs: Path) -> str:
    """Return MLFLOW_TRACKING_URI, or a SQLite file in the output folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or sqlite_uri(runs / "mlflow.db", "give --mlflow URI, or --mlflow off")


def sqlite_uri(path: Path, instead: str) -> str:
    """Return the address of a SQLite file.

    Raises:
        UserError: the path has a character that would be read as the end of a path or as a code; it says what to do
            `instead`. Or the file is a link, so that a database elsewhere would be written.
    """
    refuse_shared(path)
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
        self._database = Path(uri.removeprefix("sqlite:///")).resolve() if uri.startswith("sqlite:///") else None

    def missing(self, plan: list[Job]) -> list[Job]:
        """Return the finished jobs that this MLflow has not seen."""
        return [job for job in plan if (run := self.store.run(job.id)).done and not self.has(run)]

    def has(self, run: Run) -> bool:
        """Whether this MLflow has a run to its end: as a database says itself, as is remembered of a server."""
        if self._database is not None:
            return run.folder.name in self._finished
        known = self._known(run)
        return known.get("uri") == self.uri and known.get("complete") is True

    @cached_property
    def _finished(self) -> set[str]:
        """The ids of the jobs that the database has to their end."""
        query = "select t.value from tags t join runs r on r.run_uuid = t.run_uuid where t.key = 'hierbench.id' "
        query += "and r.status = 'FINISHED' and r.lifecycle_stage = 'active'"
        return {job_id for (job_id,) in self._select(query)}

    def has_dead_parents(self) -> bool:
        """Whether the database has parent runs of commands that were killed, which `write` or `close` will end."""
        query = "select t.value from tags t join runs r on r.run_uuid = t.run_uuid where t.key = 'hierbench.process' "
        return any(_is_dead(owner) for (owner,) in self._select(query + "and r.status = 'RUNNING'"))

    def _select(self, query: str) -> list[tuple[Any, ...]]:
        """Read the database without MLflow, whose import takes seconds; [] where that is not possible."""
        if self._database is None or not self._database.is_file():
            return []
        try:
            with closing(sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True, timeout=10)) as database:
                return database.execute(query).fetchall()
        except sqlite3.Error:  # locked, damaged, or of another version: MLflow itself will say so
            return []

    def _known(self, run: Run) -> dict[str, Any]:
        """Return what is remembered of mirroring a run, {} for nothing."""
        try:
            return read_json_object(run.folder / "mirrored.json")
        except (OSError, ValueError):
            return {}

    def write(self, job: Job) -> None:
        """Mirror one job that has ended, well or not; after an error of MLflow's nothing more is tried."""
        if self.uri == "off":
            return
        run = self.store.run(job.id)
        try:
            with Lock(self.runs, "mirror"):
                self._connect()
                if not (run.done and self._is_there(job)):
                    self._write_child(job, run)
                elif self._database is None:
                    write_json(run.folder / "mirrored.json", {"uri": self.uri, "complete": True})
        except Exception as error:  # MLflow raises of every kind; none may stop a comparison
            self._give_up(error)

    def attach(self, table: Path) -> None:
        """Attach the leaderboard to the invocation's parent run, if there is one."""
        self._with_parent(lambda: self._log_artifact(self._parent, table))

    def close(self, status: str) -> None:
        """End the invocation's parent run, FINISHED, FAILED or KILLED, and those of commands that were killed."""
        self._with_parent(lambda: self._client.set_terminated(self._parent, status))
        if self.uri != "off" and self._client is None and self.has_dead_parents():
            try:
                self._connect()
            except Exception as error:  # MLflow raises of every kind
                self._give_up(error)

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
        artifacts = None
        if self._database is not None:
            artifacts = refuse_links(self._database.parent, "mlartifacts").as_uri()
            if self._is_ours:
                keep_artifacts(self._database, self.dataset, artifacts)
        client = MlflowClient(tracking_uri=self.uri)
        experiment = client.get_experiment_by_name(self.dataset)
        if experiment is None:
            self._experiment = client.create_experiment(self.dataset, artifact_location=artifacts)
        else:
            self._experiment = experiment.experiment_id
        for run in client.search_runs([self._experiment], "attributes.status = 'RUNNING'"):
            if _is_dead(run.data.tags.get("hierbench.process")):
                client.set_terminated(run.info.run_id, "KILLED")
        self._client = client

    def _is_there(self, job: Job) -> bool:
        """Whether MLflow has a job to its end, whoever has written it and wherever its folder was then."""
        found = self._client.search_runs([self._experiment], f"tags.`hierbench.id` = '{job.id}'")
        return any(run.info.status == "FINISHED" for run in found)

    @property
    def _is_ours(self) -> bool:
        """Whether this is the database of the folder of runs, which may have come with it."""
        return self._database is not None and self._database.parent == self.runs.resolve()

    def _log_artifact(self, run_id: str, file: Path) -> None:
        """Attach a file to a run; beside our own database, whatever that says about the place."""
        if not self._is_ours:
            self._client.log_artifact(run_id, str(file))
            return
        place = refuse_links(self.runs.resolve(), "mlartifacts", run_id, "artifacts")
        place.mkdir(parents=True, exist_ok=True)
        write_bytes(place / file.name, read_bytes(file))

    def _delete_half(self, attempt: str) -> None:
        """Delete the child that an attempt made, if it came so far."""
        where = f"tags.`hierbench.attempt` = '{attempt}'"
        for run in self._client.search_runs([self._experiment], where):
            self._client.delete_run(run.info.run_id)

    def _write_child(self, job: Job, run: Run) -> None:
        from mlflow.entities import Metric, Param, RunTag

        if not self._parent:
            owner = {"hierbench.process": json.dumps(this_process())}
            self._parent = self._client.create_run(self._experiment, run_name=self.title, tags=owner).info.run_id
        note = run.folder / "mirrored.json"
        known = self._known(run)
        if known.get("complete") is False and re.fullmatch("[0-9a-f]{32}", str(known.get("attempt"))):
            self._delete_half(known["attempt"])  # the server or this program was killed in the middle
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
            if (run.folder / name).is_file() and not (run.folder / name).is_symlink():
                self._log_artifact(child_id, run.folder / name)
        self._client.set_terminated(child_id, "FINISHED" if run.done else "FAILED", ended)
        if run.done:
            write_json(note, {"uri": self.uri, "run_id": child_id, "complete": True})
            self._finished.add(job.id)
        else:
            note.unlink()  # another attempt is another run


def _is_dead(owner: str | None) -> bool:
    """Whether a parent run's process has ended."""
    try:
        return is_gone(parse_json_object(owner or ""))
    except ValueError:
        return False


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
