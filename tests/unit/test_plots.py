import io
import math
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hierbench import Hierarchy
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.statistics import METRICS, Cell, Row
from hierbench.reports.plots import (
    KINDS,
    confusion,
    curves,
    frame,
    severity,
    similarity,
    source,
    style,
    tradeoff,
    tree,
)
from hierbench.reports.plots.source import Request
from hierbench.runs.integrity import fingerprints
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from tests.mistake_runs import of_runs

PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published/tiny-imagenet-frozen"
PATHS = {  # classes that the tree does not keep together, one above the deepest level
    "trout": ("animal", "fish", "trout"),
    "oak": ("plant", "oak"),
    "cat": ("animal", "mammal", "cat"),
    "carp": ("animal", "fish", "carp"),
    "dog": ("animal", "mammal", "dog"),
}


@pytest.fixture(scope="module")
def small():
    return Hierarchy.from_paths(PATHS)


@pytest.fixture(scope="module")
def random_trees():
    rng = np.random.default_rng(3)
    trees = []
    for distance in ("height", "depth"):
        for _ in range(5):
            paths = {}
            for i in range(40):
                depth = rng.integers(1, 5)
                names = [f"{level}-{rng.integers(3)}" for level in range(depth)]
                paths[f"c{i}"] = (*("/".join(names[: level + 1]) for level in range(depth)), f"c{i}")
            trees.append(Hierarchy.from_paths(paths, distance))
    return trees


def row(title="a", kind="type-I", method=None, severity=2.0, top1=50.0, n=3):
    cells = {metric: Cell(1.0, 0.1) for metric in METRICS}
    cells |= {"mistake_severity": Cell(severity, 0.02), "top1": Cell(top1, 1.0)}
    return Row(kind, method or title, title, n, 3, cells, ["id"] * 3)


# Trees


def test_class_order_keeps_the_classes_of_every_node_together(small, random_trees):
    assert [small.classes[i] for i in tree.class_order(small)] == ["trout", "carp", "cat", "dog", "oak"]
    for hierarchy in random_trees:
        for order in (tree.class_order(hierarchy), tree.leaf_order(hierarchy.distances)):
            assert sorted(order) == list(range(hierarchy.num_classes))
            for level in range(hierarchy.num_levels):
                bounds = tree.block_bounds(hierarchy, order, level)
                assert len(bounds) == hierarchy.level_sizes[level] + 1


def test_block_bounds(small):
    order = tree.class_order(small)
    assert tree.block_bounds(small, order, 0).tolist() == [0, 4, 5]
    assert tree.block_bounds(small, order, 1).tolist() == [0, 2, 4, 5]


def test_branches_by_hand(small):
    lines = tree.branches(small.distances, tree.class_order(small))
    assert sorted(lines) == sorted(
        [((x, 0.0), (x, 1.0)) for x in (0.0, 1.0, 2.0, 3.0)]  # trout, carp, cat, dog up to fish and mammal
        + [((0.0, 1.0), (1.0, 1.0)), ((2.0, 1.0), (3.0, 1.0))]
        + [((0.5, 1.0), (0.5, 2.0)), ((2.5, 1.0), (2.5, 2.0)), ((0.5, 2.0), (2.5, 2.0))]  # fish and mammal to animal
        + [((1.5, 2.0), (1.5, 3.0)), ((4.0, 0.0), (4.0, 3.0)), ((1.5, 3.0), (4.0, 3.0))]  # animal and oak to the root
    )
    places, heights = tree.as_polyline(lines)
    assert len(places) == len(heights) == 3 * len(lines) and np.isnan(places[2::3]).all()


def test_no_branch_crosses_another(random_trees):
    """A node's bar spans its own leaves alone, so bars of one height do not touch."""
    for hierarchy in random_trees:
        bars = [line for line in tree.branches(hierarchy.distances, tree.class_order(hierarchy)) if line[0] < line[1]]
        for top in range(1, hierarchy.height + 1):
            spans = sorted((a[0], b[0]) for a, b in bars if a[1] == b[1] == top)
            assert all(one[1] < other[0] for one, other in pairwise(spans))


