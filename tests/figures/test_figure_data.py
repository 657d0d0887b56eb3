"""Operating curves and accuracy by level: the numbers behind the figures and the mistakes page."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from hierbench import Hierarchy
from hierbench.config.options import folder_options
from hierbench.figures.plots import levels_plot, operating_plot, style
from hierbench.figures.plots.figure_data import COVERAGES, level_names, risk_over_coverage
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.selection import choose_run
from hierbench.metrics import Evidence, compute_metrics
from hierbench.metrics.selective import operating_curve
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from tests.support.made_runs import PATHS as PATHS_OF_CLASSES
from tests.support.made_runs import of_runs, prepare, random_scores, store_run
from tests.support.run_files import predictions_of

PATHS = {path[-1]: tuple(path) for path in PATHS_OF_CLASSES}
CLASSES = list(PATHS)
PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published/grocery-finetuned"


def evidence_of(scores, targets):
    return Evidence(scores, targets, Hierarchy.from_paths(PATHS), scores.double().softmax(dim=1))


def test_curves_are_those_of_the_climbing_rule():
    targets = np.random.default_rng(1).integers(len(CLASSES), size=40)
    evidence = evidence_of(torch.from_numpy(random_scores(targets, len(CLASSES), 2)), torch.from_numpy(targets))
    curve = operating_curve(evidence.top, evidence.targets, evidence.climb, evidence.hierarchy)
    coverage, expected = np.array(sorted(zip(curve.coverage.tolist(), curve.risk.tolist(), strict=True))).T
    risk = risk_over_coverage([evidence])
    assert risk == pytest.approx(np.interp(COVERAGES, coverage, expected), abs=1e-9)
    assert risk[0] == 0.0 and risk[-1] == pytest.approx(1.0 - compute_metrics(["top1"], evidence)["top1"] / 100.0)
    area = compute_metrics(["haurc_climbing"], evidence)["haurc_climbing"]
    assert np.trapezoid(risk, COVERAGES) == pytest.approx(area, abs=2e-3)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Runs of four methods, two of them with two seeds, on six classes."""
    folder = tmp_path_factory.mktemp("selection")
    prepared = prepare(folder / "data", per_class=20)
    _, labels = prepared.arrays("test")
    store = Store(folder / "runs")
    for number, (method, kind, seed) in enumerate(
        [("ce", "type-I", 0), ("ce", "type-I", 1), ("hafeature", "type-I", 0), ("haframe", "type-II", 0)]
    ):
        scores = random_scores(labels, len(CLASSES), number, skill=1.0 + number)
        store_run(store, prepared, method, kind, scores, labels, seed=seed)
    return folder


def drawn(kind, work, path):
    """A figure, after writing it."""
    with style.house_style():
        drawing = kind.draw(of_runs("shapes", work / "runs", data_dir=work / "data"))
        style.write_figure(drawing.figure, path)
    assert any(line.startswith("settings: ") for line in drawing.remarks)
    return drawing.figure


@pytest.mark.parametrize("kind", [operating_plot, levels_plot])
def test_a_figure_is_the_same_file_twice(work, tmp_path, kind):
    for name in ("a.svg", "b.svg"):
        figure = drawn(kind, work, tmp_path / name)
    content = (tmp_path / "a.svg").read_bytes()
    assert content == (tmp_path / "b.svg").read_bytes() and len(content) < 300_000
    assert not re.search(rb"[ML] -?\d+\.\d{3}", content)
    store = Store(work / "runs")
    run = choose_run(Board.of("shapes", read_records(store.root)), "haframe", None, 0)
    evidence = evidence_of(*map(torch.from_numpy, predictions_of(run)))
    if kind is operating_plot:
        (axes,) = figure.axes
        assert all(line.get_xdata().tolist() == COVERAGES.tolist() for line in axes.lines) and len(axes.lines) == 3
        area = compute_metrics(["haurc_climbing"], evidence)["haurc_climbing"]  # one seed: no interval
        assert f"HAFrame, type-II: {area:.4f}" in [text.get_text() for text in axes.texts]
        return
    expected = compute_metrics(level_names(3)[:3], evidence)
    assert len(figure.axes) == 4 and figure.axes[2].lines[0].get_ydata().tolist() == list(expected.values())
    labels = [label.get_text() for label in figure.axes[2].get_xticklabels()]
    assert labels == ["1\n2 nodes", "2\n4 nodes", "3\n6 nodes"]


@pytest.mark.parametrize("kind", [operating_plot, levels_plot])
def test_records_without_predictions(tmp_path, kind):
    with style.house_style(), pytest.raises(UserError, match="have no predictions"):
        kind.draw(of_runs("grocery-finetuned", PUBLISHED, data_dir=tmp_path))


def test_a_printed_command_repeats_the_folders_that_are_not_the_default(tmp_path):
    assert folder_options(Path("runs"), Path("data")) == folder_options() == ""
    assert folder_options(Path("a b"), Path("data")) == " --runs 'a b'"
    assert folder_options(data_dir=Path("/d")) == " --data-dir /d"
    with pytest.raises(UserError, match=f"run: hierbench run --methods paper --dataset photos --runs {tmp_path}$"):
        Board.of("photos", read_records(tmp_path))
