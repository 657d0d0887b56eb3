from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hierbench import Hierarchy
from hierbench.config.spec import Spec
from hierbench.figures.plots import (
    confusion_plot,
    curves_plot,
    figure_data,
    severity_plot,
    style,
    tradeoff_plot,
    tree_drawing,
)
from hierbench.figures.plots.figure_data import FigureRequest, Tree
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.selection import choose_run
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, Summary
from hierbench.runs.integrity import fingerprints
from hierbench.runs.record_reader import read_records
from hierbench.runs.run_archive import opened
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json, write_json
from tests.support.made_runs import of_runs
from tests.support.run_files import predictions_of

PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published/grocery-finetuned"
PATHS = {  # classes that the tree does not keep together, one above the deepest level
    "trout": ("animal", "fish", "trout"),
    "oak": ("plant", "oak"),
    "cat": ("animal", "mammal", "cat"),
    "carp": ("animal", "fish", "carp"),
    "dog": ("animal", "mammal", "dog"),
}


@pytest.fixture(autouse=True)
def _few_pixels(monkeypatch):
    monkeypatch.setitem(style.STYLE, "savefig.dpi", 50)


@pytest.fixture(scope="module")
def small():
    return Hierarchy.from_paths(PATHS)


def row(title="a", kind="type-I", method=None, severity=2.0, top1=50.0, n=3):
    cells = {metric: Summary(1.0, 0.1) for metric in PAPER_METRICS}
    cells |= {"mistake_severity": Summary(severity, 0.02), "top1": Summary(top1, 1.0)}
    return Row(kind, method or title, title, n, 3, cells, ["id"] * 3)


# Trees


def test_classes_of_every_node_are_together_and_named(small):
    order = tree_drawing.class_order(small)
    assert [small.classes[i] for i in order] == ["trout", "carp", "cat", "dog", "oak"]
    assert [tree_drawing.block_bounds(small, order, level).tolist() for level in (0, 1)] == [[0, 4, 5], [0, 2, 4, 5]]
    named = figure_data.Tree(small, tuple(PATHS.values()))
    assert [named.names(level) for level in range(3)] == [["animal", "plant"], ["fish", "mammal", "oak"], list(PATHS)]
    rng = np.random.default_rng(3)
    for distance in ("height", "depth"):
        paths = {}
        for i in range(40):
            depth = rng.integers(1, 5)
            names = [f"{level}-{rng.integers(3)}" for level in range(depth)]
            paths[f"c{i}"] = (*("/".join(names[: level + 1]) for level in range(depth)), f"c{i}")
        hierarchy = Hierarchy.from_paths(paths, distance)
        for order in (tree_drawing.class_order(hierarchy),):
            assert sorted(order) == list(range(hierarchy.num_classes))
            for level in range(hierarchy.num_levels):
                assert len(tree_drawing.block_bounds(hierarchy, order, level)) == hierarchy.level_sizes[level] + 1


# Severity


def test_bars_have_the_interval_of_the_table():
    assert severity_plot.mistake_shares([0, 0, 0], 100.0).tolist() == [0.0, 0.0]
    means, half_widths = figure_data.over_runs([[10.0, 1.0], [20.0, 1.0]], ddof=1)
    assert means.tolist() == [15.0, 1.0]
    assert half_widths.tolist() == pytest.approx([12.7062 * 5.0, 0.0], rel=1e-5)
    assert np.isnan(figure_data.over_runs([[10.0]], ddof=1)[1]).all()


def test_shares_of_the_published_runs_add_up_to_the_mistakes():
    drawing = severity_plot.draw(of_runs("grocery-finetuned", PUBLISHED))
    panels = drawing.figure.axes
    assert len(panels) == 2
    for axes, titles in zip(panels, (1, 5), strict=True):
        assert len(axes.patches) == titles * 3
    heights = [patch.get_height() for patch in panels[0].patches[:3]]
    top1 = Board.of("grocery-finetuned", read_records(PUBLISHED))["ce", "type-I"].metrics["top1"].mean
    assert sum(heights) == pytest.approx(100 - top1, abs=0.01)
    assert panels[1].get_xlabel() == "height of the lowest common ancestor"
    legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert legend[:4] == ["cross-entropy", "CRM", "Flamingo", "HAFeature"] and len(legend) == 5


# Trade-off