def test_names_of_nodes(small):
    named = source.Tree(small, tuple(PATHS.values()))
    assert named.names(0) == ["animal", "plant"]
    assert named.names(1) == ["fish", "mammal", "oak"]
    assert named.names(2) == list(PATHS)


# Similarity


def test_mapping_curves_follow_the_formula(cifar100):
    from hierbench.methods.haframe import hierarchy_aware_frame

    exponential = similarity.mapping_curves(cifar100, "paper")
    lines = similarity.draw(Request("cifar100")).figure.axes[0].lines
    (linear,) = [line.get_ydata().tolist() for line in lines if line.get_label() == "linear"]
    assert linear == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.0])
    assert [curve.gamma for curve in exponential] == [1, 2, 3, 4, 5]
    assert [round(curve.s_min, 2) for curve in exponential] == [-0.86, -0.30, -0.14, -0.08, -0.04]
    for curve in exponential:
        expected = [(1 - curve.s_min) * math.exp(-curve.gamma * d / 5) + curve.s_min for d in range(6)]
        values = curve.cosines(np.arange(6) / 5)
        assert values.tolist() == pytest.approx(expected)
        assert any(values.tolist() == np.asarray(line.get_ydata()).tolist() for line in lines)
        _, cosines = hierarchy_aware_frame(cifar100.distances, curve.gamma)
        assert np.allclose(values[cifar100.distances], cosines)
    assert similarity.mapping_curves(cifar100, "authors")[0].s_min != exponential[0].s_min


def test_similarity_shows_what_is_known(tmp_path):
    trees, unknown = similarity.trees_shown(Request("all", data_dir=tmp_path))
    assert list(trees) == ["fgvc", "shapes", "cifar100", "tiny-imagenet", "imagenet1k"]  # by height
    assert unknown == ["inat19", "tieredimagenet-h"]
    with pytest.raises(UserError, match="hierbench data prepare inat19"):
        similarity.trees_shown(Request("inat19", data_dir=tmp_path))


# Frame


def test_simplex_frame():
    points = frame.simplex_frame(5)
    assert np.allclose(points @ points.T, np.where(np.eye(5), 1.0, -0.25))


def test_projection_of_few_points_is_exact_and_the_same_for_a_turned_frame():
    from hierbench.methods.haframe import hierarchy_aware_frame

    hierarchy = Hierarchy.from_paths(frame.EXAMPLE)
    points, _ = hierarchy_aware_frame(hierarchy.distances, 3.0)
    turned, _ = hierarchy_aware_frame(hierarchy.distances, 3.0, seed=1)
    *found, origin = frame.project(points, 3)
    for i in range(4):
        for j in range(4):
            expected = np.linalg.norm(points[i] - points[j])
            assert np.linalg.norm(found[i] - found[j]) == pytest.approx(expected)
    assert np.allclose(found, frame.project(turned, 3)[:-1])
    apart = np.linalg.norm(found - origin, axis=1)  # vectors of one length end on a sphere
    assert np.allclose(apart, apart[0]) and apart[0] <= 1.0


@pytest.mark.parametrize("num_classes", [2, 3, 4, 9])
def test_directions_of_equal_variance_do_not_depend_on_the_solver(num_classes):
    points = frame.simplex_frame(num_classes)
    found = frame.project(points, 3)
    shifted = frame.project(points @ np.linalg.qr(np.random.default_rng(0).random(points.shape))[0], 3)
    assert found.shape == (num_classes + 1, 3)
    assert np.allclose(found[:-1], shifted[:-1], atol=1e-8)
    assert np.allclose(found[-1], 0.0)
    for picture in frame.seen_together([points, points]):
        assert picture.shape == (num_classes + 1, 2) and np.isfinite(picture).all()


def test_both_frames_are_seen_from_one_side():
    points = frame.simplex_frame(4)
    first, second = frame.seen_together([points[:, [2, 0, 3, 1]], points])
    assert np.allclose(first, second)
    assert frame.nearest_miss(second) > 0.05


def test_nearest_miss():
    assert frame.nearest_miss(np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 0.5]])) == pytest.approx(0.5)


def test_sample_of_classes(cifar100):
    picked = frame.sample_classes(cifar100.distances)
    assert cifar100.distances[picked[0], picked].tolist() == [0, 1, 3, 5]
    flat = 1 - np.eye(7, dtype=np.int64)
    assert frame.sample_classes(flat) == [0, 1, 2, 3]
    assert frame.sample_classes(flat[:2, :2]) == [0, 1]


