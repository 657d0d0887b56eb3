"""A results repository: `submissions/<name>/`, `boards/` made of them, and the check of what a change would do."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from hierbench.leaderboard.formats import render
from hierbench.leaderboard.tables.boards import boards_table
from hierbench.records.findings import Report
from hierbench.sharing.boards import Boards, make_boards, rows_not_shown, words_for
from hierbench.sharing.changes import Changes
from hierbench.sharing.intake import Submission, check_card, read_submission
from hierbench.sharing.place import BOARDS, SUBMISSIONS, checked_place, replaced
from hierbench.sharing.publish import Said, written
from hierbench.sharing.verification.verify import verify
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest, refuse_links, write_text
from hierbench.utils.text import markdown_escaped, one_line

TEMPLATES = {
    "check.yml": ".github/workflows/check.yml",
    "comment.yml": ".github/workflows/comment.yml",
    "readme.txt": "README.md",
}
LONGEST = 60_000  # characters of a report
REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9 @:/+._=<>~!,#&?%\[\]-]{0,300}")
EXAMPLE = "'hierbench @ git+https://example.org/hierbench@COMMIT'"
SHOWN = 40  # lines of one kind in a report


@dataclass
class Checked:
    """What a change does to a repository.

    Attributes:
        changed: submissions that are new or differ, as they would be.
        removed: names of submissions that would be gone.
        verified: {submission: reports of its datasets}.
        differences: {dataset: how its board changes}.
        problems: why the change is refused, a line each.
        notes: what a reviewer should know.
    """

    changed: list[Submission] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    verified: dict[str, list[Report]] = field(default_factory=dict)
    differences: dict[str, Changes] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def new_repository(folder: Path, install: str) -> list[Path]:
    """Write the workflows and the README of a results repository.

    Args:
        folder: of the repository.
        install: what the workflow installs hierbench from, as pip takes it.

    Raises:
        UserError: one of the files is there already, or `install` is no requirement.
    """
    if not REQUIREMENT.fullmatch(install):
        raise UserError(f"--install {one_line(install, 80)}: give a requirement as pip takes it, such as {EXAMPLE}")
    targets = {name: refuse_links(folder, *path.split("/")) for name, path in TEMPLATES.items()}
    if there := next((path for path in targets.values() if os.path.lexists(path)), None):
        raise UserError(f"{there} exists; move it away to write it again")
    for name, path in targets.items():
        text = resources.files("hierbench.leaderboard").joinpath("results-repository", name).read_text(encoding="utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text.replace("@INSTALL@", json.dumps(install)))
    (folder / SUBMISSIONS).mkdir(exist_ok=True)
    return list(targets.values())


def submissions_in(root: Path) -> dict[str, Submission]:
    """Return {name: submission} of a repository; a UserError if their folder is no folder."""
    folder = refuse_links(root, SUBMISSIONS)
    if not os.path.lexists(folder):
        return {}
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    names = sorted(name for name in os.listdir(folder) if name not in (".gitkeep", "README.md"))
    return {name: read_submission(folder / name) for name in names}


def build(root: Path, data_dir: Path) -> Said:
    """Make `boards/` of all submissions.

    Raises:
        UserError: a submission has a problem, or a board cannot be made; nothing is changed then.
    """
    known = submissions_in(root)
    if bad := next((one for one in known.values() if one.problems), None):
        raise UserError(f"submission {bad.name}: {bad.problems[0]}")
    if not known:
        raise UserError(f"{root / SUBMISSIONS} has no submissions")
    folder = checked_place(refuse_links(root, BOARDS))
    with replaced(folder, None) as staging:
        made = make_boards(list(known.values()), staging, data_dir, previous=folder)
        if made.problems:
            raise UserError(made.problems[0])
    notes = [note for one in made.made.values() for note in one.notes]
    notes += [
        f"{one_line(row)} is as in {one_line(other)}, not as in {one_line(name)}" for name, other, row in made.conflicts
    ]
    return Said(notes, [written(folder, one) for one in made.made.values()])


def check(base: Path, head: Path, data_dir: Path) -> Checked:
    """Compare two states of a repository: every changed submission is verified, and the boards are made of both.

    Args:
        base: the repository as it is; its submissions have been checked.
        head: as it would be. Nothing in it is followed or run.
        data_dir: prepared data.
    """
    found = Checked()
    before, after = submissions_in(base), submissions_in(head)
    found.removed = sorted(before.keys() - after.keys())
    found.changed = [one for name, one in after.items() if name not in before or _differs(before[name], one)]
    for one in found.changed:
        found.problems += [f"submission {one.name}: {line}" for line in one.problems or _verify(one, data_dir, found)]
        if one.name in before:
            found.notes.append(f"submission {one.name} was there before: let its authors agree")
    _compare_outside(base, head, found)
    if found.problems:
        return found
    moved = {*found.removed, *(one.folder.name for one in found.changed)}
    touched = {dataset for side in (before, after) for name in moved & side.keys() for dataset in side[name].datasets}
    with TemporaryDirectory() as scratch:
        names = sorted(touched)
        old = make_boards(list(before.values()), Path(scratch) / "base", data_dir, names, draw=False)
        new = make_boards(list(after.values()), Path(scratch) / "head", data_dir, names, draw=False)
        found.problems += new.problems
        if not new.problems:
            _judge(found, names, old, new)
    return found


def _differs(one: Submission, other: Submission) -> bool:
    return bool(one.problems or other.problems) or _tree(one.folder) != _tree(other.folder)


def _verify(one: Submission, data_dir: Path, found: Checked) -> Iterator[str]:
    """Yield why a submission's records or card are rejected."""
    reports = [report for dataset in one.datasets for report in verify([one.folder / dataset], data_dir)]
    found.verified[one.folder.name] = reports
    for report in reports:
        for finding in (*report.runs, *report.rows, *report.tables):
            if finding.rejected:
                label = finding.label.replace(f"{one.folder}{os.sep}", "")
                named = f"{label} ({finding.id[:12]})" if finding.id else label
                yield one_line(f"{named} is rejected: {'; '.join(finding.reasons)}", 600)
        if claimed := [run for run in report.runs if run.verdict == "claimed"]:
            why = f": {claimed[0].notes[0]}" if claimed[0].notes else ", as it has no predictions"
            label = f"{claimed[0].label} ({claimed[0].id[:12]})"
            yield one_line(f"{len(claimed)} runs are only claimed, the first of them {label}{why}", 600)
    yield from check_card(one)


