"""Received runs against each other, and against what ships for a dataset without its data: targets, copies, bases."""

import tomllib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from hierbench.config.recipe import recipe_names, shipped_recipe
from hierbench.config.sections import Expected
from hierbench.records.findings import TARGETS_ALONE, TARGETS_KNOWN
from hierbench.records.inspected import Inspected
from hierbench.records.rows import groups

CHOICES = 200  # ranked places beyond the first that two seeds cannot have alike by chance


def check_targets(records: Sequence[Inspected]) -> None:
    """Compare the targets of all runs of one test split with each other and with what is known of that split."""
    for group in groups([record for record in records if record.is_tested], _split_of):
        _check_targets(group)


def check_copies(records: Sequence[Inspected]) -> None:
    """Reject runs whose predictions are those of another seed of their row."""
    tested = [one for one in records if one.spec is not None and one.is_tested]
    for row in groups(tested, lambda record: record.row):
        for what, key in (("predictions", lambda one: one.predictions_digest), ("ranked classes", _ranking_of)):
            for copies in groups([record for record in row if key(record) is not None], key):
                _check_copies(what, copies)


def _split_of(record: Inspected) -> Hashable:
    """Return what decides which examples a run is tested on."""
    how = None if record.spec is None else record.spec.evaluation
    drops = how is not None and how.drop_last
    return record.dataset.digest, record.dataset.name, how.drop_order if how is not None and drops else drops


def _check_targets(group: Sequence[Inspected]) -> None:
    """Compare the targets of all runs of one test split with each other and with what is known of that split."""
    there = [record for record in group if record.targets is not None]
    if not all(record.facts and record.facts.compared for record in there):
        counts = Counter(record.targets for record in there)
        (usual, most), *others = counts.most_common()
        tied = bool(others) and others[0][1] == most
        for record in there:
            if len(counts) > 1 and (tied or record.targets != usual):
                record.finding.reject("its targets are not those of the other runs of the same data")
    for record in there:
        if record.facts is None or not record.facts.compared:
            _check_shipped(record)


def _check_shipped(record: Inspected) -> None:
    """Compare the targets of a run that says it is of the whole dataset with the digest that ships for that.

    Where none ships, or it is of a part of the data, nothing outside the folder vouches for them, and a note says so.
    """
    how = None if record.spec is None else record.spec.evaluation
    order = how.drop_order if how is not None and how.drop_last else ""
    num, digest = shipped_targets().get((record.dataset.name, order), (0, ""))
    expected, data = expected_sizes(record.dataset.name), record.environment.get("data", {})
    splits = data.get("splits", {})
    if expected is not None and record.spec is not None:
        is_part = splits.get("test") != expected.test
        if is_part and "not the whole dataset" not in str(data.get("remark")):
            record.finding.reject("environment.json does not say that its test images are not the whole test split")
            return
    if digest and expected is not None:
        if record.targets == digest:
            record.finding.note(f"{TARGETS_KNOWN} the test split of {record.dataset.name}, whose digest ships")
            return
        if splits.get("test") == expected.test if record.spec is not None else _num_of(record) == num:
            record.finding.reject("its targets are not those of the dataset's test split, whose digest ships")
            return
    if record.facts is not None:
        record.finding.note(TARGETS_ALONE)


def _num_of(record: Inspected) -> int:
    return 0 if record.facts is None else record.facts.num


def _check_copies(what: str, copies: Sequence[Inspected]) -> None:
    """Reject runs of one row that have something in common which two seeds do not share by chance."""
    seeds = {record.record.job.seed for record in copies}
    for record in copies if len(seeds) > 1 else ():
        twin = next(seed for seed in sorted(seeds) if seed != record.record.job.seed)
        record.finding.reject(f"it has the same {what} as seed {twin}")


def _ranking_of(record: Inspected) -> Hashable:
    """Return what tells the ranked classes of two seeds apart, None where they may be alike by chance."""
    facts = record.facts
    return (facts.num, facts.ranking) if facts is not None and facts.free_places >= CHOICES else None


def check_reranked(record: Inspected, records: Mapping[str, Inspected]) -> None:
    """Compare a re-ranked run with its bases."""
    finding, spec = record.finding, record.spec
    assert spec is not None
    bases = [records.get(base) for base in spec.bases]
    used = record.record.status.get("base_predictions")
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


def _fits(record: Inspected, base: Inspected) -> bool:
    """Whether two runs share data, settings, type and seed, and the first base its learning rates."""
    one, other = record.spec, base.spec
    assert one is not None and other is not None
    shared = (one.comparison, one.type, one.seed) == (other.comparison, other.type, other.seed)
    return shared and (one.bases[0] != base.id or one.train.lr == other.train.lr)


@lru_cache(maxsize=32)
def expected_sizes(dataset: str) -> Expected | None:
    """Return the sizes of a built-in dataset, None for any other."""
    return shipped_recipe(dataset).expected if dataset in recipe_names() else None


@cache
def shipped_targets() -> dict[tuple[str, str], tuple[int, str]]:
    """Return {(dataset, order in which examples are dropped or ""): (examples, SHA-256 of the targets)}."""
    splits = _read("test-splits")["split"]
    return {(one["dataset"], one["drop_order"]): (one["examples"], one["sha256"]) for one in splits}


@cache
def shipped_trees() -> dict[tuple[str, str], str]:
    """Return {(dataset, distance): SHA-256 of its tree}."""
    return {(name, distance): digest for distance, of in _read("trees").items() for name, digest in of.items()}


def _read(name: str) -> dict[str, Any]:
    file = resources.files("hierbench.benchmarks").joinpath(f"targets/{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))
