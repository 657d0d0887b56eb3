"""Operating curves and accuracy by level: the numbers behind the figures and the mistakes page."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from hierbench import Hierarchy
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.selection import named_run
from hierbench.metrics import Evidence, compute_metrics
from hierbench.reports.mistakes import page
from hierbench.reports.mistakes.pair import choose, read_pair
from hierbench.reports.plots import levels, operating, style
from hierbench.reports.selection import COVERAGES, level_names, risk_over_coverage
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from tests import mistake_runs
from tests.mistake_runs import of_runs

PATHS = {path[-1]: tuple(path) for path in mistake_runs.PATHS}
CLASSES = list(PATHS)
PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published/tiny-imagenet-frozen"


def evidence(num_examples=40, skill=1.5):
    targets = np.random.default_rng(1).integers(len(CLASSES), size=num_examples)
    scores = torch.from_numpy(mistake_runs.random_scores(targets, len(CLASSES), 2, skill))
    tree = Hierarchy.from_paths(PATHS)
    return Evidence(scores, torch.from_numpy(targets), tree, scores.double().softmax(dim=1))


def below(node):
    """The classes below a node, given by its path."""
    return [i for i, name in enumerate(CLASSES) if PATHS[name][: len(node)] == node]


def at_threshold(given, theta):
    """Risk and coverage of the climbing rule at a threshold, one example after the other."""
    wrong = coverage = 0.0
    for top, target, p in zip(given.top.tolist(), given.targets.tolist(), given.probabilities.tolist(), strict=True):
        node = PATHS[CLASSES[top]]
        while node and sum(p[i] for i in below(node)) < theta:
            node = node[:-1]
        wrong += target not in below(node)
        coverage += 1.0 - math.log2(len(below(node))) / math.log2(len(CLASSES))
    return coverage / len(given.targets), wrong / len(given.targets)


def test_curves_are_those_of_the_climbing_rule():
    given = evidence()
    nodes = {PATHS[name][:depth] for name in CLASSES for depth in range(1, len(PATHS[name]) + 1)}
    sums = {sum(p[i] for i in below(node)) for p in given.probabilities.tolist() for node in nodes}
    thresholds = sorted({0.0, 2.0} | {value + 1e-12 for value in sums})
    points = sorted(at_threshold(given, theta) for theta in thresholds)
    risk = risk_over_coverage(given)
    coverage, expected = np.array(points).T
    assert risk == pytest.approx(np.interp(COVERAGES, coverage, expected), abs=1e-9)
    assert risk[0] == 0.0 and risk[-1] == pytest.approx(1.0 - compute_metrics(["top1"], given)["top1"] / 100.0)
    area = compute_metrics(["haurc_climbing"], given)["haurc_climbing"]
    assert np.trapezoid(risk, COVERAGES) == pytest.approx(area, abs=2e-3)


def test_bands_have_the_interval_of_the_table():
    band = operating.band_of([np.array([0.0, 0.2]), np.array([0.0, 0.4])], 1)
    assert band[0].tolist() == [0.0, pytest.approx(0.3)]
    assert band[1].tolist() == [0.0, pytest.approx(12.706204736 * 0.1, rel=1e-6)]
    assert np.isnan(operating.band_of([np.array([0.5])], 1)[1]).all()
    values = [
        dict(zip(level_names(2), row, strict=True)) for row in ([80.0, 60.0, 90.0, 50.0], [82.0, 64.0, 90.0, 50.0])
    ]
    cells = levels.level_cells(values, "level_accuracy", 2, 1)
    assert cells[0].tolist() == [81.0, 62.0] and cells[1] == pytest.approx(12.706204736 * np.array([1.0, 2.0]))
    assert levels.level_cells(values, "level_accuracy_lifted", 2, 1)[1].tolist() == [0.0, 0.0]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Runs of four methods, two of them with two seeds, on six classes."""
    folder = tmp_path_factory.mktemp("selection")
    prepared = mistake_runs.prepare(folder / "data", per_class=20)
    _, labels = prepared.arrays("test")
    store = Store(folder / "runs")
    for number, (method, kind, seed) in enumerate(
        [("ce", "type-I", 0), ("ce", "type-I", 1), ("hafeature", "type-I", 0), ("haframe", "type-II", 0)]
    ):
        scores = mistake_runs.random_scores(labels, len(CLASSES), number, skill=1.0 + number)
        mistake_runs.store_run(store, prepared, method, kind, scores, labels, seed=seed)
    return folder


