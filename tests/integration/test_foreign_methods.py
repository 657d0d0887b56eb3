"""Method files that end their process, hang or raise unexpected exceptions; the kept copies of method files."""

import os
import re
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

from hierbench import Method
from hierbench.api.contract import check_method, list_checks
from hierbench.api.registry import digest_of_code, find_method
from hierbench.config.recipe import load_recipe
from hierbench.execution.jobs import make_jobs
from hierbench.execution.resources import Setting
from hierbench.execution.run_job import execute
from hierbench.utils.errors import UserError
from tests.support.publications import loose
from tests.support.run_files import specs_in, statuses_in
from tests.support.short import SHORT

METHOD = """import torch
BEFORE
from hierbench import Method
class Foreign(Method):
    name = title = source = "foreign"
    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        self.classifier = torch.nn.Linear(num_features, hierarchy.num_classes)
    def forward(self, features):
        return self.classifier(features)
    def loss(self, outputs, targets):
        LOSS
        return {"cross_entropy": torch.nn.functional.cross_entropy(outputs, targets)}
    def scores(self, outputs):
        return outputs
"""
NAMES = [check.name for check in list_checks(Method)]
FAST = ("--seeds", "1", "--types", "type-I", "--mlflow", "off", *SHORT)


def method(folder, before="pass", loss="pass"):
    path = folder / "foreign.py"
    path.write_text(METHOD.replace("BEFORE", before).replace("LOSS", loss), encoding="utf-8")
    return str(path)


def test_a_file_that_cannot_be_imported(tmp_path):
    with pytest.raises(UserError, match=r"^method .*foreign\.py cannot be imported: MemoryError \(line 2 of foreign"):
        find_method(method(tmp_path, "raise MemoryError"))


def test_an_exception_of_a_method_fails_its_checks(tmp_path):
    """Also one that ends Python: the other checks are carried out."""
    path = method(tmp_path, loss="if not targets.any(): raise SystemExit")
    problems = dict(check_method(find_method(path).cls))
    assert problems.pop("loss terms keep their names") == "SystemExit (line 12 of foreign.py)"
    assert problems == {name: "" for name in NAMES if name != "loss terms keep their names"}


def test_of_wrong_shapes_there_is_one_failure(cli, tmp_path):
    """The other checks would fail for the same reason."""
    path = method(tmp_path, loss="outputs = outputs[:, :, None]")
    done = cli(tmp_path, "methods", "check", path)
    first, *others, summary = done.out.splitlines()
    assert done.code == 1 and first.startswith(f"FAILED  {NAMES[0]}: ")
    assert summary == "foreign: 1 check failed, 9 not run"
    assert others == [f"not run {name}" for name in NAMES[1:]]


@pytest.mark.parametrize(
    ("loss", "scores", "reason"),
    [
        ("return {'a': outputs}", "outputs", "loss term 'a' must be a tensor of shape [], got one of shape [128, 48]"),
        ("return {'a': 0.5}", "outputs", "loss term 'a' must be a tensor of shape [], got a float"),
        (
            "pass",
            "outputs[:, :5]",
            "method foreign: scores must be a tensor of shape [96, 48], got one of shape [96, 5]",
        ),
        ("pass", "[outputs]", "method foreign: scores must be a tensor of shape [96, 48], got a list"),
        ("raise ValueError('z' * 10**6)", "outputs", "ValueError: zzz"),
        ("raise SystemExit(0)", "outputs", "SystemExit: 0"),
    ],
)
def test_a_long_error_is_cut_in_the_record(tmp_path, shapes, data_dir, loss, scores, reason):
    path = Path(method(tmp_path, loss=loss))
    path.write_text(path.read_text().replace("return outputs", f"return {scores}"))
    loaded, setting = find_method(str(path)), Setting(tmp_path / "runs", data_dir, "cpu", 1, 1)
    (job,) = make_jobs(load_recipe("shapes", ["train.epochs=1"]), shapes, [loaded], ["type-I"], 1, None)
    assert reason in execute(job, setting, lambda done, total: None).error
    kept = setting.store.run(job.id).status
    assert kept["state"] == "failed" and len(kept["error"]) <= 4000 and len(kept["traceback"]) < 20_000


def test_the_command(cli, tmp_path):
    """The output of a method is not part of the verdict, and the exit code is that of the checks."""
    path = method(tmp_path, "print('all checks passed')", loss="if len(targets) > 2: raise RuntimeError")
    done = cli(tmp_path, "methods", "check", path)
    assert done.code == 1 and re.fullmatch(r"foreign: \d+ checks? failed(, \d not run)?", done.out.splitlines()[-1])
    assert "all checks passed" not in done.out and "all checks passed" in done.err
    done = cli(tmp_path, "methods", "check", "ce").ok()
    assert done.out.splitlines() == [*(f"ok      {name}" for name in NAMES), "ce: all checks passed"]


