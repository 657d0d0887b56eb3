"""A verification as a table: a line per run with its state, and below the findings on runs, rows and tables."""

from collections.abc import Sequence

from hierbench.leaderboard.table import Flag, Line, Table, Text
from hierbench.runs.findings import CAVEAT, MAX_FINDING_LENGTH, FolderReport, shown_state
from hierbench.runs.record import differing_params
from hierbench.runs.state import State
from hierbench.utils.text import counted, one_line


def verification_table(reports: Sequence[FolderReport]) -> Table:
    """Return the findings of folders; JSON has all of them, the text those with a note or a reason."""
    lines = list[Line]()
    above = list[str]()
    items = list[str]()
    notes = list[str]()
    noted = dict[str, list[str]]()
    for report in reports:
        counts = ", ".join(f"{num} {state}" for state, num in report.counts().items() if num)
        runs = counted(len(report.runs), "run")
        above.append(f"{_short(str(report.folder))}: {runs}: {counts}")
        differing = differing_params(report.runs)
        for run in report.runs:
            label = _short(f"{run.label}, {differing[run.id]}" if run.id in differing else run.label)
            lines.append(Line([Flag(shown_state(run)), Text(label), Text(run.id[:12])]))
            if run.rejected:
                why = "; ".join(map(_short, run.findings))
                items.append(f"{State.REJECTED}: {label} ({run.id[:12]}): {why}")
            for note in run.notes:
                noted.setdefault(note, []).append(label)
        for kind, findings in (("row", report.rows), ("table", report.tables)):
            for finding in findings:
                if finding.rejected:
                    items.append(f"{State.REJECTED}: {kind} {_short(finding.label)}: {finding.why()}")
                items += (f"{kind} {_short(finding.label)}: {_short(note)}" for note in finding.notes)
        notes += (note for note in map(_short, report.notes) if note not in notes)
    for text, labels in noted.items():
        others = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        items.append(f"{labels[0]}{others}: {_short(text)}")
    content = {
        "rejected": sum(report.num_rejected for report in reports),
        "folders": [report.as_json() for report in reports],
        "not_known": CAVEAT,
    }
    columns = ["State", "Run", "Id"]
    return Table("Verification", columns, lines, notes=[*notes, CAVEAT], items=items, above=above, content=content)


def _short(text: str) -> str:
    return one_line(text, MAX_FINDING_LENGTH)
