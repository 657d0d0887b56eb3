"""The computation of each metric of the registry; families are marked by "@" and take their parameter."""

from collections.abc import Callable

from hierbench.metrics.evidence import Evidence
from hierbench.metrics.sums import evaluate


def _paper(key: str) -> Callable[[Evidence, int], float]:
    return lambda evidence, k: evaluate(evidence.scores, evidence.targets, evidence.hierarchy, (1,))[key]


COMPUTATIONS: dict[str, Callable[[Evidence, int], float]] = {
    "top1": _paper("top1"),
    "mistake_severity": _paper("mistake_severity"),
}
