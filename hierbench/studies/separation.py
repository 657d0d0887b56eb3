"""`hierbench separate`: further seeds for two rows until a test separates them, by a group-sequential design."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from hierbench.config.options import Options, is_path
from hierbench.config.recipe import chosen_types
from hierbench.execution.session import Execution, Session
from hierbench.leaderboard.columns import PAPER, PAPER_BY_NAME
from hierbench.leaderboard.group_sequential import FEWEST, LEVEL, MOST, Design, Look, conclusion, look_at, make_design
from hierbench.leaderboard.paired import named_rows, values_by_seed
from hierbench.leaderboard.table import Interval, Line, Number, Shown, Table, Text
from hierbench.runs.job import Job, JobState
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.runs.requests import extend_request
from hierbench.studies.comparison import Comparison
from hierbench.studies.study import carry_out
from hierbench.utils.console import say
from hierbench.utils.errors import UserError, unknown_name


def separate(options: Options, names: tuple[str, str], most: int, metric: str, *, tuned: bool = False) -> Shown:
    """Run a comparison of two rows with one more seed after each look, until a look separates them or all are made.

    Args:
        options: of the comparison; `seeds` is their number at the first look, by default 3.
        names: METHOD[:TYPE] of the rows; differences are the first minus the second.
        most: seeds at the last look.
        metric: one of the paper's.
        tuned: use the hyperparameters that tuning found.
    """
    start = FEWEST if options.seeds is None else options.seeds
    if not FEWEST <= start <= most <= MOST:
        raise UserError(
            f"looks go from --seeds, at least {FEWEST}, to --max-seeds, at most {MOST}; got {start} to {most}"
        )
    if metric not in PAPER_BY_NAME:
        raise unknown_name("metric", metric, PAPER_BY_NAME)
    rows = [(method, types or options.types) for method, _, types in (name.partition(":") for name in names)]
    for name, (method, types) in zip(names, rows, strict=True):
        if "," in method or len(chosen_types(types)) != 1:
            raise UserError(f"{name}: name one row, METHOD:TYPE, or give its type with --types")
    if rows[0] == rows[1]:
        raise UserError(f"two rows are needed, got {names[0]} twice")
    methods, types = (",".join(dict.fromkeys(values)) for values in zip(*rows, strict=True))
    study = Separation(names, rows, make_design(start, most), metric, tuned=tuned)
    return carry_out(study, replace(options, methods=methods, types=types, seeds=start))


class Separation(Comparison):
    """Two rows by seed, with one more seed after each look that does not separate them."""

    def __init__(
        self, names: tuple[str, str], rows: list[tuple[str, str]], design: Design, metric: str, *, tuned: bool
    ) -> None:
        super().__init__(PAPER, tuned, None)
        self.names, self.design, self.metric = names, design, metric
        self.rows = [(Path(method).stem if is_path(method) else method, types) for method, types in rows]

    def plan(self, session: Session) -> list[Job]:
        """Return the jobs of both rows for the session's number of seeds, and of their bases."""
        jobs = super().plan(session)
        of_rows = [job for job in jobs if job.shown and (job.spec.method.name, job.spec.type) in self.rows]
        self.ids = [job.id for job in of_rows]
        needed = {run_id for job in of_rows for run_id in (job.id, *job.spec.bases)}
        return [job for job in jobs if job.id in needed]

    def announce(self, session: Session, plan: Sequence[Job], state: dict[str, JobState]) -> Table | None:
        """Say at which seeds the looks are, and report the jobs of the first."""
        design = self.design
        say(
            f"until {self.names[0]} and {self.names[1]} are separated in {self.metric}: a look after every seed from "
            f"{design.start} to {design.most}, each at level {design.nominal:.2g}; equal rows are separated in "
            f"{100 * LEVEL:g} % of cases"
        )
        return super().announce(session, plan, state)

    def steps(self, session: Session, plan: list[Job], execution: Execution) -> Iterator[list[Job]]:
        """Yield the jobs up to each look; those of later ones are added to the request."""
        for session.num_seeds in range(self.design.start, self.design.most + 1):
            jobs = self.plan(session)
            self.request = extend_request(session.store.root, self.request, [job.id for job in jobs])
            yield from super().steps(session, jobs, execution)
            if execution.failed:
                return
            super().table(session, None)
            look, nominal = self.looks()[-1], self.design.nominal
            shown = f"{self.metric} {look.mean:+.4g} +/- {look.ci:.2g}, p {look.p:.2g}"
            outcome = f"{'below' if look.p < nominal else 'not below'} {nominal:.2g}"
            say(f"look at {session.num_seeds} seeds: {shown}, {outcome}")
            if look.p < nominal:
                return

    def looks(self) -> list[Look]:
        """Return the looks at the seeds that are done, up to the first that separates the rows."""
        assert self.board is not None
        rows = [row for name in self.rows for row in named_rows(self.board.rows, ":".join(name))]
        sides, looks = [values_by_seed(row, [self.metric])[self.metric] for row in rows], list[Look]()
        for num in range(self.design.start, min(map(len, sides)) + 1):
            gaps = np.array([sides[0][seed] - sides[1][seed] for seed in range(num)])
            looks.append(look_at(gaps[~np.isnan(gaps)], self.design.nominal))  # NaN: no mistakes
            if looks[-1].p < self.design.nominal:
                break
        return looks

    def table(self, session: Session, mirror: Mirror | None) -> Table:
        """Return a line per look, and the conclusion after the last; the rows' leaderboard is written."""
        super().table(session, mirror)
        looks = self.looks()
        lines = [
            Line([Text(str(num)), Interval(look.mean, look.ci, 4, signed=True), Number(look.p, ".2g")])
            for num, look in enumerate(looks, self.design.start)
        ]
        content = {"rows": self.names, "metric": self.metric, **asdict(self.design), "looks": list(map(asdict, looks))}
        notes = [
            conclusion(self.design, looks, self.names, self.metric),
            f"A look separates the rows if its p is below {self.design.nominal:.2g}.",
        ]
        title = f"{self.names[0]} minus {self.names[1]}"
        return Table(title, ("Seeds", "Difference", "p"), lines, notes=notes, content=content)