@pytest.mark.parametrize("kind", [operating, levels])
def test_a_figure_is_the_same_file_twice(work, tmp_path, kind):
    request = of_runs("shapes", work / "runs", data_dir=work / "data")
    written = []
    for name in ("a.svg", "b.svg"):
        with style.house_style():
            drawing = kind.draw(request)
            style.write_figure(drawing.figure, tmp_path / name)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1] and len(written[0]) < 300_000
    assert any(line.startswith("settings: ") for line in drawing.remarks)


def test_curves_of_the_figure(work):
    with style.house_style():
        figure = operating.draw(of_runs("shapes", work / "runs", data_dir=work / "data")).figure
    first, second = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["type-I", "type-II"]
    names = [text.get_text().split(":")[0] for text in first.get_legend().get_texts()]
    assert names == ["cross-entropy", "HAFeature"] and len(second.lines) == 1
    assert all(line.get_xdata().tolist() == COVERAGES.tolist() for line in first.lines)
    assert "+/- -" in second.get_legend().get_texts()[0].get_text()  # one seed has no interval


def test_points_of_the_levels_figure(work):
    with style.house_style():
        figure = levels.draw(of_runs("shapes", work / "runs", data_dir=work / "data")).figure
    assert len(figure.axes) == 4
    means = figure.axes[2].lines[0].get_ydata()
    store = Store(work / "runs")
    spec, run = named_run("haframe", Board.of("shapes", store), store)
    scores, targets = run.predictions()
    found = Evidence(
        torch.from_numpy(scores),
        torch.from_numpy(targets),
        Hierarchy.from_paths(PATHS, spec.dataset.distance),
        torch.from_numpy(scores).double().softmax(dim=1),
    )
    assert means.tolist() == list(compute_metrics(level_names(3)[:3], found).values())
    assert [label.get_text() for label in figure.axes[2].get_xticklabels()] == [
        "1\n2 nodes",
        "2\n4 nodes",
        "3\n6 nodes",
    ]


@pytest.mark.parametrize("kind", [operating, levels])
def test_records_without_predictions(tmp_path, kind):
    with style.house_style(), pytest.raises(UserError, match="have no predictions"):
        kind.draw(of_runs("tiny-imagenet-frozen", PUBLISHED, data_dir=tmp_path))


def test_the_mistakes_page_draws_both(work):
    store = Store(work / "runs")
    a, b = (named_run(name, Board.of("shapes", store), store) for name in ("ce", "haframe"))
    pair = read_pair(a, b, work / "data", store)
    text = page.render(pair, choose(pair.heights, pair.between, pair.confidence, 0))
    plot, ticks = page.PLOT, page.risk_ticks(pair.sides)
    assert ticks[0] == 0.0 and ticks[-1] >= max(side.risk.max() for side in pair.sides) > ticks[-2]
    lines = re.findall(r'<polyline class="([ab])" points="([^"]+)"', text)
    assert [name for name, _ in lines] == ["a", "b"]
    for side, (_, points) in zip(pair.sides, lines, strict=True):
        xs, ys = np.array([point.split(",") for point in points.split()], dtype=np.float64).T
        assert (xs - plot.left) / plot.width == pytest.approx(COVERAGES, abs=1e-3)
        assert (1.0 - (ys - plot.top) / plot.height) * ticks[-1] == pytest.approx(side.risk, abs=1e-3)
        assert f"{side.area:.4f}" in text
    levels_of = re.search(r'<table id="levels".*?</table>', text, re.DOTALL)[0]
    numbers = re.findall(r'<td class="number">([\d.]+)</td>', levels_of)
    expected = [
        entry
        for level, size in enumerate(pair.hierarchy.level_sizes)
        for entry in (f"{size}", *(f"{side.levels[kind, level]:.2f}" for side in pair.sides for kind in (0, 1)))
    ]
    assert numbers == expected


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [
        (0.0, [0.0, 0.01]),
        (0.034, [0.0, 0.01, 0.02, 0.03, 0.04]),
        (0.2, [0.0, 0.05, 0.1, 0.15, 0.2]),
        (1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_marks_of_the_risk(largest, ticks):
    class Side:
        risk = np.array([0.0, largest])

    assert page.risk_ticks([Side, Side]) == pytest.approx(ticks)
