"""`hierbench separate`: looks at two rows, one more seed after each, until a look separates them."""

import json
import shutil

import pytest
import scipy.stats

from hierbench.runs.record_reader import read_record
from hierbench.runs.store import Store
from tests.support.run_files import metrics_of, spec_of
from tests.support.short import SMALL

SEPARATE = ("separate", "crm", "ce", "--dataset", "shapes", "--types", "type-I", "--mlflow", "off", *SMALL)
METHOD = '''"""Cross-entropy, which fails where a file says so."""
import os
from hierbench.methods.ce import CrossEntropy

class Twin(CrossEntropy):
    name = title = source = "twin"

    def loss(self, outputs, targets):
        if os.path.exists(os.environ["FAILS"]):
            raise RuntimeError("as asked")
        return super().loss(outputs, targets)
'''


@pytest.fixture(scope="module")
def made(data_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(data_dir / "prepared", folder / "data/prepared")
    (folder / "twin.py").write_text(METHOD)
    return folder


def values_of(runs, method, metric):
    """{seed: value} of the finished runs of a method."""
    finished = [
        run for run in Store(runs).runs() if read_record(run.folder).done and spec_of(run)["method"]["name"] == method
    ]
    return {spec_of(run)["seed"]: metrics_of(run)["test"][metric] for run in finished}


def test_rows_that_differ(cli, made):
    command = (*SEPARATE, "--max-seeds", "9", "--metric", "hierdist@20")
    dry = cli(made, *command, "--dry-run").ok()
    assert "a look after every seed from 3 to 9, each at level 0.01" in dry.said and not (made / "runs").exists()
    done = cli(made, *command, "--json").ok()
    report = json.loads(done.out)
    assert (
        report["looks"][-1]["p"] < report["nominal"]
        and report["rows"] == ["crm", "ce"]
        and (report["start"], report["most"]) == (3, 9)
    )
    crm, ce = (values_of(made / "runs", method, "hierdist@20") for method in ("crm", "ce"))
    num = 2 + len(report["looks"])
    assert sorted(crm) == sorted(ce) == list(range(num))  # no seed after the look that separates
    differences = [crm[seed] - ce[seed] for seed in range(num)]
    for number, look in enumerate(report["looks"], 3):
        test = scipy.stats.ttest_1samp(differences[:number], 0)
        assert look["p"] == pytest.approx(test.pvalue) and look["n"] == number
        assert (look["p"] < report["nominal"]) == (look is report["looks"][-1])
    again = cli(made, *command, "--json").ok()
    assert again.out == done.out and "done: " not in again.err
    assert f"after {num} seeds" in cli(made, *command).ok().out


def test_a_failed_job_ends_it(cli, made, tmp_path, monkeypatch):
    monkeypatch.setenv("FAILS", str(tmp_path / "fails"))
    (tmp_path / "fails").touch()
    words = ["./twin.py" if word == "crm" else word for word in SEPARATE]
    done = cli(made, *words, "--max-seeds", "4", "--metric", "top1")
    assert done.code == 1 and "failed: twin type-I seed 0: RuntimeError: as asked" in done.err
    assert "no look was made; the first is at 3 seeds" in done.out
    (tmp_path / "fails").unlink()
    assert (
        "are not separated in top1 after 4 seeds" in cli(made, *words, "--max-seeds", "4", "--metric", "top1").ok().out
    )
