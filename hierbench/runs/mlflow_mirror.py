"""A copy of the runs on disk in MLflow: an experiment per dataset, a parent run per command, a child run per job.

The runs on disk are the source of truth. If MLflow does not answer, there is one warning, and the next command writes
what is missing. A job is found in MLflow by a tag with its id, so none is written twice, even after its folder was
moved. Every run also has a tag with the process that writes it: if that process was killed, the next command ends its
parent run and deletes its incomplete child. Processes that share a runs folder write one after the other.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hierbench.config.spec import DatasetSpec
from hierbench.runs.integrity import RECORDS
from hierbench.utils.errors import UserError
from hierbench.utils.files import make_database, refuse_links
from hierbench.utils.lock import Lock
from hierbench.utils.processes import process_is_gone, this_machine

if TYPE_CHECKING:
    from hierbench.records.record import Record

BATCH = 1000  # metrics that MLflow allows in one call
LONGEST = 6000  # characters that MLflow allows in a parameter
MAX_FOUND = 50_000  # runs that MLflow returns of one search
DIGEST_LENGTH = 36  # characters of a dataset's digest that MLflow allows
SOURCE = {"mlflow.source.name": "hierbench", "mlflow.source.type": "LOCAL"}  # what the column Source shows
Result = TypeVar("Result")


def default_uri(runs: Path) -> str:
    """Return MLFLOW_TRACKING_URI, or a SQLite file in the runs folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or sqlite_uri(runs / "mlflow.db", "give --mlflow URI, or --mlflow off")


def sqlite_uri(path: Path, instead: str) -> str:
    """Return the URI of a SQLite file.

    Raises:
        UserError: the path has a character that means something else in a URI; the error says what to do `instead`. Or
            the file is a link, so that a database in another folder would be written.
    """
    path = refuse_links(path.parent, path.name).resolve()
    if found := [mark for mark in "?#%" if mark in str(path)]:
        raise UserError(f"the URI of a database cannot hold the {found[0]} of {path}; {instead}, or other --runs")
    return f"sqlite:///{path}"


