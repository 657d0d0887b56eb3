"""Metrics beyond the paper's that are kept beside a run, against its predictions."""

import math

from hierbench.experiments.verification.records import Record
from hierbench.hierarchy.tree import Hierarchy
from hierbench.metrics.registry import compute_metrics
from hierbench.runs.evidence import evidence_of
from hierbench.runs.further_metrics import FILE, has_further, has_predictions, read_further
from hierbench.runs.store import Store

CLOSE = 1e-9  # relative: sums of floats depend on the number of threads


def check_further(record: Record, store: Store, tree: Hierarchy) -> None:
    """Compute kept metrics again where the predictions are here, and reject the run if one differs.

    Values of other code or of other predictions are not compared: no table reads them.
    """
    if not has_further(record.run) or not has_predictions(record.run) or record.finding.rejected:
        return
    kept = read_further(record.run, store)
    evidence = evidence_of(record.run, store, tree) if kept else None
    if evidence is None:
        return
    for name, value in compute_metrics(list(kept), evidence).items():
        both_undefined = math.isnan(value) and math.isnan(kept[name])
        if not both_undefined and not math.isclose(value, kept[name], rel_tol=CLOSE, abs_tol=CLOSE):
            record.finding.reject(f"{name} is {kept[name]} in {FILE}, and {value} by its predictions")