def test_only_ranked_rows_set_the_band_and_rows_without_a_severity_are_named():
    failed = replace(row("failed", n=0), metrics=dict.fromkeys(PAPER_METRICS, Summary(None, None)))
    rows = [row("good"), replace(row("lucky", severity=0.5), lacking=[2]), row("perfect", severity=None), failed]
    drawing = tradeoff_plot.draw(FigureRequest("shapes", Path("data"), board=Board("shapes", "paper", "height", rows)))
    axes = drawing.figure.axes[0]
    assert axes.patches[0].get_x() == rows[0].metrics["mistake_severity"].mean
    assert [container.lines[0].get_alpha() for container in axes.containers] == [1.0, tradeoff_plot.FAINT]
    (legend,) = drawing.figure.legends
    assert sorted(text.get_text() for text in legend.get_texts()) == ["good", "lucky"]
    remarks = {"lucky, type-I: lacks seed 2; not ranked", "failed, type-I: 0 of 3 runs are finished"}
    assert remarks | {"not shown: perfect, type-I: no mistakes, so no severity"} <= set(drawing.remarks)


@pytest.mark.parametrize("dataset", ["fgvc", "cifar100", "inat19", "tieredimagenet-h"])
def test_the_band_holds_exactly_the_competitive_rows_and_names_cover_nothing(dataset):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    board = Board.paper(dataset)
    low, high = tradeoff_plot.competitive_band(board.rows)
    severities = [row.metrics["mistake_severity"].mean for row in board.rows]
    assert [low <= severity < high for severity in severities] == [row.competitive for row in board.rows]
    with style.house_style():
        figure = tradeoff_plot.draw(FigureRequest(dataset, Path("data"), board=board)).figure
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        texts = figure.legends[0].get_texts()
        panel = figure.axes[0].get_window_extent(renderer)
    assert len(figure.axes[0].containers) == 9
    assert {text.get_text() for text in texts} == {row.title for row in board.rows}
    assert all(text.get_window_extent(renderer).y1 < panel.y0 for text in texts)


def test_five_methods_have_a_colour_and_names_at_lines_do_not_overlap():
    distances = {"ce": 9.0, "own": 1.0, "haframe": 2.0, "crm": 3.0, "x": 4.0, "y": 5.0, "z": 6.0}
    rows = [
        replace(row(name), metrics=row(name).metrics | {"hierdist@1": Summary(distance, 0.1)})
        for name, distance in distances.items()
    ]
    looks = style.assign_looks(rows)
    assert [name for (name, _), look in looks.items() if look == style.OTHER_LOOK] == ["y", "z"]
    assert looks["ce", "ce"] == style.LOOKS["ce"] and len(set(looks.values())) == 6
    axes = style.new_figure(3.0, 3.0).subplots()
    style.name_lines(axes, [(0.5, "a", "k"), (0.5, "b", "k"), (1.0, "c", "k"), (1.0, "d", "k")])
    heights = sorted(text.get_position()[1] for text in axes.texts)
    assert heights[-1] == 1.0 and min(np.diff(heights)) >= style.NAME_HEIGHT - 1e-9


# Confusion


def fake_run(folder, hierarchy):
    """A finished run of `shapes` with random predictions, for confusion."""
    specs = map(read_json, sorted(opened(PUBLISHED).glob("*/spec.json")))
    content = next(spec for spec in specs if (spec["method"]["name"], spec["type"]) == ("flamingo", "type-II"))
    content["dataset"] |= {"name": "shapes", "hierarchy": hierarchy.digest(), "distance": "height"}
    spec = Spec.model_validate(content | {"seed": 4})
    run = Store(folder).run(spec.id)
    run.plan(spec.content())
    rng = np.random.default_rng(0)
    num_classes = hierarchy.num_classes
    targets = rng.integers(0, num_classes, 2 * num_classes)
    run.write_predictions(rng.random((len(targets), num_classes)).astype(np.float32), targets)
    test = {"top1": 1.0, "mistake_severity": None, "hierdist@1": 2.0}
    write_json(run.folder / "metrics.json", {"title": spec.method.name, "test": test})
    run.write_history([{"epoch": 1, "train_loss": 1.0, "val_top1": 1.0, "val_hierdist@1": 1.0}])
    data = {"digest": spec.dataset.digest, "splits": {"test": len(targets)}, "remark": ""}
    run.write_record("environment.json", {"device": "cpu", "data": data})
    run.set_status("done", files=fingerprints(run.folder))
    return run, spec


@pytest.mark.parametrize("num_classes", [5, 1010])
def test_confusion_of_a_run(tmp_path, monkeypatch, num_classes):
    """With the rows and columns of the picture in the order of the tree."""
    paths = {f"c{i}": (f"g{i % 7}", f"g{i % 7}h{i % 21}", f"c{i}") for i in range(num_classes)}
    hierarchy = Hierarchy.from_paths(paths)
    run, spec = fake_run(tmp_path, hierarchy)
    monkeypatch.setattr(confusion_plot, "require_tree", lambda *a: figure_data.Tree(hierarchy, tuple(paths.values())))
    with style.house_style():
        figure = confusion_plot.draw(of_runs("shapes", tmp_path)).figure
        style.write_figure(figure, tmp_path / "a.svg")
    shown = np.ma.filled(figure.axes[1].images[0].get_array(), 0)
    order = tree_drawing.class_order(hierarchy)
    scores, targets = predictions_of(run)
    expected = np.zeros((num_classes, num_classes))
    np.add.at(expected, (targets, scores.argmax(axis=1)), 1)
    assert shown.tolist() == expected[np.ix_(order, order)].tolist()
    assert (tmp_path / "a.svg").stat().st_size < 1_000_000
    names = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    assert ("c0" in names) == (num_classes == 5)
    assert f"{spec.method.name}, type-II, seed 4" in figure.axes[1].get_title(loc="left")


