"""Corrupted run files are detected, quarantined, reported, and recomputed."""

import json
import os
import shutil
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.execution.jobs import make_jobs
from hierbench.execution.resources import Setting
from hierbench.execution.run_job import execute
from hierbench.execution.scheduler import run_jobs, states
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.open_board import notes_on
from hierbench.runs.record_reader import read_record, read_records
from hierbench.runs.repair import is_finished
from hierbench.runs.store import Run, Store
from hierbench.training.checkpoint import load_checkpoint, load_sealed, save_checkpoint
from hierbench.utils.files import write_json
from tests.support.run_files import digest_of, predictions_of

RESULTS = ("history.csv", "metrics.json", "predictions.npz")
FILES = ("spec.json", "status.json", "environment.json", *RESULTS)


def flip(path):
    """Change a bit; of a status, the first character, as most others lead to the files that it names."""
    content = bytearray(path.read_bytes())
    content[0 if path.name == "status.json" else len(content) // 2] ^= 0x10
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def noted(work):
    """What a reader of the table is told of runs that do not count."""
    return [line for line in notes_on(read_records(work.store.root), []) if "not counted" in line]


def run(plan, setting):
    """Run a plan here; return what was said and which jobs have ended, with their errors."""
    notes, ended = [], {}

    def end(job, outcome):
        ended[job.spec.method.name] = outcome.error or outcome.state

    run_jobs(plan, setting, lambda *_: None, end, notes.append)
    return notes, ended


@pytest.fixture(scope="module")
def undisturbed(shapes, data_dir, tmp_path_factory):
    """Cross-entropy and CRM on its predictions, two epochs."""
    recipe = load_recipe("shapes", ["train.epochs=2", "train.batch_size=96", "model.backbone=wrn10-1-s4"])
    plan = make_jobs(recipe, shapes, [find_method("ce"), find_method("crm")], ["type-I"], 1)
    folder = tmp_path_factory.mktemp("whole")
    assert run(plan, Setting(folder, data_dir))[1] == {"ce": "done", "crm": "done"}
    return SimpleNamespace(plan=plan, folder=folder, ce=plan[0], crm=plan[1])


@pytest.fixture
def work(undisturbed, data_dir, tmp_path):
    """A copy of the folder, with its file times."""
    shutil.copytree(undisturbed.folder, tmp_path / "runs")
    setting = Setting(tmp_path / "runs", data_dir)
    ce = setting.store.run(undisturbed.ce.id)
    return SimpleNamespace(setting=setting, store=setting.store, ce=ce, plan=undisturbed.plan, crm=undisturbed.crm)


def contents(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def same_results(run, undisturbed):
    first = undisturbed.folder / run.folder.name
    names = [name for name in RESULTS if (first / name).exists()]  # nothing is trained in re-ranking: no history
    return all((run.folder / name).read_bytes() == (first / name).read_bytes() for name in names)


def test_a_finished_run_has_digests_and_no_lock(undisturbed):
    run = Store(undisturbed.folder).run(undisturbed.ce.id)
    assert run.status["files"].keys() == {*FILES} - {"status.json"}
    assert sorted(path.name for path in run.folder.iterdir()) == sorted([*FILES, "checkpoint.pt"])
    assert read_record(run.folder).done and is_finished(undisturbed.ce.spec, Store(undisturbed.folder))


DAMAGES = [(name, damage) for name in FILES for damage in (flip, truncate, empty)]
DAMAGES.remove(("predictions.npz", flip))  # of which a table compares the size, see below


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_damage_is_detected_by_the_table_which_changes_nothing(cli, work, tmp_path, name, damage):
    damage(work.ce.folder / name)
    record = read_record(work.ce.folder)
    assert record.damaged == (name,) and not record.done
    assert states(work.plan, work.store) == {work.ce.folder.name: "train", work.crm.id: "cached"}
    before = contents(work.setting.runs)
    code, out, err = cli(tmp_path, "leaderboard", "--dataset", "shapes", "--runs", work.setting.runs)
    assert contents(work.setting.runs) == before
    (line,) = err.strip().splitlines()[:1]
    assert f"run {work.ce.folder.name[:12]}" in line and f"is damaged ({name})" in line
    if name == "spec.json":  # then nobody knows what it was; CRM has lost its base
        assert code == 2 and "have lost their bases" in err
    else:
        assert code == 0 and err.count("\n") == 1 and "0 of 1" in out


@pytest.mark.parametrize("change", [{"state": "dome"}, {"state": None}, {"files": {}}, {"files": {"spec.json": 3}}])
def test_a_status_that_no_run_has_is_damaged(work, change):
    write_json(work.ce.folder / "status.json", work.ce.status | change)
    assert work.ce.status == {"state": "damaged"} and read_record(work.ce.folder).damaged == ("status.json",)


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_quarantined_and_come_back_the_same(work, undisturbed, name):
    path = work.ce.folder / name
    (truncate if name == "predictions.npz" else flip)(path)
    damaged = path.read_bytes()
    checkpoint = (work.ce.folder / "checkpoint.pt").read_bytes()
    notes, ended = run(work.plan, work.setting)
    place = work.ce.folder / "damaged"
    assert notes == [f"note: {name} of ce type-I seed 0: damaged; quarantined in {place}, computed again"]
    assert ended == {"ce": "done"}  # CRM's base has the same predictions as before
    assert (place / name).read_bytes() == damaged and len(list(place.iterdir())) == 1
    assert same_results(work.ce, undisturbed) and states(work.plan, work.store)[work.ce.folder.name] == "cached"
    assert (work.ce.folder / "checkpoint.pt").read_bytes() == checkpoint
    assert noted(work) == [] and Board.of("shapes", read_records(work.store.root)).rows[0].n == 1
    before = contents(work.ce.folder)
    assert run(work.plan, work.setting) == ([], {})
    assert {file: entry[0] for file, entry in contents(work.ce.folder).items()} == {
        file: entry[0] for file, entry in before.items()
    }


def test_without_its_checkpoint_a_run_is_trained_again(work, undisturbed):
    flip(work.ce.folder / "metrics.json")
    flip(work.ce.folder / "checkpoint.pt")
    notes, ended = run(work.plan, work.setting)
    assert [note.split(":")[1] for note in notes] == [
        " metrics.json of ce type-I seed 0",
        " checkpoint.pt of ce type-I seed 0",
    ]
    assert "starting over" in notes[1] and ended == {"ce": "done"} and same_results(work.ce, undisturbed)
    flip(work.ce.folder / "metrics.json")
    run(work.plan, work.setting)
    assert sorted(path.name for path in (work.ce.folder / "damaged").iterdir()) == [
        "checkpoint.pt", "metrics-1.json", "metrics.json",
    ]  # fmt: skip


def test_damaged_re_ranking_and_predictions_that_are_gone(work, undisturbed):
    crm = work.store.run(work.crm.id)
    truncate(crm.folder / "predictions.npz")
    (work.ce.folder / "predictions.npz").unlink()
    assert read_record(work.ce.folder).done  # its table is right; only `run` needs all
    notes, ended = run(work.plan, work.setting)
    assert ended == {"ce": "done", "crm": "done"} and "predictions.npz of ce type-I seed 0: damaged; gone" in notes[0]
    assert same_results(crm, undisturbed) and same_results(work.ce, undisturbed)


def test_a_base_that_predicts_something_else_now_is_re_ranked_again(work, undisturbed):
    (work.ce.folder / "predictions.npz").unlink()
    checkpoint = load_checkpoint(work.ce.folder / "checkpoint.pt")
    next(iter(checkpoint["best"].values())).mul_(0.9)
    save_checkpoint(work.ce.folder / "checkpoint.pt", checkpoint)
    crm = work.store.run(work.crm.id)
    before = crm.status["base_predictions"]
    assert run(work.plan, work.setting)[1] == {"ce": "done", "crm": "done"}
    assert crm.status["base_predictions"] == digest_of(work.ce, "predictions.npz") != before


def test_silent_damage_of_predictions_is_seen_where_they_are_read(work, undisturbed):
    path = work.ce.folder / "predictions.npz"
    status = path.stat()
    flip(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ValueError, match="cannot be read: its checksum differs"):
        predictions_of(work.ce)
    assert is_finished(work.plan[0].spec, work.store)  # nothing reads them
    shutil.rmtree(work.store.run(work.crm.id).folder)
    error = execute(work.crm, work.setting, lambda *_: None).error
    assert "its checksum differs; the same command computes them again" in error
    notes, ended = run(work.plan, work.setting)
    assert len(notes) == 1 and "predictions.npz of ce type-I seed 0: damaged" in notes[0]
    assert ended == {"ce": "done", "crm": "done"} and same_results(work.store.run(work.crm.id), undisturbed)


def test_a_copy_with_other_file_times_is_whole(work):
    os.utime(work.ce.folder / "predictions.npz", (0, 0))
    assert states(work.plan, work.store) == {work.ce.folder.name: "cached", work.crm.id: "cached"}


@pytest.mark.parametrize("files", [None, {}, "without the metrics"])
def test_a_finished_run_without_digests_is_damaged_and_computed_again(work, undisturbed, files):
    digests = work.ce.status["files"]
    status = {"state": "done", "started": 1.5, "seconds": 2.5}
    if files is not None:
        status["files"] = {name: digests[name] for name in digests if files and name != "metrics.json"}
    write_json(work.ce.folder / "status.json", status)
    metrics = json.loads((work.ce.folder / "metrics.json").read_text())
    metrics["test"]["top1"] = 99.9  # what nobody could notice
    write_json(work.ce.folder / "metrics.json", metrics)
    assert read_record(work.ce.folder).damaged == ("status.json",)
    notes, ended = run(work.plan, work.setting)
    assert ended["ce"] == "done" and same_results(work.ce, undisturbed) and "status.json of ce" in notes[0]


def test_a_result_file_that_the_run_did_not_write_is_damaged(work):
    status = work.ce.status
    del status["files"]["predictions.npz"]
    write_json(work.ce.folder / "status.json", status)
    assert read_record(work.ce.folder).damaged == ("predictions.npz",)


def test_a_checkpoint_is_an_ordinary_one_with_a_seal(tmp_path):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"weights": torch.arange(1000.0)})
    assert torch.equal(torch.load(path, weights_only=True)["weights"], torch.arange(1000.0))
    assert torch.equal(load_sealed(path)["weights"], torch.arange(1000.0))
    content = path.read_bytes()
    for position in np.linspace(0, len(content) - 1, 60).astype(int).tolist():
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        with pytest.raises(ValueError, match="is damaged"):
            load_sealed(path)
    for length in (0, 1, 30, len(content) // 2, len(content) - 70, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="is damaged"):
            load_sealed(path)
    torch.save({"weights": 1}, path)  # without a seal
    assert load_checkpoint(path) is None


def test_the_time_of_a_run_is_that_of_all_its_sessions(undisturbed, data_dir, tmp_path, monkeypatch):
    class StoppedError(KeyboardInterrupt):
        pass

    def stop(done, total):
        if done > 1.2:
            raise StoppedError

    run, setting = Store(tmp_path).run(undisturbed.ce.id), Setting(tmp_path, data_dir)
    with pytest.raises(StoppedError):  # as a kill: nothing is written after it
        execute(undisturbed.ce, setting, stop)
    first = run.status
    assert first["state"] == "running" and first["seconds"] > 0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 1e6)  # the clock was moved in between
    run.set_status("running", started=first["started"], seconds=1000.0)
    assert execute(undisturbed.ce, setting, lambda *_: None).state == "done"
    assert 1000 < run.status["seconds"] < 1000 + 300 and run.status["started"] == first["started"]
    assert same_results(run, undisturbed)


def test_a_job_that_was_taken_over_writes_nothing_more(undisturbed, data_dir, tmp_path):
    """Another process takes its lock in the middle of the second epoch."""
    run, setting = Run(tmp_path / undisturbed.ce.id), Setting(tmp_path, data_dir)
    before = {}

    def take_over(done, total):
        if done > 1.2 and not before:
            (run.folder / ".lock").unlink()
            other = "filelock/2\npid=5\nhost=there\nmode=lease\ntoken=other\nduration=30.0\n"
            (run.folder / ".lock").write_text(other)
            before.update(contents(run.folder))

    notes = []
    assert execute(undisturbed.ce, setting, take_over, notes.append).state == "taken"
    after = contents(run.folder)
    assert after == before
    assert notes == [
        "note: ce type-I seed 0: process 5 on there took over while this process was stopped; "
        "this one no longer writes there"
    ]
