"""The rows of a table, from the records of its runs; a scored row comes from `hierbench.leaderboard.scored`."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hierbench.config.spec import Spec
from hierbench.leaderboard.settings import tuning_of
from hierbench.leaderboard.statistics import METRICS, Row, summarise
from hierbench.runs.known import KnownRun, row_of
from hierbench.runs.store import Listing, Run, Store
from hierbench.utils.text import one_line

Record = tuple[Spec, Run]
# From the strongest to the weakest, and how a legend says it of a number of runs.
VERDICTS = {"reproduced": "trained again", "recomputed": "recomputed from predictions", "claimed": "claimed"}


@dataclass(frozen=True)
class Evidence:
    """What verification found of runs.

    Attributes:
        verdicts: of a run, by id.
        apart: ids of runs whose rows are rejected as a whole.
    """

    verdicts: Mapping[str, str] = field(default_factory=dict)
    apart: Collection[str] = ()

    @property
    def rejected(self) -> frozenset[str]:
        """The ids of the runs that are rejected."""
        return frozenset(run_id for run_id, verdict in self.verdicts.items() if verdict == "rejected")

    def of(self, row: Row) -> str:
        """Return the weakest verdict of a row's runs, "" where none is known."""
        if any(run_id in self.apart for run_id in row.runs):
            return "rejected"
        there = {self.verdicts.get(run_id, "") for run_id in row.runs}
        return next((verdict for verdict in reversed(VERDICTS) if verdict in there), "")

    def said(self, rows: Sequence[Row]) -> str:
        """Return how many runs of a table have which verdict, "" where none is known."""
        counts = Counter(self.verdicts.get(run_id, "") for row in rows for run_id in row.runs)
        said = [f"{counts[verdict]} {how}" for verdict, how in VERDICTS.items() if counts[verdict]]
        if counts["rejected"]:
            said.append(f"{counts['rejected']} rejected and not counted")
        first, _, rest = (said[0] if said else "").partition(" ")
        return ", ".join([f"{first} run{'' if first == '1' else 's'} {rest}", *said[1:]]) if said else ""


@dataclass(frozen=True)
class Verified(Store):
    """The runs of a store as they were verified, without those that are not what their folder is named after.

    The folder was listed once, so that all parts of a table are of the same runs.

    Attributes:
        verified: those whose records were read, by id.
        listed: all runs that count, oldest first, and those that are lost.
        evidence: what was found of them.
    """

    verified: Mapping[str, Run] = field(default_factory=dict)
    listed: Listing = ((), ())
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def rejected(self) -> frozenset[str]:
        """The ids of runs that count as planned and not as finished."""
        return self.evidence.rejected

    def run(self, job_id: str) -> Run:
        """Return the run of a job."""
        return self.verified.get(job_id) or super().run(job_id)

    def listing(self) -> Listing:
        """Return the runs as they were listed."""
        return self.listed


def rows_of(records: list[Record], done: Collection[str]) -> list[Row]:
    """Group runs by type and method; different hyperparameters make separate rows.

    A title that several methods share is followed by each one's name. A seed counts once: of runs of several versions
    the newest that is done, otherwise the first.

    Args:
        records: runs that may be ranked together.
        done: ids of those that are finished and count.
    """
    groups: dict[tuple[str, str, str], dict[int, Record]] = {}
    for spec, run in records:
        variant = run.row if isinstance(run, KnownRun) else row_of(spec)
        seeds = groups.setdefault((spec.type, spec.method.name, variant), {})
        if run.folder.name in done or spec.seed not in seeds:
            seeds[spec.seed] = (spec, run)
    rows: list[Row] = []
    variants = Counter((feature_type, method) for feature_type, method, _ in groups)
    for (feature_type, method, _), group in groups.items():
        spec, runs = next(iter(group.values()))[0], [group[seed][1] for seed in sorted(group)]
        finished = {seed: run for seed, (_, run) in sorted(group.items()) if run.folder.name in done}
        contents = [run.metrics() for run in finished.values()]
        results = [content["test"] for content in contents]
        title = one_line(str(contents[0]["title"] if contents else method))
        if variants[feature_type, method] > 1:
            title = one_line(f"{title} ({', '.join(f'{name}={value}' for name, value in spec.method.params.items())})")
        names = [metric for metric in METRICS if all(metric in result for result in results)]
        values = {name: [float("nan") if r[name] is None else float(r[name]) for r in results] for name in names}
        row = Row(
            type=feature_type,
            method=method,
            title=title,
            n=len(finished),
            planned=len(runs),
            metrics={name: summarise(values[name], spec.evaluation.ddof) for name in names},
            runs=tuple(run.folder.name for run in runs),
            tuning=tuning_of(runs[0]),
            seeds=tuple(finished),
        )
        rows.append(row)
    methods: dict[str, set[str]] = {}
    for row in rows:
        methods.setdefault(row.title, set()).add(row.method)
    return [
        replace(row, title=one_line(f"{row.title} ({row.method})")) if len(methods[row.title]) > 1 else row
        for row in rows
    ]
