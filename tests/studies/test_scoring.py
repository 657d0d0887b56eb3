"""Predictions made elsewhere: every format gives the same metrics, and every mistake in them is one clear line."""

import json

import numpy as np
import pandas as pd
import pytest

from hierbench import evaluate
from hierbench.metrics.bootstrap import bootstrap_intervals
from hierbench.metrics.sums import contributions
from hierbench.studies.scoring.predictions import read_predictions
from hierbench.studies.scoring.score_report import Report
from hierbench.studies.scoring.scores import rank, score
from tests.support.trees import LIVING

N = 40


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(0)
    targets = rng.integers(6, size=N)
    scores = rng.normal(size=(N, 6)).astype(np.float32)
    scores[np.arange(N), targets] += 1
    return scores, targets, [f"image-{row:02}.jpg" for row in rng.permutation(N)]


def top(scores, k):
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


def timm_frame(made, k, *, separate, index, labels=None):
    """A table as timm's inference.py makes it: --topk K, --results-separate-col, --include-index, --label-type."""
    scores, _, ids = made
    classes, outputs = top(scores, k) if k else (None, scores)
    data = {"filename": ids}
    parts = {"index": classes if index else None, "label": None, "prob": outputs}
    if labels is not None and k:
        parts["label"] = np.array(labels, dtype=object)[classes]
    for name, values in parts.items():
        if values is None:
            continue
        if separate and values.shape[1] > 1:
            data |= {f"{name}_{place}": values[:, place] for place in range(values.shape[1])}
        else:
            data[name] = list(values[:, 0] if values.shape[1] == 1 else values)
    return pd.DataFrame(data)


def save_timm(frame, path, form):
    """The same as timm's save_results with --results-format."""
    if form == "parquet":
        frame.set_index("filename").to_parquet(path)
    elif form == "json":
        frame.set_index("filename").to_json(path, indent=4, orient="index")
    elif form == "json-records":
        frame.to_json(path, lines=True, orient="records")
    elif form == "json-split":
        frame.to_json(path, indent=4, orient="split", index=False)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("form", ["csv", "parquet", "json", "json-records", "json-split"])
@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize(
    ("k", "index", "labels"), [(0, False, False), (1, True, False), (3, True, True), (3, False, True), (6, True, False)]
)
def test_files_of_timm_are_read_unchanged(tmp_path, made, form, separate, k, index, labels):
    frame = timm_frame(made, k, separate=separate, index=index, labels=LIVING.classes if labels else None)
    path = save_timm(frame, tmp_path / f"resnet50.{form.split('-')[0]}", form)
    predictions = read_predictions(path, LIVING)
    assert predictions.ids == made[2] and predictions.targets is None
    ranked, ks, _, _ = rank(predictions, LIVING)
    assert ks == [each for each in (1, 5) if each <= (k or 6)]
    width = min(ranked.shape[1], k or 5)
    assert (ranked[:, :width] == top(made[0], width)[0]).all()


