"""Part 3 of a report: where mistakes go.

Shapes: N images of all seeds, K classes, L levels.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hierbench.hierarchy.class_names import target_indices
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.studies.report.resampling import Floats
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_text

COSTLIEST = 20  # confusions that are shown
WORST = 10  # branches that are shown
MOST_NODES = 40  # of a level of the icicle
ICICLE_LEVELS = 3  # of the icicle
FREQUENCIES = {"few": (0, 19), "medium": (20, 100), "many": (101, None)}  # Liu et al., CVPR 2019
ROOT_IN_WORDS = "the root"


@dataclass(frozen=True)
class Confusion:
    """Images of one class that are called another: how many, their distance, and the node where the paths part."""

    target: str
    predicted: str
    n: int
    distance: int
    node: str


@dataclass(frozen=True)
class Branch:
    """A node and its images: how many, accuracy in per cent, and the distances of its mistakes together."""

    name: str
    level: int
    parent: int  # its place in the level above, among the levels that are shown; -1 without
    n: int
    accuracy: float
    severity: float
    distance: int


@dataclass(frozen=True, eq=False)
class Mistakes:
    """The best classes of all seeds, counted.

    Attributes:
        targets: [N].
        top: [N].
        distance: [N].
        tree: over the K classes.
        train_counts: [K] training images, None where unknown.
    """

    targets: IntArray
    top: IntArray
    distance: IntArray
    tree: Hierarchy
    train_counts: IntArray | None = None

    @staticmethod
    def of(targets: IntArray, tops: Sequence[IntArray], tree: Hierarchy, counts: IntArray | None) -> "Mistakes":
        """Return the mistakes of several seeds."""
        true = np.tile(targets, len(tops))
        top = np.concatenate(tops)
        return Mistakes(true, top, tree.distances_between(true, top), tree, counts)

    def confusions(self, most: int = COSTLIEST) -> list[Confusion]:
        """Return the costliest confusions, by number times distance."""
        tree = self.tree
        wrong = self.distance > 0
        pairs, n = np.unique(self.targets[wrong] * tree.num_classes + self.top[wrong], return_counts=True)
        true, top = np.divmod(pairs, tree.num_classes)
        distance = tree.distances_between(true, top)
        order = np.lexsort((pairs, -n, -n * distance))[:most]
        return [
            Confusion(
                tree.classes[true[i]], tree.classes[top[i]], int(n[i]), int(distance[i]), self._parting(true[i], top[i])
            )
            for i in order
        ]

    def _parting(self, target: int, predicted: int) -> str:
        """Return the name of the lowest common ancestor of two classes."""
        paths = self.tree.level_targets[[target, predicted]]
        shared = int((paths[0] == paths[1]).sum())
        return self.tree.level_names[shared - 1][paths[0, shared - 1]] if shared else ROOT_IN_WORDS

    def shown_levels(self) -> list[int]:
        """Return at most three levels for a picture: the finest with few nodes, each finer than the one before."""
        sizes = self.tree.level_sizes
        levels = [level for level in range(len(sizes)) if sizes[level] <= MOST_NODES and sizes[level] > 1]
        distinct = [
            level for level in levels if level == 0 or sizes[level] > sizes[level - 1] or level - 1 not in levels
        ]
        return distinct[-ICICLE_LEVELS:] or [0]

    def icicle(self) -> list[list[Branch]]:
        """Return the nodes with images of the shown levels, below each other."""
        columns = list[list[Branch]]()
        place = dict[int, int]()
        levels = self.shown_levels()
        for number, level in enumerate(levels):
            nodes = self._branches(level)
            above = levels[number - 1] if number else None
            rows = [(node, -1 if above is None else place[self._ancestor(level, node, above)]) for node in nodes]
            rows.sort(key=lambda row: (row[1], row[0]))
            place = {node: position for position, (node, _) in enumerate(rows)}
            columns.append([Branch(parent=parent, **nodes[node]) for node, parent in rows])
        return columns

    def _ancestor(self, level: int, node: int, above: int) -> int:
        targets = self.tree.level_targets
        return int(targets[np.flatnonzero(targets[:, level] == node)[0], above])

    def _branches(self, level: int) -> dict[int, dict[str, Any]]:
        """Return {node: what a `Branch` has of it} of the nodes of a level that have images."""
        nodes = self.tree.level_targets[self.targets, level]
        size = self.tree.level_sizes[level]
        n = np.bincount(nodes, minlength=size)
        wrong = np.bincount(nodes, self.distance > 0, size)
        distance = np.bincount(nodes, self.distance, size)
        names = self.tree.level_names[level]
        return {
            node: {
                "name": names[node],
                "level": level + 1,
                "n": int(n[node]),
                "accuracy": 100.0 * (1.0 - wrong[node] / n[node]),
                "severity": distance[node] / wrong[node] if wrong[node] else float("nan"),
                "distance": int(distance[node]),
            }
            for node in np.flatnonzero(n).tolist()
        }

    def worst_branches(self, most: int = WORST) -> list[Branch]:
        """Return the inner nodes of the shown levels whose mistakes have the largest sum of distances."""
        nodes = [
            Branch(parent=-1, **branch)
            for level in self.shown_levels()
            if level < self.tree.num_levels - 1
            for branch in self._branches(level).values()
        ]
        return sorted((node for node in nodes if node.distance), key=lambda node: -node.distance)[:most]

    def by_frequency(self) -> list[dict[str, Any]]:
        """Return accuracy and severity of the classes with few, medium and many training images; [] if unknown."""
        if self.train_counts is None:
            return []
        records = list[dict[str, Any]]()
        for name, (least, most) in FREQUENCIES.items():
            member = (self.train_counts >= least) & (self.train_counts <= (most or np.iinfo(np.int64).max))
            rows = member[self.targets]
            wrong = self.distance[rows] > 0
            records.append(
                {
                    "classes": name,
                    "least": least,
                    "most": most,
                    "num_classes": int(member.sum()),
                    "n": int(rows.sum()),
                    "accuracy": 100.0 * float(1.0 - wrong.mean()) if len(wrong) else None,
                    "severity": float(self.distance[rows].sum() / wrong.sum()) if wrong.any() else None,
                }
            )
        return records

    def classes(self) -> list[dict[str, Any]]:
        """Return a record for each class that has images."""
        tree = self.tree
        size = tree.num_classes
        n = np.bincount(self.targets, minlength=size)
        right = np.bincount(self.targets, self.distance == 0, size)
        distance = np.bincount(self.targets, self.distance, size)
        wrong = self.distance > 0
        pairs, counts = np.unique(self.targets[wrong] * size + self.top[wrong], return_counts=True)
        true, top = np.divmod(pairs, size)
        often = np.full(size, -1)
        order = np.lexsort((-top, counts))  # the last one written is the commonest, of these the lower index
        often[true[order]] = top[order]
        records = [
            {
                "class": tree.classes[c],
                "images": int(n[c]),
                "correct": int(right[c]),
                "mean_distance": round(float(distance[c] / n[c]), 4),
                "most_often_called": tree.classes[often[c]] if often[c] >= 0 else "",
            }
            for c in np.flatnonzero(n).tolist()
        ]
        if self.train_counts is not None:
            for record, c in zip(records, np.flatnonzero(n).tolist(), strict=True):
                record["training_images"] = int(self.train_counts[c])
        return records

    def classes_csv(self) -> str:
        """Return `classes` as CSV."""
        records = self.classes()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return text.getvalue()


def read_train_counts(source: Path | Mapping[str, int] | Floats | None, tree: Hierarchy) -> IntArray | None:
    """Return [K] training images of {class: number}, of an array [K], or of a table `class,number` or JSON of it.

    Raises:
        UserError: it cannot be read, a class is unknown, or a number is none.
    """
    if source is None:
        return None
    if isinstance(source, Path):
        try:
            text = read_text(source, "utf-8-sig", follow=True)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"train counts {source}: {reason}") from None
        source = _counts_of(text, source)
    if not isinstance(source, Mapping):
        numbers = np.asarray(source)
        if numbers.shape != (tree.num_classes,) or numbers.dtype.kind not in "iu":
            raise UserError(f"train counts must be whole numbers [{tree.num_classes}], or {{class: number}}")
        return numbers.astype(np.int64)
    counts = np.zeros(tree.num_classes, dtype=np.int64)
    classes = target_indices(np.array(list(source)), tree, "train counts", "tree")
    for place, (name, number) in zip(classes, source.items(), strict=True):
        if place < 0 or not (isinstance(number, int) and number >= 0):
            raise UserError(f"train counts: {name!r} is no class with a number of images, {number!r}")
        counts[place] = number
    return counts


def _counts_of(text: str, path: Path) -> dict[str, int]:
    import json

    if path.suffix.lower() == ".json":
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise UserError(f"train counts {path.name}: JSON must be {{class: number}}")
        return content
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if rows and len(rows[0]) == 2 and not rows[0][1].strip().isdecimal():
        rows = rows[1:]  # a header
    odd = next((row for row in rows if len(row) != 2 or not row[1].strip().isdecimal()), None)
    if odd is not None or not rows:
        raise UserError(f"train counts {path.name}: lines are CLASS,NUMBER, got {','.join(odd or [])[:80]!r}")
    return {name.strip(): int(number) for name, number in rows}


def as_records(parts: Sequence[Confusion | Branch]) -> list[dict[str, Any]]:
    """Return dataclasses as records."""
    return [asdict(part) for part in parts]
