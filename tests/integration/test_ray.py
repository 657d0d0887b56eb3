"""A real cluster of two raylets on this machine: results, a node killed in the middle, storage that is not shared."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from tests.support.short import SHORT
from tests.support.waiting import write_method

pytest.importorskip("ray")
STEPS = 5  # of an epoch
ONE = ["--types", "type-I", "--seeds", "1", "--mlflow", "off"]
FAST = ["--dataset", "shapes", *ONE, *SHORT, "--set", "train.epochs=2"]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with one processor each, started by Ray."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name in ("period_ms", "timeout_ms", "initial_delay_ms"):  # a dead node is noticed in seconds
            patch.setenv(f"RAY_health_check_{name}", "500")
        patch.delenv("RAY_ADDRESS", raising=False)
        import ray
        from ray.cluster_utils import Cluster

        # It may have been imported before, and so without our default: the tests' `uv run` would act.
        patch.setattr(ray._private.ray_constants, "RAY_ENABLE_UV_RUN_RUNTIME_ENV", False)
        small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        cluster = Cluster(initialize_head=True, head_node_args=small | {"include_dashboard": False})
        cluster.add_node(**small)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    for name in ("patient", "calm", "deadly"):
        write_method(folder, name, STEPS + 2)
    return folder


@pytest.fixture(scope="module")
def undisturbed(cli, work, data_dir):
    """The same jobs here, one after another with one thread each: {name of the run: its folder}."""
    arguments = ["run", "--methods", f"ce,crm,{work}/patient.py,{work}/calm.py", *FAST]
    plan = cli(work, *arguments, "--plan-only", "--json", "--runs", work / "here", "--data-dir", data_dir).ok()
    for job in json.loads(plan.out)["jobs"]:
        cli(work, *job["command"][1:]).ok()
    for path in [*work.glob("steps-*"), *work.glob("place-*")]:
        path.unlink()
    return work / "here"


def trained(folder):
    return json.loads((folder / "spec.json").read_text())["base"] is None


def same_results(runs, undisturbed, count):
    """Metrics, histories and predictions, bit by bit."""
    folders = [path.parent for path in runs.glob("*/spec.json") if (undisturbed / path.parent.name).exists()]
    assert len(folders) == count
    for folder in folders:
        assert json.loads((folder / "status.json").read_text())["state"] == "done"
        for name in ("metrics.json", "history.csv", "predictions.npz"):
            reference = undisturbed / folder.name / name
            assert (folder / name).exists() == reference.exists() == (name != "history.csv" or trained(folder))
            assert not reference.exists() or (folder / name).read_bytes() == reference.read_bytes(), name
    return True


@pytest.mark.thorough
def test_a_node_is_killed_in_the_middle(cli, cluster, work, data_dir, undisturbed, monkeypatch):
    """Its job goes on from its checkpoint on the other node, and all numbers are those of undisturbed jobs.

    A job that kills its worker every time is given up.
    """
    from hierbench.execution import ray_cluster as on_ray

    monkeypatch.setattr(on_ray, "RETRIES", 1)
    (doomed,) = cluster.worker_nodes
    (work / "hold").touch()

    def steps(node):
        path = work / f"steps-{node}"
        return path.stat().st_size if path.exists() else 0

    def kill():
        deadline = time.monotonic() + 300
        nodes = [cluster.head_node.node_id, doomed.node_id]
        while min(map(steps, nodes)) <= STEPS + 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        cluster.remove_node(doomed, allow_graceful=False)
        with suppress(ProcessLookupError):  # a machine that is gone takes its processes with it at once
            os.kill(json.loads((work / f"place-{doomed.node_id}.json").read_text())[0], signal.SIGKILL)
        (work / "hold").unlink()

    killer = threading.Thread(target=kill)
    killer.start()
    arguments = ["--methods", ",".join(f"{work}/{name}.py" for name in ("patient", "calm", "deadly")), *FAST]
    where = ["--runs", work / "shared", "--data-dir", data_dir, "--executor", f"ray:{cluster.address}"]
    done = cli(work, "run", *arguments, *where, "--json")
    killer.join()
    assert done.code == 1, done.err
    assert done.err.count("its worker was lost; it is started again") == 2
    assert "failed: deadly type-I seed 0: its worker was lost, 2 in all" in done.err
    rows = json.loads(done.out)["rows"]
    assert {row["method"]: row["n"] for row in rows} == {"patient": 1, "calm": 1, "deadly": 0}
    assert same_results(work / "shared", undisturbed, 2)
    assert steps(doomed.node_id) == STEPS + 3  # into the second epoch
    assert steps(cluster.head_node.node_id) == 2 * STEPS + STEPS  # its own job, and one epoch of the other


@pytest.mark.thorough
def test_storage_that_is_not_shared(cluster, work, data_dir, undisturbed):
    """The driver's runs folder is a file system that only its own mount namespace has."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no right to make a mount namespace")
    runs, kept = work / "private", work / "kept"
    runs.mkdir()
    arguments = ["--methods", "ce,crm", *FAST, "--data-dir", str(data_dir)]
    command = [sys.executable, "-m", "hierbench", "run", *arguments, "--runs", str(runs), "--json"]
    script = 'mount -t tmpfs none "$1" && "${@:3}" && cp -r "$1" "$2"'
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script, "-", runs, kept, *command, "--executor", "ray"],
        env=os.environ | {"RAY_ADDRESS": cluster.address},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert [row["method"] for row in json.loads(done.stdout)["rows"]] == ["ce", "crm"]
    assert not list(runs.iterdir())  # where the node works, nothing was written
    assert same_results(kept, undisturbed, 2)
    assert sum(path.name == "checkpoint.pt" for path in kept.rglob("*")) == 1
    assert not list(kept.glob(".shared-*"))
    shutil.rmtree(kept)


