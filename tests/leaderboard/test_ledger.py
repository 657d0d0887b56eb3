import json
from dataclasses import replace

import pytest

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.execution.jobs import make_spec
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.ledger import KnownDifference, build_ledger, known_differences, ledger_table
from hierbench.leaderboard.paper_tables import paper_datasets
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, Summary
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store


def row(kind, method, mean=2.0, ci95=0.1, n=5, title=None, metrics=PAPER_METRICS):
    return Row(kind, method, title or method, n, 5, {metric: Summary(mean, ci95) for metric in metrics})


@pytest.fixture
def ledger():
    """Runs that lack most methods and one metric, have one of their own and two variants of another."""
    rows = [
        row("type-I", "ce", 77.0, 0.3866),
        row("type-I", "mine", title="mine_1 | 100%"),
        row("type-II", "ce", None, None, n=0),
        row("type-II", "haframe", 77.9, 0.1, title="HAFrame (alpha=0.4, gamma=2.0)", metrics=PAPER_METRICS[:-1]),
        row("type-II", "haframe", 77.0, None, n=1, title="HAFrame (alpha=0.0, gamma=2.0)"),
    ]
    return build_ledger(Board("cifar100", "paper", "height", rows, ("wrn10-1, 1 epochs",)), Board.paper("cifar100"))


def line(ledger, kind, title, metric="top1"):
    (match,) = [x for x in ledger.lines if (x.type, x.title, x.metric) == (kind, title, metric)]
    return match


def test_gap_and_overlap_by_hand(ledger):
    entry = line(ledger, "type-I", "ce")
    assert entry.published == Summary(77.65, 0.2635)
    assert entry.gap == pytest.approx(-0.65) and entry.overlap  # 0.2635 + 0.3866 = 0.6501
    less, touching = (replace(entry, ours=Summary(77.0, width)) for width in (0.3864, 0.3865))
    assert less.overlap is False
    assert 0.2635 + 0.3865 < abs(77.0 - 77.65) and touching.overlap  # 0.65, which is a little less in binary
    full = line(ledger, "type-II", "HAFrame (alpha=0.4, gamma=2.0)")
    assert full.gap == pytest.approx(0.19) and full.overlap


def test_missing_cells_have_no_gap(ledger):
    for kind, title, metric, published, ours in (
        ("type-I", "mine_1 | 100%", "top1", False, True),
        ("type-I", "Flamingo", "top1", True, False),
        ("type-II", "ce", "top1", True, True),  # without a finished run
        ("type-II", "HAFrame (alpha=0.4, gamma=2.0)", "hierdist@20", True, False),
    ):
        entry = line(ledger, kind, title, metric)
        assert (entry.published is not None, entry.ours is not None) == (published, ours)
        assert entry.gap is None and entry.overlap is None
    one_run = line(ledger, "type-II", "HAFrame (alpha=0.0, gamma=2.0)")
    assert one_run.gap == pytest.approx(-0.71) and one_run.overlap is None


EVERYWHERE = {4, 5, 38}  # under the protocol paper
EXPECTED = {  # (dataset, protocol): rows of all cells, then of some
    ("fgvc", "paper"): (EVERYWHERE | {22}, {"type-I": {11}, "type-II": {18}}, {"hafeature": {29, 30, 33}}),
    ("fgvc", "authors"): (set(), {}, {"hafeature": {29, 33}}),
    ("cifar100", "paper"): (EVERYWHERE | {23, 34}, {"type-I": {12}}, {"hafeature": {29}}),
    ("cifar100", "authors"): (set(), {}, {"hafeature": {29}, "flamingo type-I": {25}}),
    ("inat19", "paper"): (EVERYWHERE, {"type-I": {11}}, {"hafeature": {29, 30}}),
    ("inat19", "authors"): (set(), {}, {"hafeature": {29}}),
    ("tieredimagenet-h", "paper"): (EVERYWHERE, {"type-I": {11}}, {"hafeature": {3, 29, 30}, "flamingo": {3}}),
    ("tieredimagenet-h", "authors"): (set(), {}, {"hafeature": {3, 29}, "flamingo": {3}}),
}


@pytest.mark.parametrize(("dataset", "protocol"), EXPECTED)
def test_which_differences_touch_which_cell(dataset, protocol):
    published = Board.paper(dataset)
    ledger = build_ledger(Board(dataset, protocol, published.distance, published.rows), published)
    everywhere, by_type, by_method = EXPECTED[dataset, protocol]
    by_method = by_method | {"haframe": {8, 9} if protocol == "paper" else {9}}
    assert len(ledger.lines) == 45
    for x in ledger.lines:
        parts = (by_type.get(x.type, set()), by_method.get(x.method, set()))
        expected = everywhere.union(*parts, by_method.get(f"{x.method} {x.type}", set()))
        assert x.differences == tuple(sorted(expected)), (x.type, x.method)
    assert [entry.row for entry in ledger.differences] == sorted({n for x in ledger.lines for n in x.differences})


def test_the_differences_name_existing_rows_and_those_of_ce_affect_crm():
    difference, place = KnownDifference(row=1, summary="", methods=("ce",), metrics=("top1",)), ("fgvc", "type-I")
    assert difference.touches(*place, "crm", "top1", "paper") and difference.touches(*place, "ce", "top1", "authors")
    assert not difference.touches(*place, "crm", "hierdist@1", "paper")
    assert not KnownDifference(row=1, summary="", methods=("crm",)).touches(*place, "ce", "top1", "paper")
    entries = known_differences()
    assert len({entry.row for entry in entries}) == len(entries) >= 14
    methods = {x.method for dataset in paper_datasets() for x in Board.paper(dataset).rows}
    for entry in entries:
        assert set(entry.datasets) <= set(paper_datasets()), entry
        assert set(entry.methods) <= methods and set(entry.metrics) <= set(PAPER_METRICS), entry
        assert entry.summary and "\n" not in entry.summary and not entry.summary.endswith(".")


