"""The MLflow mirror: no duplicate and no partial runs, whichever process is killed. The server is a fake."""

import contextlib
import re
import sqlite3
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from hierbench.config.spec import DatasetSpec
from hierbench.runs.mlflow_mirror import Mirror, page_of_runs
from hierbench.runs.record import Record
from hierbench.runs.state import State
from hierbench.utils.processes import this_machine


class Server:
    """A client and its server: {child run: status}; the parent run is not recorded."""

    def __init__(self):
        self.runs, self.tags, self.models, self.down = {}, {}, {}, False

    def get_experiment_by_name(self, _):
        self.answer()
        return SimpleNamespace(experiment_id="1")

    def create_run(self, *_, tags, **__):
        self.answer()
        name = self.create_child(tags) if "hierbench.id" in tags else "parent"
        return SimpleNamespace(info=SimpleNamespace(run_id=name))

    def create_child(self, tags):
        name = f"run-{len(self.tags)}"
        self.runs[name], self.tags[name] = "RUNNING", tags
        return name

    def search_runs(self, experiments, where, **_):
        self.answer()
        tag, status, value = re.fullmatch(r"(?:tags\.`([\w.]+)`|attributes\.(status)) = '(\w+)'", where).groups()
        names = [name for name in self.runs if value == (self.runs[name] if status else self.tags[name].get(tag))]
        return [
            SimpleNamespace(
                info=SimpleNamespace(run_id=name, status=self.runs[name]), data=SimpleNamespace(tags=self.tags[name])
            )
            for name in names
        ]

    def delete_run(self, run):
        self.answer()
        del self.runs[run]

    def set_terminated(self, run, status, *_):
        self.answer()
        self.runs[run] = status

    def create_external_model(self, name, run, *_):
        self.answer()
        self.models[f"model of {run}"] = "READY"
        return SimpleNamespace(model_id=f"model of {run}")

    def search_logged_models(self, _, where):
        self.answer()
        run = re.fullmatch(r"source_run_id = '(.+)'", where)[1]
        return [SimpleNamespace(model_id=model) for model in self.models if model == f"model of {run}"]

    def delete_logged_model(self, model):
        self.answer()
        del self.models[model]

    def answer(self, *_, **__):
        if self.down:
            raise ConnectionError("connection refused")

    log_batch = log_artifact = log_inputs = log_outputs = answer


@pytest.fixture
def server(monkeypatch):
    server = Server()
    monkeypatch.setattr("mlflow.MlflowClient", lambda tracking_uri: server)
    monkeypatch.setattr("mlflow.create_external_model", server.create_external_model)
    return server


@pytest.fixture
def record(tmp_path):
    """A finished run; `base` is of one that re-ranks."""
    dataset = DatasetSpec(name="shapes", digest="0123456789abcdef" * 4, hierarchy="h", distance="height")
    (tmp_path / "job").mkdir()
    (tmp_path / "job/spec.json").write_text("{}")

    def made(state=State.RECORDED, base=None):
        method = SimpleNamespace(name="ce")
        spec = SimpleNamespace(
            content=lambda: {"seed": 0}, label="x", method=method, type="type-I", dataset=dataset, base=base
        )
        result = {"test": {"top1": 50.0, "mistake_severity": 1.0, "hierdist@1": 0.5}}
        return Record(tmp_path / "job", state, spec, status={"started": 0.0, "seconds": 1.0}, result=result)

    return made


def mirror(folder, warnings):
    return Mirror("http://server", folder, "shapes", "title", warnings.append)


