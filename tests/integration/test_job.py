"""Planned jobs under another scheduler: the plan as commands, one job by its id, and the scripts of docs/cluster.md."""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hierbench.config.spec import Spec
from hierbench.runs.store import Store
from hierbench.utils.processes import starting_children
from tests.support.short import SHORT

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--types", "type-I", "--dataset", "shapes", "--seeds", "1", *SHORT, "--mlflow", "off"]


@pytest.fixture
def where(tmp_path, data_dir):
    return ["--runs", tmp_path / "runs", "--data-dir", data_dir]


@pytest.fixture
def plan(cli, tmp_path, where):
    """Return a function that plans methods and returns the planned jobs."""

    def make(methods):
        planned = cli(tmp_path, "run", "--methods", methods, *SMALL, *where, "--plan-only", "--json").ok()
        return json.loads(planned.out)["jobs"]

    return make


def test_a_plan_lists_what_trains_first(plan):
    ce, crm = plan("crm,ce")
    assert [ce["label"], ce["method"], ce["type"], ce["seed"]] == ["ce type-I seed 0", "ce", "type-I", 0]
    assert [ce["state"], ce["after"], crm["state"], crm["after"]] == ["train", None, "rescore", ce["id"]]


def test_a_plan_has_a_command_and_a_folder_per_job(plan, tmp_path):
    for job in plan("crm,ce"):
        assert job["command"][:3] == ["hierbench", "job", job["id"]]
        status = json.loads((tmp_path / "runs" / job["id"] / "status.json").read_text())
        assert status["state"] == "planned"


def test_a_plan_for_people_has_the_same_commands(cli, plan, tmp_path, where):
    ce, crm = plan("crm,ce")
    for_people = cli(tmp_path, "run", "--methods", "crm,ce", *SMALL, *where, "--plan-only", "--format", "csv").ok().out
    first, second = csv.DictReader(for_people.splitlines())
    assert [shlex.split(line["Command"]) for line in (first, second)] == [ce["command"], crm["command"]]
    assert (first["State"], first["Job"], first["After"]) == ("train", "ce type-I seed 0", "")
    assert (second["State"], second["Job"], second["After"]) == ("rescore", "crm type-I seed 0", ce["id"][:12])


def test_a_plan_job_by_job(cli, plan, tmp_path, where):
    ce, crm = plan("crm,ce")
    early = cli(tmp_path, *crm["command"][1:])
    assert early.code == 1 and f"run first: hierbench job {ce['id']}" in early.err
    by_prefix = cli(tmp_path, "job", ce["id"][:10], *where, "--device", "cpu").ok()
    result = tmp_path / "runs" / ce["id"] / "metrics.json"
    assert by_prefix.out == "" and re.search(rf"done: ce type-I seed 0 \((\d+|under 1) s\): {result}", by_prefix.err)
    written = result.stat().st_mtime_ns
    cli(tmp_path, *ce["command"][1:]).ok()
    assert result.stat().st_mtime_ns == written  # done is done
    assert json.loads((result.parent / "environment.json").read_text())["threads"] == 1
    cli(tmp_path, *crm["command"][1:]).ok()
    assert [job["state"] for job in plan("crm,ce")] == ["cached", "cached"]


def test_a_method_of_the_user(cli, plan, tmp_path):
    folder = tmp_path / "my methods"
    folder.mkdir()
    cli(tmp_path, "methods", "new", "mine", "--output", folder).ok()
    (job,) = plan(f"{folder}/mine.py")
    command = job["command"]
    assert command[command.index("--method") + 1] == str(folder / "mine.py")
    without = [part for part in command[1:] if part not in ("--method", str(folder / "mine.py"))]
    assert cli(tmp_path, *without).one_line("unknown method 'mine'")
    assert cli(tmp_path, *command[1:], "--method", ROOT / "methods/ce.py").one_line("ce.py is ce; the job is mine")
    text = (folder / "mine.py").read_text()
    (folder / "mine.py").write_text(text + "\nother = 1\n")
    changed = cli(tmp_path, *command[1:])
    assert changed.code == 1 and "has changed since the plan" in changed.err
    (folder / "mine.py").write_text(text)
    cli(tmp_path, *command[1:]).ok()


