"""Part 5 of a report: another model on the same images, and whether it is better.

Shapes: S seeds, N images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.leaderboard.paired import holm
from hierbench.studies.report.mistakes import MOST_NODES
from hierbench.studies.report.resampling import Quantity, Resampling
from hierbench.studies.report.scored_images import ScoredImages

CHANGED = 10  # classes and branches that are shown
TEST_SIZE = 0.05


@dataclass(frozen=True)
class MetricChange:
    """The other model's number minus this one's, over the same images; p is None where there is no test.

    `better` says which numbers are better; `corrected` is p after Holm over all that is tested.
    """

    metric: str
    value: float
    low: float
    high: float
    p: float | None
    corrected: float | None
    better: str
    first: float
    second: float

    @property
    def verdict(self) -> str:
        """One of "better", "worse" and "open": by the corrected test, else by the interval."""
        is_decided = self.low > 0 or self.high < 0 if self.corrected is None else self.corrected < TEST_SIZE
        if not is_decided or not self.better or np.isnan(self.value):
            return "open"
        return "better" if (self.value > 0) == (self.better == "higher") else "worse"


def changes(
    first: Mapping[str, Quantity], second: Mapping[str, Quantity], resampling: Resampling
) -> list[MetricChange]:
    """Return the difference of every number that both have, second minus first.

    Intervals come from the same draws of images (and seeds) for both. Means over images are tested by flipping the
    signs of the differences of images (means over seeds), or of groups.
    """
    names = [name for name in first if name in second]
    drawn = [resampling.draws({name: side[name] for name in names}) for side in (first, second)]
    differences = list[MetricChange]()
    for name in names:
        values = [side[name].total for side in (first, second)]
        gap = values[1] - values[0]
        low = high = np.nan
        if name in drawn[0]:
            low, high = resampling.interval(drawn[1][name] - drawn[0][name])
        p = None
        if first[name].tested:
            means = [np.mean([columns[:, 0] for columns in side[name].columns], axis=0) for side in (first, second)]
            p = resampling.flip_p(means[1] - means[0])
        differences.append(MetricChange(name, gap, low, high, p, None, first[name].better, *values))
    corrected = iter(holm([change.p for change in differences if change.p is not None]))
    return [change if change.p is None else replace(change, corrected=next(corrected)) for change in differences]


@dataclass(frozen=True)
class FourFields:
    """How many images, of all pairs of seeds, both, one or none gets right; of the last, whose mistake is nearer."""

    both: int
    only_first: int
    only_second: int
    second_nearer: int
    equal: int
    second_farther: int


def four_fields(first: Sequence[ScoredImages], second: Sequence[ScoredImages], tree: Hierarchy) -> FourFields:
    """Return the table of the pairs of seeds, in their order."""
    counts = np.zeros(6, dtype=np.int64)
    for pair in zip(first, second, strict=False):
        a, b = (tree.distances_between(images.targets, images.top) for images in pair)
        wrong = (a > 0) & (b > 0)
        fields = (
            (a == 0) & (b == 0),
            (a == 0) & (b > 0),
            (a > 0) & (b == 0),
            wrong & (b < a),
            wrong & (b == a),
            wrong & (b > a),
        )
        counts += [int(field.sum()) for field in fields]
    return FourFields(*map(int, counts))


@dataclass(frozen=True)
class Moved:
    """A class or branch: its images, and what changed, second minus first: accuracy in points, mean distance."""

    name: str
    kind: str  # "class" or "branch"
    n: int
    accuracy: float
    distance: float


def moved(first: Sequence[ScoredImages], second: Sequence[ScoredImages], tree: Hierarchy) -> list[Moved]:
    """Return the classes and the branches whose sums of distances changed most."""
    targets = first[0].targets
    sides = [[tree.distances_between(targets, each.top) for each in side] for side in (first, second)]
    distance, right = (
        [np.mean(each, axis=0, dtype=np.float64) for each in values]
        for values in (sides, [[d == 0 for d in side] for side in sides])
    )
    nodes_moved = list[Moved]()
    level = max((i for i, size in enumerate(tree.level_sizes[:-1]) if size <= MOST_NODES), default=None)
    for kind, at in (("class", tree.num_levels - 1), ("branch", level)):
        if at is None:
            continue
        nodes = tree.level_targets[targets, at]
        size = tree.level_sizes[at]
        n = np.bincount(nodes, minlength=size)
        gaps = [np.bincount(nodes, pair[1] - pair[0], size) for pair in (distance, right)]
        order = np.lexsort((np.arange(size), -np.abs(gaps[0])))[:CHANGED]
        nodes_moved += [
            Moved(tree.level_names[at][i], kind, int(n[i]), float(100 * gaps[1][i] / n[i]), float(gaps[0][i] / n[i]))
            for i in order.tolist()
            if n[i] and gaps[0][i]
        ]
    return nodes_moved


def change_records(differences: Sequence[MetricChange]) -> list[dict[str, object]]:
    """Return changes for JSON, None where undefined."""
    keys = ("metric", "value", "low", "high", "p", "corrected")
    return [
        {
            key: None if isinstance(value, float) and np.isnan(value) else value
            for key, value in asdict(each).items()
            if key in keys
        }
        | {"verdict": each.verdict}
        for each in differences
    ]