@pytest.mark.soak
def test_a_grid_on_a_cluster(cli, cluster, work, data_dir, monkeypatch):
    """The same numbers, winner and table as on this machine with one thread for each job."""
    tune = ["tune", "--method", "haframe", "--dataset", "shapes", "--data-dir", data_dir, "--mlflow", "off", *SHORT]
    for value in ("runs=1", "grid.haframe.gamma=[2]", "grid.haframe.alpha=[0.3,0.5]"):
        tune += ["--set", f"tune.{value}"]
    on_ray = ("--runs", work / "grid", "--executor", f"ray:{cluster.address}")
    tables, metrics, winners = [], [], []
    monkeypatch.setattr("hierbench.execution.resources.num_cores", lambda: 1)  # one job at a time, one thread for it
    for where in (on_ray, ("--runs", work / "grid-here")):
        done = cli(work, *tune, *where).ok()
        tables.append(done.out.rpartition("written to")[0])
        metrics.append({path.parent.name: path.read_bytes() for path in where[1].glob("*/metrics.json")})
        winners.append((where[1] / "tuned/shapes.toml").read_text())
    assert tables[0] == tables[1] and "  2     " in tables[0]
    assert metrics[0] == metrics[1] and len(metrics[0]) == 2
    assert winners[0] == winners[1]


@pytest.mark.parametrize("refused", ["", "Version mismatch"])
def test_a_connection_and_a_refused_one_leave_the_environment_as_it_was(cluster, monkeypatch, refused):
    import ray

    from hierbench.execution.ray_connection import connected
    from hierbench.utils.errors import UserError

    if refused:
        monkeypatch.setattr(ray, "__version__", "2.0.0")
    before = dict(os.environ)
    try:
        with connected(cluster.address):
            with pytest.raises(UserError, match="already connected"), connected(cluster.address):
                pass
            assert ray.is_initialized()
        assert not refused
    except UserError as error:
        assert refused and str(error).startswith(f"cannot join the Ray cluster at {cluster.address}: {refused}"), error
        assert "\n" not in str(error)
    assert dict(os.environ) == before and not ray.is_initialized()


def test_a_cluster_without_a_gpu(cluster):
    from hierbench.execution.ray_connection import device_on_cluster
    from hierbench.utils.errors import UserError

    assert device_on_cluster(cluster.address, "auto") == "cpu"
    with pytest.raises(UserError, match=f"--device cuda: the Ray cluster at {cluster.address} has no GPU"):
        device_on_cluster(cluster.address, "cuda")


@pytest.fixture
def order(tmp_path, data_dir, undisturbed):
    """The message of the driver to a node."""
    from hierbench.api.registry import find_method
    from hierbench.config.spec import Spec
    from hierbench.execution.ray_cluster import task_arguments
    from hierbench.execution.resources import Setting
    from hierbench.runs.job import Job

    specs = [Spec.model_validate_json(path.read_bytes()) for path in undisturbed.glob("*/spec.json")]
    spec = next(spec for spec in specs if spec.method.name == "ce")
    return task_arguments(Job(spec, find_method("ce")), Setting(tmp_path / "runs", data_dir, threads=1), ".shared-x")


def test_a_node_without_the_data_or_with_other_code_says_so(order, tmp_path):
    import socket

    from hierbench.execution.ray_cluster import engine_digest, run_task

    elsewhere = order["setting"] | {"data_dir": tmp_path}
    node, (state, error), files, _ = run_task(engine_digest(), order | {"setting": elsewhere}, None)
    assert (node, state) == (socket.gethostname(), "failed") and "is not the data this job was planned for" in error
    assert json.loads(files["status.json"])["state"] == "failed"
    assert "not the driver's" in run_task("another", order, None)[1][1]
    assert not (tmp_path / "runs").exists()


def test_a_run_that_did_not_arrive_whole_is_not_done(tmp_path, monkeypatch):
    from hierbench.execution import ray_cluster as on_ray
    from hierbench.execution.run_job import Outcome
    from hierbench.runs.store import Run

    def write(path, content):
        if path.name == "metrics.json":
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr(on_ray, "write_bytes", write)
    files = {"status.json": b'{"state": "done"}', "metrics.json": b"{}", "history.csv": b""}
    assert "No space left" in on_ray._write_received(Run(tmp_path), files, Outcome("done")).error
    assert not (tmp_path / "status.json").exists()
