"""Findings of single runs that were made before, kept in the user's cache and never in the folder that they are of.

A finding holds while everything that it was made from is in the same state: the run's files and those of its bases, the
data, this program and the libraries that it computes with. The state of a file includes its inode and the time when
that was changed, which no call can set: editing a file and restoring its times is noticed.
"""

import gc
import os
import sqlite3
import stat
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from hierbench.experiments.verification.kept import as_kept, from_kept
from hierbench.experiments.verification.records import Record
from hierbench.runs.store import Run
from hierbench.utils.files import refuse_links

FILE = "findings.sqlite"
METHODS = "hierbench.methods"  # the group of entry points of other packages
PACKAGES = ("hierbench", METHODS, "hierbench.leaderboard", "hierbench.benchmarks")
LIBRARIES = ("torch", "numpy")
SETTLED = 500_000_000  # ns: what was changed later may change again within one tick of the file system's clock
MOST = 200_000  # findings that are kept, the last ones
WAIT = 5.0  # seconds for another process
TABLE = (
    "create table if not exists findings (place text, run text, code text, state text, depends text, content text, "
    "primary key (place, run)) without rowid"
)


def cache_folder() -> Path | None:
    """Return the folder of what is kept for this user; None where there is no home."""
    if given := os.environ.get("HIERBENCH_CACHE_DIR"):
        return Path(given).absolute()
    with suppress(RuntimeError):
        usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        return (usual if usual.is_absolute() else Path("~/.cache").expanduser()) / "hierbench"
    return None


class Cache:
    """What is kept of the runs of one folder; where nothing can be kept, it is empty and stays so.

    Args:
        root: the folder of the runs.
        data_dir: prepared data, on which findings depend.
    """

    def __init__(self, root: Path, data_dir: Path) -> None:
        self._place = f"{root.absolute()}\0{data_dir.absolute()}"
        self._states: dict[Path, str] = {}
        self._held: dict[str, bool] = {}  # by what findings depend on, which many have in common
        self._new: list[tuple[str, ...]] = []
        self.started = time.time_ns()
        self.path = None if (folder := cache_folder()) is None else folder / FILE

    def read(self, runs: Iterable[Run], metrics: Collection[str] | None = ()) -> dict[str, Record]:
        """Return the records, by id, of those of the runs whose findings still hold.

        Metrics beyond the paper's must have been compared where these are kept; None stands for all.
        """
        found: dict[str, Record] = {}
        with self._database() as database:
            if database is None:
                return found
            asked = {run.folder.name: run for run in runs}
            query = "select run, state, depends, content from findings where place = ? and code = ?"
            # A query for each run would take longer than all else.
            with suppress(sqlite3.Error), _without_collection():
                for name, state, depends, content in database.execute(query, (self._place, digest_of_program())):
                    with suppress(Exception):  # a damaged entry, of which there may be any kind
                        run = asked.get(name)
                        if run is not None and self.state(run.folder) == state and self._holds(depends):
                            record = from_kept(run, content)
                            if not (record.unchecked if metrics is None else set(metrics) & set(record.unchecked)):
                                found[name] = record
        return found

    def keep(self, record: Record, depends: Iterable[Path]) -> None:
        """Keep a finding with the state of what it depends on; `write` writes all of them.

        The states are those of before the check, and nothing is kept of what has changed since or a moment before.
        """
        folder = record.run.folder
        states = {path: self.state(path) for path in depends}
        if all(self._settled(path, state) for path, state in {**states, folder: self.state(folder)}.items()):
            lines = "\n".join(f"{state}\t{path}" for path, state in states.items())
            self._new.append(
                (self._place, folder.name, digest_of_program(), self.state(folder), lines, as_kept(record))
            )

    def write(self) -> None:
        """Write what is to be kept, and forget the oldest beyond the limit."""
        if not self._new or self.path is None:
            return
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._database(create=True) as database:
            if database is not None:
                with suppress(sqlite3.Error), database:
                    database.executemany("insert or replace into findings values (?, ?, ?, ?, ?, ?)", self._new)
                    (count,) = database.execute("select count(*) from findings").fetchone()
                    if count > MOST:
                        database.execute("delete from findings where place != ?", (self._place,))

    def state(self, path: Path) -> str:
        """Return the state of a file or of a folder's entries, as it was when it was first asked for."""
        if path not in self._states:
            self._states[path] = state_of(path)
        return self._states[path]

    def _holds(self, depends: str) -> bool:
        if depends not in self._held:
            pairs = (line.split("\t", 1) for line in depends.split("\n") if line)
            self._held[depends] = all(self.state(Path(path)) == state for state, path in pairs)
        return self._held[depends]

    def _settled(self, path: Path, state: str) -> bool:
        return state_of(path) == state and _changed(path) < self.started - SETTLED

    @contextmanager
    def _database(self, *, create: bool = False) -> Iterator[sqlite3.Connection | None]:
        """Yield the database, None where there is none that can be used; a damaged one is removed."""
        database = None
        try:
            if self.path is not None and (create or self.path.is_file()) and _is_own(self.path):
                database = _opened(self.path)
        except (OSError, sqlite3.Error):
            pass
        if database is None:
            yield None
        else:
            with closing(database):
                yield database


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keep Python from looking for cycles, which it would do in all records again with every few that are added."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _opened(path: Path) -> sqlite3.Connection:
    for attempt in (1, 2):
        database = sqlite3.connect(path, timeout=WAIT)
        try:
            database.execute(TABLE)
            database.execute("select place, run, code, state, depends, content from findings limit 1").fetchone()
            return database
        except sqlite3.OperationalError:  # busy, full or read-only
            database.close()
            raise
        except sqlite3.DatabaseError:  # no database, or damaged
            database.close()
            path.unlink()
            if attempt == 2:
                raise
    raise AssertionError