def test_choosing_a_run(tmp_path, small):
    run, spec = fake_run(tmp_path, small)
    for method, kind, seed in ((None, None, 4), ("flamingo", None, None), ("flamingo", "type-II", 4)):
        chosen = choose_run(Board.of("shapes", read_records(tmp_path)), method, kind, seed)
        assert (chosen.job, chosen.folder) == (spec, run.folder)
    for method, kind, expected in (("ce", None, "type-I"), ("ce", "type-II", "type-II"), ("haframe", None, "type-II")):
        spec = choose_run(Board.of("grocery-finetuned", read_records(PUBLISHED)), method, kind, None).job
        assert (spec.method.name, spec.type, spec.seed) == (method, expected, 0)
    for request, problem in (
        (of_runs("shapes", tmp_path, data_dir=tmp_path), "another tree"),
        (
            of_runs("grocery-finetuned", PUBLISHED, data_dir=tmp_path, method="haframe"),
            "published records have none",
        ),
    ):
        with pytest.raises(UserError, match=problem):
            confusion_plot.draw(request)


# Curves


def test_curves_of_the_published_runs():
    drawing = curves_plot.draw(of_runs("grocery-finetuned", PUBLISHED))
    panels = drawing.figure.axes
    assert len(panels) == 6 and [len(axes.lines) for axes in panels] == [1, 1, 1, 4, 4, 4]
    assert panels[1].lines[0].get_ydata()[-1] == pytest.approx(62.97, abs=0.2)  # validation accuracy of cross-entropy
    assert len({(line.get_marker(), line.get_color()) for line in panels[3].lines}) == 4
    looks = style.assign_looks(Board.of("grocery-finetuned", read_records(PUBLISHED)).rows)
    assert len({(look.marker, look.colour) for look in looks.values()}) == 5
    assert any("CRM" in remark and "train nothing" in remark for remark in drawing.remarks)


# Look and files


@pytest.mark.parametrize(
    ("kind", "request_"),
    [
        (tradeoff_plot, FigureRequest("fgvc", Path("data"), board=Board.paper("fgvc"))),
        (curves_plot, of_runs("grocery-finetuned", PUBLISHED)),
    ],
)
def test_a_figure_is_the_same_file_twice(tmp_path, kind, request_):
    written = []
    for name in ("a.svg", "b.svg"):
        with style.house_style():
            style.write_figure(kind.draw(request_).figure, tmp_path / name)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    assert b"<dc:date>" not in written[0] and len(written[0]) < 1_500_000


def test_no_finished_run_and_damaged_records_are_named(tmp_path, small):
    run, _ = fake_run(tmp_path, small)
    with pytest.raises(UserError, match="no mistakes_by_distance"):
        severity_plot.draw(of_runs("shapes", tmp_path))
    run.set_status("running")
    for kind in (severity_plot, curves_plot, tradeoff_plot):
        with pytest.raises(UserError, match=r"no run of shapes in .* is finished yet"):
            kind.draw(of_runs("shapes", tmp_path))


def test_a_picture_of_many_classes_shows_the_finest_level_that_fits():
    """Its nodes keep their numbers and names; a class above the level stands for itself."""
    paths = {f"c{i}": (f"a{i % 3}", f"b{i % 12}", f"c{i}") for i in range(60)} | {"z": ("z",)}
    tree = Tree(Hierarchy.from_paths(paths), tuple(paths.values()))
    assert tree.fitted(61)[0] is tree
    coarse, node_of, (remark,) = tree.fitted(20)
    assert remark == "level 2 of 3: 13 nodes in place of 61 classes"
    assert coarse.hierarchy.level_sizes == (4, 13) and coarse.names(0) == tree.names(0)
    assert coarse.names(1) == tree.names(1) and coarse.hierarchy.height == 2
    assert (coarse.hierarchy.level_targets[node_of, 0] == tree.hierarchy.level_targets[:, 0]).all()
    counts = confusion_plot.confusion_counts(np.eye(61), np.arange(61)[::-1], node_of)
    assert counts.shape == (13, 13) and counts.sum() == 61 and counts[12, node_of[0]] == 1
