"""Metrics beyond the paper's that are kept beside a run, against its predictions."""

import math
from collections.abc import Collection

from hierbench.experiments.verification.records import Record
from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics.registry import compute_metrics
from hierbench.runs.evidence import evidence_of
from hierbench.runs.further_metrics import FILE, has_further, has_predictions, read_further
from hierbench.runs.store import Store

CLOSE = 1e-9  # relative: sums of floats depend on the number of threads


def check_further(record: Record, store: Store, tree: Hierarchy, asked: Collection[str] | None) -> None:
    """Compute kept metrics again where the predictions are here, and reject the run if one differs.

    Values of other code or of other predictions are not compared: no table reads them.

    Args:
        record: of a run whose predictions were read.
        store: where its base is.
        tree: that it is on.
        asked: names of the metrics to compare, None for all; `record.unchecked` gets those that are left.
    """
    if not has_further(record.run) or not has_predictions(record.run) or record.finding.rejected:
        return
    kept = read_further(record.run, store)
    record.unchecked = sorted(kept.keys() - asked) if asked is not None else []
    compared = [name for name in kept if name not in record.unchecked]
    evidence = evidence_of(record.run, store, tree) if compared else None
    if evidence is None:
        return
    for name, value in compute_metrics(compared, evidence).items():
        both_undefined = math.isnan(value) and math.isnan(kept[name])
        if not both_undefined and not math.isclose(value, kept[name], rel_tol=CLOSE, abs_tol=CLOSE):
            record.finding.reject(f"{name} is {kept[name]} in {FILE}, and {value} by its predictions")
