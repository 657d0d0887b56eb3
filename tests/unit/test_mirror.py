"""The mirror in MLflow: nothing twice, nothing in halves, whoever is killed in the middle. The server is pretended."""

import json
import re
import threading
from types import SimpleNamespace

import pytest

from hierbench.runs.integrity import fingerprints
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.runs.store import Store
from hierbench.utils.files import write_json


class Server:
    """What MLflow has: {run: status}."""

    def __init__(self):
        self.runs, self.tags, self.down = {}, {}, False

    def create_run(self, *_, tags, **__):
        self.answer()
        name = f"run-{len(self.tags)}"
        self.runs[name], self.tags[name] = "RUNNING", tags
        return SimpleNamespace(info=SimpleNamespace(run_id=name))

    def search_runs(self, experiments, where):
        self.answer()
        key, value = re.fullmatch(r"tags\.`([\w.]+)` = '(\w+)'", where).groups()
        names = [name for name in self.runs if self.tags.get(name, {}).get(key) == value]
        return [SimpleNamespace(info=SimpleNamespace(run_id=name, status=self.runs[name])) for name in names]

    def delete_run(self, run):
        self.answer()
        del self.runs[run]

    def set_terminated(self, run, status, *_):
        self.answer()
        self.runs[run] = status

    def log_batch(self, *_, **__):
        self.answer()

    def log_artifact(self, *_):
        self.answer()

    def answer(self):
        if self.down:
            raise ConnectionError("connection refused")


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def job(tmp_path):
    spec = SimpleNamespace(content=lambda: {"seed": 0}, label="x", method=SimpleNamespace(name="ce"))
    run = Store(tmp_path).run("job")
    run.folder.mkdir()
    result = {"top1": 50.0, "mistake_severity": 1.0, "hierdist@1": 0.5}
    write_json(run.folder / "metrics.json", {"title": "x", "test": result})
    write_json(run.folder / "spec.json", {})
    run.set_status("done", started=0.0, seconds=1.0, files=fingerprints(run.folder))
    return SimpleNamespace(id="job", spec=spec)


def mirror(folder, server, warnings):
    mirror = Mirror("http://server", folder, "shapes", "title", warnings.append)
    mirror._client, mirror._experiment, mirror._parent = server, "1", "parent"
    return mirror


def test_of_many_at_once_one_writes(tmp_path, server, job):
    mirrors = [mirror(tmp_path, server, []) for _ in range(6)]
    assert mirrors[0].missing([job]) == [job]
    threads = [threading.Thread(target=each.write, args=[job]) for each in mirrors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.runs == {"run-0": "FINISHED"}
    assert mirrors[0].missing([job]) == [] and not list(tmp_path.glob(".*"))


def test_a_server_that_is_killed_in_the_middle_costs_one_warning_and_keeps_no_half(tmp_path, server, job, monkeypatch):
    def dies(*_):
        server.down = True
        raise ConnectionError("connection reset")

    warnings = []
    with monkeypatch.context() as patch:
        patch.setattr(server, "log_artifact", dies)
        first = mirror(tmp_path, server, warnings)
        first.write(job)
        first.write(job)
        first.close("FINISHED")
    assert len(warnings) == 1 and "connection reset" in warnings[0] and server.runs == {"run-0": "RUNNING"}
    assert not json.loads((tmp_path / "job/mirrored.json").read_text())["complete"]
    server.down = False
    second = mirror(tmp_path, server, warnings)
    assert second.missing([job]) == [job]
    server.runs["other"] = "FINISHED"
    second.write(job)
    assert server.runs == {"other": "FINISHED", "run-1": "FINISHED"} and len(warnings) == 1


@pytest.mark.parametrize("answered", [False, True])
def test_a_kill_while_the_child_is_made_leaves_no_second_one(tmp_path, server, job, monkeypatch, answered):
    make = server.create_run

    def killed(*arguments, **options):
        if answered:  # the server has made it, and this program never learns how it is called
            make(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(server, "create_run", killed)
        with pytest.raises(KeyboardInterrupt):
            mirror(tmp_path, server, []).write(job)
    assert len(server.runs) == answered
    mirror(tmp_path, server, []).write(job)
    assert list(server.runs.values()) == ["FINISHED"]


def test_a_failed_job_is_written_at_each_attempt(tmp_path, server, job):
    Store(tmp_path).run("job").set_status("failed", error="x")
    for _ in range(2):
        mirror(tmp_path, server, []).write(job)
    assert server.runs == {"run-0": "FAILED", "run-1": "FAILED"}


def test_what_the_server_has_is_not_written_again_wherever_the_folder_is_now(tmp_path, server, job):
    mirror(tmp_path, server, []).write(job)
    (tmp_path / "job").rename(tmp_path / "moved")
    (tmp_path / "moved/mirrored.json").unlink()  # as of a copy of the results alone
    (tmp_path / "moved").rename(tmp_path / "job")
    again = mirror(tmp_path, server, [])
    assert again.missing([job]) == [job]
    again.write(job)
    assert server.runs == {"run-0": "FINISHED"} and again.missing([job]) == []
