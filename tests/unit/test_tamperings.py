"""Fifteen tamperings, each named by `verify` and by `leaderboard`, of runs and of published records."""

import json
import re
import shutil

import numpy as np
import pytest

from hierbench.experiments.verification.findings import TARGETS_ALONE
from hierbench.experiments.verification.report import as_text
from hierbench.experiments.verification.verify import verify
from hierbench.runs.compact import write_compact, write_targets
from hierbench.runs.store import Store
from tests.tamperings import TAMPERINGS, Folder, edit, reseal


@pytest.fixture(scope="module")
def made(cli, trained, data_dir, tmp_path_factory):
    """A folder with runs of three methods and three seeds, and their published table with compact predictions."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(trained, folder / "runs")
    cli(folder, "leaderboard", "--dataset", "shapes", "--data-dir", data_dir, "--publish", "published").ok()
    for run in Store(folder / "runs").runs():
        scores, targets = run.predictions()
        write_compact(folder / "published/shapes" / run.folder.name, scores, targets, run.digest_of("predictions.npz"))
    write_targets(folder / "published/shapes", targets)
    return folder


@pytest.fixture(params=["runs", "published"])
def folder(request, made, data_dir, shapes, tmp_path):
    """A copy of the runs, whose data is prepared, or of the published records, whose data is not."""
    copy = shutil.copytree(made / request.param, tmp_path / request.param)
    where = (copy, data_dir) if request.param == "runs" else (copy / "shapes", tmp_path / "no-data")
    return Folder(where[0], shapes.hierarchy("height"), where[1])


def board(cli, folder):
    """The JSON table of a folder's rows by method, and the lines on standard error."""
    options = ("--dataset", "shapes", "--runs", folder.path, "--data-dir", folder.data_dir, "--format", "json")
    done = cli(folder.path, "leaderboard", *options).ok()
    return {row["method"]: row for row in json.loads(done.out)["rows"]}, done.err.splitlines()


def test_an_honest_folder_gives_no_line(cli, folder):
    rows, lines = board(cli, folder)
    # No digest of targets ships for a part of a dataset, and without scores nothing can be re-ranked again.
    again = "runs crm type-I seed 0, crm type-I seed 1, crm type-I seed 2: not re-ranked again: its base has no scores"
    said = [f"note: {again} here", f"note: {TARGETS_ALONE}"]
    assert lines == (said if folder.path.name == "shapes" else [])
    assert {(row["n"], row["verdict"]) for row in rows.values()} == {(3, "recomputed")}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_a_tampering_is_named_and_changes_no_number(cli, folder, tampering):
    shown = tampering(folder)
    (report,) = verify([folder.path], folder.data_dir)
    rows, said = board(cli, folder)
    for lines in (as_text([report]).splitlines(), said):
        for who, what in shown.lines:
            where = [at for at, line in enumerate(lines) if who in line]
            assert any(re.search(what, " ".join(lines[at : at + 4])) for at in where), (who, what, lines)
    assert {method: rows[method]["n"] for method in shown.counted} == shown.counted
    assert "99.2" not in json.dumps(rows)


@pytest.fixture(scope="module")
def with_scored(cli, made, data_dir, shapes, tmp_path_factory):
    """A folder with the runs and predictions that were only scored."""
    folder = tmp_path_factory.mktemp("scored")
    shutil.copytree(made / "runs", folder / "runs")
    _, targets = shapes.arrays("test")
    scores = np.random.default_rng(0).normal(size=(len(targets), 48)).astype(np.float32)
    np.savez(folder / "mine.npz", scores=scores, targets=targets)
    cli(folder, "score", "mine.npz", "--dataset", "shapes", "--data-dir", data_dir, "--resamples", "0").ok()
    return folder / "runs"


def metric(run):
    edit(run, "metrics.json", test__top1=99.2)
    reseal(run)


def copied(run):
    """With the id of another name, which its predictions do not have."""
    shutil.copytree(run.folder, run.folder.with_name("f" * 64))


def respecified(run):
    edit(run, "spec.json", dataset__jpeg_quality=90)
    reseal(run)


@pytest.mark.parametrize("what", [metric, copied, respecified])
def test_a_tampered_scored_row_leaves_the_table(cli, with_scored, data_dir, tmp_path, what):
    folder = Folder(shutil.copytree(with_scored, tmp_path / "runs"), data_dir=data_dir)
    (run,) = (run for run in Store(folder.path).runs() if run.spec().get("kind") == "scored")
    assert board(cli, folder)[0]["mine"]["n"] == 1
    what(run)
    rows, said = board(cli, folder)
    assert sum(row["n"] for row in rows.values() if row.get("scored")) == (what == copied)
    assert {row["n"] for row in rows.values() if not row.get("scored")} == {3} and "99.2" not in json.dumps(rows)
    assert any("is rejected and not counted" in line for line in said), said
    assert verify([folder.path], folder.data_dir)[0].num_rejected == 1
    if what == metric:  # alone, it leaves no table
        for other in folder.path.iterdir():
            if other != run.folder:
                shutil.rmtree(other) if other.is_dir() else other.unlink()
        options = ("--dataset", "shapes", "--runs", folder.path, "--data-dir", folder.data_dir)
        cli(folder.path, "leaderboard", *options).one_line("1 is rejected: hierbench verify")
