from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hierbench import Hierarchy
from hierbench.config.options import folder_options
from hierbench.config.spec import Spec
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.pictures import (
    curves_plot,
    figure_data,
    severity_plot,
    style,
    tradeoff_plot,
)
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, Summary
from hierbench.runs.integrity import fingerprints
from hierbench.runs.record_reader import read_records
from hierbench.runs.run_archive import opened
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json, write_json
from tests.support.made_runs import of_runs

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


def row(title="a", kind="type-I", method=None, severity=2.0, top1=50.0, n=3):
    cells = {metric: Summary(1.0, 0.1) for metric in PAPER_METRICS}
    cells |= {"mistake_severity": Summary(severity, 0.02), "top1": Summary(top1, 1.0)}
    return Row(kind, method or title, title, n, 3, cells, ["id"] * 3)


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
    drawing = tradeoff_plot.draw(Board("shapes", "paper", "height", rows))
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
        figure = tradeoff_plot.draw(board).figure
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


def fake_run(folder, hierarchy):
    """A finished run of `shapes` with random predictions."""
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
    ("kind", "board"),
    [
        (tradeoff_plot, Board.paper("fgvc")),
        (curves_plot, of_runs("grocery-finetuned", PUBLISHED)),
    ],
)
def test_a_figure_is_the_same_file_twice(tmp_path, kind, board):
    written = []
    for name in ("a.svg", "b.svg"):
        with style.house_style():
            style.write_figure(kind.draw(board).figure, tmp_path / name)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    assert b"<dc:date>" not in written[0] and len(written[0]) < 1_500_000


def test_no_finished_run_and_damaged_records_are_named(tmp_path):
    run, _ = fake_run(tmp_path, Hierarchy.from_paths(PATHS))
    with pytest.raises(UserError, match="no mistakes_by_distance"):
        severity_plot.draw(of_runs("shapes", tmp_path))
    run.set_status("running")
    for kind in (severity_plot, curves_plot, tradeoff_plot):
        with pytest.raises(UserError, match=r"no run of shapes in .* is finished yet"):
            kind.draw(of_runs("shapes", tmp_path))


def test_a_printed_command_repeats_the_folders_that_are_not_the_default(tmp_path):
    assert folder_options(Path("runs"), Path("data")) == folder_options() == ""
    assert folder_options(Path("a b"), Path("data")) == " --runs 'a b'"
    assert folder_options(data_dir=Path("/d")) == " --data-dir /d"
    with pytest.raises(UserError, match=f"run: hierbench run --methods paper --dataset photos --runs {tmp_path}$"):
        Board.of("photos", read_records(tmp_path))
