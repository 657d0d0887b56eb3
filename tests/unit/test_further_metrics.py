"""Metrics beyond the paper's: what they are computed from, and what is kept of them beside a run."""

import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hierbench.leaderboard import measured
from hierbench.leaderboard.board import Board, board_from_runs
from hierbench.leaderboard.columns import PAPER, Column, asked_columns
from hierbench.leaderboard.measured import measure, with_columns
from hierbench.leaderboard.render import as_csv, as_json, markdown
from hierbench.leaderboard.statistics import METRICS, Cell, Row, highlight, mark_best
from hierbench.metrics import compute_metrics
from hierbench.metrics import registry as metric_registry
from hierbench.metrics.calibration import is_distribution
from hierbench.runs import further_metrics
from hierbench.runs.evidence import Trees, evidence_of
from hierbench.runs.further_metrics import FILE, read_further, write_further
from hierbench.runs.integrity import sealed
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import as_json_text

_spec = importlib.util.spec_from_file_location("mistake_runs", Path(__file__).parents[1] / "mistake_runs.py")
mistake_runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(mistake_runs)
NAMES = ["hf_macro", "ece"]


@pytest.fixture
def work(tmp_path):
    """A store with a trained run and one that re-ranks it, the prepared data, and their tree."""
    prepared = mistake_runs.prepare(tmp_path / "data", per_class=10)
    _, labels = prepared.arrays("test")
    store = Store(tmp_path / "runs")
    scores = mistake_runs.random_scores(labels, len(mistake_runs.PATHS), 0)
    ids = {}
    for method in ("ce", "crm"):
        ids[method] = mistake_runs.store_run(store, prepared, method, "type-I", scores, labels)
    return store, tmp_path / "data", {method: store.run(run_id) for method, run_id in ids.items()}, prepared


@pytest.fixture
def computed(monkeypatch):
    """The names of the metrics that are computed, in turn."""
    calls = []

    def compute(names, evidence):
        calls.extend(names)
        return compute_metrics(names, evidence)

    monkeypatch.setattr(metric_registry, "compute_metrics", compute)
    return calls


def test_a_second_table_computes_nothing(work, computed):
    store, data, runs, _ = work
    first = measure([runs["ce"]], NAMES, store, data)
    assert computed == NAMES and measure([runs["ce"]], NAMES, store, data / "nowhere") == first
    assert computed == NAMES
    more = measure([runs["ce"]], [*NAMES, "mce"], store, data)[runs["ce"].folder.name]
    assert computed == [*NAMES, "mce"] and set(more) == {*NAMES, "mce"}
    assert runs["ce"].done and not runs["ce"].damaged("read")


def test_undefined_values_are_kept_as_such(work, computed):
    store, data, runs, _ = work
    for _ in range(2):
        found = measure([runs["ce"]], ["fpa", "mce"], store, data)[runs["ce"].folder.name]
        assert math.isnan(found["fpa"]) and found["mce"] > 0
    assert computed == ["fpa", "mce"]
    assert json.loads((runs["ce"].folder / FILE).read_text())["values"]["fpa"] is None


def test_other_predictions_make_other_values(work, computed):
    store, data, runs, _ = work
    before = measure([runs["ce"]], NAMES, store, data)
    scores, targets = runs["ce"].predictions()
    runs["ce"].write_predictions(np.roll(scores, 1, axis=1), targets)
    mistake_runs.seal(runs["ce"])
    after = measure([runs["ce"]], NAMES, store, data)
    assert computed == NAMES * 2 and after != before


def test_values_of_a_re_ranked_run_depend_on_its_base(work, computed):
    store, data, runs, _ = work
    before = measure([runs["crm"]], ["ece"], store, data)
    scores, targets = runs["ce"].predictions()
    runs["ce"].write_predictions(scores * 3, targets)
    mistake_runs.seal(runs["ce"])
    assert measure([runs["crm"]], ["ece"], store, data) != before and computed == ["ece"] * 2