# Severity


def test_mistake_shares():
    assert severity.mistake_shares([0, 2, 1, 1], 60.0).tolist() == [20.0, 10.0, 10.0]
    assert severity.mistake_shares([0, 0, 0], 100.0).tolist() == [0.0, 0.0]


def test_bars_have_the_interval_of_the_table():
    means, half_widths = severity.bars_of([np.array([10.0, 1.0]), np.array([20.0, 1.0])], ddof=1)
    assert means.tolist() == [15.0, 1.0]
    assert half_widths.tolist() == pytest.approx([12.7062 * 5.0, 0.0], rel=1e-5)
    assert np.isnan(severity.bars_of([np.array([10.0])], ddof=1)[1]).all()


def test_shares_of_the_published_runs_add_up_to_the_mistakes():
    drawing = severity.draw(of_runs("tiny-imagenet-frozen", PUBLISHED))
    panels = drawing.figure.axes
    assert len(panels) == 2
    for axes, titles in zip(panels, (13, 14), strict=True):
        assert len(axes.patches) == titles * 11
    heights = [patch.get_height() for patch in panels[0].patches[:11]]
    assert sum(heights) == pytest.approx(100 - 58.445, abs=0.01)  # cross-entropy, type-I
    assert panels[1].get_xlabel() == "height of the lowest common ancestor"
    legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert legend[:4] == ["cross-entropy", "CRM", "Flamingo", "HAFeature"] and len(legend) == 14


# Trade-off


@pytest.mark.parametrize("dataset", ["fgvc", "cifar100", "inat19", "tieredimagenet-h"])
def test_the_band_holds_exactly_the_competitive_rows(dataset):
    board = Board.paper(dataset)
    low, high = tradeoff.competitive_band(board.rows)
    severities = [row.metrics["mistake_severity"].mean for row in board.rows]
    assert len(severities) == 9
    assert [low <= severity < high for severity in severities] == [row.competitive for row in board.rows]
    assert len(tradeoff.draw(Request(dataset, board=Board.paper(dataset))).figure.axes[0].containers) == 9


def test_rows_that_lack_seeds_are_faint_and_do_not_set_the_band(monkeypatch):
    board = Board("shapes", "paper", "height", [row("good"), replace(row("lucky", severity=0.5), lacking=[2])])
    drawing = tradeoff.draw(Request("shapes", board=board))
    axes = drawing.figure.axes[0]
    assert axes.patches[0].get_x() == board.rows[0].metrics["mistake_severity"].mean
    assert [container.lines[0].get_alpha() for container in axes.containers] == [1.0, tradeoff.FAINT]
    assert "lucky, type-I: lacks seed 2; not ranked" in drawing.remarks


def test_rows_without_a_severity_are_named(monkeypatch):
    failed = replace(row("failed", n=0), metrics=dict.fromkeys(METRICS, Cell(None, None)))
    board = Board("shapes", "paper", "height", [row("good"), row("perfect", severity=None), failed])
    drawing = tradeoff.draw(Request("shapes", board=board))
    assert [text.get_text() for text in drawing.figure.axes[0].texts] == ["good, type-I"]
    assert "failed, type-I: 0 of 3 runs are finished" in drawing.remarks
    assert "not shown: perfect, type-I: no mistakes, so no severity" in drawing.remarks


@pytest.mark.parametrize("dataset", ["fgvc", "cifar100", "inat19", "tieredimagenet-h"])
def test_labels_do_not_cover_each_other(dataset):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with style.house_style():
        figure = tradeoff.draw(Request(dataset, board=Board.paper(dataset))).figure
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        texts = figure.axes[0].texts
        boxes = [text.get_window_extent(renderer).extents for text in texts]
        room = figure.bbox.extents
    assert sorted(text.get_text() for text in texts) == sorted(
        f"{row.title}, {row.type}" for row in Board.paper(dataset).rows
    )
    for i, box in enumerate(boxes):
        assert tradeoff.overlap(box, room) == pytest.approx((box[2] - box[0]) * (box[3] - box[1]))
        assert all(tradeoff.overlap(box, other) == 0.0 for other in boxes[:i])