def _is_own(path: Path) -> bool:
    """Whether nobody else can have written the cache."""
    refuse_links(path.parent, path.name)
    for place in (path.parent, path):
        if place.exists() and (place.stat().st_uid != os.geteuid() or place.stat().st_mode & 0o022):
            return False
    return True


def state_of(path: Path) -> str:
    """Return a digest of the state of a file, or of those directly in a folder; "" where there is nothing."""
    try:
        with os.scandir(path) as entries:
            files = sorted((entry.name, _numbers(entry.stat(follow_symlinks=False))) for entry in entries)
        return sha256(repr(files).encode()).hexdigest()
    except NotADirectoryError:
        return f"{_numbers(path.lstat())} {_numbers(path.stat())}"
    except OSError:
        return ""


def _numbers(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _changed(path: Path) -> int:
    """Return when a file, or the last of those in a folder, was changed, in ns."""
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            return max(path.lstat().st_ctime_ns, path.stat().st_ctime_ns)
        with os.scandir(path) as entries:
            return max(
                [path.lstat().st_ctime_ns, *(entry.stat(follow_symlinks=False).st_ctime_ns for entry in entries)]
            )
    except OSError:
        return 0


@cache
def digest_of_program() -> str:
    """Return a digest of the state of this program's files, and of the versions that it computes with."""
    digest = sha256(sys.version.encode())
    for name in PACKAGES:
        for folder in import_module(name).__path__:
            for path in sorted(Path(folder).rglob("*")):
                if path.suffix in (".py", ".toml", ".csv"):
                    digest.update(f"{path} {_numbers(path.stat())}\n".encode())
    for entry in sorted(entry_points(group=METHODS), key=lambda entry: (entry.name, entry.value)):
        digest.update(f"{entry.name} {entry.value} {entry.dist.version if entry.dist else ''}\n".encode())
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            digest.update(f"{name} {version(name)}\n".encode())
    return digest.hexdigest()
