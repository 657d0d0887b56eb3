"""The rows that runs make: their seeds, environments and tuning budgets; nothing is computed from predictions."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from hierbench.leaderboard.rows import groups, runs_by_row
from hierbench.runs.findings import ConsistencyCheck
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.runs.state import State

MACHINE = ("device", "devices", "torch", "hierbench", "python", "processor")
RUN_ENVIRONMENT = (
    "time",
    "data",
    "cost",
    "features",
    "threads",
    "commit",
    "changed",
    "method_code",
)  # besides the versions and the machine


def check_rows(records: Iterable[Record], all_records: Records, ablated: Container[str] = ()) -> list[ConsistencyCheck]:
    """Return the findings of the rows that runs make; unfinished and rejected ones count as seeds of theirs.

    `all_records` are all runs of their folder, which say how these were tuned. Rows of the ids `ablated` are compared
    among themselves; in a received folder there are none: its requests would name them.
    """
    rows = runs_by_row(record for record in records if record.spec is not None and record.spec.split == "test")
    findings = [_check_row(row, all_records) for row in rows]
    for table in groups(
        list(zip(rows, findings, strict=True)), lambda pair: (pair[0][0].comparison, pair[0][0].id in ablated)
    ):
        _check_table([row for row, _ in table], [finding for _, finding in table])
    return findings


def rejected_rows(rows: Sequence[ConsistencyCheck]) -> frozenset[str]:
    """Return the ids of the runs in rejected rows."""
    return frozenset(run_id for row in rows if row.rejected for run_id in row.runs)


def _check_row(row: Sequence[Record], all_records: Records) -> ConsistencyCheck:
    """Return the finding of one row: whether its seeds are complete, and where they were run."""
    spec = row[0].job
    label = f"{spec.dataset.name} {spec.method.name} {spec.type}"
    finding = ConsistencyCheck(label, runs=[record.id for record in row])
    seeds = sorted({record.job.seed for record in row})
    missing = sorted(set(range(seeds[-1] + 1)) - set(seeds))
    if missing:
        finding.reject(seeds_missing(missing, seeds[-1] + 1))
    for record in row:
        if record.state == State.UNFINISHED:
            finding.note(f"seed {record.job.seed} is not finished", "unfinished")
    done = [record for record in row if software_and_hardware(record)]
    environments = _by_environment(done, lambda record: repr(software_and_hardware(record)))
    for places in groups(done, lambda record: environments[id(record.environment)])[1:]:
        first, other = map(software_and_hardware, (done[0], places[0]))
        differ = [f"{name} {value}" for name, value in other.items() if first.get(name) != value]
        shown = ", ".join(str(record.job.seed) for record in places)
        finding.note(f"several environments: seed {shown} with {', '.join(differ) or 'fewer packages'}")
    budgets = {_budget(record, all_records) or "none" for record in done}
    if len(budgets) > 1:
        finding.note(f"its runs have several tuning budgets: {', '.join(sorted(budgets))}")
    return finding


def seeds_missing(missing: Sequence[int], num: int) -> str:
    """Return the line that names missing seeds."""
    names = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
    noun, verb = ("seeds", "are") if len(missing) > 1 else ("seed", "is")
    return f"{noun} {names} of 0..{num - 1} {verb} missing"


def software_and_hardware(record: Record) -> dict[str, Any]:
    """Return the software and hardware that a run's environment.json names."""
    return {name: value for name, value in sorted(record.environment.items()) if name not in RUN_ENVIRONMENT}


def same_environment(first: Record, other: Record) -> bool:
    """Whether two runs name the same software and hardware."""
    return software_and_hardware(first) == software_and_hardware(other)


def _by_environment(records: Iterable[Record], text_of: Callable[[Record], str]) -> dict[int, str]:
    """Return {identity of an environment: its text}: thousands of runs may share one object."""
    return {key: text_of(record) for key, record in {id(record.environment): record for record in records}.items()}


def _check_table(rows: Sequence[Sequence[Record]], findings: Sequence[ConsistencyCheck]) -> None:
    """Compare the rows of one table: the seeds that each has, and environments."""
    num = max(record.job.seed for row in rows for record in row) + 1
    for row, finding in zip(rows, findings, strict=True):
        last = max(record.job.seed for record in row) + 1
        if last < num:
            finding.note(f"{seeds_missing(range(last, num), num)}, which other rows have")
    described = [record for row in rows for record in row if software_and_hardware(record)]
    machines = _by_environment(described, _machine)
    places = [{machines[key] for record in row if (key := id(record.environment)) in machines} for row in rows]
    usual = Counter(place for row_machines in places for place in row_machines).most_common(1)
    for row_machines, finding in zip(places, findings, strict=True):
        odd = sorted(row_machines - {place for place, _ in usual})
        if odd:
            finding.note(f"another environment than most rows: {odd[0]}")


def _machine(record: Record) -> str:
    """Return the part of the environment that all rows have: a package may be loaded for some of them alone."""
    return ", ".join(f"{name} {record.environment[name]}" for name in MACHINE if name in record.environment)


def _budget(record: Record, all_records: Records) -> str:
    """Return the tuning budget of a run as a table prints it, "" without tuning."""
    budget = all_records.tuning_budget(record)
    return f"{budget['trials']} x {budget['runs']}" if budget else ""