def test_placing_labels():
    def at(*numbers):
        return np.array(numbers, dtype=float)

    unit = at(0, 0, 1, 1)
    assert tradeoff.overlap(at(0, 0, 2, 2), at(1, 1, 3, 3)) == 1.0
    assert tradeoff.overlap(unit, at(1, 0, 2, 1)) == 0.0
    assert tradeoff.nearest_of(unit, at(3, 0.5)).tolist() == [1, 0.5]
    assert tradeoff.crosses(at(-1, 0.5), at(2, 0.5), unit)
    assert not tradeoff.crosses(at(-1, 2.0), at(2, 2.0), unit)
    assert not tradeoff.crosses(at(-1, 0), at(-1, 2), unit)
    points, sizes, bounds = (
        np.array([at(50, 50), at(52, 50), at(51, 52)]),
        np.array([at(30, 8)] * 3),
        at(0, 0, 100, 100),
    )
    obstacles = np.array([at(48, 48, 54, 54)])
    boxes = tradeoff.place_labels(points, sizes, obstacles, bounds, gap=4.0)
    assert np.array_equal(boxes, tradeoff.place_labels(points, sizes, obstacles, bounds, gap=4.0))
    assert all(tradeoff.overlap(boxes[i], boxes[j]) == 0.0 for i in range(3) for j in range(i))
    (corner,) = tradeoff.place_labels(np.array([at(99, 99)]), sizes[:1], np.empty((0, 4)), bounds, gap=4.0)
    assert tradeoff.overlap(corner, bounds) == pytest.approx(240.0)


# Confusion


def test_confusion_counts():
    scores = np.array([[0.9, 0.1, 0.0], [0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [0.0, 0.9, 0.1]])
    assert confusion.confusion_counts(scores, np.array([0, 1, 2, 2])).tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 1]]
    with pytest.raises(ValueError, match="NaN"):
        confusion.confusion_counts(scores * np.nan, np.array([0, 1, 2, 2]))
    with pytest.raises(ValueError, match="from 0 to 2"):
        confusion.confusion_counts(scores, np.array([0, 1, 2, 3]))
    with pytest.raises(ValueError, match="do not fit"):
        confusion.confusion_counts(scores, np.array([0, 1, 2]))


def test_named_level():
    assert confusion.named_level((4, 12, 48)) == 2
    assert confusion.named_level((2, 4, 8, 20, 100)) == 3
    assert confusion.named_level((3, 4, 9, 34, 57, 72, 1010)) == 3
    assert confusion.named_level((1, 90, 1000)) is None


@pytest.mark.parametrize("num_classes", [5, 1010])
def test_confusion_of_a_run(tmp_path, monkeypatch, num_classes):
    """With the rows and columns of the picture in the order of the tree."""
    paths = {f"c{i}": (f"g{i % 7}", f"g{i % 7}h{i % 21}", f"c{i}") for i in range(num_classes)}
    hierarchy = Hierarchy.from_paths(paths)
    run, spec = fake_run(tmp_path, hierarchy)
    monkeypatch.setattr(confusion, "tree_of", lambda *a: source.Tree(hierarchy, tuple(paths.values())))
    with style.house_style():
        figure = confusion.draw(Request("shapes", store=Store(tmp_path), run=run.folder.name[:6])).figure
        written = svg(figure)
    shown = np.ma.filled(figure.axes[1].images[0].get_array(), 0)
    order = tree.class_order(hierarchy)
    assert shown.tolist() == confusion.confusion_counts(*run.predictions())[np.ix_(order, order)].tolist()
    assert len(written) < 1_000_000
    names = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    assert ("c0" in names) == (num_classes == 5)
    assert f"{spec.method.name}, type-I, seed 4" in figure.axes[1].get_title(loc="left")


def fake_run(folder, hierarchy):
    """A finished run of `shapes` with random predictions: what confusion reads."""
    from hierbench.config.spec import Spec
    from hierbench.runs.store import Store
    from hierbench.utils.files import read_json, write_json

    content = read_json(next(PUBLISHED.glob("99b0*/spec.json")))
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
    run.set_status("done", files=fingerprints(run.folder))
    return run, spec


