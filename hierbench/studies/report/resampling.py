"""Numbers that follow from sums over images, their bootstrap intervals, and tests of paired differences.

Shapes: S seeds, N images, U units that are drawn (images, or groups of them), C columns, R resamples.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import ndtr, stdtrit

from hierbench.hierarchy.label_tree import IntArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.95
AT_A_TIME = 2**21  # weights that are drawn at a time: 16 MiB
FLIPS = 9999  # drawn changes of signs
DECIMALS = 9  # to which differences of images are equal


@dataclass(frozen=True, eq=False)
class Quantity:
    """A number of a model, computed from sums over its images.

    Attributes:
        name: in JSON.
        columns: per seed [N, C], dense or sparse, what each image adds.
        value: from the sums of the columns [..., C] to the number [...].
        better: which numbers are better, "" for neither.
        tested: whether it is the mean of its first column over the images, so that signs can be flipped.
    """

    name: str
    columns: Sequence[Any]
    value: Callable[[Floats], Floats]
    better: str = "higher"
    tested: bool = False

    @property
    def total(self) -> float:
        """The number over all images and seeds."""
        return float(self.value(np.sum([_sums(columns) for columns in self.columns], axis=0)))


def mean_of(name: str, values: Sequence[Any], better: str = "higher", scale: float = 1.0) -> Quantity:
    """Return the mean over images of values, per seed [N], times `scale`."""
    columns = [np.stack([scale * np.asarray(each, dtype=np.float64), np.ones(len(each))], axis=1) for each in values]
    return Quantity(name, columns, _ratio, better, tested=True)


def ratio_of(name: str, above: Sequence[Any], below: Sequence[Any], better: str, scale: float = 1.0) -> Quantity:
    """Return the quotient of two sums over images, per seed [N] each; NaN where the second is 0."""
    pairs = zip(above, below, strict=True)
    columns = [np.stack([scale * np.asarray(a, float), np.asarray(b, float)], axis=1) for a, b in pairs]
    return Quantity(name, columns, _ratio, better)


def _ratio(sums: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], np.nan)


def _sums(columns: Any) -> Floats:
    return np.asarray(columns.sum(axis=0), dtype=np.float64).reshape(-1)


@dataclass(frozen=True, eq=False)
class Resampling:
    """The bootstrap of a report: units are drawn with replacement, and seeds, too, where there are several.

    Both sides of a comparison are computed on the same draws. References: Efron & Tibshirani, An Introduction to the
    Bootstrap, 1993, chapter 13 (percentiles); Hesterberg, The American Statistician 69, 2015 (their expansion for few
    units); Field & Welsh, JRSS B 69, 2007 (clusters).

    Attributes:
        units: [N] the unit of each image, from 0.
        resamples: R; 0 for no intervals.
        seed: of the draws.
    """

    units: IntArray
    resamples: int = 1000
    seed: int = 0

    @property
    def num_units(self) -> int:
        """U."""
        return int(self.units.max()) + 1

    @property
    def has_groups(self) -> bool:
        """Whether several images are one unit."""
        return self.num_units < len(self.units)

    def by_unit(self, columns: Any) -> Any:
        """Return the sums [U, C] over the images of each unit."""
        if not self.has_groups:
            return columns
        num = len(self.units)
        membership = csr_matrix((np.ones(num), (self.units, np.arange(num))), shape=(self.num_units, num))
        return membership @ columns

    def draws(self, quantities: Mapping[str, Quantity]) -> dict[str, Floats]:
        """Return {name: [R]} the numbers of the resamples."""
        if not quantities or not self.resamples or self.num_units < 2:
            return {}
        dense = {name: each for name, each in quantities.items() if isinstance(each.columns[0], np.ndarray)}
        sparse = {name: each for name, each in quantities.items() if name not in dense}
        num_seeds = len(next(iter(quantities.values())).columns)
        joined = [
            self.by_unit(np.concatenate([each.columns[s] for each in dense.values()], axis=1))
            for s in range(num_seeds if dense else 0)
        ]
        by_unit = {name: [self.by_unit(part) for part in each.columns] for name, each in sparse.items()}
        widths = [each.columns[0].shape[1] for each in dense.values()]
        places = np.cumsum([0, *widths])
        drawn: dict[str, list[Floats]] = {name: [] for name in quantities}
        for times, seed_times in self._weights(num_seeds):
            if dense:
                totals = np.sum([seed_times[:, s, None] * (times @ joined[s]) for s in range(num_seeds)], axis=0)
                for (name, each), start, width in zip(dense.items(), places, widths, strict=False):
                    drawn[name].append(each.value(totals[:, start : start + width]))
            for name, each in sparse.items():
                parts = [seed_times[:, s, None] * (by_unit[name][s].T @ times.T).T for s in range(num_seeds)]
                drawn[name].append(each.value(np.sum(parts, axis=0)))
        return {name: np.concatenate(parts) for name, parts in drawn.items()}

    def _weights(self, num_seeds: int) -> Iterator[tuple[Floats, Floats]]:
        """Yield how often each unit [r, U] and each seed [r, S] is drawn, a part of the resamples at a time."""
        unit_draws, seed_draws = (np.random.default_rng([self.seed, stream]) for stream in (0, 1))
        num = self.num_units  # whatever the number of seeds, the same units are drawn
        rows = max(1, AT_A_TIME // num)
        for start in range(0, self.resamples, rows):
            size = min(rows, self.resamples - start)
            drawn = unit_draws.integers(num, size=(size, num)) + num * np.arange(size)[:, None]
            times = np.bincount(drawn.ravel(), minlength=size * num).reshape(size, num).astype(np.float64)
            seeds = np.ones((size, 1))
            if num_seeds > 1:
                seeds = seed_draws.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=size).astype(float)
            yield times, seeds

    def interval(self, drawn: Floats) -> tuple[float, float]:
        """Return the 95% percentile interval of drawn numbers, expanded for few units; NaN where none is defined."""
        defined = drawn[~np.isnan(drawn)]
        if not len(defined):
            return np.nan, np.nan
        num = self.num_units
        tail = float(ndtr(np.sqrt(num / (num - 1)) * stdtrit(num - 1, (1 - CONFIDENCE) / 2)))
        low, high = np.percentile(defined, [100 * tail, 100 * (1 - tail)])
        return float(low), float(high)

    def flip_p(self, differences: Floats) -> float:
        """Return the two-sided p of differences [N] whose mean is 0 if each unit's sign is as likely one as the other.

        Equal sizes share a binomial draw, so that a distribution of few sizes (right or wrong, whole distances) costs
        little. McNemar's exact test is this one for right or wrong. Reference: Fisher, The Design of Experiments, 1935,
        section 21; Phipson & Smyth, SAGMB 9, 2010 (the p of a draw is never 0).
        """
        sums = np.round(np.asarray(self.by_unit(differences[:, None])).reshape(-1), DECIMALS)
        sizes, counts = np.unique(np.abs(sums[sums != 0.0]), return_counts=True)
        if not len(sizes):
            return 1.0
        generator = np.random.default_rng(self.seed)
        observed = abs(sums.sum())
        as_far = 0
        rows = max(1, AT_A_TIME // len(sizes))
        for start in range(0, FLIPS, rows):
            shape = (min(rows, FLIPS - start), len(sizes))
            flipped = (2.0 * generator.binomial(counts, 0.5, size=shape) - counts) @ sizes
            as_far += int((np.abs(flipped) >= observed - 1e-6).sum())
        return (1 + as_far) / (1 + FLIPS)


@dataclass(frozen=True)
class IntervalEstimate:
    """A number with its 95% interval; NaN where there is none."""

    value: float
    low: float
    high: float

    def content(self) -> dict[str, float | None]:
        """Return the numbers for JSON, None where undefined."""
        return {name: None if np.isnan(value) else value for name, value in vars(self).items()}


def estimates(quantities: Mapping[str, Quantity], resampling: Resampling) -> dict[str, IntervalEstimate]:
    """Return {name: number and interval} of quantities over the same images."""
    drawn = resampling.draws(quantities)
    return {
        name: IntervalEstimate(each.total, *(resampling.interval(drawn[name]) if name in drawn else (np.nan, np.nan)))
        for name, each in quantities.items()
    }
