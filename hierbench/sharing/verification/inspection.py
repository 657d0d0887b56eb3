"""Where a received number becomes trusted: the metrics of each run are computed again from its predictions.

Nothing in the folder is trusted, run or changed. Each run is checked by itself, and then against the others.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hierbench.api.registry import InstalledMethods
from hierbench.config.recipe import image_dataset
from hierbench.config.spec import DatasetSpec
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.leaderboard.row_checks import check_rows, rejected_rows
from hierbench.metrics.metric_table import compute_in_parts, follows_from_ranks
from hierbench.runs.findings import ConsistencyCheck
from hierbench.runs.further_metrics import FURTHER_FILE, published_values
from hierbench.runs.record_reader import read_records
from hierbench.runs.records import Records
from hierbench.runs.run_archive import opened
from hierbench.runs.run_check import RunCheck
from hierbench.runs.run_evidence import Trees, evidence_of_ranks, read_evidence
from hierbench.sharing.published_tree import shipped_tree, tree_beside
from hierbench.sharing.verification.cross_checks import check_copies, check_reranked, check_targets, shipped_trees
from hierbench.sharing.verification.method_checks import check_method
from hierbench.sharing.verification.recomputation import Ranks, Targets, recompute

CLOSE = 1e-9  # relative: sums of floats depend on the number of threads


@dataclass(frozen=True)
class Inspection:
    """The runs of a folder with their states, the findings on each, and those on their rows."""

    records: Records
    runs: list[RunCheck]
    rows: list[ConsistencyCheck]


def inspect(
    root: Path, data_dir: Path, dataset: str | None = None, *, metrics: Collection[str] | None = ()
) -> Inspection:
    """Return the runs of a folder with the findings on each, and those on the rows that they make.

    Args:
        root: the folder.
        data_dir: prepared data, which gives trees and targets where it is that of the runs.
        dataset: only runs of it; None for all, also those that name no dataset.
        metrics: names of the metrics beyond the paper's that are compared where they are kept; None for all.
    """
    records = read_records(root, dataset=dataset, received=True)
    by_id = {record.id: RunCheck.of(record) for record in records}
    checks = _Checks(records, data_dir, metrics)
    for check in by_id.values():
        if check.record.result:
            checks.check(check, by_id)
    runs = list(by_id.values())
    check_targets(runs)
    check_copies(runs)
    rows = check_rows(records, records)
    records = replace(records, by_id={run.id: run.record for run in runs}, rejected_row_ids=rejected_rows(rows))
    return Inspection(records, sorted(runs, key=_place_in_report), rows)


class _Checks:
    """The checks of the runs of one folder, with their common trees, targets and methods."""

    def __init__(self, records: Records, data_dir: Path, metrics: Collection[str] | None) -> None:
        self.records = records
        self.metrics = metrics
        self.methods = InstalledMethods()
        self.place = opened(records.root)
        self.known = Targets(data_dir, self.place)
        self.trees = Trees(data_dir)
        self._beside: dict[DatasetSpec, Hierarchy | None] = {}

    def check(self, check: RunCheck, by_id: Mapping[str, RunCheck]) -> None:
        """Check one finished run; `by_id` has its bases."""
        was_read = not check.record.findings
        tree = self._find_tree(check)
        if tree is not None and check.is_tested and was_read:
            spec = check.record.spec
            bases = [by_id[base] for base in (spec.bases if spec else ()) if base in by_id]
            ranks = recompute(check, tree, self.known, bases)
            _check_further(check, self.records, tree, self.metrics, ranks)
        if check.record.spec is not None:
            check_method(check, self.methods)
            if check.record.spec.bases:
                check_reranked(check, by_id)

    def _find_tree(self, check: RunCheck) -> Hierarchy | None:
        """Return the tree of a run, None if it is not here, with a note; reject another tree of a built-in dataset."""
        # The tree of the data prepared here, which may be a part of the dataset, is accepted as well.
        data = check.dataset
        tree = self.trees.find(data)
        if tree is not None:
            return tree
        digest = shipped_trees().get((image_dataset(data.name), data.distance), data.hierarchy)
        if data.hierarchy != digest:
            recorded = data.hierarchy[:12]
            shipped = digest[:12]
            check.reject(f"its tree {recorded} is not that of {data.name}, whose digest ships: {shipped}")
        if data not in self._beside:
            self._beside[data] = shipped_tree(data) or tree_beside(self.place, data)
        if self._beside[data] is None:
            check.note(f"nothing is computed: {self.trees.missing(data)}")
        return self._beside[data]


def _check_further(
    check: RunCheck, records: Records, tree: Hierarchy, names: Collection[str] | None, ranks: Ranks | None
) -> None:
    """Compute the metrics kept with a run again, `names` or all, and reject the run if one differs."""
    # Compact predictions give only the metrics of `ranks`; others are claimed (`extra_columns.claimed_metrics`).
    if check.rejected or (ranks is None and not check.record.has_predictions):
        return
    kept = published_values(check.record, records)
    check.unchecked = sorted(kept.keys() - names) if names is not None else []
    compared = [name for name in kept if name not in check.unchecked]
    if not check.record.has_predictions:
        compared = [name for name in compared if follows_from_ranks(name)]
    if not compared:
        return
    if check.record.has_predictions or ranks is None:
        parts = read_evidence(check.record, records, tree)
    else:
        parts = iter([evidence_of_ranks(ranks[0], ranks[1], tree)])
    if parts is None:
        return
    for name, value in compute_in_parts(compared, parts).items():
        both_undefined = math.isnan(value) and math.isnan(kept[name])
        if not both_undefined and not math.isclose(value, kept[name], rel_tol=CLOSE, abs_tol=CLOSE):
            check.reject(f"{name} is {kept[name]} in {FURTHER_FILE}, and {value} by its predictions")


def _place_in_report(check: RunCheck) -> tuple[str, str, int, str, str]:
    """Return a key that orders runs by dataset, method, type and seed."""
    spec = check.record.spec
    if spec is None:
        return ("", "", 0, check.record.label, check.id)
    return (f"{spec.dataset.name} {spec.method.name}", spec.type, spec.seed, "", check.id)
