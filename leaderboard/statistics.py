"""Means, confidence intervals and the highlight rule."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from hierbench.leaderboard.columns import PAPER_COLUMNS, Column
from hierbench.runs.state import State

PAPER_METRICS = tuple(column.name for column in PAPER_COLUMNS)
AXES = ("mistake_severity", "top1")  # of the picture that shows a table at a glance
TOLERANCE = Decimal("0.05")  # of competitive mistake severity
CONFIDENCE = 0.95
RowKey = tuple[str, str, str]


@dataclass(frozen=True)
class Summary:
    """One metric of one row."""

    mean: float | None  # over the values that exist
    ci95: float | None  # half-width of the 95% interval, None below two values
    values: Sequence[float] = ()  # one per seed; NaN for a severity without mistakes
    best: bool = False  # of the competitive rows
    leads: bool = False  # of all ranked rows; not in the JSON contract
    interval: tuple[float, float] | None = None  # over images, of one scored file; not in the JSON contract

    @property
    def is_partial(self) -> bool:
        """Whether some runs have no value, as a severity without mistakes; then it is not compared with other rows."""
        return self.mean is not None and any(map(math.isnan, self.values))


BY_HAND = "by hand"  # `Row.tuned` where the user has set hyperparameters


@dataclass(frozen=True)
class Row:
    """One line of a leaderboard; `hierbench.leaderboard.ranking` gives it its marks."""

    type: str
    method: str
    title: str
    n: int
    planned: int
    metrics: Mapping[str, Summary]
    runs: Sequence[str] = ()
    competitive: bool = False
    tuning: dict[str, Any] | None = None  # {"trials", "runs", "study"} of the search that chose its hyperparameters
    tuned: str = ""  # how its hyperparameters were chosen, as a table prints it
    scored: bool = False  # of predictions made elsewhere, see `hierbench.leaderboard.scored_rows`
    seeds: Sequence[int] = ()  # of the finished runs, in the order of the cells' values
    lacking: Sequence[int] = ()  # seeds of the table that it has not: it is not ranked
    state: State | None = None  # the weakest of its finished runs

    @property
    def key(self) -> RowKey:
        """Type, method and first run, by which a table finds it: scored files may have one name."""
        return (self.type, self.method, self.runs[0] if self.runs else "")

    @property
    def is_ranked(self) -> bool:
        """Whether its runs may be ranked: no run is claimed or rejected."""
        return self.state is None or self.state.is_ranked


@dataclass(frozen=True)
class CitedRow:
    """A line that other authors printed, below a table of the paper: without runs, never ranked nor highlighted.

    Attributes:
        type: the network that the source names.
        method, title: as in a `Row`.
        metrics: the printed ones.
        source, where, setting: citation, place in it, and how was trained.
        sample: the runs that the numbers average.
    """

    type: str
    method: str
    title: str
    metrics: Mapping[str, Summary]
    source: str
    where: str
    setting: str
    sample: str
    n: ClassVar[int] = 0
    planned: ClassVar[int] = 0
    competitive: ClassVar[bool] = False

    @property
    def key(self) -> RowKey:
        """Type, method and source."""
        return (self.type, self.method, self.source)


def searched_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, of those with one method and type only the ones not set by hand, if there are any."""
    searched = {(row.method, row.type) for row in rows if row.tuned != BY_HAND}
    return [row for row in rows if row.tuned != BY_HAND or (row.method, row.type) not in searched]


def ranked_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that may be ranked: of runs, or without runs scored ones.

    Left out are rows that lack seeds, rows that verification rejects, and rows with a claimed run.
    """
    return [rows[place] for place in _ranked_places(rows)]


def _ranked_places(rows: Sequence[Row]) -> list[int]:
    """Return the places of the rows that may be ranked."""
    has_runs = any(not row.scored for row in rows)
    return [
        place for place, row in enumerate(rows) if not (has_runs and row.scored) and not row.lacking and row.is_ranked
    ]


def pareto_front(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that no other beats in both accuracy and mistake severity, the most severe last."""
    placed = []
    for number, row in enumerate(rows):
        severity, top1 = (row.metrics[name].mean if name in row.metrics else None for name in AXES)
        if severity is not None and top1 is not None:
            placed.append((severity, -top1, number))
    front = list[Row]()
    least = math.inf
    for _, error, number in sorted(placed):
        if error < least:
            front.append(rows[number])
            least = error
    return front


