"""Intervals over seeds and test images: their formula, their coverage, and where tables show them."""

import numpy as np
import pytest

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.image_intervals import example_values, over_images, with_examples
from hierbench.leaderboard.paired import difference_of_examples
from hierbench.leaderboard.statistics import crossed_error, half_width, t_quantile
from hierbench.runs.record_reader import read_records
from hierbench.runs.run_evidence import Trees


def draw(rng, seeds, images, sds):
    shapes = ((seeds, 1), (1, images), (seeds, images))
    return sum(rng.normal(0.0, sd, shape) for sd, shape in zip(sds, shapes, strict=True))


@pytest.mark.parametrize(("seeds", "images", "sds"), [(5, 300, (0.0, 0.4, 0.2)), (5, 200, (0.05, 0.3, 0.3))])
def test_intervals_cover_the_mean(seeds, images, sds):
    rng = np.random.default_rng(0)
    covered = [abs(x.mean()) <= half_width(x) for x in (draw(rng, seeds, images, sds) for _ in range(800))]
    assert 0.925 <= np.mean(covered) <= 0.975


def test_the_error_is_that_of_the_variance_components():
    """Of a balanced table, by the textbook's sums of squares."""
    x = draw(np.random.default_rng(3), 4, 30, (0.5, 0.4, 0.3))
    s, n = x.shape
    grand = x.mean()
    seeds = n * ((x.mean(1) - grand) ** 2).sum() / (s - 1)
    images = s * ((x.mean(0) - grand) ** 2).sum() / (n - 1)
    rest = ((x - x.mean(1)[:, None] - x.mean(0) + grand) ** 2).sum() / ((s - 1) * (n - 1))
    variance = (seeds - rest) / n / s + (images - rest) / s / n + rest / (s * n)
    assert crossed_error(x)[0] == pytest.approx(np.sqrt(variance))


def test_one_seed_has_the_interval_over_images():
    values = np.random.default_rng(0).normal(size=(1, 50))
    assert half_width(values) == pytest.approx(t_quantile(49) * values.std(ddof=1) / np.sqrt(50))


def test_values_have_the_metrics_as_means():
    contributions = [np.array([[1, 0, 3], [0, 2, 9], [0, 1, 5]]), np.array([[1, 0, 4], [1, 0, 6], [0, 2, 8]])]
    values = example_values(contributions, (1, 5))
    assert values["top1"].mean(axis=1).tolist() == pytest.approx([100 / 3, 200 / 3])
    assert values["hierdist@5"].mean(axis=1).tolist() == pytest.approx([17 / 15, 18 / 15])
    assert values["mistake_severity"].mean(axis=1).tolist() == pytest.approx([1.5, 2.0])
    assert "mistake_severity" not in example_values([np.array([[1, 0]])], (1,))


def test_a_difference_needs_the_same_images():
    values = {"top1": np.random.default_rng(0).normal(size=(3, 40))}
    gap = difference_of_examples({"top1": values["top1"] + 1.0 + 0.1 * values["top1"]}, values, "top1")
    assert gap.mean == pytest.approx(1.0, abs=0.1) and gap.p < 0.05 and gap.n == 3
    assert difference_of_examples(values, {"top1": values["top1"][:, 1:]}, "top1") is None


def test_tables_show_them(trained, data_dir, cli, tmp_path):
    board = Board.of("shapes", read_records(trained))
    by_images = over_images(board, data_dir)
    row, same = board["ce"], by_images["ce"]
    values = by_images.examples[row.key]["top1"]
    assert values.mean(axis=1).tolist() == pytest.approx(row.metrics["top1"].values)
    assert same.metrics["top1"].ci95 == half_width(values) > 0
    assert "Half-widths over seeds and test images" in str(with_examples(board, Trees(data_dir).find))
    where = ("--runs", trained, "--data-dir", data_dir)
    shown = cli(tmp_path, "leaderboard", "--dataset", "shapes", *where, "--intervals", "images").ok().out
    assert "interval over seeds and test images" in shown and f"+/- {same.metrics['top1'].ci95:.2f}" in shown