@pytest.fixture
def table(ledger):
    """The cells of the table, row by row."""
    lines = render(ledger_table(ledger)).splitlines()
    return [[cell.strip() for cell in x.replace("\\|", "/").split("|")[1:-1]] for x in lines if x.startswith("| ")]


def test_the_table_has_each_row_once_per_metric(ledger, table):
    assert {len(cells) for cells in table} == {9} and len(table) == 1 + 11 * 5
    rows = [(x.type, x.title) for x in ledger.lines if x.metric == "top1"]
    assert [kind for kind, _ in rows] == ["type-I"] * 5 + ["type-II"] * 6 and len(set(rows)) == 11


def test_a_row_has_both_numbers_their_gap_and_the_differences(table):
    cells_by_row = {tuple(cells[:2]): cells[3:] for cells in table if cells[2] == "Top-1 accuracy ↑"}
    differences = "4, 5, 12, 23, 34, 38"
    assert cells_by_row["type-I", "ce"] == ["77.65 +/- 0.2635", "77.00 +/- 0.39", "-0.65", "yes", "5", differences]
    assert cells_by_row["type-I", "mine_1 / 100%"] == ["-", "2.00 +/- 0.10", "-", "-", "5", "-"]
    assert cells_by_row["type-II", "HAFeature"][1:] == ["-", "-", "-", "-", "4, 5, 23, 29, 34, 38"]
    assert cells_by_row["type-II", "HAFrame (alpha=0.0, gamma=2.0)"][1:5] == ["77.00", "-0.71", "-", "1 of 5"]


def test_settings_and_differences_are_below_the_table(ledger):
    lines = render(ledger_table(ledger)).splitlines()
    assert any("Settings: wrn10-1, 1 epochs." in x for x in lines)
    assert [int(x[2:].split(":")[0]) for x in lines if x.startswith("- ")] == [4, 5, 8, 9, 12, 23, 29, 34, 38]


def test_another_distance_than_the_published_one_is_named():
    published = Board.paper("tieredimagenet-h")
    other = build_ledger(Board("tieredimagenet-h", "authors", "height", published.rows), published)
    assert "distance height (published: depth)" in render(ledger_table(other))


def test_json_has_the_numbers(ledger):
    content = json.loads(render(ledger_table(ledger), "json"))
    first = content.pop("rows")[0]
    assert content == {"schema": 1, "dataset": "cifar100", "protocol": "paper", "distance": "height"}
    assert (first["published"], first["ours"], first["overlap"]) == (77.65, 77.0, True)
    assert first["differences"] == [4, 5, 12, 23, 34, 38] and (first["n"], first["planned"]) == (5, 5)


def test_boards_without_a_ledger(cli, tmp_path):
    cli(tmp_path, "leaderboard", "--dataset", "shapes", "--numbers", "both").one_line("table of the paper", "cifar100")
    assert not list(tmp_path.iterdir())


def test_without_runs_the_published_column_is_printed_and_no_torch_imported(without_torch):
    done = without_torch("leaderboard", "--dataset", "fgvc", "--numbers", "both", "--protocol", "authors")
    assert "| type-I  | cross-entropy | Top-1 accuracy ↑   | 79.18 +/- 0.5511 | -" in done.out
    assert "protocol authors, distance height" in done.out and done.err.startswith("note: no runs of fgvc")
    assert sum(" - " in line.split("|")[5] for line in done.out.splitlines() if line.startswith("| type")) == 9 * 5
    assert "run: hierbench run --methods paper --dataset fgvc" in done.err


def test_a_single_switch_changes_the_affected_cells(tmp_path, shapes):
    """The recorded setting counts, not what the protocol is called."""

    def touched(dataset, method, kind, protocol, overrides=()):
        recipe = load_recipe(dataset, ["train.precision=float32", *overrides], protocol)
        spec = make_spec(recipe, shapes, find_method(method), kind, 0)
        entries, cell = known_differences(), (dataset, kind, method, "top1", protocol, spec)
        return {entry.row for entry in entries if entry.touches(*cell)}

    assert touched("fgvc", "ce", "type-I", "paper", ["model.type_i_pool=max", "evaluation.ddof=0"]) == {5, 22}
    assert touched("fgvc", "ce", "type-II", "authors", ["train.lr.type-II.transform=0.01"]) == {18}
    assert touched("fgvc", "hafeature", "type-I", "paper") == {4, 5, 11, 22, 29, 30, 33}
    assert touched("cifar100", "ce", "type-I", "paper", ["model.type_i_units=0"]) == {4, 5, 23, 34}
    assert touched("cifar100", "ce", "type-II", "paper", ["model.wrn_group_input=raw"]) == {4, 5, 23}
    assert touched("inat19", "ce", "type-II", "authors", ["train.precision=bfloat16"]) == {38}
    assert touched("tieredimagenet-h", "ce", "type-II", "paper", ["distance=height"]) == {1, 4, 5}
    recipe = load_recipe("shapes", ["evaluation.drop_last=true", "train.lr.type-I.backbone=0.5"])
    spec = make_spec(recipe, shapes, find_method("ce"), "type-I", 0)
    Store(tmp_path).run(spec.id).plan(spec.content())
    remark = Board.of("shapes", read_records(tmp_path)).settings
    assert "evaluation.drop_last = True" in remark and "train.lr.type-I.backbone = 0.5" in remark
    assert "ddof" not in remark
