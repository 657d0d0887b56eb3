"""Received runs against each other, and against the digests that ship for a dataset: targets, copies, bases."""

import tomllib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from hierbench.config.recipe import image_dataset, recipe_names, shipped_recipe
from hierbench.config.sections import Expected
from hierbench.leaderboard.rows import groups
from hierbench.runs.findings import TARGETS_ALONE
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.run_check import RunCheck

CHOICES = 200  # ranked places beyond the first that two seeds cannot have alike by chance


def check_targets(checks: Sequence[RunCheck]) -> None:
    """Compare the targets of all runs of one test split with each other and with the digests that ship for it."""
    for group in groups([check for check in checks if check.is_tested], _split_key):
        _check_targets(group)


def check_copies(checks: Sequence[RunCheck]) -> None:
    """Reject runs that repeat the predictions of another seed of their row.

    The classes nearest to the best one are not compared: two seeds of a linear probe may have the same best classes.
    """
    readable = [check for check in checks if check.record.spec is not None and check.is_tested]
    tested = [check for check in readable if not check.record.job.follows_from_base]
    for row in groups(tested, lambda check: check.record.row):
        for subject, key in (
            ("predictions", lambda check: check.record.recorded_digest(PREDICTIONS)),
            ("ranked classes", _ranking_key),
        ):
            for copies in groups([check for check in row if key(check) is not None], key):
                _check_copies(subject, copies)


def _split_key(check: RunCheck) -> Hashable:
    """Return the key of the examples that a run is tested on."""
    evaluation = None if check.record.spec is None else check.record.spec.evaluation
    drops = evaluation is not None and evaluation.drop_last
    return (
        check.dataset.digest,
        check.dataset.name,
        evaluation.drop_order if evaluation is not None and drops else drops,
    )


def _check_targets(group: Sequence[RunCheck]) -> None:
    """Compare the targets of all runs of one test split with each other and with the digests that ship for it."""
    with_targets = [check for check in group if check.targets is not None]
    if not all(check.facts and check.facts.compared for check in with_targets):
        counts = Counter(check.targets for check in with_targets)
        (usual, most), *others = counts.most_common()
        tied = bool(others) and others[0][1] == most
        for check in with_targets:
            if len(counts) > 1 and (tied or check.targets != usual):
                check.reject("its targets are not those of the other runs of the same data")
    for check in with_targets:
        if check.facts is None or not check.facts.compared:
            _check_shipped(check)


def _check_shipped(check: RunCheck) -> None:
    """Compare a run's targets with the digest that ships; note it if none ships or the run is of a part of the data."""
    evaluation = None if check.record.spec is None else check.record.spec.evaluation
    order = evaluation.drop_order if evaluation is not None and evaluation.drop_last else ""
    shipped = shipped_targets()
    name = image_dataset(check.dataset.name)
    shipped_digest = shipped.get((name, order, check.dataset.digest))
    num, digest = shipped_digest or shipped.get((name, order, ""), (0, ""))
    expected = expected_sizes(check.dataset.name)
    data = check.record.environment.get("data", {})
    splits = data.get("splits", {})
    if expected is not None and check.record.spec is not None:
        is_part = splits.get("test") != expected.test
        if is_part and "not the whole dataset" not in str(data.get("remark")):
            check.reject("environment.json does not say that its test images are not the whole test split")
            return
    if digest and expected is not None:
        if check.targets == digest:
            check.note(
                f"its targets are those of the test split of {check.dataset.name}, whose digest ships", "targets ship"
            )
            return
        is_complete = (
            splits.get("test") == expected.test if check.record.spec is not None else _num_examples(check) == num
        )
        if is_complete or shipped_digest is not None:
            check.reject("its targets are not those of the dataset's test split, whose digest ships")
            return
    if check.facts is not None:
        check.note(TARGETS_ALONE, TARGETS_ALONE.kind)


def _num_examples(check: RunCheck) -> int:
    return 0 if check.facts is None else check.facts.num


def _check_copies(subject: str, copies: Sequence[RunCheck]) -> None:
    """Reject runs of one row that have something in common which two seeds do not share by chance."""
    seeds = {check.record.job.seed for check in copies}
    for check in copies if len(seeds) > 1 else ():
        twin = next(seed for seed in sorted(seeds) if seed != check.record.job.seed)
        check.reject(f"it has the same {subject} as seed {twin}")


def _ranking_key(check: RunCheck) -> Hashable:
    """Return the key that tells the ranked classes of two seeds apart, None where they may be alike by chance."""
    facts = check.facts
    return (facts.num, facts.ranking) if facts is not None and facts.free_places >= CHOICES else None


def check_reranked(check: RunCheck, by_id: Mapping[str, RunCheck]) -> None:
    """Compare a re-ranked run with its bases."""
    spec = check.record.job
    bases = [by_id.get(base) for base in spec.bases]
    used = check.record.status.get("base_predictions")
    digests = used if isinstance(used, list) else [used]
    if len(digests) != len(bases):
        check.reject("status.json does not say which predictions it re-ranks")
        return
    for run_id, base, digest in zip(spec.bases, bases, digests, strict=True):
        if base is None:
            check.note(f"its base {run_id[:12]} is not here")
            continue
        if base.record.spec is None or not _fits(check, base):
            check.reject(f"its base {run_id[:12]} is of other data, settings, type or seed")
        if base.record.recorded_digest(PREDICTIONS) not in (None, digest):
            check.reject(f"it re-ranks other predictions than those that its base {run_id[:12]} has")


def _fits(check: RunCheck, base: RunCheck) -> bool:
    """Whether two runs share data, settings, type and seed, and the first base its learning rates."""
    spec = check.record.job
    other = base.record.job
    shared = (spec.comparison, spec.type, spec.seed) == (other.comparison, other.type, other.seed)
    return shared and (spec.bases[0] != base.id or spec.train.lr == other.train.lr)


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
        (split["dataset"], split["drop_order"], split.get("data", "")): (split["examples"], split["sha256"])
        for split in splits
    }


@cache
def shipped_trees() -> dict[tuple[str, str], str]:
    """Return {(dataset, distance): SHA-256 of its tree}."""
    return {
        (name, distance): digest for distance, digests in _read("trees").items() for name, digest in digests.items()
    }


def _read(name: str) -> dict[str, Any]:
    file = resources.files("hierbench.benchmarks").joinpath(f"targets/{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))