def on_ranked(rows: Sequence[Row], mark: Callable[[list[Row]], Sequence[Row]]) -> tuple[Row, ...]:
    """Return the rows; the ranked ones as `mark` returns them."""
    marked = list(rows)
    places = _ranked_places(rows)
    for place, row in zip(places, mark([rows[place] for place in places]), strict=True):
        marked[place] = row
    return tuple(marked)


def summarise(values: Sequence[float], ddof: int = 1) -> Summary:
    """Return the mean and the half-width t(.975, n - 1) s / sqrt(n) of the 95% interval.

    Args:
        values: one per run. NaN is left out: mistake severity is undefined for a run without mistakes.
        ddof: of the standard deviation s; the published intervals used 0 and are too narrow (docs/protocols.md, row 4).
    """
    finite = np.array([value for value in values if not math.isnan(value)], dtype=np.float64)
    if not len(finite):
        return Summary(None, None, tuple(values))
    mean = float(finite.mean())
    if len(finite) < 2:
        return Summary(mean, None, tuple(values))
    half_width = t_quantile(len(finite) - 1) * float(finite.std(ddof=ddof)) / math.sqrt(len(finite))
    return Summary(mean, half_width, tuple(values))


def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return how many standard errors an interval of this confidence has to each side of a mean."""
    return float(stdtrit(freedom, (1.0 + confidence) / 2.0))


def two_sided_p(mean: float, error: float, freedom: float) -> float:
    """Return the p of a t-test that a mean with this standard error is 0."""
    return 2.0 * float(stdtr(freedom, -abs(mean) / error))


def welch(variances: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Return the standard error and the degrees of freedom of the difference of two means (Welch, Satterthwaite).

    Args:
        variances: (ddof 1) of either side.
        counts: number of values of either side.
    """
    parts = [variance / n for variance, n in zip(variances, counts, strict=True)]
    spread = sum(part * part / (n - 1) for part, n in zip(parts, counts, strict=True))
    return math.sqrt(sum(parts)), sum(parts) ** 2 / spread if spread else 1.0


