"""A copy of the runs on disk in MLflow: an experiment per dataset, a parent run per command, a child run per job.

`MLFLOW_EXPERIMENT_NAME` names another experiment.

The runs on disk are the source of truth. If MLflow does not answer, there is one warning, and the next command writes
missing runs: `mirrored.jsonl` in the runs folder lists the jobs that MLflow has, as asking it would take seconds. A job
is found in MLflow by a tag with its id, so it is not written twice, even after its folder was moved. Every run also
has a tag with the process that writes it: if that process was killed, the next that writes ends its parent run and
deletes its incomplete child. Processes that share a runs folder write one after the other.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hierbench.config.overrides import flatten
from hierbench.config.spec import DatasetSpec
from hierbench.runs.store import HistoryRow
from hierbench.utils.errors import UserError
from hierbench.utils.files import is_database, make_database, refuse_links
from hierbench.utils.lock import Lock
from hierbench.utils.processes import process_is_gone, this_machine

if TYPE_CHECKING:
    from hierbench.runs.record import Record

MIRRORED_FILE = "mirrored.jsonl"
MAX_METRICS_PER_CALL = 1000  # metrics that MLflow allows in one call
MAX_PARAMETER_LENGTH = 6000  # characters that MLflow allows in a parameter
MAX_FOUND = 50_000  # runs that MLflow returns of one search
DIGEST_LENGTH = 36  # characters of a dataset's digest that MLflow allows
SOURCE = {"mlflow.source.name": "hierbench", "mlflow.source.type": "LOCAL"}  # for the column Source
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
    marks = [mark for mark in "?#%" if mark in str(path)]
    if marks:
        raise UserError(f"the URI of a database cannot hold the {marks[0]} of {path}; {instead}, or other --runs")
    return f"sqlite:///{path}"


def page_of_runs(runs: Path, uri: str, job_ids: Sequence[str]) -> str | None:
    """Return the address of MLflow's page with some jobs, on an HTTP server or `mlflow ui`, or None.

    Without `workflowType` the page is that of traces, which is empty.
    """
    place = uri.rstrip("/") if uri.startswith(("http://", "https://")) else "http://127.0.0.1:5000"
    server = _server(uri, runs)
    for line in reversed(list(_lines(runs))):
        if line.get("id") in job_ids and line.get("server") == server and "experiment" in line:
            return f"{place}/#/experiments/{line['experiment']}/runs?workflowType=machine_learning"
    return None


def _database(uri: str) -> Path | None:
    return Path(uri.removeprefix("sqlite:///")).resolve() if uri.startswith("sqlite:///") else None


def _server(uri: str, runs: Path) -> str:
    """Return the name of a server in notes: the database of a runs folder moves with it."""
    database = _database(uri)
    return "" if database is not None and database.parent == runs.resolve() else uri


def _lines(runs: Path) -> Iterator[dict[str, str]]:
    """Yield the notes on the jobs that were written."""
    path = runs / MIRRORED_FILE
    if path.is_file() and not path.is_symlink():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError):  # torn by a kill
                content = json.loads(line)
                if isinstance(content, dict):
                    yield content


class Mirror:
    """Writes finished jobs to MLflow, which is imported only when there is something to write or to ask.

    `uri` "off" means no mirror; `params` are the parent run's parameters.
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
        self.uri = uri
        self.runs = runs
        self.title = title
        self.warn = warn
        self.experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or dataset
        self._client: Any = None
        self._experiment = self._parent = ""
        self._database = _database(uri)
        self._server = _server(uri, runs)
        self._keeps_artifacts = True

    def has(self, job_id: str) -> bool:
        """Whether a finished job is in MLflow; also True where the mirror is off, so nothing is left to write."""
        return self.uri == "off" or job_id in self._mirrored_ids

    @cached_property
    def _mirrored_ids(self) -> set[str]:
        """The ids of the jobs that were written to this server; empty if its database is gone."""
        if self._database is not None and not is_database(self._database):
            return set()
        return {line["id"] for line in _lines(self.runs) if line.get("server") == self._server and "id" in line}

    def write(self, record: Record, label: str, history: Sequence[HistoryRow] = ()) -> None:
        """Write one run that has ended, finished or failed, under a label, with its metrics by epoch."""
        self._attempt(lambda: self._write_child(record, label, history))

    def attach(self, table: Path, means: Mapping[str, float] | None = None) -> None:
        """Attach a table to the command's parent run, if there is one, with the means of its rows by name.

        The file is left out where the folder of artifacts was moved.
        """
        if self._parent:
            self._attempt(lambda: self._attach(table, means or {}))

    def _attach(self, table: Path, means: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._log_metrics(self._parent, [Metric(_metric_key(name), value, now, 0) for name, value in means.items()])
        if self._keeps_artifacts:
            self._client.log_artifact(self._parent, str(table))

    def close(self, status: str) -> None:
        """End the command's parent run, FINISHED, FAILED or KILLED."""
        if self._parent:
            self._attempt(lambda: self._client.set_terminated(self._parent, status))

    def _attempt(self, call: Callable[[], Result]) -> Result | None:
        """Return the result of a call to MLflow; after an error, warn once and turn the mirror off."""
        if self.uri == "off":
            return None
        try:
            with Lock(self.runs, "mirror"):
                self._connect()
                return call()
        except Exception as error:  # MLflow raises errors of every kind, and no error may stop a comparison
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

        make_database(self.uri, lambda uri: MlflowClient(tracking_uri=uri).get_experiment_by_name(self.experiment))
        artifacts = None
        if self._database is not None:
            artifacts = refuse_links(self._database.parent, "mlartifacts").as_uri()
        self._client = MlflowClient(tracking_uri=self.uri)
        experiment = self._client.get_experiment_by_name(self.experiment)
        self._experiment = (
            self._client.create_experiment(self.experiment, artifact_location=artifacts)
            if experiment is None
            else experiment.experiment_id
        )
        # Of a folder that was moved, the artifacts would go where it was.
        self._keeps_artifacts = None in (experiment, artifacts) or experiment.artifact_location == artifacts
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

    def _write_child(self, record: Record, label: str, history: Sequence[HistoryRow]) -> None:
        from mlflow.entities import LoggedModelOutput, Metric, Param

        spec = record.job
        done = record.done
        process = f"{this_machine()} {os.getpid()}"
        for run in self._search(f"tags.`hierbench.id` = '{record.id}'"):
            if run.info.status == "FINISHED" and done:
                return self._note(record.id)
            if run.info.status == "RUNNING" and run.data.tags.get("hierbench.process") == process:
                self._delete(run.info.run_id)  # incomplete: an error or an interrupt came in between
        if not self._parent:
            tags = SOURCE | {"hierbench.process": process}
            self._parent = self._client.create_run(self._experiment, run_name=self.title, tags=tags).info.run_id
            asked_params = [Param(name, value[:MAX_PARAMETER_LENGTH]) for name, value in self.params.items()]
            self._client.log_batch(self._parent, params=asked_params[:100])
            self._client.log_inputs(self._parent, [_dataset_input(spec.dataset, "training")])
        tags = {"mlflow.parentRunId": self._parent, "hierbench.id": record.id, "hierbench.folder": str(record.folder)}
        tags |= {"hierbench.method": spec.method.name, "hierbench.process": process} | SOURCE
        started = int(1000 * (record.started or time.time()))
        ended = started + int(1000 * record.seconds)
        child = self._client.create_run(self._experiment, started, tags=tags, run_name=label).info.run_id
        metrics = [
            Metric(_metric_key(name), value, started, int(row["epoch"]))
            for row in history
            for name, value in row.items()
            if name != "epoch"
        ]
        if done:
            model = self._create_model(record, child) if self._keeps_artifacts else None
            if model is not None:
                self._client.log_outputs(child, [LoggedModelOutput(model, 0)])
            test = {name: value for name, value in record.result.get("test", {}).items() if value is not None}
            metrics += [Metric(_metric_key(f"test_{name}"), test[name], ended, 0, model_id=model) for name in test]
        self._log_metrics(child, metrics)
        params = [Param(name, str(value)) for name, value in flatten(spec.content()) if value not in (None, {})]
        self._client.log_batch(child, params=params[:100])
        self._client.log_inputs(child, [_dataset_input(spec.dataset, "training" if spec.base is None else "test")])
        self._client.set_terminated(child, "FINISHED" if done else "FAILED", ended)
        if done:
            self._note(record.id)

    def _create_model(self, record: Record, child: str) -> str:
        """Return the id of a new model, trained or re-ranked by a job; its files are not in MLflow."""
        import mlflow

        name = re.sub(r"""[/:.%"']""", "_", record.job.label)
        kind = f"{record.job.method.name} {record.job.type}"
        tags = {"hierbench.id": record.id}
        before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
        mlflow.set_tracking_uri(self.uri)  # the function takes no client
        try:
            model = mlflow.create_external_model(name, child, tags, None, kind, self._experiment)
        finally:
            mlflow.set_tracking_uri(before)  # a notebook may track something else
        return str(model.model_id)

    def _log_metrics(self, run: str, metrics: list[Any]) -> None:
        for first in range(0, len(metrics), MAX_METRICS_PER_CALL):
            self._client.log_batch(run, metrics=metrics[first : first + MAX_METRICS_PER_CALL])

    def _note(self, job_id: str) -> None:
        """Note that MLflow has a job."""
        with refuse_links(self.runs, MIRRORED_FILE).open("a", encoding="utf-8") as file:
            line = {"id": job_id, "server": self._server, "experiment": self._experiment}
            file.write(json.dumps(line) + "\n")
        self._mirrored_ids.add(job_id)


def _dataset_input(data: DatasetSpec, context: str) -> Any:
    from mlflow.data.code_dataset_source import CodeDatasetSource
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.entities import Dataset, DatasetInput, InputTag

    source = CodeDatasetSource({"tool": "hierbench data prepare", **data.model_dump(mode="json")})
    dataset = MetaDataset(source, data.name, data.digest[:DIGEST_LENGTH])
    return DatasetInput(Dataset.from_dictionary(dataset.to_dict()), [InputTag("mlflow.data.context", context)])


def _metric_key(name: str) -> str:
    """Return a name with nothing that MLflow refuses in names of metrics."""
    return re.sub(r"[^\w./ :-]", "_", name.replace("@", "_at_"))


def _is_dead(process: str) -> bool:
    """Whether the process of a tag was one of this machine, and has ended."""
    machine, _, pid = process.rpartition(" ")
    return machine == this_machine() and process_is_gone(pid)
