"""A submission that came from outside: nothing in it is followed, run or read before its names and sizes are known."""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from hierbench.records import compact, further_metrics, published_tree
from hierbench.records.reading import read_records
from hierbench.records.record import Record
from hierbench.records.sources import FOLDER, PYTHON
from hierbench.runs import requests
from hierbench.runs.store import RUN_ID
from hierbench.sharing.bundle import RECORDS
from hierbench.sharing.card import FILE, Card, compute_of, read_card
from hierbench.sharing.place import ENDINGS
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"  # of a submission or dataset
IN_RUN = "|".join(map(re.escape, (*RECORDS, "tuning.json", further_metrics.FILE, compact.FILE)))
BESIDE = "|".join(map(re.escape, (compact.TARGETS, published_tree.FILE, requests.FILE)))
EXPECTED = re.compile(
    rf"{re.escape(FILE)}|{NAME}({ENDINGS})|{NAME}/({BESIDE}|{FOLDER}/{PYTHON}|{RUN_ID.pattern}/({IN_RUN}|{PYTHON}))"
)
MOST_FILES = 100_000
LARGEST = {  # bytes
    ".npz": 1 << 26,
    ".npy": 1 << 26,
    ".svg": 1 << 23,
    ".json": 1 << 24,
    ".jsonl": 1 << 24,
    ".md": 1 << 22,
}
LARGEST_OTHER = 1 << 20
LARGEST_IN_ALL = 1 << 31


@dataclass
class Submission:
    """One folder of `submissions/`.

    Attributes:
        folder: of it.
        files: {path in it: size in bytes}.
        problems: why it is refused, a line each; what has any is not read further.
        card: None where it cannot be read.
    """

    folder: Path
    files: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    card: Card | None = None

    @property
    def name(self) -> str:
        """As a line can show it."""
        return one_line(self.folder.name, 80)

    @property
    def datasets(self) -> list[str]:
        """The datasets that it has records of."""
        return sorted({path.split("/")[0] for path in self.files if "/" in path})


def read_submission(folder: Path) -> Submission:
    """Return a submission after looking at its names, sizes and card; its runs and pictures are not read."""
    found = Submission(folder)
    if not re.fullmatch(NAME, folder.name):
        found.problems.append("its folder's name may have letters, digits, - and _ alone, at most 64")
    elif folder.is_symlink() or not folder.is_dir():
        found.problems.append("it is not a folder")
    else:
        _list(found)
    if found.problems:
        return found
    if not found.datasets:
        found.problems.append("it has no records")
    for dataset in found.datasets:
        if f"{dataset}.json" not in found.files or f"{dataset}.md" not in found.files:
            found.problems.append(f"{dataset} has no table")
    try:
        found.card = read_card(folder)
    except UserError as error:
        found.problems.append(one_line(str(error).replace(f"{folder}{os.sep}", ""), 400))
    return found


def check_card(found: Submission) -> list[str]:
    """Return what a card says that the records do not; called where the runs have been verified."""
    card, problems = found.card, list[str]()
    assert card is not None
    if sorted(card.datasets) != found.datasets:
        problems.append(f"{FILE} names the datasets {', '.join(card.datasets)}, it has {', '.join(found.datasets)}")
    runs = [run for dataset in found.datasets for run in read_records(found.folder / dataset)]
    if (own := compute_of(runs)) != card.compute:
        problems.append(
            f"{FILE} says {card.compute.runs} runs and {card.compute.training_seconds:g} s of training on "
            f"{', '.join(card.compute.devices)}, the records {own.runs} runs and {own.training_seconds:g} s on "
            f"{', '.join(own.devices)}"
        )
    if strangers := sorted(set(card.methods) - {_method_of(run) for run in runs}):
        problems.append(f"{FILE} names the method {strangers[0]}, of which it has no run")
    return [one_line(line, 400) for line in problems]


def _method_of(run: Record) -> str:
    return run.spec.method.name if run.spec is not None else "" if run.scored is None else run.scored.name


def _list(found: Submission) -> None:
    """List all files, and stop at the first that a submission does not have."""

    def stop(error: OSError) -> None:
        raise error

    total = 0
    for folder, folders, files in os.walk(found.folder, onerror=stop):
        folders.sort()
        for name in (*folders, *sorted(files)):
            path = os.path.relpath(os.path.join(folder, name), found.folder)
            status = os.lstat(os.path.join(folder, name))
            if stat.S_ISREG(status.st_mode):
                found.files[path] = status.st_size
                total += status.st_size
            problem = _problem(path, status)
            if not problem and (total > LARGEST_IN_ALL or len(found.files) > MOST_FILES):
                problem = f"it has more than {MOST_FILES} files or {LARGEST_IN_ALL >> 30} GiB"
            if problem:
                found.problems.append(problem)
                return


def _problem(path: str, status: os.stat_result) -> str:
    """Return why something below a submission's folder is not of a submission, "" if it is."""
    shown, limit = one_line(path, 200), LARGEST.get(Path(path).suffix, LARGEST_OTHER)
    if stat.S_ISDIR(status.st_mode):
        return f"{shown} is a folder too deep" if path.count(os.sep) >= 2 else ""
    if not stat.S_ISREG(status.st_mode):
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "neither a file nor a folder"
        return f"{shown} is {what}"
    if not EXPECTED.fullmatch(path):
        return f"{shown} is no file of a submission"
    return f"{shown} has {status.st_size} bytes, more than {limit}" if status.st_size > limit else ""