def crossed_error(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the standard error of the mean of values [S, N] over seeds and images, and its degrees of freedom.

    With a random effect of the seed, one of the image and the rest as a third, the variance of the mean is
    sigma_seed^2 / S + sigma_image^2 / N + sigma_rest^2 / (S N), estimated from mean squares (Searle, Casella &
    McCulloch, Variance Components, 1992, section 4.7); degrees of freedom are Satterthwaite's (Biometrics Bulletin 2,
    1946).
    """
    num_seeds, num_images = values.shape
    if num_images < 2:
        return math.nan, 1.0
    size = num_seeds * num_images
    image_means = values.mean(axis=0)
    images = num_seeds * float(image_means.var(ddof=1))  # mean squares
    if num_seeds < 2:
        return math.sqrt(images / size), num_images - 1.0
    seed_means = values.mean(axis=1)
    seeds = num_images * float(seed_means.var(ddof=1))
    residuals = values - image_means - seed_means[:, None] + values.mean()
    rest = float((residuals**2).sum()) / ((num_seeds - 1) * (num_images - 1))
    # An effect whose estimate is negative is none.
    parts = [(max(seeds, rest), num_seeds - 1), (max(images, rest), num_images - 1)]
    variance = (sum(part for part, _ in parts) - rest) / size
    spread = sum((part / size) ** 2 / freedom for part, freedom in parts)
    spread += (rest / size) ** 2 / ((num_seeds - 1) * (num_images - 1))
    return math.sqrt(variance), variance**2 / spread if spread else 1.0


def half_width(values: NDArray[np.float64]) -> float:
    """Return the half-width of the 95% interval of the mean of values [S, N]."""
    error, freedom = crossed_error(values)
    return t_quantile(freedom) * error


def typical_widths(examples: Mapping[Any, Mapping[str, NDArray[np.float64]]]) -> dict[str, float]:
    """Return {metric: the median over rows of the half-widths over seeds and images}."""
    widths: dict[str, list[float]] = {}
    for values in examples.values():
        for name, table in values.items():
            widths.setdefault(name, []).append(half_width(table))
    return {name: float(np.median(numbers)) for name, numbers in widths.items()}


def deviation_from_interval(cell: Summary, n: int, ddof: int) -> float | None:
    """Return the standard deviation (ddof 1) behind a printed half-width of n runs, or None.

    The half-width is t(.975, n - 1) s / sqrt(n), and this ddof that of its s.
    """
    if cell.mean is None or cell.ci95 is None:
        return None
    return cell.ci95 * (math.sqrt(n) / t_quantile(n - 1) * math.sqrt((n - ddof) / (n - 1)))


def printed(value: float, digits: int) -> Decimal:
    """Return a number as the table prints it."""
    return Decimal(f"{value:.{digits}f}")


def highlighted(rows: Sequence[Row], columns: Sequence[Column] = PAPER_COLUMNS) -> list[Row]:
    """Return the rows with the competitive marked, and the best cells of the paper's columns and these.

    The best of the competitive rows are `best`, those of all rows `leads`.

    A row is competitive when its mean mistake severity is at most 0.05 above the smallest, compared as decimals at
    the printed precision of two digits. The best of a metric is the best printed mean among competitive rows; equal
    means are settled by the narrower printed interval, and rows that are still equal are best together.
    """
    rows = with_best(rows, [*PAPER_COLUMNS, *columns], "leads")
    cells = [row.metrics["mistake_severity"] for row in rows]
    severities = [None if cell.mean is None or cell.is_partial else printed(cell.mean, 2) for cell in cells]
    limit = min((severity for severity in severities if severity is not None), default=Decimal(0)) + TOLERANCE
    competitive = [severity is not None and severity <= limit for severity in severities]
    chosen = [replace(row, competitive=True) for row, marked in zip(rows, competitive, strict=True) if marked]
    best = iter(with_best(chosen, [*PAPER_COLUMNS, *columns]))
    return [next(best) if marked else row for row, marked in zip(rows, competitive, strict=True)]


def with_best(
    rows: Sequence[Row], columns: Sequence[Column] = PAPER_COLUMNS, mark: Literal["best", "leads"] = "best"
) -> list[Row]:
    """Return the rows with the best cell of each column among them marked."""
    cells = [dict(row.metrics) for row in rows]
    for column in columns:
        with_metric = [row_cells for row_cells in cells if column.name in row_cells and not column.claimed]
        with_metric = [row_cells for row_cells in with_metric if not row_cells[column.name].is_partial]
        ranks = [_rank(row_cells[column.name], column) for row_cells in with_metric]
        first = min(ranks, default=None)
        for row_cells, rank in zip(with_metric, ranks, strict=True):
            cell = row_cells[column.name]
            is_first = cell.mean is not None and rank == first
            row_cells[column.name] = replace(cell, best=is_first) if mark == "best" else replace(cell, leads=is_first)
    return [replace(row, metrics=row_cells) for row, row_cells in zip(rows, cells, strict=True)]


def _rank(cell: Summary, column: Column) -> tuple[Decimal, Decimal]:
    """Return a key that is smaller for a better cell; without an interval a cell loses a tie."""
    infinity = Decimal("Infinity")
    mean = infinity if cell.mean is None else printed(cell.mean, column.digits)
    width = infinity if cell.ci95 is None else printed(cell.ci95, 4)
    return (-mean if column.higher and cell.mean is not None else mean), width
