"""The parts of a site: names, citations, sources, pictures, the folder that is replaced, and tampered tables."""

import json
import os
import shutil
from pathlib import Path

import pytest

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER, column_of
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.statistics import Cell, Row
from hierbench.records.findings import Report
from hierbench.records.further_metrics import FILE, content_of
from hierbench.runs.store import Store
from hierbench.sharing.site import folders, svg
from hierbench.sharing.site.build import MARKER, build_site, write_site
from hierbench.sharing.site.comparisons import pairs_of
from hierbench.sharing.site.content import Table, find_tables, read_table
from hierbench.sharing.site.runs import time_of
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_json
from tests import site_records as records

ROWS = [("ce", "cross-entropy", "type-I", 60.0), ("mine", "Mine", "type-I", 64.0), ("mine", "Mine", "type-II", 61.0)]


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """A folder with a table of three rows of three seeds."""
    folder = tmp_path_factory.mktemp("birds")
    records.publish(folder, "birds", ROWS)
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Pictures take most of the time; they are drawn in test_site.py."""
    monkeypatch.setattr(folders, "draw_one", lambda *_: None)


@pytest.fixture
def copy(birds, tmp_path):
    return Path(shutil.copytree(birds, tmp_path / "published"))


def build(folder, target, data_dir, **about):
    return build_site(folder, target, about.get("title", "Birds"), about.get("base_url", ""), data_dir)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_builds_of_the_same_records_are_equal_to_the_byte(cli, birds, tmp_path):
    """In two places, with other file times, hashes of strings and settings of the machine."""
    sites = []
    for place, settings in (
        ("a", {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C"}),
        ("deeper/b", {"PYTHONHASHSEED": "2", "TZ": "America/Lima", "LC_ALL": "C.UTF-8"}),
    ):
        folder = shutil.copytree(birds, tmp_path / place / "published")
        for number, path in enumerate(sorted(folder.rglob("*"), reverse=place == "a")):
            os.utime(path, (10**9 + number, 10**9 + number))
        options = ("--output", "site", "--data-dir", tmp_path / place / "data")
        cli.real(folder.parent, "site", "build", "published", *options, **settings).ok()
        sites.append(contents(folder.parent / "site"))
    assert sites[0] == sites[1] and len(sites[0]) >= 30
    assert sum(name.endswith("tradeoff.svg") for name in sites[0]) == 1
    assert not [name for name, content in sites[0].items() if str(tmp_path).encode() in content]


def test_nobody_s_files_are_replaced(birds, tmp_path):
    site, data = tmp_path / "site", tmp_path / "data"
    site.mkdir()
    (site / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"site was not made by hierbench site build; give a new folder"):
        build(birds, site, data)
    (site / "mine.txt").unlink()
    build(birds, site, data)
    (site / "CNAME").write_text("example.org")
    with pytest.raises(UserError, match="holds CNAME, which is not of the site; move it away"):
        build(birds, site, data)
    assert (site / "CNAME").read_text() == "example.org" and (site / MARKER).exists()
    (tmp_path / "link").symlink_to(site)
    with pytest.raises(UserError, match="is a symbolic link"):
        build(birds, tmp_path / "link", data)
    with pytest.raises(UserError, match="which is replaced as a whole"):
        build(birds, birds.parent, data)
    with pytest.raises(UserError, match="is not a folder"):
        build(birds, birds / "birds.json", data)


def test_a_failure_leaves_the_site_that_was(birds, copy, tmp_path, monkeypatch):
    site = tmp_path / "site"
    build(birds, site, tmp_path)
    before = contents(site)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("hierbench.sharing.site.build.write_json", lambda *_: 1 / 0)
        build(copy, site, tmp_path)
    assert contents(site) == before and {path.name for path in tmp_path.iterdir()} == {"site", "published"}
    place = site.stat().st_ino
    build(copy, site, tmp_path)  # replaced as a whole
    assert contents(site) == before and site.stat().st_ino != place


def test_a_mistake_is_one_line(cli, birds, tmp_path):
    cli(tmp_path, "site", "build", "nowhere", "--output", "x").one_line("no folder nowhere")
    (tmp_path / "empty").mkdir()
    cli(tmp_path, "site", "build", "empty", "--output", "x").one_line("empty has no published table")
    cli(tmp_path, "site", "build", birds, "--output", "x", "--base-url", "javascript:x").one_line(
        "not an http or https"
    )
    cli(tmp_path, "site", "build", birds, "--output", "x", "--title", " ").one_line("--title is empty")
    assert not (tmp_path / "x").exists()


def test_tampering_is_shown_as_what_it_is(copy, tmp_path):
    table = json.loads((copy / "birds.json").read_text())
    table["rows"][0]["metrics"]["top1"]["mean"] = 99.5
    (copy / "birds.json").write_text(json.dumps(table))
    run = next(run for run in Store(copy / "birds").runs() if run.spec()["method"]["name"] == "mine")
    metrics = json.loads((run.folder / "metrics.json").read_text())
    metrics["test"]["top1"] = 97.25
    (run.folder / "metrics.json").write_text(json.dumps(metrics))
    foreign = copy / "birds" / records.BREAK_OUT.replace("/", "")
    foreign.mkdir()
    (foreign / "spec.json").write_text("[")
    build(copy, tmp_path / "site", tmp_path)
    pages = {name: content.decode() for name, content in contents(tmp_path / "site").items() if name.endswith(".html")}
    index, board = pages["index.html"], pages["tables/birds/index.html"]
    assert "The published files are not what the records give" in index
    assert "The published table is not what its records give." in board
    assert "the row cross-entropy type-I: " in pages["tables/birds/checks.html"]
    assert "2 of 10 runs are rejected" in board and "97.25" not in board
    page = pages[f"tables/birds/run-{run.folder.name[:16]}.html"]
    assert "Rejected:" in page and '<span class="verdict rejected">rejected</span>' in page
    assert "spec.json cannot be read" in pages["tables/birds/checks.html"] and "<img src=x" not in "".join(
        pages.values()
    )


def test_a_table_without_any_row_says_why(copy, tmp_path):
    for entry in list((copy / "birds").iterdir()):
        shutil.rmtree(entry)
    build(copy, tmp_path / "site", tmp_path)
    assert "No table follows from these records." in (tmp_path / "site/tables/birds/index.html").read_text()


def test_a_repository_has_boards_and_submissions(birds, tmp_path):
    for name in ("boards", "submissions/a", f"submissions/{records.QUOTED}"):
        shutil.copytree(birds, tmp_path / "repository" / name)
    (tmp_path / "repository/submissions/link").symlink_to(birds)
    records.write_card(tmp_path / "repository/submissions/a")
    found = find_tables(tmp_path / "repository")
    assert [name for name, _, _ in found] == ["", records.QUOTED, "a"]
    build(tmp_path / "repository", tmp_path / "site", tmp_path)
    assert {path.name for path in (tmp_path / "site/tables").iterdir()} >= {"birds"}
    assert len(list((tmp_path / "site/tables").iterdir())) == 3
    feed = (tmp_path / "site/feed.xml").read_text()
    assert "&lt;img src=x" in feed and feed.count("<entry>") == 3


def test_a_large_table_is_in_parts_whose_rows_are_light(tmp_path):
    title = records.QUOTED * 20
    cells = {name: Cell(50.0, 0.5, [49.5, 50.5], groups=("a", "b")) for name in ("top1", "mistake_severity")}
    rows = [Row("type-I", f"m{i:03}", title, 2, 2, cells, [], seeds=[0, 1], lacking=[2, 3, 4]) for i in range(150)]
    table = Table("big", "", tmp_path, Store(tmp_path / "big"), Board("big", "paper", "height", rows), Report(tmp_path))
    write_site([table], tmp_path / "site", "Big", "")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert max(path.stat().st_size for path in pages) < 150_000
    parts = [tmp_path / f"site/tables/big/{name}.html" for name in ("index", "page-2", "page-3")]
    assert [path.read_text().count("<tr data-type=") for path in parts] == [60, 60, 30]
    assert "lacks 2-4" in parts[0].read_text()
    assert 'class="lacking"' in parts[2].read_text()


def test_the_paper_s_numbers_are_beside_ours(tmp_path):
    records.publish(tmp_path / "published", "cifar100", [("haframe", "HAFrame", "type-II", 77.0)])
    (submission,) = find_tables(tmp_path / "published")
    assert submission[2] == "cifar100"
    build(tmp_path / "published", tmp_path / "site", tmp_path)
    page = (tmp_path / "site/tables/cifar100/index.html").read_text()
    rows = page.split("<tr data-type=")[1:]
    assert 'class="printed"' not in rows[0] and 'class="printed"' in rows[1]  # ours, then as it was printed
    assert 'data-method="haframe haframe"' in rows[1] and "as printed" in rows[1]
    assert all('data-protocol="published"' in row for row in rows[1:]) and len(rows) > 9
    assert "Liang &amp; Davis, ICCV 2023" in page and "<option>published</option>" in page


def test_a_row_is_compared_with_the_best_and_with_cross_entropy(birds, tmp_path):
    claimed = read_table(birds, "birds", "", tmp_path).board  # without predictions
    assert not any(row.competitive for row in claimed.rows)
    board = Board.of("birds", records.as_recorded(birds / "birds"))
    pairs = {(pair.row.method, pair.row.type, pair.reference.method): pair for pair in pairs_of(board)}
    assert set(pairs) == {("mine", "type-I", "ce"), ("mine", "type-II", "ce")}  # ce is both
    pair = pairs["mine", "type-I", "ce"]
    assert "the best competitive row and cross-entropy" in pair.why
    gap = pair.gaps[0]
    assert gap.difference.test == "paired" and gap.difference.n == 3 and gap.difference.p_holm >= gap.difference.p
    row, reference = ({0: 1.0, 1: 2.0, 2: 4.0}, {0: 0.0, 1: 0.5, 2: 2.0})
    assert str(svg.seeds_apart(row, reference)).count("<path") == 3


def test_further_columns_of_a_table_are_shown_as_they_are_kept(copy, tmp_path, monkeypatch):
    found = records.as_recorded(copy / "birds")
    for run in found:
        value = 0.25 + 0.2 * (run.job.method.name == "mine") + 0.001 * run.job.seed * (run.job.type == "type-I")
        write_json(run.folder / FILE, content_of(run, found, {"ece": value}))
    board = with_columns(Board.of("birds", found), [*PAPER, column_of("ece")], tmp_path)
    records.write_board(copy, board)
    before = contents(copy)
    _, (table,) = build(copy, tmp_path / "site", tmp_path)
    assert contents(copy) == before and not table.rejected
    groups = {(row.method, row.type): row.metrics["ece"].groups for row in table.board.rows}
    assert all(row.metrics["ece"].groups for row in board.rows) and not any(groups.values())  # without predictions
    title = column_of("ece").title
    for page in ("index", "row-type-i-mine", "type-i-mine-minus-type-i-ce"):
        assert title in (tmp_path / f"site/tables/birds/{page}.html").read_text()
    assert (
        f">{0.451:.{column_of('ece').digits}f}</" in (tmp_path / "site/methods/mine.html").read_text()
    )  # the mean of three seeds
    assert ",0.451" in (tmp_path / "site/tables/birds/table.csv").read_text()
    assert {pair.tests for pair in pairs_of(board)} == {3 * 6}
    monkeypatch.setattr("hierbench.sharing.site.content.values_are_kept", lambda *_: False)  # they could be computed
    _, (table,) = build(copy, tmp_path / "site", tmp_path)
    assert "columns are left out" in (tmp_path / "site/tables/birds/index.html").read_text()


def test_malformed_files_beside_a_table_are_left_out(tmp_path):
    def table():
        return Table("x", "", tmp_path, Store(tmp_path), Board("x", "paper", "height", []), Report(tmp_path))

    assert table().card is None and not table().has_odd_card and table().changes == []
    for content in ("[", 'title = 5\nauthors = [1, "A"]\n'):
        (tmp_path / "card.toml").write_text(content)
        assert table().card is None and table().has_odd_card
    odd = [{"date": 5}, {"added": "x"}, {"changed": [{"row": ["r"]}]}, {"changed": [{"top1": [1.5, None, 2]}]}, [], 3]
    row = {"row": "r:type-I", "top1": [1.5, None], "rank": ["ranked", "lacks seed 2"]}
    (tmp_path / "x-changes.json").write_text(json.dumps([*odd, {"removed": ["m"], "changed": [row]}]))
    (change,) = table().changes
    assert change.lines == ["changed r:type-I: top1 1.5000 -> None, rank ranked -> lacks seed 2", "removed m"]
    assert time_of("2026-11-22T11:34:45Z") and not time_of("2026-13-22T11:34:45Z") and not time_of(["x"])
