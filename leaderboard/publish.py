"""A table with the records of its runs, small enough to commit."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import further
from hierbench.leaderboard.render import as_json, markdown
from hierbench.runs.further_metrics import FILE
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import open_regular, read_bytes, refuse_links, sync_folder, write_bytes, write_text
from hierbench.utils.lock import Lock, LostError

RECORDS = ("spec.json", "status.json", "metrics.json", "history.csv", "environment.json", "tuning.json")


def publish_board(board: Board, store: Store, folder: Path) -> Path:
    """Write `<dataset>.md`, `<dataset>.json` and `<dataset>/<id>/` with the records; return the table's path.

    The records are renamed into place last, after the tables are written, so records that exist are complete and of
    one publication. Only one process at a time publishes into a folder. The file of a method from outside this project
    is published too: without it the run could not be repeated.

    Raises:
        UserError: a run of the table is not finished; a record is a symbolic or hard link, so it may be any file of
            this machine; or the table is already published.
    """
    unfinished = [row.title for row in board.rows if row.n < row.planned]
    if unfinished:
        raise UserError(f"not all runs of {unfinished[0]} are finished; a published table is complete")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with Lock(folder, "publish") as lock:
            return _publish(board, store, folder, lock)
    except LostError as error:
        raise UserError(f"{folder}: {error}; publish again") from None


def _publish(board: Board, store: Store, folder: Path, lock: Lock) -> Path:
    staging = folder / f".{board.dataset}.partial-{os.getpid()}"
    try:
        records = refuse_links(folder, board.dataset)
        if records.exists():
            raise UserError(f"{records} exists; move it away to publish again")
        for left in folder.glob(f".{board.dataset}.partial-*"):  # of a process that was killed
            if not left.is_symlink():
                shutil.rmtree(left)
        for run_id in _with_bases(board, store):
            (staging / run_id).mkdir(parents=True)
            for name, content in _records(store.run(run_id), further(board.columns)):
                write_bytes(staging / run_id / name, content)
            if not Run(staging / run_id).done:  # the table is of what it was a moment ago
                raise UserError(f"run {run_id[:12]} is being changed by another program; publish again")
        table = folder / f"{board.dataset}.md"
        lock.check()
        write_text(folder / f"{board.dataset}.json", as_json(board))
        write_text(table, markdown(board))
        lock.check()
        staging.rename(records)
        sync_folder(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return table


def _with_bases(board: Board, store: Store) -> list[str]:
    """Return the ids of a table's runs, and of those that they re-rank: a base may have no row of its own."""
    ids = [run_id for row in board.rows for run_id in row.runs]
    specs = [run.spec() for run in map(store.run, ids)]
    bases = [[base] if isinstance(base, str) else base for base in (spec.get("base") or [] for spec in specs)]
    return list(dict.fromkeys([*ids, *(base for given in bases for base in given)]))


def _records(run: Run, metrics: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return (name, content) of a run's records, with its further metrics where the table has such columns.

    Raises:
        UserError: one is a link, or the method's file is not the one that ran.
    """
    method = run.spec().get("method")  # none where predictions were only scored
    source = f"{method['name']}.py" if method else ""
    found, names = [], (*RECORDS, FILE if metrics else "", source)
    for path in (run.folder / name for name in filter(None, names) if "/" not in name):
        if not os.path.lexists(path):
            continue
        try:
            with open_regular(path) as file:
                linked = os.fstat(file.fileno()).st_nlink > 1
            content = read_bytes(path)
        except OSError as error:
            raise UserError(f"{path} cannot be published: {error.strerror or error}") from None
        if linked:
            raise UserError(f"{path} cannot be published: it is a hard link; copy the folder")
        if method and path.name == source and not _is_code(content, method["code"]):
            raise UserError(f"{path} cannot be published: it is not the method that ran")
        found.append((path.name, content))
    return found


def _is_code(content: bytes, digest: str) -> bool:
    from hierbench.api.registry import digest_of_code  # with PyTorch, which tables do without

    try:
        return digest_of_code(content) == digest
    except (SyntaxError, ValueError):
        return False