def test_of_many_at_once_one_writes(tmp_path, server, record):
    mirrors = [mirror(tmp_path, []) for _ in range(6)]
    assert not mirrors[0].has("job")
    threads = [threading.Thread(target=each.write, args=[record(), "x"]) for each in mirrors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.runs == {"run-0": "FINISHED"}
    assert mirror(tmp_path, []).has("job") and not list(tmp_path.glob(".*"))


def test_a_server_killed_in_the_middle_costs_one_warning_and_keeps_no_half(tmp_path, server, record, monkeypatch):
    def dies(*_):
        server.down = True
        raise ConnectionError("connection reset")

    warnings = []
    with monkeypatch.context() as patch:
        patch.setattr(server, "log_outputs", dies)
        first = mirror(tmp_path, warnings)
        first.write(record(), "x")
        first.write(record(), "x")
        first.close("FINISHED")
    assert len(warnings) == 1 and "connection reset" in warnings[0] and server.runs == {"run-0": "RUNNING"}
    server.down = False
    second = mirror(tmp_path, warnings)
    assert not second.has("job")
    server.runs["other"], server.tags["other"] = "FINISHED", {}
    second.write(record(), "x")
    assert server.runs == {"other": "FINISHED", "run-2": "FINISHED"} and len(warnings) == 1
    assert server.models == {"model of run-2": "READY"}  # that of the half is deleted with it


@pytest.mark.parametrize("answered", [False, True])
def test_a_kill_while_the_child_is_made_leaves_no_second_one(tmp_path, server, record, monkeypatch, answered):
    make = server.create_child

    def killed(tags):
        if answered:  # the server has made it, and this program never learns how it is called
            make(tags)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(server, "create_child", killed)
        with pytest.raises(KeyboardInterrupt):
            mirror(tmp_path, []).write(record(), "x")
    assert len(server.runs) == answered
    mirror(tmp_path, []).write(record(), "x")
    assert list(server.runs.values()) == ["FINISHED"]


def test_a_failed_job_is_written_at_each_attempt(tmp_path, server, record):
    for _ in range(2):
        mirror(tmp_path, []).write(record(State.UNFINISHED), "x")
    assert server.runs == {"run-0": "FAILED", "run-1": "FAILED"}


def test_a_server_that_does_not_answer_costs_one_warning_and_has_nothing_to_write(tmp_path, server, record):
    warnings = []
    server.down = True
    down = mirror(tmp_path, warnings)
    down.write(record(), "x")
    assert len(warnings) == 1 and "connection refused" in warnings[0] and not server.runs
    assert down.has("job") and not mirror(tmp_path, []).has("job")  # the next command writes it


@pytest.fixture
def database(cli, tmp_path, monkeypatch):
    """The address of a database of MLflow, whose tables are made once for all."""
    monkeypatch.setattr("hierbench.runs.mlflow_mirror.make_database", cli._make_database)
    return f"sqlite:///{tmp_path}/mlflow.db"


def children(database, name="shapes"):
    from mlflow import MlflowClient

    client = MlflowClient(database)
    experiment = client.get_experiment_by_name(name).experiment_id
    return client.search_runs([experiment], "tags.`hierbench.id` = 'job'")


@pytest.mark.parametrize(("base", "context"), [(None, "training"), ("another job", "test")])
def test_the_page_of_a_run(tmp_path, record, database, base, context):
    """Its label, the dataset as an input, the columns source and models; of its parent what was asked and came out."""
    import mlflow
    from mlflow import MlflowClient
    from mlflow.data import get_source

    client, warnings, options = MlflowClient(database), [], {"methods": "ce", "set.train.epochs": "1"}
    finished = record(base=base)
    before, made = mlflow.get_tracking_uri(), Mirror(database, tmp_path, "shapes", "title", warnings.append, options)
    made.write(finished, "ce type-I alpha 0.3")
    made.attach(tmp_path / "job/spec.json", {"hierdist@1/type-I ce": 0.5})
    (run,) = children(database)
    assert run.info.run_name == "ce type-I alpha 0.3" and not warnings and mlflow.get_tracking_uri() == before
    parent = client.get_run(run.data.tags["mlflow.parentRunId"])
    assert parent.data.params == options and parent.data.metrics == {"hierdist_at_1/type-I ce": 0.5}
    assert [entry.dataset.name for entry in parent.inputs.dataset_inputs] == ["shapes"]
    assert [file.path for file in client.list_artifacts(parent.info.run_id)] == ["spec.json"]
    (dataset_input,) = run.inputs.dataset_inputs
    dataset = dataset_input.dataset
    assert (dataset.name, dataset.digest) == ("shapes", "0123456789abcdef0123456789abcdef0123")
    assert {tag.key: tag.value for tag in dataset_input.tags} == {"mlflow.data.context": context}
    source = get_source(dataset_input).to_dict()["tags"]
    assert source["digest"] == finished.dataset.digest and source["tool"] == "hierbench data prepare"
    assert run.data.tags["mlflow.source.name"] == "hierbench" and run.data.tags["mlflow.source.type"] == "LOCAL"
    (output,) = run.outputs.model_outputs
    model = client.get_logged_model(output.model_id)
    assert (model.name, model.model_type, model.status) == ("x", "ce type-I", "READY")
    assert model.source_run_id == run.info.run_id and model.tags["hierbench.id"] == "job"
    assert model.tags["mlflow.model.isExternal"] == "true"  # its files are in the runs folder
    assert {metric.key: metric.value for metric in model.metrics}["test_top1"] == 50.0
    assert run.data.metrics["test_top1"] == 50.0


def test_the_half_of_a_killed_process_is_deleted_by_the_next(tmp_path, record, database):
    warnings = []
    Mirror(database, tmp_path, "shapes", "title", warnings.append).write(record(), "x")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = f"{this_machine()} {ended.pid}"
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as opened, opened:
        opened.execute("update runs set status = 'RUNNING'")
        opened.execute("update tags set value = ? where key = 'hierbench.process'", (dead,))
    again = Mirror(database, tmp_path, "shapes", "title", warnings.append)
    (tmp_path / "mirrored.jsonl").unlink()
    (half,) = children(database)
    again.write(record(), "x")
    again.close("FINISHED")
    (child,) = children(database)
    assert child.info.run_id != half.info.run_id and child.info.status == "FINISHED" and not warnings
    assert Mirror(database, tmp_path, "shapes", "title", warnings.append).has("job")
    (tmp_path / "mirrored.jsonl").write_text('{"id": "other", "server": "x"}\n{"id": "job", "ser')
    assert not Mirror(database, tmp_path, "shapes", "title", warnings.append).has("job")


def test_an_experiment_has_another_name_where_that_is_asked(tmp_path, record, database, monkeypatch):
    """MLflow's own variable; the printed address leads to the runs of that experiment."""
    Mirror(database, tmp_path, "shapes", "title", print).write(record(), "x")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    (tmp_path / "mirrored.jsonl").unlink()
    Mirror(database, tmp_path, "shapes", "title", print).write(record(), "x")
    (child,) = children(database, "mine")
    address = f"http://127.0.0.1:5000/#/experiments/{child.info.experiment_id}/runs?workflowType=machine_learning"
    assert page_of_runs(tmp_path, database, ["job"]) == address
    assert page_of_runs(tmp_path, "http://server", ["job"]) is page_of_runs(tmp_path, database, ["other"]) is None


def test_an_empty_database_counts_as_missing(tmp_path, record, database):
    """One whose content is gone is written again, whatever is noted."""
    (tmp_path / "mlflow.db").touch()
    (tmp_path / "mirrored.jsonl").write_text('{"id": "job", "server": ""}\n')
    made = Mirror(database, tmp_path, "shapes", "title", print)
    assert not made.has("job")
    made.write(record(), "x")
    assert len(children(database)) == 1 and Mirror(database, tmp_path, "shapes", "title", print).has("job")
