"""Runs against each other: targets, copies, seeds, environments and tuning budgets."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any

from hierbench.experiments.verification.findings import NOT_FINISHED, TARGETS_ALONE, TARGETS_KNOWN, Finding
from hierbench.experiments.verification.records import Record
from hierbench.experiments.verification.targets import expected_sizes, shipped_targets
from hierbench.runs.known import comparison_of_row
from hierbench.utils.files import read_json_object

CHOICES = 200  # ranked places beyond the first that two seeds cannot have alike by chance
MISTAKES = 20  # mistakes that two seeds cannot have alike by chance
SMALL = 100  # examples below which equal metrics of two seeds are no surprise
MACHINE = ("device", "devices", "torch", "hierbench", "python")
PROCESSOR = "processor"  # in environment.json, but for earlier records
OF_ONE_RUN = ("time", "data", "threads")  # in environment.json, besides the versions and the machine


def check_together(records: Sequence[Record]) -> list[Finding]:
    """Compare runs with each other, and return the findings of the rows that they make.

    Runs that are unfinished or rejected for files of their own still count as seeds of their rows.
    """
    tested = [record for record in records if record.is_tested]
    for group in _groups(tested, lambda record: _split_of(record)):
        _check_targets(group)
    rows = _groups([r for r in records if r.spec is not None and r.spec.split == "test"], lambda r: r.row)
    for row in rows:
        _check_copies_in_row(row)
    for group in _groups([record for record in tested if record.trains], lambda record: record.dataset):
        _check_copies_between_rows(group)
    findings = [_check_row(row) for row in rows]
    for table in _groups(list(zip(rows, findings, strict=True)), lambda one: _table_of(one[0][0])):
        _check_table([row for row, _ in table], [finding for _, finding in table])
    return findings


def _groups(items: Iterable[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    found: dict[Hashable, list[Any]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def _table_of(record: Record) -> Hashable:
    """Return what the rows of a table share; runs of an ablation alone have a table of their own."""
    assert record.spec is not None
    return comparison_of_row(record.row), (record.run.folder / "ablation.json").exists()


def _split_of(record: Record) -> Hashable:
    """Return what decides which examples a run is tested on."""
    how = None if record.spec is None else record.spec.evaluation
    drops = how is not None and how.drop_last
    return record.dataset.digest, record.dataset.name, how.drop_order if how is not None and drops else drops


def _check_targets(group: Sequence[Record]) -> None:
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


def _check_shipped(record: Record) -> None:
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


def _num_of(record: Record) -> int:
    return 0 if record.facts is None else record.facts.num


def _check_copies_in_row(row: Sequence[Record]) -> None:
    """Reject runs of one row whose seeds have the same predictions or, without predictions, the same results."""
    said = set[int]()
    for what, key, surprises in ALIKE:
        for copies in _groups([record for record in row if record.is_tested and key(record)], key):
            if len(set(map(_seed, copies))) < 2:
                continue
            for record in copies:
                if id(record) in said:
                    continue
                said.add(id(record))
                twin = next(other for other in copies if _seed(other) != _seed(record))
                if surprises(record):
                    record.finding.reject(f"it has the same {what} as seed {_seed(twin)}")
                else:
                    record.finding.note(f"the same {what} as seed {_seed(twin)}")


def _check_copies_between_rows(group: Sequence[Record]) -> None:
    """Reject trained runs of different methods, types or seeds that have the same predictions."""
    for what, key, surprises in ALIKE[:2]:
        for copies in _groups([record for record in group if key(record)], key):
            for record in copies if len(copies) > 1 else ():
                others = (other for other in copies if other.row != record.row)
                if (twin := next(others, None)) is None or not surprises(record):
                    continue
                line = f"the same {what} as {twin.finding.label} ({twin.run.folder.name[:12]})"
                if _name_of(twin) == _name_of(record):  # other settings or code, which may change nothing
                    record.finding.note(line)
                else:
                    record.finding.reject(f"it has {line}")


def _seed(record: Record) -> int:
    assert record.spec is not None
    return record.spec.seed


def _name_of(record: Record) -> tuple[str, str, int]:
    assert record.spec is not None
    return record.spec.method.name, record.spec.type, record.spec.seed


def _results_of(record: Record) -> str:
    return repr([record.metrics.get(key) for key in ("test", "mistakes_by_distance")])


def _claims_many(record: Record) -> bool:
    """Whether a run has no predictions here, and too many examples for two seeds to have equal results."""
    num = record.environment.get("data", {}).get("splits", {}).get("test")
    return record.facts is None and isinstance(num, int) and num >= SMALL


# What two runs may have alike: its name, what it is compared by, and whether a run cannot have it by chance.
ALIKE: tuple[tuple[str, Callable[[Record], Hashable], Callable[[Record], bool]], ...] = (
    ("predictions", lambda record: record.predictions_digest, lambda record: True),
    (
        "ranked classes",
        lambda record: record.facts and (record.facts.num, record.facts.ranking),
        lambda record: record.facts is not None and record.facts.free_places >= CHOICES,
    ),
    (
        "first classes",
        lambda record: record.facts and (record.facts.num, record.facts.top),
        lambda record: record.facts is not None and record.facts.num_mistakes >= MISTAKES,
    ),
    ("results", _results_of, _claims_many),
)


def _check_row(row: Sequence[Record]) -> Finding:
    """Return the finding of one row: whether its seeds are complete, and where they were run."""
    spec = row[0].spec
    assert spec is not None
    label = f"{spec.dataset.name} {spec.method.name} {spec.type}"
    finding = Finding(label, runs=[record.run.folder.name for record in row])
    seeds = sorted({_seed(record) for record in row})
    missing = sorted(set(range(seeds[-1] + 1)) - set(seeds))
    if missing:
        finding.reject(seeds_missing(missing, seeds[-1] + 1))
    for record in row:
        if record.finding.verdict == "unfinished":
            finding.note(f"seed {_seed(record)} {NOT_FINISHED}")
    done = [record for record in row if environment_of(record)]
    left = _not_in_all(done)
    environments = _by_environment(done, lambda record: repr(environment_of(record, left)))
    for places in _groups(done, lambda record: environments[id(record.environment)])[1:]:
        first, other = (environment_of(record, left) for record in (done[0], places[0]))
        differ = [f"{name} {value}" for name, value in other.items() if first.get(name) != value]
        shown = ", ".join(str(_seed(record)) for record in places)
        finding.note(f"several environments: seed {shown} with {', '.join(differ) or 'fewer packages'}")
    budgets = {_budget(record) or "none" for record in done}
    if len(budgets) > 1:
        finding.note(f"its runs have several tuning budgets: {', '.join(sorted(budgets))}")
    return finding


def seeds_missing(missing: Sequence[int], num: int) -> str:
    """Return the line that names missing seeds."""
    names = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
    return (
        f"seed{'s' if len(missing) > 1 else ''} {names} of 0..{num - 1} {'are' if len(missing) > 1 else 'is'} missing"
    )


def environment_of(record: Record, left: Collection[str] = ()) -> dict[str, Any]:
    """Return the software and hardware that a run's environment.json names, but for the keys in `left`."""
    named = sorted(record.environment.items())
    return {name: value for name, value in named if name not in OF_ONE_RUN and name not in left}