def test_choosing_a_run(tmp_path, small):
    run, spec = fake_run(tmp_path, small)
    assert confusion.run_of(of_runs("shapes", tmp_path))[0] == spec
    for method, kind, seed in ((None, None, 4), ("flamingo", None, None), ("flamingo", "type-I", 4)):
        _, found = confusion.run_of(of_runs("shapes", tmp_path, method=method, type=kind, seed=seed))
        assert found.folder == run.folder
    other = "1" if run.folder.name[0] == "0" else "0"
    for request, problem in (
        (of_runs("shapes", tmp_path, seed=0), "with seed 0 in .*; there are flamingo:type-I:4"),
        (Request("shapes", store=Store(tmp_path), run=other), f"no run in .* begins with '{other}'"),
        (Request("fgvc", store=Store(tmp_path), run=run.folder.name), "is of shapes, not of fgvc"),
        (
            of_runs("tiny-imagenet-frozen", PUBLISHED),
            r"^tiny-imagenet-frozen matches 27 runs: barz_denzler type-I seed 0 \(\w{12}.*"
            r"\) and 21 more; give more of method, type and seed, or the id of one$",
        ),
        (Request("tiny-imagenet-frozen", store=Store(PUBLISHED), run="a"), r"\d runs have an id that begins with 'a'"),
    ):
        with pytest.raises(UserError, match=problem):
            confusion.run_of(request)
    for method, kind, expected in (("ce", None, "type-I"), ("ce", "type-II", "type-II"), ("haframe", None, "type-II")):
        spec, _ = confusion.run_of(of_runs("tiny-imagenet-frozen", PUBLISHED, method=method, type=kind))
        assert (spec.method.name, spec.type, spec.seed) == (method, expected, 0)
    with pytest.raises(UserError, match="another tree"):
        confusion.draw(of_runs("shapes", tmp_path, data_dir=tmp_path))
    with pytest.raises(UserError, match="is not prepared"):
        confusion.draw(of_runs("tiny-imagenet-frozen", PUBLISHED, data_dir=tmp_path, method="haframe"))


# Curves


def test_band_over_seeds():
    histories = [
        [{"epoch": 1.0, "a": 1.0}, {"epoch": 2.0, "a": 3.0}],
        [{"epoch": 1.0, "a": 2.0}, {"epoch": 2.0, "a": 8.0}],
    ]
    band = curves.band_over_seeds(histories, "a")
    assert [array.tolist() for array in band] == [[1.0, 2.0], [1.5, 5.5], [1.0, 3.0], [2.0, 8.0]]
    with pytest.raises(ValueError, match=r"length|inhomogeneous"):
        curves.band_over_seeds([histories[0], histories[1][:1]], "a")
    with pytest.raises(KeyError):
        curves.band_over_seeds(histories, "b")


def test_curves_of_the_published_runs():
    drawing = curves.draw(of_runs("tiny-imagenet-frozen", PUBLISHED))
    panels = drawing.figure.axes
    assert len(panels) == 6 and [len(axes.lines) for axes in panels] == [11, 11, 11, 12, 12, 12]
    assert panels[1].lines[0].get_ydata()[-1] == pytest.approx(57.8, abs=0.2)  # validation accuracy of cross-entropy
    assert {line.get_linestyle() for line in panels[0].lines} != {"-"}
    assert len({line.get_marker() for line in panels[3].lines}) == 12
    assert any("CRM, type-I" in remark and "train nothing" in remark for remark in drawing.remarks)


# Look and files


def test_looks_are_those_of_the_method_and_no_two_are_equal():
    rows = [row(title, method=method) for method, title in [("ce", "CE"), ("haframe", "HAFrame (gamma=1)")]]
    rows += [row("HAFrame (gamma=2)", method="haframe"), row("mine"), row("yours"), row("CE", method="ce")]
    looks = style.looks_of(rows)
    assert looks["ce", "CE"] == style.LOOKS["ce"] and looks["haframe", "HAFrame (gamma=1)"] == style.LOOKS["haframe"]
    assert len(looks) == 5
    for part in ("marker", "hatch", "dashes"):
        assert len({str(getattr(look, part)) for look in looks.values()}) >= 4


