"""Tamperings with results: each is found by every command that takes results from others, or gives them to others."""

import json
import re
import shutil
from html import unescape

import pytest

from hierbench.config.options import RunSelection
from hierbench.leaderboard.columns import requested_columns
from hierbench.runs.findings import TARGETS_ALONE
from hierbench.sharing import compose
from hierbench.sharing.publication import publish
from hierbench.sharing.verification.verification import verify
from tests.support.publications import loose
from tests.support.tamperings import TAMPERINGS, Folder

ON = ("--dataset", "shapes")


@pytest.fixture(scope="module")
def made(trained, data_dir, tmp_path_factory):
    """A folder with runs of three methods and three seeds, and their published table."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(trained, folder / "runs")
    publish("shapes", folder / "published", RunSelection(folder / "runs", data_dir), draw=False)
    loose(folder / "published")
    return folder


@pytest.fixture(params=["runs", "published"])
def folder(request, made, data_dir, shapes, tmp_path, monkeypatch):
    """A copy of the runs, whose data is prepared, or of the published table, whose data is not."""
    monkeypatch.setattr(compose, "_draw_pictures", lambda *_: [])  # they take most of the time
    copy = shutil.copytree(made / request.param, tmp_path / request.param)
    where = (copy, data_dir) if request.param == "runs" else (copy / "shapes", tmp_path / "no-data")
    return Folder(where[0], shapes.hierarchy("height"), where[1])


def named(lines, who, pattern):
    """Whether a line names somebody, and this or one of the three after it says what."""
    where = [at for at, line in enumerate(lines) if who in line]
    return any(re.search(pattern, " ".join(lines[at : at + 4])) for at in where)


def board(cli, folder):
    """The JSON table of a folder's rows by method, and the lines on standard error."""
    options = (*ON, "--runs", folder.path, "--data-dir", folder.data_dir, "--format", "json")
    done = cli(folder.path, "leaderboard", *options).ok()
    return {row["method"]: row for row in json.loads(done.out)["rows"]}, done.err.splitlines()


def test_nothing_is_found_of_an_honest_folder(folder):
    (report,) = verify([folder.path], folder.data_dir)
    assert report.num_rejected == 0 and report.counts()["recomputed"] == 9
    # No digest of targets ships for a part of a dataset.
    notes = {note for item in (*report.runs, *report.rows, *report.tables) for note in item.notes}
    assert notes == ({TARGETS_ALONE} if folder.path.name == "shapes" else set())


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda tampering: tampering.__name__)
def test_a_tampering_is_found_by_every_reader(cli, folder, tmp_path, tampering):
    finding = tampering(folder)
    data, is_runs = ("--data-dir", folder.data_dir), folder.path.name == "runs"
    verified = cli(tmp_path, "verify", folder.path, *data)
    for who, pattern in finding.lines:
        assert named(verified.out.splitlines(), who, pattern), (who, pattern, verified)
    if finding.damaged:
        rows, lines = board(cli, folder)
        assert any(finding.lines[0][0] in line for line in lines), lines
        assert {method: rows[method]["n"] for method in finding.counted} == finding.counted
    done = cli(tmp_path, "publish", *ON, *data, "--runs", folder.path, "--output", "boards")
    if finding.unfinished:
        done.one_line("a published table is complete")
    elif finding.refused:
        line = done.one_line("nothing is published: ")
        assert any(who.removeprefix("row ") in line for who, _ in finding.lines), (line, finding.lines)
        assert not (tmp_path / "boards").exists()
    else:
        done.ok()
        assert finding.silent or all(who in done.err for who, _ in finding.lines), done.err
        assert json.loads((tmp_path / "boards/shapes.json").read_text())["seeds"] == [0, 1, 2]
        (report,) = verify([tmp_path / "boards/shapes"], tmp_path / "no-data")
        assert report.num_rejected == 0 and "99.2" not in (tmp_path / "boards/shapes.json").read_text()
    if not is_runs:
        cli(tmp_path, "site", "build", folder.path.parent, "--output", "site", *data).ok()
        page = (tmp_path / "site/tables/shapes/index.html").read_text()
        assert ">99.2" not in page
        if finding.refused and not finding.unfinished:  # a spec that cannot be read is called so there
            text = unescape(re.sub("<[^>]*>", "", page))
            names = [who.removeprefix("row ") for who, _ in finding.lines]
            assert any(re.search(rf"{name}[^\n]*\s*rejected", text) for name in names), text


def test_metrics_beyond_published_predictions_are_claimed_and_never_ranked(made, data_dir, tmp_path):
    """Also where an honest publication is published again."""
    columns = requested_columns("+hf_macro,+ece")
    for runs, name in ((made / "runs", "a"), (tmp_path / "a/shapes", "b")):
        publish("shapes", tmp_path / name, RunSelection(runs, data_dir), columns, draw=False)
    for folder in ("a", "b"):
        table = (tmp_path / folder / "shapes.md").read_text()
        assert "ece is claimed: not computed from the predictions here, and not ranked" in table
        rows = json.loads((tmp_path / folder / "shapes.json").read_text())["rows"]
        best = {name for row in rows for name, cell in row["metrics"].items() if cell["best"]}
        assert "hf_macro" in best and "ece" not in best
        (report,) = verify([tmp_path / folder / "shapes"], tmp_path / "no-data")
        assert report.num_rejected == 0 and report.tables[0].notes == []