def read(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_the_file_is_kept_beside_the_result_and_names_no_run_in_mlflow(cli, tmp_path, data_dir):
    """Its source can be read, published and given again; nothing runs it unasked."""
    path = method(tmp_path)
    runs = ("--runs", tmp_path / "runs", "--data-dir", data_dir)
    options = ("--dataset", "shapes", *FAST[:4], *FAST[6:], *runs)  # with MLflow
    cli.start(tmp_path, "run", "--methods", f"{path},ce", *options).finish().ok()
    specs = specs_in(tmp_path / "runs")
    (job,) = [name for name, spec in specs.items() if spec["method"]["name"] == "foreign"]
    (kept,) = (tmp_path / "runs").glob("*/*.py")  # of the project's own methods there is none
    assert kept == tmp_path / "runs" / job / "foreign.py" and read(kept) == read(tmp_path / "foreign.py")
    assert digest_of_code(kept.read_bytes()) == specs[job]["method"]["code"]
    dry = cli(tmp_path, "run", "--methods", kept, *options, "--dry-run").ok()
    assert "1 job, 0 to train, 0 to re-rank, 1 cached" in dry.out

    with sqlite3.connect(tmp_path / "runs/mlflow.db") as database:
        names = {name for (name,) in database.execute("select name from runs")}
    (parent,) = names - {"foreign type-I seed 0", "ce type-I seed 0"}
    assert parent.startswith("foreign,ce 2")

    code, _, err = cli(tmp_path, "job", job, *runs)
    assert code == 2 and f"a method from a file is given with --method; the file that ran is kept in {kept}" in err
    (other,) = specs.keys() - {job}
    shutil.rmtree(tmp_path / "runs" / other)  # the same code and the same predictions, which no table may have twice
    code, _, err = cli(tmp_path, "publish", "--dataset", "shapes", *runs[:2], "--output", tmp_path / "published")
    loose(tmp_path / "published")
    assert code == 0 and read(tmp_path / "published/shapes" / job / "foreign.py") == read(kept), err


def test_an_edit_of_the_same_second_and_size_is_seen(tmp_path):
    path, versions = tmp_path / "foreign.py", []
    for letter in "ab":
        method(tmp_path, f"LETTER = {letter!r}")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        versions.append(find_method(str(path)))
    letters = [sys.modules[version.cls.__module__].LETTER for version in versions]
    assert letters == ["b", "b"]  # it is one module, imported anew
    assert versions[0].code != versions[1].code and not (tmp_path / "__pycache__").exists()


def test_several_files_are_checked_and_one_that_fails_is_the_exit_code(cli, tmp_path):
    for name in ("first", "second"):
        cli(tmp_path, "methods", "new", name).ok()
    done = cli(tmp_path, "methods", "check", "./first.py", "./second.py").ok()
    assert done.out.count("all checks passed") == 2
    text = (tmp_path / "first.py").read_text()
    (tmp_path / "first.py").write_text(text.replace("loss", "lost"))
    assert cli(tmp_path, "methods", "check", "./first.py", "./second.py").code != 0


def test_a_worker_that_cannot_use_its_device_any_more_is_replaced(cli, tmp_path, data_dir):
    """As after an illegal address on a GPU; each of the jobs has a process of its own then, and fails alone."""
    file = method(tmp_path, loss="import os; raise RuntimeError(os.getpid())")
    code = "import hierbench.execution.workers as workers; workers.can_compute = lambda device: False\n"
    code += "from hierbench.cli.main import main; main()"
    words = ("run", "--methods", file, "--dataset", "shapes", "--data-dir", data_dir, *FAST[2:], "--seeds", "4")
    assert cli.start(tmp_path, *words, python=("-c", code)).finish().code == 1
    errors = [status["error"] for status in statuses_in(tmp_path / "runs").values()]
    assert len({*errors}) == 4 and all(error.startswith("RuntimeError: ") for error in errors)


def test_a_crash_of_a_single_job_is_a_failed_run(cli, tmp_path, data_dir):
    """A user's file runs in a separate process; its record has the signal, and no lock is left."""
    file = method(tmp_path, loss="import os; os.abort()")
    done = cli(tmp_path, "run", "--methods", file, "--dataset", "shapes", "--data-dir", data_dir, *FAST)
    (status,) = statuses_in(tmp_path / "runs").values()
    assert done.code == 1 and status["state"] == "failed" and "signal 6 (SIGABRT)" in status["error"]
    assert status["error"] in done.err and not list((tmp_path / "runs").glob("*/.lock*"))