def test_text_is_drawn_as_it_stands():
    assert style.plain("a$b$\nc") == r"a\$b\$ c"
    assert style.plain("x" * 70) == "x" * 59 + "…"
    assert style.plain("_a").endswith("_a") and not style.plain("_a").startswith("_")
    assert style.readable("n00002684 living_thing") == "living thing"
    assert style.readable("n00002684") == "n00002684"


def svg(figure, suffix="svg"):
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, metadata=style.METADATA[f".{suffix}"])
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("kind", "request_"),
    [
        (similarity, Request("cifar100")),
        (frame, Request("")),
        (frame, Request("cifar100")),
        (severity, of_runs("tiny-imagenet-frozen", PUBLISHED)),
        (tradeoff, Request("fgvc", board=Board.paper("fgvc"))),
        (curves, of_runs("tiny-imagenet-frozen", PUBLISHED)),
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


def test_other_formats_and_odd_names(tmp_path, monkeypatch):
    board = Board.paper("fgvc")
    titles = ("a$b$ \\x", "_b", "漢字", "x" * 99)
    rows = [replace(found, title=title) for found, title in zip(board.rows, titles, strict=False)]
    board = replace(board, rows=rows)
    with style.house_style():
        figure = tradeoff.draw(Request("fgvc", board=board)).figure
    for suffix, start in ((".pdf", b"%PDF"), (".png", b"\x89PNG"), (".SVG", b"<?xml")):
        with style.house_style():
            style.write_figure(figure, tmp_path / f"a{suffix}")
        content = (tmp_path / f"a{suffix}").read_bytes()
        assert content.startswith(start) and b"CreationDate" not in content
    assert len(list(tmp_path.iterdir())) == 3


def test_a_file_is_a_kind():
    kinds = ["confusion", "curves", "frame", "levels", "operating", "severity", "similarity", "tradeoff"]
    assert list(KINDS) == kinds
    for kind, about in KINDS.items():
        module = import_module(f"hierbench.reports.plots.{kind}")
        assert callable(module.draw) and module.__doc__.startswith(about) and about.endswith(".")


def test_an_output_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.svg").mkdir()
    for name, problem in (
        ("a.jpg", "suffix must be one of .svg, .pdf, .png"),
        ("a", "suffix"),
        ("nowhere/a.svg", "there is no folder"),
        ("folder.svg", "not a file"),
    ):
        with pytest.raises(UserError, match=problem):
            style.check_output(tmp_path / name)
    with pytest.raises(UserError, match="cannot be written"):
        style.write_figure(style.new_figure(1, 1), tmp_path / "file/plots/a.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.svg"]


def test_the_users_settings_do_not_show():
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "red"}):
        with style.house_style():
            assert mpl.rcParams["font.size"] == 8.0 and mpl.rcParams["axes.facecolor"] == "white"
        assert mpl.rcParams["font.size"] == 30.0


def test_no_finished_run(tmp_path, small):
    run, _ = fake_run(tmp_path, small)
    run.set_status("running")
    for kind in (severity, curves, tradeoff):
        with pytest.raises(UserError, match=r"no run of shapes in .* is finished yet"):
            kind.draw(of_runs("shapes", tmp_path))
    with pytest.raises(UserError, match="did you mean 'shapes'"):
        severity.draw(of_runs("shape", tmp_path))


def test_a_damaged_record_is_named(tmp_path, small):
    import shutil

    from hierbench.runs.store import Run
    from hierbench.utils.files import read_json, write_json

    shutil.copytree(PUBLISHED, tmp_path / "published")
    path = sorted((tmp_path / "published").glob("*/metrics.json"))[0]
    content = read_json(path)
    write_json(path, content | {"mistakes_by_distance": content["mistakes_by_distance"][:-1]})
    Run(path.parent).set_status("done", files=fingerprints(path.parent))
    with pytest.raises(UserError, match="on a tree of another height"):
        severity.draw(of_runs("tiny-imagenet-frozen", tmp_path / "published"))
    fake_run(tmp_path, small)
    with pytest.raises(UserError, match="no mistakes_by_distance"):
        severity.draw(of_runs("shapes", tmp_path))
    with pytest.raises(UserError, match="the history of flamingo, type-I, cannot be read"):
        curves.draw(of_runs("shapes", tmp_path))
