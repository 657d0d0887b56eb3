"""What a metric is; `hierbench.metrics.metric_table` has those of the project.

Shapes: N examples, S numbers that each example adds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hierbench.hierarchy.label_tree import Hierarchy

if TYPE_CHECKING:
    from torch import Tensor

    from hierbench.metrics.metric_inputs import Evidence


@dataclass(frozen=True)
class Metric:
    """A metric: what tables, functions, torchmetrics classes and the documentation say of it, and how it is computed.

    Attributes:
        name: as given to `--metrics`; of a family with its parameter, "hierdist@20".
        title: head of its column.
        better: which values are better.
        unit: "%", "edges", "bits" or "" for a number between 0 and 1.
        formula: in one line. N examples, target y, ranked classes c_1, c_2, ...; A(n): the nodes from below the root to
            n; D: hierarchical distance; LCA: lowest common ancestor; p: probability; [..]: 1 if true, else 0.
        source: citation.
        needs: (evidence, parameter) -> the arrays that it needs, None for one that the method does not have; the
            parameter is the k or level of a family, else 0. Of nodes: not called.
        contributions: (*needs, targets, tree) -> [N, S], what each example adds; of nodes (nodes, targets, tree).
        value: (totals, parameter) -> the metric, in per cent where that is the unit, of the number of examples and the
            summed contributions, [1 + S] float64; by default the mean of the first.
        of: "classes", or "nodes" of a metric of answers, whose targets are nodes, too.
        size: tree -> S.
        dtype: of the contributions.
        summed: False where the value is of the contributions of all examples instead, [N, S].
        ranked: whether it follows from the best-ranked classes alone, as compact predictions keep them.
    """

    name: str
    title: str
    better: Literal["higher", "lower"]
    unit: Literal["%", "edges", "bits", ""]
    formula: str
    source: str
    needs: "Callable[[Evidence, int], tuple[Any, ...]]"
    contributions: "Callable[..., Tensor]"
    value: "Callable[[Tensor, int], Any] | None" = None
    of: Literal["classes", "nodes"] = "classes"
    size: Callable[[Hierarchy], int] = lambda _: 1
    dtype: Literal["int64", "float64"] = "float64"
    summed: bool = True
    ranked: bool = False

    def compute(self, evidence: "Evidence") -> float:
        """Return the value, NaN where it is undefined; several at once are cheaper by `compute_metrics`."""
        targets = evidence.known_targets()
        needs = self.needs(evidence, self.parameter) if self.exists_on(evidence.hierarchy) else (None,)
        return self.value_of([] if needs[0] is None else [self.count(needs, targets, evidence.hierarchy)])

    @property
    def scale(self) -> float:
        """What a fraction is multiplied by in tables, records and `evaluate`: 100 for per cent."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def parameter(self) -> int:
        """Its k or level, 0 for a metric without."""
        return int(self.name.partition("@")[2] or 0)

    def exists_on(self, hierarchy: Hierarchy) -> bool:
        """Whether a tree has its level, or as many classes as its k."""
        return self.parameter <= (hierarchy.num_levels if self.name.startswith("level_") else hierarchy.num_classes)

    def compute_from(self, needs: tuple[Any, ...], targets: "Tensor", hierarchy: Hierarchy) -> float:
        """Return the metric from its inputs and known targets [N]."""
        return self.value_of([self.count(needs, targets, hierarchy)])

    def count(self, needs: tuple[Any, ...], targets: "Tensor", hierarchy: Hierarchy) -> "Tensor":
        """Return what a part of the examples adds, from its inputs and known targets [N]."""
        counts = self.contributions(*needs, targets, hierarchy)
        return sum_counts(counts).cpu().double() if self.summed else counts

    def value_of(self, counts: Sequence["Tensor"]) -> float:
        """Return the metric from the contributions of all parts, NaN where there are none."""
        if not counts:
            return float("nan")
        return float(self.value_of_total(sum(counts[1:], counts[0]) if self.summed else join_counts(counts)))

    def value_of_total(self, total: "Tensor") -> Any:
        """Return the metric from the sums [1 + S] of all examples, or from their contributions [N, S]."""
        return self.scale * total[1] / total[0] if self.value is None else self.value(total, self.parameter)


def sum_counts(counts: "Tensor") -> "Tensor":
    """Return the number of examples and the sums of their counts [N, S], [1 + S]."""
    import torch

    sums = counts.sum(dim=0)  # of truth values, numbers
    return torch.cat([sums.new_tensor([len(counts)]), sums])


def join_counts(counts: Sequence["Tensor"]) -> "Tensor":
    """Return the counts [n, S] of parts as those of all examples [N, S]."""
    import torch

    return torch.cat(list(counts))
