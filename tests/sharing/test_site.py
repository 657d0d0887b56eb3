"""The parts of a site: large and tampered tables, further columns, and the folder that is replaced."""

import html
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER_COLUMNS, find_column
from hierbench.leaderboard.extra_columns import with_columns
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.pictures.style import Drawing
from hierbench.leaderboard.statistics import Row, Summary
from hierbench.runs.findings import FolderReport
from hierbench.runs.further_metrics import FURTHER_FILE, values_content
from hierbench.runs.store import Store
from hierbench.sharing.site import pages
from hierbench.sharing.site.build import MARKER, build_site, write_site
from hierbench.sharing.site.content import SiteTable
from hierbench.sharing.site.file_names import Slugs, block, clean, make_slug
from hierbench.sharing.site.method_pages import about_method, highlighted
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_json
from tests.support import site_records as records
from tests.support.run_files import spec_of

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
    monkeypatch.setattr(pages, "draw", lambda *_: Drawing(None, []))
    monkeypatch.setattr(style, "write_figure", lambda *_: None)


@pytest.fixture
def copy(birds, tmp_path):
    return Path(shutil.copytree(birds, tmp_path / "published"))


def build(folder, target, data_dir):
    return build_site(folder, target, data_dir)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.thorough
def test_two_builds_of_the_same_records_are_equal_to_the_byte(cli, birds, tmp_path):
    """In two places, with other file times, hashes of strings and settings of the machine."""
    sites = []
    for place, settings in (
        ("a", {"TZ": "Asia/Tokyo", "LC_ALL": "C"}),
        ("deeper/b", {"PYTHONHASHSEED": "2", "TZ": "America/Lima", "LC_ALL": "C.UTF-8"}),
    ):
        folder = shutil.copytree(birds, tmp_path / place / "published")
        for number, path in enumerate(sorted(folder.rglob("*"), reverse=place == "a")):
            os.utime(path, (10**9 + number, 10**9 + number))
        words = ("site", "build", "published", "--output", "site", "--data-dir", tmp_path / place / "data")
        if place == "a":  # a fork has a hash seed of its own
            cli.start(folder.parent, *words, **settings).finish().ok()
        else:
            cli.real(folder.parent, *words, **settings).ok()
        sites.append(contents(folder.parent / "site"))
    assert sites[0] == sites[1] and len(sites[0]) >= 12
    assert sum(name.endswith("tradeoff.svg") for name in sites[0]) == 1
    assert not [name for name, content in sites[0].items() if str(tmp_path).encode() in content]


def test_a_folder_with_other_files_is_left_alone(birds, tmp_path):
    site, data = tmp_path / "site", tmp_path / "data"
    site.mkdir()
    (site / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"give a new folder"):
        build(birds, site, data)
    (site / "mine.txt").unlink()
    build(birds, site, data)
    (site / "CNAME").write_text("example.org")
    with pytest.raises(UserError, match="holds CNAME"):
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
    assert not (tmp_path / "x").exists()


def test_tampering_is_shown_with_its_reason(copy, tmp_path):
    table = json.loads((copy / "birds.json").read_text())
    table["rows"][0]["metrics"]["top1"]["mean"] = 99.5
    (copy / "birds.json").write_text(json.dumps(table))
    run = next(run for run in Store(copy / "birds").runs() if spec_of(run)["method"]["name"] == "mine")
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
    assert "the row cross-entropy type-I: " in board and "Rejected:" in board
    assert "2 of 10 runs are rejected" in board and "97.25" not in board
    assert run.folder.name[:12] in board and '<span class="verdict rejected">rejected</span>' in board
    assert "spec.json cannot be read" in board and "<img src=x" not in "".join(pages.values())


def test_a_table_without_any_row_says_why(copy, tmp_path):
    for entry in list((copy / "birds").iterdir()):
        shutil.rmtree(entry)
    build(copy, tmp_path / "site", tmp_path)
    assert "No table follows from these records." in (tmp_path / "site/tables/birds/index.html").read_text()


