"""The road of a command that trains: a plan is announced, recorded and run, and a report is made and written."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hierbench.execution.execution import Batch, Execution
from hierbench.execution.plan import Plan
from hierbench.execution.scheduler import create_runs
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.protocol import protocol_options
from hierbench.leaderboard.table import CommandOutput, Table
from hierbench.runs.mlflow_mirror import Mirror
from hierbench.runs.requests import Request, record_request, request_options
from hierbench.studies.dry_run import announce, commands_table, dry_run_table
from hierbench.utils.console import say
from hierbench.utils.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StudyReport:
    """What the runs of a plan show.

    Attributes:
        table: that is printed.
        files: {path: text or figure}.
        lines: below the table.
        attached: the file of these that MLflow gets.
        means: that MLflow gets by name.
        board: of a comparison.
    """

    table: Table | None
    files: "Mapping[Path, str | Figure]" = field(default_factory=dict)
    lines: Sequence[str] = ()
    attached: Path | None = None
    means: Mapping[str, float] = field(default_factory=dict)
    board: Board | None = None


@dataclass(frozen=True)
class StudyResult:
    """How a command ends, and its leaderboard, if it has one."""

    shown: CommandOutput
    board: Board | None = None


def carry_out(plan: Plan, make_report: Callable[[Plan], StudyReport]) -> StudyResult:
    """Announce a plan, record its request, run it, and write its report; the exit code is 1 if a job failed.

    `--dry-run` and `--plan-only` return before anything is run.
    """
    options = plan.request.options
    store = plan.request.store
    if options.dry_run:
        return StudyResult(CommandOutput(dry_run_table(plan)))
    announce(plan)
    if plan.request.unwritable:
        say(f"warning: {plan.request.unwritable}; the table is not written there")
        report = make_report(plan)
        return StudyResult(CommandOutput(report.table, report.lines), report.board)
    record(plan)
    if options.plan_only:
        create_runs(plan.jobs, store, say)
        return StudyResult(CommandOutput(commands_table(plan)))
    with redirect_stdout(sys.stderr), Execution(plan) as execution:  # a method may print
        execution.expect_plan()
        execution.run(Batch(plan.jobs, plan.labels))
        report = make_report(plan)
        write(report, execution.mirror)
    failures = execution.describe_failures()
    return StudyResult(CommandOutput(report.table, [*report.lines, *failures], 1 if failures else 0), report.board)


def record(plan: Plan) -> Request:
    """Record the request behind a plan in the runs folder."""
    request = plan.request
    options = {**request_options(request.options, request.num_seeds), **plan.options}
    options |= protocol_options(request.recipe.dataset)
    return record_request(
        request.store.root, plan.kind, request.recipe.dataset, options, plan.recorded_ids, plan.budgets
    )


def write(report: StudyReport, mirror: Mirror) -> None:
    """Write the files of a report, and attach one in MLflow."""
    for path, content in report.files.items():
        if isinstance(content, str):
            write_text(path, content)
        else:
            from hierbench.leaderboard.pictures.style import write_figure  # Matplotlib

            write_figure(content, path)
    if report.attached is not None:
        mirror.attach(report.attached, report.means)