def test_ties_for_the_first_place_are_said(tmp_path, made):
    scores = np.zeros_like(made[0])
    scores[0, 2] = 1.0
    np.savez(tmp_path / "a.npz", scores=scores, targets=made[1])
    result = score(read_predictions(tmp_path / "a.npz", LIVING), LIVING, 0, 0, "logits")
    sentence = f"{N - 1} of {N} images have their largest score in several classes"
    assert result.num_ties == N - 1 and sentence in str(Report("a", "tree", "height", [result], 0, 0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_scores_that_look_like_distances_are_named(tmp_path, sign):
    targets = np.arange(N) % 6
    distances = np.random.default_rng(0).uniform(1, 2, size=(N, 6))
    distances[np.arange(N), targets] -= 0.8
    np.savez(tmp_path / "a.npz", scores=sign * distances, targets=targets)
    notes = score(read_predictions(tmp_path / "a.npz", LIVING), LIVING, 0, 0).notes
    assert any("are to be given with the opposite sign" in note for note in notes) == (sign > 0)


@pytest.mark.parametrize("names", [("scores", "targets"), ("predictions", "label_ids"), ("logits", "labels")])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_arrays_by_the_names_in_use(tmp_path, made, names, save, dtype):
    scores, targets, ids = made
    save(tmp_path / "a.npz", **dict(zip(names, (scores.astype(dtype), targets), strict=True)), ids=np.array(ids))
    predictions = read_predictions(tmp_path / "a.npz", LIVING)
    assert predictions.ids == ids and (predictions.targets == targets).all()
    result = score(predictions, LIVING, 0, 0)
    expected = evaluate(scores.astype(dtype), targets, LIVING)
    assert result.metrics == {name: value for name, value in expected.items() if name in result.metrics}
    assert set(result.metrics) == set(expected)
    assert sum(result.mistakes) == round(N * (1 - expected["top1"] / 100)) and result.mistakes[0] == 0


def test_a_column_per_class_in_any_order(tmp_path, made):
    scores, targets, ids = made
    frame = pd.DataFrame(scores, columns=LIVING.classes)[["wren", "oak", "cod", "fern", "robin", "elm"]]
    frame.insert(0, "id", ids)
    frame["label"] = [LIVING.classes[target] for target in targets]
    frame.to_csv(tmp_path / "a.csv", index=False)
    predictions = read_predictions(tmp_path / "a.csv", LIVING)
    assert predictions.ids == ids and (predictions.targets == targets).all()
    assert np.allclose(predictions.scores, scores, atol=1e-6)


def test_ties_in_a_list_of_ranked_classes_go_to_the_lower_index(tmp_path):
    np.savez(tmp_path / "a.npz", index=[[4, 2, 1]], scores=[[0.4, 0.4, 0.2]], targets=[0])
    assert rank(read_predictions(tmp_path / "a.npz", LIVING), LIVING)[0].tolist() == [[2, 4, 1]]


def test_the_bootstrap_is_that_of_metrics_of_resampled_images(made):
    """Against `evaluate` on each resample, drawn in the same way."""
    scores, targets, _ = made
    classes = np.argsort(-scores, axis=1, kind="stable")
    rng = np.random.default_rng(7)
    drawn = []
    for _ in range(50):
        rows = rng.integers(N, size=N)
        drawn.append(evaluate(scores[rows], targets[rows], LIVING, ks=(1, 5)))
    intervals = bootstrap_intervals(contributions(classes, targets, LIVING, [1, 5]), [1, 5], 50, seed=7)
    for name, (low, high) in intervals.items():
        expected = np.nanpercentile([metrics[name] for metrics in drawn], [2.5, 97.5])
        assert (low, high) == pytest.approx(tuple(expected), abs=1e-12)


def test_the_bootstrap_without_mistakes_has_no_severity():
    sums = contributions(np.array([[0], [1]]), np.array([0, 1]), LIVING, [1])
    intervals = bootstrap_intervals(sums, [1], 10)
    assert np.isnan(intervals["mistake_severity"]).all() and intervals["top1"] == (100.0, 100.0)


HEAD = "filename,oak,elm,fern,wren,robin,cod\n"
ROW = "a,1,2,3,4,5,6\n"


def test_only_the_test_rows_of_a_split_column_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("split," + HEAD + "test," + ROW + "val," + ROW.replace("a", "b"))
    assert read_predictions(tmp_path / "a.csv", LIVING).ids == ["a"]


def test_json_without_ids_is_in_row_order(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([{"index": 3, "target": "wren"}, {"index": 0, "target": "oak"}]))
    predictions = read_predictions(tmp_path / "a.json", LIVING)
    assert predictions.ids is None and predictions.targets.tolist() == [3, 0]
    assert predictions.classes.tolist() == [[3], [0]]
