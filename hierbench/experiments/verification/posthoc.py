"""Re-ranked runs from their bases: the same examples, seed and settings, and the same scores when re-ranked again."""

from collections.abc import Mapping

import numpy as np
import torch

from hierbench.api.method import PostHoc
from hierbench.experiments.verification.findings import NOT_AGAIN
from hierbench.experiments.verification.methods import Methods
from hierbench.experiments.verification.predictions import Loader
from hierbench.experiments.verification.records import WHAT_FAILS, Record
from hierbench.hierarchy.tree import Hierarchy
from hierbench.runs.further_metrics import has_predictions

RELATIVE, ABSOLUTE = 1e-8, 1e-12  # of scores in float64: a GPU adds in another order
CPU = torch.device("cpu")


def check_reranked(
    record: Record, records: Mapping[str, Record], tree: Hierarchy | None, loader: Loader, methods: Methods
) -> None:
    """Compare a re-ranked run with its bases, and re-rank their predictions again where they are here."""
    finding, spec = record.finding, record.spec
    assert spec is not None
    bases = [records.get(base) for base in spec.bases]
    used = record.status.get("base_predictions")
    digests = used if isinstance(used, list) else [used]
    if len(digests) != len(bases):
        finding.reject("status.json does not say which predictions it re-ranks")
        return
    for run_id, base, digest in zip(spec.bases, bases, digests, strict=True):
        if base is None:
            finding.note(f"its base {run_id[:12]} is not here")
            continue
        if base.spec is None or not _fits(record, base):
            finding.reject(f"its base {run_id[:12]} is of other data, settings, type or seed")
        if base.predictions_digest is not None and digest != base.predictions_digest:
            finding.reject(f"it re-ranks other predictions than those that its base {run_id[:12]} has")
    there = [base for base in bases if base is not None and has_predictions(base.run)]
    if finding.rejected or None in bases or tree is None:
        return
    if len(there) < len(bases) or not has_predictions(record.run):
        if record.facts is not None:  # its metrics follow from its ranks, and these from nothing
            which = "its base has" if len(there) < len(bases) else "it has"
            finding.note(f"{NOT_AGAIN}: {which} no scores here")
        return
    if broken := [base for base in there if not base.is_intact]:
        finding.note(f"{NOT_AGAIN}: the files of its base {broken[0].run.folder.name[:12]} were changed")
        return
    _rerank(record, there, tree, loader, methods)


def _fits(record: Record, base: Record) -> bool:
    """Whether two runs share data, settings, type and seed, and the first base its learning rates."""
    one, other = record.spec, base.spec
    assert one is not None and other is not None
    shared = (one.comparison, one.type, one.seed) == (other.comparison, other.type, other.seed)
    return shared and (one.bases[0] != base.run.folder.name or one.train.lr == other.train.lr)


def _rerank(record: Record, bases: list[Record], tree: Hierarchy, loader: Loader, methods: Methods) -> None:
    finding, spec = record.finding, record.spec
    assert spec is not None
    found = methods.that_ran(spec)
    if found is None or not issubclass(found.cls, PostHoc):
        finding.note(f"{NOT_AGAIN}: the code that ran is not installed")
        return
    if found.cls.needs_validation:
        finding.note(f"{NOT_AGAIN}: it was fitted to validation scores, which are not stored")
        return
    try:
        stored, targets = loader.load(record.run, tree)
        scores = [loader.load(base.run, tree) for base in bases]
        if any(not np.array_equal(of_base, targets) for _, of_base in scores):
            finding.reject("its base predicts other examples")
            return
        from hierbench.training.posthoc import rescored_chunks  # with all that trains, half a second

        posthoc = found.cls(tree, found.params(spec.method.params))
        each = [torch.from_numpy(one) for one, _ in scores]
        for rows, chunk, _ in rescored_chunks(posthoc, each, torch.from_numpy(targets), CPU):
            given = torch.from_numpy(stored[rows]).to(chunk.dtype)
            if not torch.equal(given, chunk) and not torch.allclose(given, chunk, rtol=RELATIVE, atol=ABSOLUTE):
                finding.reject("re-ranking the predictions of its base again gives other scores")
                return
    except WHAT_FAILS as error:
        finding.note(f"{NOT_AGAIN}: {error}")