def test_a_record_names_no_file_that_is_run(cli, plan, tmp_path, where):
    """The sender of a planned job must not choose code."""
    (job,) = plan("ce")
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'harm')!r}, 'w')")
    spec = Spec.model_validate(json.loads((tmp_path / "runs" / job["id"] / "spec.json").read_text()))
    spec = spec.model_copy(update={"method": spec.method.model_copy(update={"name": str(evil)})})
    Store(tmp_path / "runs").run(spec.id).plan(spec.content())
    cli(tmp_path, "job", spec.id, *where).one_line("unknown method")
    assert not (tmp_path / "harm").exists()


def test_jobs_that_cannot_run(cli, plan, tmp_path, where):
    assert cli(tmp_path, "job", "abc", *where).one_line("no job in", "begins with 'abc'", "--plan-only")
    (job,) = plan("ce")
    assert cli(tmp_path, "job", "", *where).one_line("begins with ''")
    shutil.copytree(tmp_path / "runs" / job["id"], tmp_path / "runs" / (job["id"][:20] + "0" * 44))
    assert cli(tmp_path, "job", job["id"][:20], *where).one_line("2 jobs have an id")
    assert cli(tmp_path, "job", job["id"][:20] + "0" * 44, *where).one_line("was planned by another version")
    elsewhere = cli(tmp_path, "job", job["id"], "--runs", tmp_path / "runs", "--data-dir", tmp_path)
    assert elsewhere.code == 1 and "is not the data this job was planned for" in elsewhere.err
    assert cli(tmp_path, "job", job["id"], *where, "--weights", tmp_path / "no.pth").one_line("no file")


START = """
import multiprocessing
from hierbench.utils.processes import starting_children
if __name__ == "__main__":
    for method in ("forkserver", "spawn"):
        context = multiprocessing.get_context(method)
        process = context.Process(target=print, args=("started by", method))
        with starting_children():
            process.start()
        process.join()
"""


def test_no_process_imports_from_the_working_folder(cli, tmp_path):
    """The page's array.py is named as a module of Python's; others may lie beside received results."""
    text = (ROOT / "docs/cluster.md").read_text().split("### A Slurm array")[1]
    (array,) = re.findall('```python title="array.py"\n(.*?)```', text, re.DOTALL)
    (tmp_path / "array.py").write_text(array)
    for name in ("random", "statistics", "tempfile", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/start.py").write_text(START)
    done = cli.real(tmp_path, python=("elsewhere/start.py",)).ok()
    assert done.out.splitlines() == ["started by forkserver", "started by spawn"] and not done.err
    assert cli.real(tmp_path, "--version").ok().out.startswith("hierbench ")


def test_ctrl_c_is_not_lost_while_a_server_forks_workers():
    handler = signal.getsignal(signal.SIGINT)
    with starting_children(forked=True):
        assert signal.getsignal(signal.SIGINT) is handler
    with starting_children():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_process_that_cannot_start_is_an_error():
    with pytest.raises(ChildProcessError, match="cannot start"), starting_children():
        raise EOFError


SBATCH = """#!/bin/sh
# Slurm's part: sbatch --wait --array=0-N SCRIPT copies the script and starts it once per number.
cp "$3" spooled && chmod +x spooled
for number in $(seq 0 "${2#--array=0-}"); do SLURM_ARRAY_TASK_ID=$number ./spooled || exit 1; done
"""


def test_the_slurm_scripts_of_the_documentation(cli, tmp_path, data_dir):
    """As printed, but for the comparison; the array's commands are forks, our others in this process."""
    text = (ROOT / "docs/cluster.md").read_text().split("### A Slurm array")[1]
    (array,) = re.findall('```python title="array.py"\n(.*?)```', text, re.DOTALL)
    (submit,) = re.findall("```bash\n(.*?)```", text, re.DOTALL)
    _, plan, *middle, table = submit.splitlines()
    assert plan == "hierbench run $comparison --plan-only --json > plan.json"
    assert table == "hierbench run $comparison"

    (tmp_path / "array.py").write_text(array)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sbatch").write_text(SBATCH)
    (tmp_path / "bin/sbatch").chmod(0o755)
    shutil.copytree(data_dir, tmp_path / "data")
    small = ["--methods", "ce,crm", *SMALL]
    (tmp_path / "plan.json").write_text(cli(tmp_path, "run", *small, "--plan-only", "--json").out)
    with cli.program(tmp_path / "bin/hierbench"):
        done = subprocess.run(
            ["bash", "-euc", "\n".join(middle)],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("done: ") == done.stderr.count("done: ce type-I seed 0") == 1
    last = cli(tmp_path, "run", *small)
    assert "2 jobs, 0 to train, 1 to re-rank, 1 cached" in last.err
    assert last.code == 0 and "| type-I  | CRM" in last.out