def test_other_code_computes_again_unless_the_predictions_are_gone(work, computed, monkeypatch):
    store, data, runs, _ = work
    first = measure([runs["ce"]], NAMES, store, data)
    monkeypatch.setattr(further_metrics, "digest_of_code", lambda: "other code")
    assert measure([runs["ce"]], NAMES, store, data) == first and computed == NAMES * 2
    monkeypatch.setattr(further_metrics, "digest_of_code", lambda: "yet other code")
    (runs["ce"].folder / "predictions.npz").unlink()
    assert measure([runs["ce"]], NAMES, store, data) == first and computed == NAMES * 2
    assert measure([runs["ce"]], [*NAMES, "mce"], store, data) == first  # without the new one


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "[]",
        '{"values": {"ece": 1.0}}',
        "changed",
        "no numbers",
    ],
)
def test_what_is_kept_is_not_believed_if_it_is_damaged(work, computed, text):
    store, data, runs, _ = work
    right = measure([runs["ce"]], NAMES, store, data)
    path = runs["ce"].folder / FILE
    content = json.loads(path.read_text())
    if text == "changed":  # by hand, without a new checksum
        text = path.read_text().replace('"ece": ', '"ece": 1')
    elif text == "no numbers":
        del content["checksum"]
        text = as_json_text(sealed(content | {"values": {"ece": "1", "hf_macro": True}}))
    path.write_text(text)
    assert measure([runs["ce"]], NAMES, store, data) == right and computed == NAMES * 2
    assert measure([runs["ce"]], NAMES, store, data) == right and computed == NAMES * 2


def test_a_link_is_neither_read_nor_written_through(work, tmp_path):
    store, data, runs, _ = work
    right = measure([runs["ce"]], NAMES, store, data)
    path, outside = runs["ce"].folder / FILE, tmp_path / "outside.json"
    outside.write_text(path.read_text())
    path.unlink()
    path.symlink_to(outside)
    assert read_further(runs["ce"], store) == {}
    before = outside.read_text()
    assert (
        measure([runs["ce"]], [*NAMES, "mce"], store, data)[runs["ce"].folder.name].items()
        >= right[runs["ce"].folder.name].items()
    )
    assert outside.read_text() == before


def test_a_folder_that_cannot_be_written(work, computed, monkeypatch):
    store, data, runs, _ = work

    def refuse(path, content):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(further_metrics, "write_json", refuse)
    first = measure([runs["ce"]], NAMES, store, data)
    assert measure([runs["ce"]], NAMES, store, data) == first and computed == NAMES * 2
    assert not (runs["ce"].folder / FILE).exists()


def test_clearing_a_run_removes_what_was_kept(work):
    store, _, runs, _ = work
    write_further(runs["ce"], store, {"ece": 1.0})
    runs["ce"].clear()
    assert not (runs["ce"].folder / FILE).exists()


def test_confidence_is_that_of_the_first_base_unless_the_scores_are_a_distribution(work):
    store, data, runs, prepared = work
    tree = Trees(data).of(runs["crm"])
    base = torch.from_numpy(runs["ce"].predictions()[0]).double().softmax(dim=1)
    assert torch.equal(evidence_of(runs["ce"], store, tree).probabilities, base)
    assert torch.equal(evidence_of(runs["crm"], store, tree).probabilities, base)
    _, labels = prepared.arrays("test")
    shares = torch.rand(len(labels), len(mistake_runs.PATHS), dtype=torch.float64)
    shares /= shares.sum(dim=1, keepdim=True)
    runs["crm"].write_predictions(shares.numpy(), labels)
    mistake_runs.seal(runs["crm"])
    assert torch.equal(evidence_of(runs["crm"], store, tree).probabilities, shares)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([[0.25, 0.75], [1.0, 0.0]], True),
        ([[0.25, 0.75], [0.5, 0.6]], False),
        ([[1.5, -0.5]], False),
        ([[math.inf, 0.0]], False),
    ],
)
def test_what_a_distribution_is(scores, expected):
    assert is_distribution(torch.tensor(scores)) is expected
    assert is_distribution(torch.tensor(scores, dtype=torch.float64)) is expected


def test_damaged_predictions_are_one_line(work):
    store, data, runs, prepared = work
    tree = Trees(data).of(runs["ce"])
    _, labels = prepared.arrays("test")
    scores = mistake_runs.random_scores(labels, tree.num_classes, 0)
    cases = [
        ((np.full_like(scores, np.nan), labels), {}, "a score is NaN"),
        ((scores[:, :-1], labels), {}, "are not those of 60 test examples, 6 classes"),
        ((scores, labels + 1), {}, "a target is not a class"),
        ((scores[:0], labels[:0]), {}, "there are none"),
        ((scores, labels), {"examples": labels[::-1]}, "are not those of 60 test examples, 6 classes"),
    ]
    for arrays, more, problem in cases:
        runs["ce"].write_predictions(*arrays)
        mistake_runs.seal(runs["ce"])
        with pytest.raises(UserError, match=f"are damaged: .*{problem}; remove the folder"):
            evidence_of(runs["ce"], store, tree, **more)
    levels = np.zeros((len(labels), tree.num_levels), dtype=np.int64)
    for wrong in (levels[:, 1:], levels - 1, levels + tree.num_classes):
        runs["ce"].write_predictions(scores, labels, wrong)
        mistake_runs.seal(runs["ce"])
        with pytest.raises(UserError, match=r"are damaged: .*level-wise"):
            evidence_of(runs["ce"], store, tree)


