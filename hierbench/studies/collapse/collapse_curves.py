"""Curves of neural collapse over the epochs of training, and their table."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

from hierbench.config.recipe import Recipe
from hierbench.config.sections import FeatureType
from hierbench.leaderboard.table import Line, Number, Table, Text
from hierbench.utils.text import counted


class MeasuredFrame(NamedTuple):
    """The frame that a method's class means and classifier collapse to."""

    name: Literal["HAFrame", "ETF"]
    method: str
    type: FeatureType

    @property
    def title(self) -> str:
        """The title of the method."""
        return "cross-entropy" if self.name == "ETF" else self.name


FRAMES = (MeasuredFrame("HAFrame", "haframe", "type-II"), MeasuredFrame("ETF", "ce", "type-I"))
COLLAPSE_QUANTITIES = {
    "features_mean": "features, mean",
    "features_std": "features, std",
    "classifiers_mean": "classifiers, mean",
    "classifiers_std": "classifiers, std",
    "self_duality": "self-duality",
}


class Point(NamedTuple):
    """One epoch of a curve; see `hierbench.studies.collapse.metrics` for the quantities."""

    epoch: int
    features_mean: float
    features_std: float
    classifiers_mean: float
    classifiers_std: float
    self_duality: float


KEYS = (
    "dataset",
    "protocol",
    "deviation",
    "self_duality_form",
    "frame",
    "method",
    "type",
    "seed",
    "run",
    *Point._fields,
)


class Curve(NamedTuple):
    """One run's points, by epoch; `run` is its job's id."""

    frame: MeasuredFrame
    seed: int
    run: str
    points: tuple[Point, ...]


class MeanLine(NamedTuple):
    """One quantity of a frame over the epochs: mean, smallest and largest of the seeds."""

    epochs: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


def mean_line(curves: Sequence[Curve], frame: MeasuredFrame, quantity: str) -> MeanLine | None:
    """Return a quantity of a frame's curves, None where there is no curve."""
    frame_curves = [curve for curve in curves if curve.frame == frame]
    if not frame_curves:
        return None
    values = [
        [getattr(point, quantity) for point in points] for points in zip(*(c.points for c in frame_curves), strict=True)
    ]
    epochs = [point.epoch for point in frame_curves[0].points]
    return MeanLine(epochs, list(map(fmean, values)), list(map(min, values)), list(map(max, values)))


def curves_table(recipe: Recipe, curves: Sequence[Curve], every: int) -> Table:
    """Return every curve's first and last epoch, means over the seeds; CSV and JSON have all epochs of all seeds."""
    rows: list[Line] = []
    epochs: list[int] = []
    for frame in FRAMES:
        for quantity, title in COLLAPSE_QUANTITIES.items():
            line = mean_line(curves, frame, quantity)
            if line is not None:
                first = line.mean[0]
                last = line.mean[-1]
                epochs = line.epochs
                change = Number(100 * (last / first - 1) if first > 5e-5 else None, "+.0f")
                names = (Text(frame.title), Text(title))
                means = (Number(first, ".4f"), Number(last, ".4f"))
                rows.append(Line([*names, *means, change]))
    ends = [f"Epoch {epoch}" for epoch in (*epochs[:1], *epochs[-1:])]
    settings = recipe.collapse
    seeds = len({curve.seed for curve in curves})
    deviation = "|cos - ideal|" if settings.deviation == "absolute" else "cos - ideal"
    form = "norm" if settings.self_duality == "norm" else "squared norm"
    about = (
        f"{recipe.title}, protocol {recipe.protocol}, {counted(seeds, 'seed')}; "
        f"angular collapse: mean of |cos - ideal|, std of {deviation}; self-duality: {form}"
    )
    return Table(
        f"{recipe.title}, collapse",
        ["Method", "Curve", *ends, "Change, %"],
        rows,
        above=[about],
        records=_records(recipe, curves),
        keys=KEYS,
        content=_content(recipe, curves, every),
    )


def _records(recipe: Recipe, curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Return a line per run and epoch, with the switches that the numbers depend on."""
    settings = [recipe.dataset, recipe.protocol, recipe.collapse.deviation, recipe.collapse.self_duality]
    return [
        dict(zip(KEYS, [*settings, *curve.frame, curve.seed, curve.run, *point], strict=True))
        for curve in curves
        for point in curve.points
    ]


def _content(recipe: Recipe, curves: Sequence[Curve], every: int) -> dict[str, Any]:
    """Return the curves as JSON types, each quantity a list over the epochs."""
    return {
        "dataset": recipe.dataset,
        "title": recipe.title,
        "protocol": recipe.protocol,
        "collapse": recipe.collapse.model_dump(),
        "epochs": recipe.train.epochs,
        "every": every,
        "curves": [
            {
                **curve.frame._asdict(),
                "frame": curve.frame.name,
                "seed": curve.seed,
                "run": curve.run,
                **dict(zip(Point._fields, zip(*curve.points, strict=True), strict=True)),
            }
            for curve in curves
        ],
    }
