"""Received runs against each other, and against what ships for a dataset without its data: targets, copies, bases."""

import tomllib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from hierbench.config.recipe import images_of, recipe_names, shipped_recipe
from hierbench.config.sections import Expected
from hierbench.leaderboard.row_checks import groups
from hierbench.runs.findings import TARGETS_ALONE, TARGETS_KNOWN, RunFinding
from hierbench.runs.integrity import PREDICTIONS

CHOICES = 200  # ranked places beyond the first that two seeds cannot have alike by chance


def check_targets(findings: Sequence[RunFinding]) -> None:
    """Compare the targets of all runs of one test split with each other and with what is known of that split."""
    for group in groups([finding for finding in findings if finding.is_tested], _split_of):
        _check_targets(group)


def check_copies(findings: Sequence[RunFinding]) -> None:
    """Reject runs whose predictions are those of another seed of their row."""
    tested = [one for one in findings if one.record.spec is not None and one.is_tested]
    for row in groups(tested, lambda finding: finding.record.row):
        for what, key in (
            ("predictions", lambda one: one.record.digest_of(PREDICTIONS)),
            ("ranked classes", _ranking_of),
        ):
            for copies in groups([finding for finding in row if key(finding) is not None], key):
                _check_copies(what, copies)


def _split_of(finding: RunFinding) -> Hashable:
    """Return what decides which examples a run is tested on."""
    how = None if finding.record.spec is None else finding.record.spec.evaluation
    drops = how is not None and how.drop_last
    return finding.dataset.digest, finding.dataset.name, how.drop_order if how is not None and drops else drops


def _check_targets(group: Sequence[RunFinding]) -> None:
    """Compare the targets of all runs of one test split with each other and with what is known of that split."""
    there = [finding for finding in group if finding.targets is not None]
    if not all(finding.facts and finding.facts.compared for finding in there):
        counts = Counter(finding.targets for finding in there)
        (usual, most), *others = counts.most_common()
        tied = bool(others) and others[0][1] == most
        for finding in there:
            if len(counts) > 1 and (tied or finding.targets != usual):
                finding.reject("its targets are not those of the other runs of the same data")
    for finding in there:
        if finding.facts is None or not finding.facts.compared:
            _check_shipped(finding)


def _check_shipped(finding: RunFinding) -> None:
    """Compare the targets of a run that says it is of the whole dataset with the digest that ships for that.

    Where none ships, or it is of a part of the data, nothing outside the folder vouches for them, and a note says so.
    """
    how = None if finding.record.spec is None else finding.record.spec.evaluation
    order = how.drop_order if how is not None and how.drop_last else ""
    shipped, name = shipped_targets(), images_of(finding.dataset.name)
    own = shipped.get((name, order, finding.dataset.digest))
    num, digest = own or shipped.get((name, order, ""), (0, ""))
    expected, data = expected_sizes(finding.dataset.name), finding.record.environment.get("data", {})
    splits = data.get("splits", {})
    if expected is not None and finding.record.spec is not None:
        is_part = splits.get("test") != expected.test
        if is_part and "not the whole dataset" not in str(data.get("remark")):
            finding.reject("environment.json does not say that its test images are not the whole test split")
            return
    if digest and expected is not None:
        if finding.targets == digest:
            finding.note(f"{TARGETS_KNOWN} the test split of {finding.dataset.name}, whose digest ships")
            return
        whole = splits.get("test") == expected.test if finding.record.spec is not None else _num_of(finding) == num
        if whole or own is not None:
            finding.reject("its targets are not those of the dataset's test split, whose digest ships")
            return
    if finding.facts is not None:
        finding.note(TARGETS_ALONE)


def _num_of(finding: RunFinding) -> int:
    return 0 if finding.facts is None else finding.facts.num


def _check_copies(what: str, copies: Sequence[RunFinding]) -> None:
    """Reject runs of one row that have something in common which two seeds do not share by chance."""
    seeds = {finding.record.job.seed for finding in copies}
    for finding in copies if len(seeds) > 1 else ():
        twin = next(seed for seed in sorted(seeds) if seed != finding.record.job.seed)
        finding.reject(f"it has the same {what} as seed {twin}")


def _ranking_of(finding: RunFinding) -> Hashable:
    """Return what tells the ranked classes of two seeds apart, None where they may be alike by chance."""
    facts = finding.facts
    return (facts.num, facts.ranking) if facts is not None and facts.free_places >= CHOICES else None


def check_reranked(finding: RunFinding, by_id: Mapping[str, RunFinding]) -> None:
    """Compare a re-ranked run with its bases."""
    spec = finding.record.spec
    assert spec is not None
    bases = [by_id.get(base) for base in spec.bases]
    used = finding.record.status.get("base_predictions")
    digests = used if isinstance(used, list) else [used]
    if len(digests) != len(bases):
        finding.reject("status.json does not say which predictions it re-ranks")
        return
    for run_id, base, digest in zip(spec.bases, bases, digests, strict=True):
        if base is None:
            finding.note(f"its base {run_id[:12]} is not here")
            continue
        if base.record.spec is None or not _fits(finding, base):
            finding.reject(f"its base {run_id[:12]} is of other data, settings, type or seed")
        if base.record.digest_of(PREDICTIONS) not in (None, digest):
            finding.reject(f"it re-ranks other predictions than those that its base {run_id[:12]} has")


def _fits(finding: RunFinding, base: RunFinding) -> bool:
    """Whether two runs share data, settings, type and seed, and the first base its learning rates."""
    one, other = finding.record.spec, base.record.spec
    assert one is not None and other is not None
    shared = (one.comparison, one.type, one.seed) == (other.comparison, other.type, other.seed)
    return shared and (one.bases[0] != base.id or one.train.lr == other.train.lr)


@lru_cache(maxsize=32)
def expected_sizes(dataset: str) -> Expected | None:
    """Return the sizes of a built-in dataset, None for any other."""
    return shipped_recipe(dataset).expected if dataset in recipe_names() else None


@cache
def shipped_targets() -> dict[tuple[str, str, str], tuple[int, str]]:
    """Return {(dataset, order in which examples are dropped or "", data): (examples, SHA-256 of the targets)}.

    `data` is the digest of prepared data, where the targets are those of one copy of a dataset alone; else "".
    """
    splits = _read("test-splits")["split"]
    return {
        (one["dataset"], one["drop_order"], one.get("data", "")): (one["examples"], one["sha256"]) for one in splits
    }


@cache
def shipped_trees() -> dict[tuple[str, str], str]:
    """Return {(dataset, distance): SHA-256 of its tree}."""
    return {(name, distance): digest for distance, of in _read("trees").items() for name, digest in of.items()}


def _read(name: str) -> dict[str, Any]:
    file = resources.files("hierbench.benchmarks").joinpath(f"targets/{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))