def test_the_tree_is_that_of_the_runs(work, tmp_path):
    store, _, runs, _ = work
    with pytest.raises(UserError, match=r"the tree of shapes in .* is not that of the runs, whose digest is"):
        measure([runs["ce"]], NAMES, store, tmp_path / "nowhere")  # the shipped tree is another one
    spec = runs["ce"].spec()
    (runs["ce"].folder / "spec.json").write_text(json.dumps(spec | {"dataset": spec["dataset"] | {"name": "inat19"}}))
    with pytest.raises(UserError, match=r"inat19 is not prepared in .*; run: hierbench data prepare inat19"):
        measure([runs["ce"]], NAMES, store, tmp_path / "nowhere")


def row(method, severity, ece, competitive=True):
    cells = {metric: Cell(severity, 0.1, [severity]) for metric in METRICS} | {"ece": Cell(ece, 0.1, [ece])}
    return Row("type-I", method, method, 1, 1, cells, competitive=competitive)


def test_the_best_of_a_column_is_of_the_competitive_rows_at_its_digits():
    low, area = Column("ece", "ECE", unit="%"), Column("ece", "hAURC")
    rows = [row("a", 2.0, 0.101), row("b", 2.04, 0.099), row("c", 9.0, 0.01)]
    highlight(rows)
    shown = [one for one in rows if one.competitive]
    mark_best(shown, [low])
    assert [one.metrics["ece"].best for one in rows] == [True, True, False]  # both are printed as 0.10
    mark_best(shown, [area])
    assert [one.metrics["ece"].best for one in rows] == [False, True, False]
    mark_best(shown, [replace(area, higher=True)])
    assert [one.metrics["ece"].best for one in rows] == [True, False, False]


def test_cells_that_do_not_exist():
    rows = [row("a", 2.0, None), row("b", 2.0, 1.0)]
    board = Board("shapes", "paper", "height", rows, columns=(Column("ece", "E_C|E", unit="%"),))
    lines = [[cell.strip() for cell in line.split("|")] for line in markdown(board).splitlines()]
    assert lines[2][3] == "-" and lines[3][3] == "1.00 +/- 0.1000"
    assert markdown(board).splitlines()[0].count("\\|") == 1 and "E_C\\|E in %." in markdown(board)
    assert as_csv(board).splitlines()[1].endswith(",,0.1,0")
    content = json.loads(as_json(board))
    assert set(content) == {"schema", "dataset", "protocol", "distance", "rows"}
    assert content["rows"][0]["metrics"]["ece"]["mean"] is None


def test_a_row_lacks_a_cell_if_one_of_its_runs_lacks_the_value(work):
    store, data, _, prepared = work
    _, labels = prepared.arrays("test")
    scores = mistake_runs.random_scores(labels, len(mistake_runs.PATHS), 5)
    second = store.run(mistake_runs.store_run(store, prepared, "ce", "type-I", scores, labels, seed=1))
    board = board_from_runs("shapes", store)
    columns = asked_columns("+hf_macro")
    whole = with_columns(board, columns, store, data)
    assert {one.method: len(one.metrics["hf_macro"].values) for one in whole.rows} == {"ce": 2, "crm": 1}
    assert "hf_macro" not in board.rows[0].metrics and board.columns == PAPER  # the argument stays as it was
    (second.folder / "predictions.npz").unlink()
    (second.folder / FILE).unlink()
    part = with_columns(board_from_runs("shapes", store), columns, store, data)
    assert {one.method: one.metrics["hf_macro"].mean is None for one in part.rows} == {"ce": True, "crm": False}
    assert part.remark.endswith("; not all columns could be computed of a run that has no predictions here")


def test_a_metric_that_no_row_has(work):
    store, data, _, _ = work
    board = board_from_runs("shapes", store)  # of six classes
    with pytest.raises(UserError, match="no row of this table has hierdist@20"):
        with_columns(board, asked_columns("hierdist@20"), store, data)
    assert measured.with_columns(board, asked_columns("hierdist@20,top1"), store, data).columns[0].name == "hierdist@20"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, METRICS),
        ("ece", ("ece",)),
        (" ece , hops@3,ece", ("ece", "hops@3")),
        ("+ece,+top1", (*METRICS, "ece")),
        ("hierdist@5", ("hierdist@5",)),
    ],
)
def test_asked_columns(text, names):
    assert tuple(column.name for column in asked_columns(text)) == tuple(names)
