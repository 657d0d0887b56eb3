"""`hierbench reproduce --run`: the runs of a row again, bitwise, from a runs folder and from published records."""

import json
import re
import shutil

import pytest

from hierbench.config.spec import json_digest
from hierbench.execution.execution import Execution
from hierbench.runs.integrity import fingerprints
from hierbench.runs.store import Store
from tests.support.publications import loose
from tests.support.run_files import digest_of, metrics_of, spec_of
from tests.support.short import SMALL
from tests.support.tamperings import reseal, respecify

METHOD = '''"""A method of a user's."""
from hierbench.methods.ce import CrossEntropy

class Mine(CrossEntropy):
    name = title = source = "mine"
'''


@pytest.fixture(scope="module")
def made(cli, data_dir, tmp_path_factory):
    """Two seeds of cross-entropy with a rate of its own, of CRM on it, and of a user's method."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(data_dir / "prepared", folder / "data/prepared")
    (folder / "mine.py").write_text(METHOD)
    rate = ("--set", "methods.ce.lr.classifier=0.05")
    run = ("run", "--methods", "ce,crm,./mine.py", "--dataset", "shapes", "--types", "type-I", "--seeds", "2")
    cli(folder, *run, *SMALL, *rate).ok()
    (folder / "mine.py").unlink()
    return folder


@pytest.fixture
def folder(made, tmp_path):
    (tmp_path / "data").symlink_to(made / "data")
    shutil.copytree(made / "runs", tmp_path / "runs")
    return tmp_path


def test_a_re_ranked_row_and_its_base_again(cli, folder):
    done = cli(folder, "reproduce", "runs", "crm:type-I", "--run", "--runs", "again", "--jobs", "1").ok()
    assert done.out.count("bitwise the same (top1 ") == 2
    old, new = Store(folder / "runs"), Store(folder / "again")
    specs = [spec_of(run) for run in new.runs()]
    rows = sorted((spec["method"]["name"], spec["seed"]) for spec in specs)
    assert rows == [(name, seed) for name in ("ce", "crm") for seed in (0, 1)]
    for run in new.runs():
        assert digest_of(run, "predictions.npz") == digest_of(old.run(run.folder.name), "predictions.npz")
    # The printed command is the same, and so is what it gives.
    words = json.loads(cli(folder, "reproduce", "runs", "crm:type-I", "--json").ok().out)["rows"][0]["command"]
    repeated = cli(folder, *words[1:], "--runs", "again", "--mlflow", "off", "--jobs", "1").ok()
    assert "4 cached" in repeated.err


def test_another_result_is_named(cli, folder, monkeypatch):
    """A record whose top-1 was raised is an own one, and believed until it is compared."""
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    done = cli(folder, "reproduce", "runs", "ce:type-I:top1", "--run", "--jobs", "1").ok()
    assert done.out.count("bitwise the same (top1 ") == 2 and not list(folder.glob("hierbench-reproduce-*"))
    run = next(
        run
        for run in Store(folder / "runs").runs()
        if spec_of(run)["method"]["name"] == "ce" and spec_of(run)["seed"] == 1
    )
    content = metrics_of(run)
    content["test"]["top1"] = 99.0
    run.write_record("metrics.json", content)
    run.set_status(
        "done", **{k: v for k, v in run.status.items() if k != "state"} | {"files": fingerprints(run.folder)}
    )
    done = cli(folder, "reproduce", "runs", "ce:type-I:top1", "--run", "--jobs", "1")
    assert done.code == 1 and re.search(r"seed 1 again +differs \(top1 99 -> ", done.out)
    assert "the new runs are in " in done.out and re.search("seed 0 again +bitwise the same", done.out)


def test_a_user_s_method_is_run_from_the_record_only_on_demand(cli, folder):
    cli(folder, "publish", "--dataset", "shapes", "--output", "published").ok()
    shown = cli(folder, "reproduce", "published/shapes", "mine").ok()
    assert "came with the record: read it before it is run" in shown.out
    assert "note: running" not in shown.err
    file = shown.out.splitlines()[0].split()[3]
    assert file in {str(path.relative_to(folder)) for path in (folder / "published/methods").glob("mine-*.py")}
    done = cli(folder, "reproduce", "published/shapes", "mine", "--run", "--jobs", "1").ok()
    assert done.out.count("bitwise the same") == 2 and f"note: running {file}" in done.err
    loose(folder / "published")
    for file in folder.glob("published/**/mine*.py"):
        file.write_text("raise RuntimeError('never run')")
    cli(folder, "reproduce", "published/shapes", "mine", "--run").one_line("mine:type-I: no command: ")


def test_a_record_cannot_name_a_file_to_run(cli, folder):
    (folder / "evil.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    run = next(run for run in Store(folder / "runs").runs() if spec_of(run)["method"]["name"] == "mine")
    run = respecify(run, method__name="./evil.py")
    reseal(run)
    request = {"kind": "comparison", "dataset": "shapes", "options": {}, "ids": [run.folder.name], "budget": {}}
    digest = json_digest(list(request.values()))[:16]
    (folder / "runs/requests.jsonl").write_text(json.dumps({"request": digest, **request}))
    cli(folder, "verify", "runs", "--retrain", "9").one_line("can be trained again")
    shown = cli(folder, "reproduce", "runs", "./evil.py", "--dataset", "shapes").ok()
    assert "no command: its method is ./evil.py" in shown.out
    assert not (folder / "ran").exists()


def test_a_run_whose_training_fails_keeps_its_verdict(cli, folder, monkeypatch):
    monkeypatch.setattr(Execution, "run", lambda *_: None)
    report = json.loads(cli(folder, "verify", "runs", "--retrain", "1", "--json").ok().out)["folders"][0]
    assert any("not trained again: it did not end" in run["notes"] for run in report["runs"])
    assert {run["verdict"] for run in report["runs"]} == {"recomputed"}


def test_other_data_is_named_before_anything_is_trained(cli, folder):
    from hierbench.data.datasets import shapes as generated
    from hierbench.data.prepare import prepare

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated, "PER_CLASS", {"train": 4, "val": 1, "test": 2})
        prepare("shapes", folder / "other")
    done = cli(folder, "reproduce", "runs", "ce", "--run", "--runs", "again", "--data-dir", "other", "--jobs", "1")
    assert done.code == 2 and "dataset.digest was " in done.err
    assert not list(Store(folder / "again").runs())


def test_weights_that_were_given_have_to_be_given_again(cli, folder):
    import torch

    from hierbench.models.backbones import build_own

    torch.manual_seed(3)
    torch.save(build_own("wrn10-1-s4", "activated").layers.state_dict(), folder / "mine.pt")
    run = ("run", "--methods", "ce", "--dataset", "shapes", "--types", "type-I", "--seeds", "1", *SMALL)
    cli(folder, *run, "--weights", "mine.pt", "--runs", "started").ok()
    shown = cli(folder, "reproduce", "started", "ce:top1").ok()
    (spec,) = (spec_of(run) for run in Store(folder / "started").runs())
    assert "--weights mine.pt " in shown.out and f"SHA-256 {spec['weights']}" in shown.out
    torch.save(build_own("wrn10-1-s4", "activated").layers.state_dict(), folder / "other.pt")
    again = ("reproduce", "started", "ce:top1", "--run", "--jobs", "1")
    for option in ((), ("--weights", "other.pt")):
        done = cli(folder, *again, *option)
        assert done.code == 2 and f"weights was {spec['weights']} and is " in done.err, done.err
        assert done.err.endswith("here; give --weights FILE\n")
    assert "bitwise the same" in cli(folder, *again, "--weights", "mine.pt").ok().out
