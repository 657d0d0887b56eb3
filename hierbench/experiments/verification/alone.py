"""One run checked by itself, and against its bases: all of a verification that computes."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from hierbench.config.spec import DatasetSpec
from hierbench.data.prepared import variant_name
from hierbench.experiments.verification.further import check_further
from hierbench.experiments.verification.methods import Methods, check_method
from hierbench.experiments.verification.posthoc import check_reranked
from hierbench.experiments.verification.predictions import Loader, Targets, recompute
from hierbench.experiments.verification.records import WHAT_FAILS, Record
from hierbench.experiments.verification.targets import shipped_trees
from hierbench.hierarchy.tree import Hierarchy
from hierbench.runs.compact import TARGETS
from hierbench.runs.evidence import Trees
from hierbench.runs.published_tree import FILE as TREE
from hierbench.runs.published_tree import shipped_tree, tree_beside
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError, one_line_of


class Checks:
    """The checks of the runs of one folder, with what they share: trees, targets, methods, the last predictions.

    Args:
        store: of the folder.
        data_dir: prepared data.
        metrics: names of the metrics beyond the paper's that are compared where they are kept; None for all.
    """

    def __init__(self, store: Store, data_dir: Path, metrics: Collection[str] | None = None) -> None:
        self.store, self.metrics = store, metrics
        self.loader, self.methods = Loader(), Methods()
        self.known, self.trees = Targets(data_dir, store.root), Trees(data_dir)
        self._beside: dict[DatasetSpec, Hierarchy | None] = {}

    def check(self, record: Record, records: Mapping[str, Record]) -> None:
        """Check one finished run; `records` has its bases by id, which are checked before it."""
        try:
            self._check(record, records)
        except WHAT_FAILS as error:
            record.finding.reject(f"its record is malformed: {one_line_of(error)}")

    def sources_of(self, record: Record) -> Iterator[Path]:
        """Yield the files and folders, beside the run's own, that what is found of it depends on."""
        yield from (self.store.root / TARGETS, self.store.root / TREE)
        if record.spec is not None or record.scored is not None:
            folder = self.known.data_dir / "prepared" / variant_name(record.dataset.name, record.dataset.jpeg_quality)
            yield from (folder / "meta.json", folder / "test-labels.npy")
        if record.spec is not None:
            yield from (self.store.root / base for base in record.spec.bases if "/" not in base)
            found = self.methods.installed(record.spec.method.name)
            if found is not None and found.source is not None:
                yield found.source

    def _check(self, record: Record, records: Mapping[str, Record]) -> None:
        tree = self._tree_of(record)
        if tree is not None and record.is_tested and record.is_intact:
            recompute(record, tree, self.loader, self.known)
            check_further(record, self.store, tree, self.metrics)
        if record.spec is not None:
            check_method(record, tree, self.methods)
            if record.spec.bases:
                check_reranked(record, records, tree, self.loader, self.methods)

    def _tree_of(self, record: Record) -> Hierarchy | None:
        """Return the tree that a run is on, None with a note where it is not here.

        A built-in dataset has one tree. Another is that of the data prepared here, which may be a part, or is rejected.
        """
        data = record.dataset
        try:
            return self.trees.of(record.run)
        except UserError as error:
            known = shipped_trees().get((data.name, data.distance), data.hierarchy)
            if data.hierarchy != known:
                given, own = data.hierarchy[:12], known[:12]
                record.finding.reject(f"its tree {given} is not that of {data.name}, whose digest ships: {own}")
            if data not in self._beside:
                self._beside[data] = shipped_tree(data) or tree_beside(self.store.root, data)
            if self._beside[data] is None:
                record.finding.note(f"nothing is computed: {error}")
            return self._beside[data]
