"""The source of every method that ran, published once under its name and the digest of its code, and never imported."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from hierbench.api.code import installed_code
from hierbench.runs.method_files import SOURCES_FOLDER, kept_source, source_folders, source_name
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.utils.files import write_bytes
from hierbench.utils.text import one_line


def find_source(run: Record, folders: Sequence[Path]) -> tuple[Path | None, bytes] | None:
    """Return the source of a method that ran: this project's with no path, else as `kept_source`."""
    name = run.job.method.name
    if installed_code(name) == run.method_digest:
        return None, resources.files("hierbench.methods").joinpath(f"{name}.py").read_bytes()
    return kept_source(run, folders)


def write_sources(records: Records, others: Sequence[Records]) -> list[str]:
    """Write the source of each method of published runs into the folder `methods/` beside their records.

    A source is this project's if that is the code that ran, the file kept with the run, one that was published before,
    or that of another installed package.

    Args:
        records: of the published runs, with the files of methods of their users.
        others: folders of records published before.

    Returns:
        a line for each method whose source is missing.
    """
    folder = records.root.parent / SOURCES_FOLDER
    folders = [folder for published in others for folder in source_folders(published.root)]
    run_by_source = {source_name(run): run for run in records if run.spec is not None}
    notes = list[str]()
    for file, run in sorted(run_by_source.items()):
        source = find_source(run, folders)
        content = _source_of_entry_point(run) if source is None else source[1]
        if content is None:
            label = f"{one_line(run.job.method.name, 100)} with code {run.method_digest[:12]}"
            notes.append(f"the source of {label} is not here, and is not published")
            continue
        folder.mkdir(exist_ok=True)
        write_bytes(folder / file, content)
    return notes


def _source_of_entry_point(run: Record) -> bytes | None:
    """Return the source of a method of another package, or None if it is not installed with this code."""
    from hierbench.api.registry import BrokenMethod, find_or_broken, is_installed  # PyTorch

    name = run.job.method.name
    if not is_installed(name):
        return None
    method = find_or_broken(name)
    if isinstance(method, BrokenMethod) or method.digest != run.method_digest or method.source is None:
        return None
    return method.source.read_bytes()
