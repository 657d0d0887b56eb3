"""Metrics beyond the paper's: what they are computed from, and what is kept of them beside a run."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER, Column, asked_columns
from hierbench.leaderboard.measured import measure, with_columns
from hierbench.leaderboard.statistics import METRICS, Cell, Row, highlighted, with_best
from hierbench.metrics import compute_metrics
from hierbench.metrics import registry as metric_registry
from hierbench.metrics.calibration import is_distribution
from hierbench.runs import further_metrics
from hierbench.runs.evidence import Trees, evidence_of
from hierbench.runs.further_metrics import FILE, read_further, write_further
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from tests import mistake_runs

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
    ce, names = runs["ce"], [*NAMES, "fpa"]
    (first,) = measure([ce], names, store, data).values()
    assert computed == names and math.isnan(first["fpa"])  # an undefined value is kept as such
    assert json.loads((ce.folder / FILE).read_text())["values"]["fpa"] is None
    (second,) = measure([ce], names, store, data / "nowhere").values()
    assert computed == names and repr(sorted(second.items())) == repr(sorted(first.items()))
    (more,) = measure([ce], [*names, "mce"], store, data).values()
    assert computed == [*names, "mce"] and set(more) == {*names, "mce"} and more["mce"] > 0
    assert ce.done and not ce.damaged("read")


def test_other_predictions_make_other_values_also_of_what_re_ranks_them(work, computed):
    store, data, runs, _ = work
    before = measure(list(runs.values()), ["ece"], store, data)
    scores, targets = runs["ce"].predictions()
    runs["ce"].write_predictions(scores * 3, targets)
    mistake_runs.seal(runs["ce"])
    after = measure(list(runs.values()), ["ece"], store, data)
    assert computed == ["ece"] * 4 and all(after[name] != before[name] for name in before)


def test_other_code_computes_again_unless_the_predictions_are_gone(work, computed, monkeypatch):
    store, data, runs, _ = work
    first = measure([runs["ce"]], NAMES, store, data)
    monkeypatch.setattr(further_metrics, "digest_of_code", lambda: "other code")
    assert measure([runs["ce"]], NAMES, store, data) == first and computed == NAMES * 2
    monkeypatch.setattr(further_metrics, "digest_of_code", lambda: "yet other code")
    (runs["ce"].folder / "predictions.npz").unlink()
    assert measure([runs["ce"]], NAMES, store, data) == first and computed == NAMES * 2
    assert measure([runs["ce"]], [*NAMES, "mce"], store, data) == first  # without the new one


@pytest.mark.parametrize("text", ["", "nothing", "[]", '{"values": {"ece": 1.0}}', "changed"])
def test_what_is_kept_is_not_believed_if_it_is_damaged(work, computed, text):
    store, data, runs, _ = work
    right = measure([runs["ce"]], NAMES, store, data)
    path = runs["ce"].folder / FILE
    if text == "changed":  # by hand, without a new checksum
        text = path.read_text().replace('"ece": ', '"ece": 1')
    path.write_text(text)
    assert measure([runs["ce"]], NAMES, store, data) == right and computed == NAMES * 2
    assert measure([runs["ce"]], NAMES, store, data) == right and computed == NAMES * 2


def test_a_link_is_neither_read_nor_written_through(work, tmp_path):
    store, data, runs, _ = work
    (right,) = measure([runs["ce"]], NAMES, store, data).values()
    path, outside = runs["ce"].folder / FILE, tmp_path / "outside.json"
    path.rename(outside)
    path.symlink_to(outside)
    before = outside.read_text()
    assert read_further(runs["ce"], store) == {}
    (again,) = measure([runs["ce"]], [*NAMES, "mce"], store, data).values()
    assert again.items() >= right.items() and outside.read_text() == before


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


def test_what_a_distribution_is():
    for dtype in (torch.float32, torch.float64):
        assert is_distribution(torch.tensor([[0.25, 0.75], [1.0, 0.0]], dtype=dtype))
        for scores in ([[0.25, 0.75], [0.5, 0.6]], [[1.5, -0.5]], [[math.inf, 0.0]]):
            assert not is_distribution(torch.tensor(scores, dtype=dtype))


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


def test_the_best_of_a_column_is_of_the_competitive_rows_at_its_digits():
    rows = [
        Row("type-I", "m", "m", 1, 1, dict.fromkeys(METRICS, Cell(severity, 0.1)) | {"ece": Cell(ece, 0.1)})
        for severity, ece in ((2.0, 0.101), (2.04, 0.099), (9.0, 0.01))
    ]
    shown = [one for one in highlighted(rows) if one.competitive]
    area = Column("ece", "hAURC")
    for column, best in (
        (Column("ece", "ECE", unit="%"), [True, True]),  # both are printed as 0.10
        (area, [False, True]),
        (replace(area, higher=True), [True, False]),
    ):
        assert [one.metrics["ece"].best for one in with_best(shown, [column])] == best


def test_a_row_lacks_a_cell_if_one_of_its_runs_lacks_the_value(work):
    store, data, _, prepared = work
    _, labels = prepared.arrays("test")
    scores = mistake_runs.random_scores(labels, len(mistake_runs.PATHS), 5)
    second = store.run(mistake_runs.store_run(store, prepared, "ce", "type-I", scores, labels, seed=1))
    board = Board.of("shapes", store)
    columns = asked_columns("+hf_macro")
    whole = with_columns(board, columns, store, data)
    assert {one.method: len(one.metrics["hf_macro"].values) for one in whole.rows} == {"ce": 2, "crm": 1}
    assert "hf_macro" not in board.rows[0].metrics and board.columns == PAPER  # the argument stays as it was
    (second.folder / "predictions.npz").unlink()
    (second.folder / FILE).unlink()
    part = with_columns(Board.of("shapes", store), columns, store, data)
    assert {one.method: one.metrics["hf_macro"].mean is None for one in part.rows} == {"ce": True, "crm": False}
    assert part.remark.endswith("; not all columns could be computed of a run that has no predictions here")


def test_a_metric_that_no_row_has(work):
    store, data, _, _ = work
    board = Board.of("shapes", store)  # of six classes
    with pytest.raises(UserError, match="no row of this table has hierdist@20"):
        with_columns(board, asked_columns("hierdist@20"), store, data)
    assert with_columns(board, asked_columns("hierdist@20,top1"), store, data).columns[0].name == "hierdist@20"


def test_asked_columns():
    for text, names in {
        None: METRICS,
        "ece": ("ece",),
        " ece , hops@3,ece": ("ece", "hops@3"),
        "+ece,+top1": (*METRICS, "ece"),
        "hierdist@5": ("hierdist@5",),
    }.items():
        assert tuple(column.name for column in asked_columns(text)) == tuple(names)
