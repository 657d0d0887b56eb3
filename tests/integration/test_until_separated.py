"""`hierbench run --until-separated`: looks at runs, further seeds for two rows alone, and a plan that stays."""

import json
import shutil

import numpy as np
import pytest
import scipy.stats

from hierbench.runs.requests import read_requests
from hierbench.runs.store import Store
from tests.short import SMALL

RUN = ("run", "--methods", "ce,crm,./twin.py", "--dataset", "shapes", "--types", "type-I", "--seeds", "2", *SMALL)
METHOD = '''"""Cross-entropy with a little noise, which fails where a file says so."""
import os
import torch
from hierbench.methods.ce import CrossEntropy

class Twin(CrossEntropy):
    name = title = source = "twin"

    def loss(self, outputs, targets):
        if os.path.exists(os.environ["FAILS"]):
            raise RuntimeError("as asked")
        return super().loss(outputs + 0.5 * torch.randn_like(outputs), targets)
'''


def asked_for(folder, kind):
    """The requests of a kind."""
    return [one for one in read_requests(folder / "runs") if one.kind == kind]


def seeds_of(runs):
    """{method: seeds of its finished runs}."""
    found = {}
    for run in Store(runs).runs():
        if run.done:
            found.setdefault(run.spec()["method"]["name"], set()).add(run.spec()["seed"])
    return {name: sorted(seeds) for name, seeds in found.items()}


def gaps(runs, one, other, metric):
    values = {}
    for run in Store(runs).runs():
        values.setdefault(run.spec()["method"]["name"], {})[run.spec()["seed"]] = run.metrics()["test"][metric]
    return np.array([values[one][seed] - values[other][seed] for seed in sorted(values[one])])


