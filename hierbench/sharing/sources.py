"""The source of every method that ran, published once under its name and the digest of its code, and never imported."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from hierbench.api.code import installed_code
from hierbench.runs.method_files import FOLDER, kept_source
from hierbench.runs.record import Record, Records
from hierbench.utils.files import write_bytes
from hierbench.utils.text import one_line


def find_source(name: str, code: str, run: Record, folders: Sequence[Path]) -> tuple[Path | None, bytes] | None:
    """Return the source of a method that ran: this project's with no path, else as `kept_source`."""
    if installed_code(name) == code:
        return None, resources.files("hierbench.methods").joinpath(f"{name}.py").read_bytes()
    return kept_source(name, code, run, folders)


def write_sources(records: Records, others: Sequence[Records]) -> list[str]:
    """Write `methods/<name>-<first 12 of the code's digest>.py` for each method of published runs.

    A source is this project's if that is the code that ran, the file kept with the run, one that was published before,
    or that of another installed package.

    Args:
        records: of the published runs, with the files of methods of their users.
        others: folders of records published before.

    Returns:
        a line for each method whose source is missing.
    """
    folder, notes, ran = records.root / FOLDER, list[str](), dict[tuple[str, str], Record]()
    for run in records:
        if run.spec is not None:
            ran.setdefault((run.spec.method.name, run.spec.method.code), run)
    for (name, code), run in sorted(ran.items(), key=lambda item: item[0]):
        source = find_source(name, code, run, [records.root for records in others])
        content = _of_an_entry_point(name, code) if source is None else source[1]
        if content is None:
            notes.append(f"the source of {one_line(name, 100)} with code {code[:12]} is not here, and is not published")
            continue
        folder.mkdir(exist_ok=True)
        write_bytes(folder / f"{name}-{code[:12]}.py", content)
    return notes


def _of_an_entry_point(name: str, code: str) -> bytes | None:
    """Return the source of a method of another package, or None if it is not installed with this code."""
    from hierbench.api.registry import BrokenMethod, find_or_broken, is_installed  # PyTorch

    if not is_installed(name):
        return None
    method = find_or_broken(name)
    return (
        None
        if isinstance(method, BrokenMethod) or method.code != code or not method.source
        else method.source.read_bytes()
    )