def test_a_large_table_has_light_rows(tmp_path):
    title = records.QUOTED * 20
    cells = {name: Summary(50.0, 0.5, [49.5, 50.5]) for name in ("top1", "mistake_severity")}
    rows = [Row("type-I", f"m{i:03}", title, 2, 2, cells, [], seeds=[0, 1], lacking=[2, 3, 4]) for i in range(150)]
    table = SiteTable("big", tmp_path, tmp_path / "big", Board("big", "paper", "height", rows), FolderReport(tmp_path))
    write_site([table], tmp_path / "site")
    page = (tmp_path / "site/tables/big/index.html").read_text()
    assert len(page) < 300_000 and page.count('<tr class="lacking">') == 150 and "lacks seeds 2-4" in page


def test_further_columns_of_a_table_are_shown_as_they_are_kept(copy, tmp_path, monkeypatch):
    runs = records.as_recorded(copy / "birds")
    for run in runs:
        value = 0.25 + 0.2 * (run.job.method.name == "mine") + 0.001 * run.job.seed * (run.job.type == "type-I")
        write_json(run.folder / FURTHER_FILE, values_content(run, runs, {"ece": value}))
    board = with_columns(Board.of("birds", runs), [*PAPER_COLUMNS, find_column("ece")], tmp_path)
    records.write_board(copy, board)
    before = contents(copy)
    _, (table,) = build(copy, tmp_path / "site", tmp_path)
    assert contents(copy) == before and not table.rejected
    title, value = find_column("ece").title, f">{0.451:.{find_column('ece').digits}f}</"  # the mean of three seeds
    for page in ("tables/birds/index", "methods/mine"):
        text = (tmp_path / f"site/{page}.html").read_text()
        assert title in text and value in text
    assert ",0.451" in (tmp_path / "site/tables/birds/table.csv").read_text()
    monkeypatch.setattr("hierbench.sharing.site.content.values_are_kept", lambda *_: False)  # they could be computed
    _, (table,) = build(copy, tmp_path / "site", tmp_path)
    assert "columns are left out" in (tmp_path / "site/tables/birds/index.html").read_text()


ROOT = Path(__file__).resolve().parents[2]


def test_names_are_safe_text_and_safe_files():
    assert clean("a\u202eb\u200bc\nd") == "a\ufffdb\ufffdc d" and clean(5) == 5
    assert block("a\tb\n\x1b<") == "a   b\n\ufffd&lt;"
    names = [
        "plain",
        "Plain",
        "../../etc/passwd",
        "a/b",
        "",
        "CON",
        ".",
        "x" * 300,
        "\u202e",
        "n\u00e4her",
        "a b",
        "a-b",
    ]
    slugs = [make_slug(name) for name in names]
    assert slugs[0] == "plain" and len(set(map(str.lower, slugs))) == len(slugs)
    assert all(re.fullmatch("[a-z0-9_.-]{1,60}", slug) for slug in slugs)
    taken = Slugs()
    assert [taken.of("a"), taken.of("a"), taken.of("a-2")] == ["a", "a-2", "a-2-2"]


def test_a_method_is_read_and_never_run():
    text = (ROOT / "methods/haframe.py").read_text()
    about = about_method(text, "haframe")
    assert (about.title, about.types, about.base) == ("HAFrame", "type-II", "")
    name, _, default, bounds, _ = about.hyperparameters[0]
    assert (name, default, bounds) == ("alpha", "0.4", "≥ 0.0, ≤ 1.0")
    paired = 'class A(Method):\n    name, title = "a", "A method"\n    source = "B et al."\n'
    assert (about_method(paired, "a").title, about_method(paired, "a").source) == ("A method", "B et al.")
    assert about_method((ROOT / "methods/hie.py").read_text(), "hie").base == "ce, _coarse_ce"
    for source in ("raise SystemExit(1)", "class X:\n    name = 'x'\n    title = exit()", "\0", "(" * 5000, "def"):
        assert about_method(source, "x").source == ""
        assert "<" not in str(highlighted(source)).replace("<span", "").replace("</span>", "")
    marked = str(highlighted("x = '<b>'  # </pre>\nif x: pass\n"))
    assert "<b>" not in marked and '<span class="k">if</span>' in marked
    assert '<span class="c1"># &lt;/pre&gt;</span>' in marked
    assert html.unescape(re.sub(r"</?span[^>]*>", "", str(highlighted(text)))) == text
