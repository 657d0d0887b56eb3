"""A verification as text and as JSON."""

from collections.abc import Iterator, Sequence

from hierbench.runs.findings import CAVEAT, LONGEST, TARGETS_ALONE, VERIFIED, Finding, Report, RunFinding
from hierbench.runs.record import differing_params
from hierbench.runs.state import State
from hierbench.utils.files import as_json_text
from hierbench.utils.text import one_line


def as_text(reports: Sequence[Report]) -> str:
    """Return a line per run, the rows and tables of which there is something to say, and what was not checked."""
    lines = [line for report in reports for line in _lines(report)]
    return "\n".join([*lines, CAVEAT, ""])


def as_json(reports: Sequence[Report]) -> str:
    """Return all findings as JSON."""
    content = {
        "schema": 1,
        "rejected": sum(report.num_rejected for report in reports),
        "folders": [report.as_json() for report in reports],
        "not_known": CAVEAT,
    }
    return as_json_text(content)


def _lines(report: Report) -> Iterator[str]:
    counts = ", ".join(f"{num} {verdict}" for verdict, num in report.counts().items() if num)
    runs = "1 run" if len(report.runs) == 1 else f"{len(report.runs)} runs"
    yield f"{one_line(str(report.folder))}: {runs}: {counts}"
    width = max(map(len, VERIFIED))
    differing = differing_params(run.record for run in report.runs if isinstance(run, RunFinding))
    for run in report.runs:
        said = _short(f"{run.label}, {differing[run.id]}" if run.id in differing else run.label)
        yield from _of(run, f"{run.state or '':{width}}  {said} ({run.id[:12]})", width)
    for kind, findings in (("row", report.rows), ("table", report.tables)):
        for finding in findings:
            if finding.reasons or finding.notes or kind == "table":
                shown = State.REJECTED if finding.rejected else ""
                yield from _of(finding, f"{shown:{width}}  {kind} {_short(finding.label)}", width)
    if alone := sum(TARGETS_ALONE in run.notes for run in report.runs):
        yield f"{alone} run{'s' if alone > 1 else ''}: {TARGETS_ALONE}"
    yield from map(_short, report.notes)
    yield ""


def _of(finding: Finding, head: str, width: int) -> Iterator[str]:
    reasons = f": {finding.why()}" if finding.reasons else ""
    yield f"{head}{reasons}".rstrip()
    for note in finding.notes:
        if note != TARGETS_ALONE:  # a line for all runs
            yield f"{'':{width}}    {_short(note)}"


def _short(text: str) -> str:
    return one_line(text, LONGEST)