def _compare_outside(base: Path, head: Path, found: Checked) -> None:
    """Refuse changes of the boards, which are made of the submissions, and name other files that change."""
    names = {name for root in (base, head) for name in os.listdir(root)} - {SUBMISSIONS, ".git"}
    for name in sorted(names):
        if _tree(base / name) == _tree(head / name):
            continue
        if name == BOARDS:
            found.problems.append(f"{BOARDS}/ is made of the submissions by the workflow; leave it as it is")
        else:
            found.notes.append(f"{one_line(name, 80)} changes outside {SUBMISSIONS}/: review it by hand")


def _tree(path: Path) -> list[tuple[str, str]]:
    """Return (path, what is there) of everything below a path; links are not followed."""
    if path.is_symlink():
        return [("", f"-> {os.readlink(path)}")]
    if not path.is_dir():
        if not path.exists():
            return []
        return [("", file_digest(path) if path.is_file() else "no file")]
    return [(f"{entry.name}/{inner}", what) for entry in sorted(path.iterdir()) for inner, what in _tree(entry)]


def _judge(found: Checked, datasets: Sequence[str], old: Boards, new: Boards) -> None:
    """Refuse what gets worse without a word in a card, and results that another submission has otherwise."""
    changed = {one.folder.name for one in found.changed}
    for name, other, row in new.conflicts:
        if {name, other} & changed:
            found.problems.append(
                f"submissions {one_line(other)} and {one_line(name)} have other results of {one_line(row)}, with the "
                "same spec; leave the row out, or name it in replaces"
            )
    for dataset in datasets:
        if dataset not in old.made and dataset not in new.made:
            continue
        difference = new.changes_from(old, dataset)
        found.differences[dataset] = difference
        words = words_for(found.changed, dataset)
        for row, why in difference.worse:
            if row in words:
                found.notes.append(f"{dataset}: {row}: {why}; the card says: {words[row]}")
            else:
                found.problems.append(f"{dataset}: {row} gets worse: {why}; say why in the card's replaces")
        for one in found.changed:
            for row in rows_not_shown(one, dataset, new) if dataset in one.datasets else ():
                line = f"submission {one.name}: the board of {dataset} does not show its {row}, of which there are"
                found.problems.append(f"{line} other runs with other code; name it in replaces")


def as_markdown(found: Checked) -> str:
    """Return a report for people, in which names are only text."""
    lines = ["# Results: refused" if found.problems else "# Results: accepted", ""]
    for one in found.changed:
        runs = [run for report in found.verified.get(one.folder.name, []) for run in report.runs]
        counts = Counter(run.verdict for run in runs)
        said = ", ".join(f"{num} {verdict}" for verdict, num in counts.items()) or "not read"
        title = f": {one.card.title} ({', '.join(one.card.authors)}; {one.card.licence})" if one.card else ""
        lines.append(f"- submission {_escaped(one.name + title)}: {said}")
    lines += [f"- submission {_escaped(name)}: removed" for name in found.removed]
    if not found.changed and not found.removed:
        lines.append("No submission changes.")
    for dataset, difference in found.differences.items():
        lines += ["", f"## {_escaped(dataset)}", "", *_listed(difference.lines())]
        if difference.boards is not None:
            lines += ["", render(boards_table(difference.boards))]
    for heading, those in (("Refused", found.problems), ("Notes", found.notes)):
        lines += ["", f"## {heading}", "", *_listed(those)] if those else []
    text = "\n".join(lines) + "\n"
    return text if len(text) <= LONGEST else text[:LONGEST] + "\n\n(cut)\n"


def _listed(lines: Sequence[str]) -> list[str]:
    shown = [f"- {_escaped(line)}" for line in lines[:SHOWN]]
    return [*shown, f"- and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else shown


def _escaped(text: str) -> str:
    """Return text that is neither markup nor a mention or an issue's number to a code forge."""
    return markdown_escaped(one_line(text, 700)).translate({ord(char): f"&#{ord(char)};" for char in ">@#"})