@pytest.fixture(scope="module")
def made(cli, data_dir, tmp_path_factory):
    """Two seeds of three rows."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(data_dir / "prepared", folder / "data/prepared")
    (folder / "twin.py").write_text(METHOD)
    cli(folder, *RUN, FAILS="never").ok()
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    monkeypatch.setenv("FAILS", str(tmp_path / "fails"))
    (tmp_path / "data").symlink_to(made / "data")
    shutil.copytree(made / "runs", tmp_path / "runs")
    shutil.copy(made / "twin.py", tmp_path)
    return tmp_path


def test_rows_that_differ(cli, folder):
    asked = ("--until-separated", "crm,ce", "--max-seeds", "12", "--separation-metric", "hierdist@20")
    dry = cli(folder, *RUN, *asked, "--dry-run").ok()
    assert "a look after every seed from 3 to 12, each at level 0.01" in dry.said
    assert not asked_for(folder, "separation")
    assert seeds_of(folder / "runs") == {"ce": [0, 1], "crm": [0, 1], "twin": [0, 1]}
    planned = json.loads(cli(folder, *RUN[:-2], *asked, "--plan-only", "--json").ok().out)
    waiting = [(job["method"], job["seed"]) for job in planned["jobs"] if job["state"] != "cached"]
    assert waiting == [("ce", 2), ("crm", 2)]
    done = cli(folder, *RUN, *asked, "--json").ok()
    board = json.loads(done.out)
    found = board["separation"]
    assert [*asked_for(folder, "separation")[0].budget["looks"].values()] == found["looks"]
    assert found["outcome"] == "separated" and found["there"] == {}
    assert found["rows"] == ["crm:type-I", "ce:type-I"] and (found["start"], found["most"]) == (3, 12)
    n = found["seeds"]
    assert seeds_of(folder / "runs") == {"ce": list(range(n)), "crm": list(range(n)), "twin": [0, 1]}
    assert {row["method"]: row["n"] for row in board["rows"]} == {"ce": n, "crm": n, "twin": 2}
    differences = gaps(folder / "runs", "crm", "ce", "hierdist@20")
    for look in found["looks"]:
        test = scipy.stats.ttest_1samp(differences[: look["seeds"]], 0)
        assert look["p"] == pytest.approx(test.pvalue) and look["mean"] == pytest.approx(
            differences[: look["n"]].mean()
        )
        assert (look["p"] < found["nominal"]) == (look is found["looks"][-1])
    assert f"are separated in hierdist@20 after {n} seeds: {differences.mean():+.4g} +/- " in done.err
    assert done.err.count("look at ") == len(found["looks"])
    again = cli(folder, *RUN, *asked, "--json").ok()
    assert again.out == done.out and "done: " not in again.err
    assert f"after {n} seeds" in cli(folder, *RUN[:-2], *asked, "--plan-only").ok().err
    swapped = ("--until-separated", "ce:type-I,crm:type-I", *asked[2:])
    assert json.loads(cli(folder, *RUN, *swapped, "--json").ok().out)["separation"] == found
    for other, what in (
        (("--until-separated", "crm,ce", "--max-seeds", "20", *asked[4:]), "most 12"),
        (asked[:4], "metric hierdist@20"),
        ((*asked, "--seeds", "4"), "start 3"),
        ((*asked, "--set", "methods.ce.lr.classifier=1.0"), "other settings"),
    ):
        line = next(line for line in cli(folder, *RUN, *other).err.splitlines() if "error" in line)
        assert what in line and "ask in another runs folder" in line
    (separation,) = asked_for(folder, "separation")
    assert [*separation.budget["looks"].values()] == found["looks"]
    ids = next(one.ids for one in asked_for(folder, "comparison") if one.options.get("until_separated") == "crm,ce")
    assert {run_id for row in board["rows"] for run_id in row["runs"]} <= set(ids)


def test_equal_rows_and_seeds_that_were_there(cli, folder):
    """A method and itself: the second is a copy of its file, so that all differences are 0."""
    (folder / "same.py").write_text(
        (folder / "twin.py").read_text().replace("Twin", "Same").replace('"twin"', '"same"')
    )
    run = ["./twin.py,./same.py" if word == "ce,crm,./twin.py" else word for word in RUN]
    asked = ("--until-separated", "twin,same:type-I", "--max-seeds", "4")
    cli(folder, *["./twin.py" if word == "ce,crm,./twin.py" else word for word in RUN], "--seeds", "4").ok()
    done = cli(folder, *run, *asked).ok()
    assert "note: twin:type-I had runs of seed 3 before the looks were planned" in done.err
    assert "all differences are +0; a t-test needs some that vary" in done.err
    assert (
        "are not separated in mistake_severity with 4 seeds" in done.err
        and "hierbench power --dataset shapes" in done.err
    )
    assert done.out.count("| 4 ") == 2 and seeds_of(folder / "runs")["ce"] == [0, 1]


def test_a_failed_job_ends_it(cli, folder):
    asked = ("--until-separated", "twin,ce", "--max-seeds", "4", "--separation-metric", "top1")
    (folder / "fails").touch()
    done = cli(folder, *RUN, *asked)
    assert done.code == 1 and "failed: twin type-I seed 2: RuntimeError: as asked" in done.err
    assert "no look was made yet; the first is at 3 seeds" in done.err and "| cross-entropy" in done.out
    assert "looks" not in asked_for(folder, "separation")[0].budget
    (folder / "fails").unlink()
    found = json.loads(cli(folder, *RUN, *asked, "--json").ok().out)["separation"]
    assert found["outcome"] in ("separated", "not separated") and len(found["looks"]) == found["seeds"] - 2
    differences = gaps(folder / "runs", "twin", "ce", "top1")
    assert len(differences) == found["seeds"] and found["looks"][-1]["mean"] == pytest.approx(differences.mean())


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--max-seeds", "9"], ["--max-seeds is for --until-separated"]),
        (["--separation-metric", "top1"], ["--separation-metric is for"]),
        (["--until-separated", "ce,crm"], ["--until-separated needs --max-seeds"]),
        (["--until-separated", "ce", "--max-seeds", "9"], ["takes two rows"]),
        (["--until-separated", "ce,ce", "--max-seeds", "9"], ["ce:type-I twice"]),
        (["--until-separated", "ce,crn", "--max-seeds", "9"], ["did you mean 'crm'"]),
        (["--until-separated", "ce,haframe", "--max-seeds", "9"], ["unknown row of --until-separated 'haframe'"]),
        (["--until-separated", "ce:type-3,crm", "--max-seeds", "9"], ["did you mean 'type-I'"]),
        (["--until-separated", "ce,crm", "--max-seeds", "2"], ["--max-seeds must be from 3"]),
        (["--until-separated", "ce,crm", "--max-seeds", "4", "--seeds", "5"], ["already at 5 seeds"]),
        (["--until-separated", "ce,crm", "--max-seeds", "9", "--separation-metric", "ece"], ["unknown metric"]),
        (
            ["--until-separated", "ce,crm", "--max-seeds", "9", "--types", "type-I,type-II"],
            ["which type? give ce:type-I"],
        ),
    ],
)
def test_mistakes_are_one_line(cli, folder, words, parts):
    cli(folder, *RUN, *words).one_line(*parts)
