"""Metrics beyond the paper's: their evidence, and their cache."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column, requested_columns
from hierbench.leaderboard.extra_columns import measure, with_columns
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, Summary, highlighted, with_best
from hierbench.metrics import known_metrics
from hierbench.metrics import metric_table as metric_registry
from hierbench.metrics.calibration import as_probabilities, score_kind
from hierbench.metrics.metric_table import compute_in_parts
from hierbench.runs import further_metrics
from hierbench.runs.further_metrics import FURTHER_FILE, values_content
from hierbench.runs.record_reader import read_records
from hierbench.runs.run_evidence import Trees, read_evidence
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from tests.support import made_runs

NAMES = ["hf_macro", "ece"]


class Work:
    """A runs folder with a trained run and one that re-ranks it, and the prepared data."""

    def __init__(self, folder):
        self.prepared, self.data, self.root = (
            made_runs.prepare(folder / "data", per_class=10),
            folder / "data",
            folder,
        )
        _, self.labels = self.prepared.arrays("test")
        self.store = Store(folder / "runs")
        scores = made_runs.random_scores(self.labels, len(made_runs.PATHS), 0)
        for method in ("ce", "crm"):
            self.add(method, scores)

    def add(self, method, scores, seed=0):
        run_id = made_runs.store_run(self.store, self.prepared, method, "type-I", scores, self.labels, seed=seed)
        return self.store.run(run_id)

    def records(self):
        """Return the records as they are now, and those of the two methods."""
        records = read_records(self.store.root)
        return records, {record.spec.method.name: record for record in records}

    def measure(self, names, *methods, data=None):
        """Return {method: {metric: value}}."""
        records, record_by_method = self.records()
        values = measure([record_by_method[method] for method in methods or ("ce",)], names, records, data or self.data)
        return {method: values[record_by_method[method].id] for method in methods or ("ce",)}

    def tree(self, method="ce"):
        return Trees(self.data).of(self.records()[1][method].dataset)

    def evidence(self, method, **more):
        records, record_by_method = self.records()
        parts = read_evidence(record_by_method[method], records, self.tree(method), **more)
        return None if parts is None else next(parts)

    def write(self, method, *arrays):
        run = self.store.run(self.records()[1][method].id)
        run.write_predictions(*arrays)
        made_runs.seal(run)
        return run


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERBENCH_CACHE_DIR", str(tmp_path / "cache"))
    return Work(tmp_path)


@pytest.fixture
def computed(monkeypatch):
    """The names of the metrics that are computed, in turn."""
    calls = []

    def compute(names, parts):
        calls.extend(names)
        return compute_in_parts(names, parts)

    monkeypatch.setattr(metric_registry, "compute_in_parts", compute)
    return calls


@pytest.mark.parametrize("method", ["ce", "crm"])
def test_parts_of_the_examples_give_the_metrics_of_all(work, monkeypatch, tmp_path, method):
    names = known_metrics(work.tree())
    expected = work.measure(names, method)[method]
    monkeypatch.setenv("HIERBENCH_CACHE_DIR", str(tmp_path / "another"))
    monkeypatch.setattr("hierbench.metrics.metric_inputs.SCORES_AT_A_TIME", 100)
    assert work.measure(names, method)[method] == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_a_second_table_computes_nothing(work, computed):
    names = [*NAMES, "fpa"]  # which is undefined for a method that predicts classes alone
    first = work.measure(names)["ce"]
    assert computed == names and math.isnan(first["fpa"]) and set(first) == set(names)
    second = work.measure(names, data=work.root / "nowhere")["ce"]
    assert computed == names and repr(sorted(second.items())) == repr(sorted(first.items()))
    more = work.measure([*names, "mce"])["ce"]
    assert computed == [*names, "mce"] and set(more) == {*names, "mce"} and more["mce"] > 0
    assert not list(work.store.root.glob("*/further*"))  # a table writes nothing into a runs folder


def test_other_predictions_give_other_values_also_for_re_ranked_runs(work, computed):
    before = work.measure(["ece"], "ce", "crm")
    scores, targets = work.records()[1]["ce"].predictions()
    work.write("ce", scores * 3, targets)
    after = work.measure(["ece"], "ce", "crm")
    assert computed == ["ece"] * 4 and all(after[name] != before[name] for name in before)


def test_other_code_computes_again_unless_the_predictions_are_gone(work, computed, monkeypatch):
    first = work.measure(NAMES)
    records, record_by_method = work.records()
    path = record_by_method["ce"].folder / FURTHER_FILE  # as published
    path.write_text(json.dumps(values_content(record_by_method["ce"], records, first["ce"])))
    monkeypatch.setattr(further_metrics, "digest_of_code", lambda: "other code")
    assert work.measure(NAMES) == first and computed == NAMES * 2
    (path.parent / "predictions.npz").unlink()
    assert work.measure(NAMES) == first and computed == NAMES * 2
    assert work.measure([*NAMES, "mce"]) == first  # without the new one


@pytest.mark.parametrize("text", ["", "nothing", "[]", '{"values": {"ece": 1.0}}', "a link"])
def test_damaged_cached_values_are_not_believed(work, computed, text):
    right = work.measure(NAMES)
    (path,) = (work.root / "cache/further-metrics").iterdir()
    if text == "a link":
        path.rename(work.root / "outside.json")
        path.symlink_to(work.root / "outside.json")
    else:
        path.write_text(text)
    assert work.measure(NAMES) == right and computed == NAMES * 2
    assert work.measure(NAMES) == right and computed == NAMES * 2


def test_a_folder_that_cannot_be_written(work, computed, monkeypatch):
    def refuse(path, content):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(further_metrics, "write_json", refuse)
    assert work.measure(NAMES) == work.measure(NAMES) and computed == NAMES * 2


def test_confidence_is_that_of_the_first_base_unless_the_scores_are_a_distribution(work):
    base = torch.from_numpy(work.records()[1]["ce"].predictions()[0]).double().softmax(dim=1)
    for method in ("ce", "crm"):
        assert torch.equal(work.evidence(method).probabilities, base)
    shares = torch.rand(len(work.labels), len(made_runs.PATHS), dtype=torch.float64)
    shares /= shares.sum(dim=1, keepdim=True)
    work.write("crm", shares.numpy(), work.labels)
    assert torch.equal(work.evidence("crm").probabilities, shares)


def test_scores_are_probabilities_or_logits():
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert score_kind(torch.tensor([[0.25, 0.75], [1.0, 0.0], [0.334, 0.663]], dtype=dtype)) == "probabilities"
        for row in ([0.5, 1.6], [1.5, -0.5], [math.inf, 0.0]):
            assert score_kind(torch.tensor([row, [3.0, 1.0]], dtype=dtype)) == "logits"
            with pytest.raises(
                ValueError, match="1 of 2 rows look like probabilities and the others do not, first row 1"
            ):
                score_kind(torch.tensor([[0.25, 0.75], row], dtype=dtype))


@pytest.mark.parametrize("coarser", [lambda p: p.round(decimals=4), torch.Tensor.half, torch.Tensor.float])
def test_rounded_probabilities_are_those_of_float64(coarser):
    shares = torch.rand(200, 50, dtype=torch.float64).pow(8).add(1e-9)
    shares /= shares.sum(dim=1, keepdim=True)
    assert (as_probabilities(coarser(shares)) - shares).abs().max() < 2e-3
    assert torch.equal(as_probabilities(shares), shares)


def test_a_row_without_a_softmax_is_refused():
    for row in ([math.inf, 0.0], [-math.inf, -math.inf]):
        with pytest.raises(ValueError, match="row 1 of the scores has"):
            as_probabilities(torch.tensor([[1.0, 2.0], row]))
    assert as_probabilities(torch.tensor([[1.0, -math.inf]])).tolist() == [[1.0, 0.0]]  # a masked class


def test_damaged_predictions_are_one_line(work):
    tree, labels = work.tree(), work.labels
    scores = made_runs.random_scores(labels, tree.num_classes, 0)
    cases = [
        ((np.full_like(scores, np.nan), labels), {}, "a score is NaN"),
        ((scores[:, :-1], labels), {}, "are not those of 60 test examples, 6 classes"),
        ((scores, labels + 1), {}, "a target is not a class"),
        ((scores[:0], labels[:0]), {}, "there are none"),
        ((scores, labels), {"examples": labels[::-1]}, "are not those of 60 test examples, 6 classes"),
    ]
    levels = np.zeros((len(labels), tree.num_levels), dtype=np.int64)
    wrong = (levels[:, 1:], levels - 1, levels + tree.num_classes)
    cases += [((scores, labels, levels_given), {}, "level-wise|a level-wise prediction") for levels_given in wrong]
    for arrays, more, problem in cases:
        work.write("ce", *arrays)
        with pytest.raises(UserError, match=f"are damaged: .*({problem}).*; remove the folder"):
            work.evidence("ce", **more)


def test_the_tree_is_that_of_the_runs(work, tmp_path):
    with pytest.raises(UserError, match=r"the tree of shapes in .* is not that"):
        work.measure(NAMES, data=tmp_path / "nowhere")  # the shipped tree is another one
    data = work.records()[1]["ce"].dataset.model_copy(update={"name": "inat19"})
    with pytest.raises(UserError, match=r"inat19 is not prepared in .*; run: hierbench data prepare inat19"):
        Trees(tmp_path / "nowhere").of(data)


def test_the_best_of_a_column_is_of_the_competitive_rows_at_its_digits():
    rows = [
        Row("type-I", "m", "m", 1, 1, dict.fromkeys(PAPER_METRICS, Summary(severity, 0.1)) | {"ece": Summary(ece, 0.1)})
        for severity, ece in ((2.0, 0.101), (2.04, 0.099), (9.0, 0.01))
    ]
    shown = [row for row in highlighted(rows) if row.competitive]
    area = Column("ece", "hAURC")
    for column, best in (
        (Column("ece", "ECE", unit="%"), [True, True]),  # both are printed as 0.10
        (area, [False, True]),
        (replace(area, higher=True), [True, False]),
    ):
        assert [row.metrics["ece"].best for row in with_best(shown, [column])] == best


def test_a_row_lacks_a_cell_if_one_of_its_runs_lacks_the_value(work, monkeypatch):
    second = work.add("ce", made_runs.random_scores(work.labels, len(made_runs.PATHS), 5), seed=1)
    board = Board.of("shapes", read_records(work.store.root))
    columns = requested_columns("+hf_macro")
    complete = with_columns(board, columns, work.data)
    assert {row.method: len(row.metrics["hf_macro"].values) for row in complete.rows} == {"ce": 2, "crm": 1}
    assert "hf_macro" not in board.rows[0].metrics and board.columns == PAPER_COLUMNS  # the argument stays as it was
    (second.folder / "predictions.npz").unlink()
    part = with_columns(Board.of("shapes", read_records(work.store.root)), columns, work.data)
    assert {row.method: row.metrics["hf_macro"].mean is None for row in part.rows} == {"ce": True, "crm": False}
    assert part.settings.endswith("; not all columns could be computed of a run that has no predictions here")


def test_a_metric_that_no_row_has(work):
    board = Board.of("shapes", read_records(work.store.root))  # of six classes
    with pytest.raises(UserError, match="has hierdist@20"):
        with_columns(board, requested_columns("hierdist@20"), work.data)
    assert with_columns(board, requested_columns("hierdist@20,top1"), work.data).columns[0].name == "hierdist@20"


def test_asked_columns():
    for text, names in {
        None: PAPER_METRICS,
        "ece": ("ece",),
        " ece , hops@3,ece": ("ece", "hops@3"),
        "+ece,+top1": (*PAPER_METRICS, "ece"),
        "hierdist@5": ("hierdist@5",),
    }.items():
        assert tuple(column.name for column in requested_columns(text)) == tuple(names)