class Mirror:
    """Writes finished jobs to MLflow, which is imported only when there is something to write or to ask.

    `uri` "off" means none; `params` are the parent run's parameters.
    """

    def __init__(
        self,
        uri: str,
        runs: Path,
        dataset: str,
        title: str,
        warn: Callable[[str], None],
        params: Mapping[str, str] | None = None,
    ) -> None:
        self.params = params or {}
        self.uri, self.runs, self.dataset, self.title, self.warn = uri, runs, dataset, title, warn
        self._client: Any = None
        self._experiment = self._parent = ""
        self._written: set[str] = set()
        self._database = Path(uri.removeprefix("sqlite:///")).resolve() if uri.startswith("sqlite:///") else None

    def has(self, job_id: str) -> bool:
        """Whether a finished job is in MLflow; also True where the mirror is off, so nothing is left to write."""
        return job_id in self._written or job_id in self._finished or self.uri == "off"

    @cached_property
    def _finished(self) -> set[str]:
        """The ids of the jobs that MLflow has completely: a server is asked once, a database read without MLflow."""
        if self._database is not None:
            query = "t.key = 'hierbench.id' and r.status = 'FINISHED' and r.lifecycle_stage = 'active'"
            return set(self._tag_values(query))
        runs = self._attempt(lambda: self._search("attributes.status = 'FINISHED'")) or []
        return {run.data.tags.get("hierbench.id", "") for run in runs}

    def has_dead_runs(self) -> bool:
        """Whether the database has unfinished runs of commands that were killed; `write` and `close` clean them up."""
        query = "t.key = 'hierbench.process' and r.status = 'RUNNING' and r.lifecycle_stage = 'active'"
        return any(map(_is_dead, self._tag_values(query)))

    def _tag_values(self, where: str) -> list[str]:
        """Return values of tags in the database; [] where it cannot be read. Importing MLflow would take seconds."""
        if self._database is None or not self._database.is_file():
            return []
        query = f"select t.value from tags t join runs r on r.run_uuid = t.run_uuid where {where}"
        found = list[str]()
        with suppress(sqlite3.Error):  # locked, damaged, or of another version: MLflow will report it
            with closing(sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True, timeout=10)) as database:
                found += [value for (value,) in database.execute(query)]
        return found

    def write(self, record: Record, label: str) -> None:
        """Write one run that has ended, finished or failed, under a label."""
        self._attempt(lambda: self._write_child(record, label))

    def attach(self, table: Path) -> None:
        """Attach the leaderboard to the command's parent run, if there is one."""
        if self._parent:
            self._attempt(lambda: self._client.log_artifact(self._parent, str(table)))

    def close(self, status: str) -> None:
        """End the command's parent run, FINISHED, FAILED or KILLED, and clean up after killed commands."""
        if self._parent:
            self._attempt(lambda: self._client.set_terminated(self._parent, status))
        elif self.has_dead_runs():
            self._attempt(lambda: None)  # connecting cleans up

    def _attempt(self, call: Callable[[], Result]) -> Result | None:
        """Return what a call to MLflow returns; after an error, warn once and turn the mirror off."""
        if self.uri == "off":
            return None
        try:
            with Lock(self.runs, "mirror"):
                self._connect()
                return call()
        except Exception as error:  # MLflow raises errors of every kind; none may stop a comparison
            reason = next(iter(str(error).split("\n")), "").strip() or type(error).__name__
            self.warn(f"MLflow at {self.uri} does not take the results ({reason}); the runs on disk are complete")
            self.uri = "off"
            return None

    def _connect(self) -> None:
        if self._client is not None:
            return
        # Before the import: no telemetry, and a dead server is noticed in seconds instead of minutes.
        os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
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
            if self._database.parent == self.runs.resolve():
                _keep_artifacts(self._database, self.dataset, artifacts)
        self._client = MlflowClient(tracking_uri=self.uri)
        found = self._client.get_experiment_by_name(self.dataset)
        self._experiment = (
            self._client.create_experiment(self.dataset, artifact_location=artifacts)
            if found is None
            else found.experiment_id
        )
        for run in self._search("attributes.status = 'RUNNING'"):
            if _is_dead(run.data.tags.get("hierbench.process", "")):
                if "hierbench.id" in run.data.tags:
                    self._delete(run.info.run_id)
                else:
                    self._client.set_terminated(run.info.run_id, "KILLED")

    def _search(self, where: str) -> list[Any]:
        return list(self._client.search_runs([self._experiment], where, max_results=MAX_FOUND))

    def _delete(self, run_id: str) -> None:
        """Delete an incomplete child, and its model first: afterwards nothing would lead to it."""
        for model in self._client.search_logged_models([self._experiment], f"source_run_id = '{run_id}'"):
            self._client.delete_logged_model(model.model_id)
        self._client.delete_run(run_id)

    def _write_child(self, record: Record, label: str) -> None:
        from mlflow.entities import LoggedModelOutput, Metric, Param

        spec, done = record.job, record.done
        process = f"{this_machine()} {os.getpid()}"
        for found in self._search(f"tags.`hierbench.id` = '{record.id}'"):
            if found.info.status == "FINISHED" and done:
                self._written.add(record.id)
                return
            if found.info.status == "RUNNING" and found.data.tags.get("hierbench.process") == process:
                self._delete(found.info.run_id)  # incomplete: an error or an interrupt came in between
        if not self._parent:
            tags = SOURCE | {"hierbench.process": process}
            self._parent = self._client.create_run(self._experiment, run_name=self.title, tags=tags).info.run_id
            asked = [Param(name, value[:LONGEST]) for name, value in self.params.items()]
            self._client.log_batch(self._parent, params=asked[:100])
        tags = {"mlflow.parentRunId": self._parent, "hierbench.id": record.id, "hierbench.folder": str(record.folder)}
        tags |= {"hierbench.method": spec.method.name, "hierbench.process": process} | SOURCE
        started = int(1000 * (record.started or time.time()))
        ended = started + int(1000 * record.seconds)
        child = self._client.create_run(self._experiment, started, tags=tags, run_name=label).info.run_id
        rows = record.history() if (record.folder / "history.csv").exists() else []
        metrics = [
            Metric(_allowed(name), value, started, int(row["epoch"]))
            for row in rows
            for name, value in row.items()
            if name != "epoch"
        ]
        if done:  # what it has trained, or re-ranks, is a model without files
            name, kind = re.sub(r"""[/:.%"']""", "_", spec.label), f"{spec.method.name} {spec.type}"
            model = self._client.create_logged_model(
                self._experiment, name, child, {"hierbench.id": record.id}, model_type=kind
            ).model_id
            self._client.finalize_logged_model(model, "READY")
            self._client.log_outputs(child, [LoggedModelOutput(model, 0)])
            test = {name: value for name, value in record.result.get("test", {}).items() if value is not None}
            metrics += [Metric(_allowed(f"test_{name}"), test[name], ended, 0, model_id=model) for name in test]
        for first in range(0, len(metrics), BATCH):
            self._client.log_batch(child, metrics=metrics[first : first + BATCH])
        params = [Param(name, str(value)) for name, value in _flat(spec.content())]
        self._client.log_batch(child, params=params[:100])
        self._client.log_inputs(child, [_dataset_input(spec.dataset, "training" if spec.base is None else "test")])
        for name in RECORDS:
            if (record.folder / name).is_file() and not (record.folder / name).is_symlink():
                self._client.log_artifact(child, str(record.folder / name))
        self._client.set_terminated(child, "FINISHED" if done else "FAILED", ended)
        if done:
            self._written.add(record.id)


def _keep_artifacts(path: Path, experiment: str, location: str) -> None:
    """Make a database keep an experiment's artifacts at a `file:` URI, where the folder is now: MLflow cannot."""
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        where = "select experiment_id, artifact_location from experiments where name = ? and artifact_location != ?"
        for number, before in database.execute(where, (experiment, location)).fetchall():
            database.execute("update experiments set artifact_location = ? where experiment_id = ?", (location, number))
            moved = "update runs set artifact_uri = ? || substr(artifact_uri, ?) where experiment_id = ? "
            moved += "and substr(artifact_uri, 1, ?) = ?"
            length = len(before) + 1
            database.execute(moved, (location, length, number, length, f"{before}/"))


def _dataset_input(data: DatasetSpec, context: str) -> Any:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    source = json.dumps({"tags": {"tool": "hierbench data prepare", **data.model_dump(mode="json")}})
    dataset = Dataset(data.name, data.digest[:DIGEST_LENGTH], source_type="code", source=source)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", context)])


def _allowed(name: str) -> str:
    """Return a name with nothing that MLflow refuses in names of metrics."""
    return re.sub(r"[^\w./ :-]", "_", name.replace("@", "_at_"))


def _flat(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the names of nested parameters, joined by dots, and their values; None is left out."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value


def _is_dead(process: str) -> bool:
    """Whether the process of a tag was one of this machine, and has ended."""
    machine, _, pid = process.rpartition(" ")
    return machine == this_machine() and process_is_gone(pid)