def same_environment(one: Record, other: Record) -> bool:
    """Whether two runs name the same software and hardware, the processor where both name one."""
    left = _not_in_all([one, other])
    return environment_of(one, left) == environment_of(other, left)


def _by_environment(records: Iterable[Record], text_of: Callable[[Record], str]) -> dict[int, str]:
    """Return what a text of the environment is, by the identity of that: thousands of runs may share one object."""
    return {key: text_of(record) for key, record in {id(record.environment): record for record in records}.items()}


def _not_in_all(records: Iterable[Record]) -> tuple[str, ...]:
    """Return the keys by which runs cannot be compared, as some are from before these were recorded."""
    return () if all(PROCESSOR in record.environment for record in records) else (PROCESSOR,)


def _check_table(rows: Sequence[Sequence[Record]], findings: Sequence[Finding]) -> None:
    """Compare the rows of one table: the seeds that each has, environments and tuning budgets."""
    num = max(_seed(record) for row in rows for record in row) + 1
    for row, finding in zip(rows, findings, strict=True):
        last = max(map(_seed, row)) + 1
        if last < num:
            finding.note(f"{seeds_missing(range(last, num), num)}, which other rows have")
    known = [record for row in rows for record in row if environment_of(record)]
    left = _not_in_all(known)
    names = [name for name in (*MACHINE, PROCESSOR) if name not in left]
    machines = _by_environment(known, lambda record: _machine(record, names))
    places = [{machines[key] for record in row if (key := id(record.environment)) in machines} for row in rows]
    usual = Counter(place for of_row in places for place in of_row).most_common(1)
    for of_row, finding in zip(places, findings, strict=True):
        if odd := sorted(of_row - {place for place, _ in usual}):
            finding.note(f"another environment than most rows: {odd[0]}")
    budgets = [_budget(next((record for record in row if record.environment), row[0])) for row in rows]
    if len(set(map(repr, budgets))) > 1:
        for budget, finding in zip(budgets, findings, strict=True):
            finding.note(f"tuning budgets differ between rows; this one's is {budget or 'none: not tuned'}")


def _machine(record: Record, names: Sequence[str]) -> str:
    """Return what all rows can be compared by: a package may be loaded for some of them alone."""
    return ", ".join(f"{name} {record.environment.get(name)}" for name in names)


def _budget(record: Record) -> str:
    """Return the tuning budget of a run as a table prints it, "" for one that was not tuned."""
    path = record.run.folder / "tuning.json"
    if not os.path.lexists(path):  # most runs: failing to open it takes ten times as long
        return ""
    try:
        content = read_json_object(path)
        return f"{int(content['trials'])} x {int(content['runs'])}"
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, LookupError, TypeError):
        return "unreadable"
