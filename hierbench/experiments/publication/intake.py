"""A submission that came from outside: nothing in it is followed, run or read before its names and sizes are known."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from hierbench.experiments.publication.card import FILE, Card, compute_of, read_card
from hierbench.experiments.publication.place import files_of
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest, read_text
from hierbench.utils.text import one_line

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # of a submission
DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
PYTHON = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.py"
IN_DATASET = re.compile(rf"targets\.npy|tree\.json|methods/{PYTHON}")
IN_RUN = re.compile(
    rf"(spec|status|metrics|environment|tuning|further-metrics)\.json|history\.csv|predictions-compact\.npz|{PYTHON}"
)
RUN = re.compile(r"[0-9a-f]{64}")
MOST_FILES = 100_000
LARGEST = {".npz": 1 << 26, ".npy": 1 << 26, ".svg": 1 << 23, ".json": 1 << 24, ".md": 1 << 22}  # bytes
LARGEST_OTHER = 1 << 20
LARGEST_IN_ALL = 1 << 31
ACTIVE = re.compile(  # what a picture of ours never has: code, and addresses outside itself
    r"<\s*(script|foreignObject|iframe|object|embed|set|animate\w*)\b|\son\w+\s*=|javascript:|<!ENTITY|<\?xml-stylesheet"
    r"|href\s*=\s*[\"'](?!#)|url\(\s*[\"']?(?!#)|@import",
    re.IGNORECASE,
)


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

    def digest(self) -> str:
        """Return the SHA-256 of all files and their names."""
        content = sha256()
        for path in sorted(self.files):
            content.update(f"{path}\0{file_digest(self.folder / path)}\n".encode())
        return content.hexdigest()


def read_submission(folder: Path) -> Submission:
    """Return a submission after looking at its names and sizes, its card and its pictures; its runs are not read."""
    found = Submission(folder)
    if not NAME.fullmatch(folder.name):
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
    for path in found.files:
        if path.endswith(".svg"):
            _check_picture(found, path)
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
    runs = [run for dataset in found.datasets for run in Store(found.folder / dataset).runs()]
    if (own := compute_of(runs)) != card.compute:
        problems.append(
            f"{FILE} says {card.compute.runs} runs and {card.compute.training_seconds:g} s of training on "
            f"{', '.join(card.compute.devices)}, the records {own.runs} runs and {own.training_seconds:g} s on "
            f"{', '.join(own.devices)}"
        )
    if strangers := sorted(set(card.methods) - {_method_of(run) for run in runs}):
        problems.append(f"{FILE} names the method {strangers[0]}, of which it has no run")
    return [one_line(line, 400) for line in problems]


def _method_of(run: Run) -> str:
    spec = run.spec()
    method = spec.get("method")
    return str(method.get("name") if isinstance(method, dict) else spec.get("name"))


def _list(found: Submission) -> None:
    """List all files, and stop at the first that a submission does not have."""
    total = 0
    for path, size in _files(found, found.folder, ""):
        total += size
        limit = LARGEST.get(Path(path).suffix, LARGEST_OTHER)
        if not _is_expected(path):
            found.problems.append(f"{one_line(path, 200)} is no file of a submission")
        elif size > limit:
            found.problems.append(f"{path} has {size} bytes, more than {limit}")
        elif total > LARGEST_IN_ALL or len(found.files) >= MOST_FILES:
            found.problems.append(f"it has more than {MOST_FILES} files or {LARGEST_IN_ALL >> 30} GiB")
        found.files[path] = size
        if found.problems:
            return


def _files(found: Submission, folder: Path, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield (path, size) of the regular files below a folder; anything else is a problem."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = f"{prefix}{entry.name}"
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if path.count("/") >= 2:
                found.problems.append(f"{one_line(path, 200)} is a folder too deep")
                return
            yield from _files(found, folder / entry.name, f"{path}/")
        elif stat.S_ISREG(status.st_mode):
            yield path, status.st_size
        else:
            what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "neither a file nor a folder"
            found.problems.append(f"{one_line(path, 200)} is {what}")
            return


def _is_expected(path: str) -> bool:
    dataset, _, rest = path.partition("/")
    if not rest:
        name = re.match(DATASET, path)
        stem = "" if name is None else name.group()
        kinds = (stem, *(stem.removesuffix(f"-{kind}") for kind in KINDS))
        return path == FILE or any(kind and path != kind and files_of(kind).fullmatch(path) for kind in kinds)
    run, _, file = rest.partition("/")
    in_run = bool(RUN.fullmatch(run) and IN_RUN.fullmatch(file))
    return bool(DATASET.fullmatch(dataset)) and (in_run or bool(IN_DATASET.fullmatch(rest)))


KINDS = ("verdict", "changes", "tradeoff", "severity", "operating")


def _check_picture(found: Submission, path: str) -> None:
    try:
        active = ACTIVE.search(read_text(found.folder / path))
    except (OSError, ValueError) as error:
        found.problems.append(f"{path} cannot be read: {one_line(str(error), 200)}")
        return
    if active:
        found.problems.append(f"{path} is more than a picture: it has {one_line(active.group(), 40)!r}")
