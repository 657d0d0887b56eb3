"""A lock on a folder for processes of one machine or of several that share a file system: owners are generations.

A file `.<name>.<n>` is generation n's. Making a file that must not exist is exclusive also on a shared file system, so
of all that find a lock free, or its owner dead, only one becomes generation n + 1; it looks again whether what it has
seen is still so, removes the files of those before, and is the owner. Who has no file has no lock. A file's first line
changes while its owner lives, the second says who that is. No clock and no file time is ever compared: a waiter looks
whether the first line changes while it waits.

An owner that was stopped for longer than LIMIT is taken over too, and notices it by `check`, to be called before each
write. What it had begun to write at the moment when it was stopped is still written: no file system without locks of
its own can prevent that; it is whole, and of the same job.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from hierbench.utils.files import process_is_gone, process_state, read_bytes, temporary_beside

BEAT = 2.0  # seconds between two signs of life
LIMIT = 30.0  # seconds without one, after which an owner counts as dead
FREE = "free"
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems without hard links
WIDTH = 20  # of the first line, which is overwritten in place


class LostError(RuntimeError):
    """Another process has taken this one's lock over, or somebody has removed it."""


@dataclass(frozen=True)
class Holder:
    """What a lock's file says.

    Attributes:
        path: the file; its suffix is the generation.
        beat: changes while the owner lives; "free" after it has released the lock, "" before it has written anything.
        owner: JSON with a random token, the machine, the process and when that started.
    """

    path: Path
    beat: str
    owner: str

    @property
    def generation(self) -> int:
        """How many owners there were, with this one."""
        return int(self.path.suffix[1:])

    @property
    def is_over(self) -> bool:
        """Whether the owner has released the lock or was a process of this machine that is gone."""
        return self.beat == FREE or owner_is_gone(self._known())

    def _known(self) -> dict[str, Any]:
        try:
            known = json.loads(self.owner)
        except ValueError:  # not written yet
            known = {}
        return known if isinstance(known, dict) else {}

    def __str__(self) -> str:
        known = self._known()
        return f"process {known['pid']} on {known['host']}" if {"pid", "host"} <= known.keys() else "another process"


def holders(folder: Path, name: str = "lock") -> list[Holder]:
    """Return all generations of a folder's lock, the latest first.

    There is one as a rule. A process that was killed on the way to become the owner may have left another above it.
    """
    found = []
    for path in _generations(folder, name):
        try:
            first, _, second = read_bytes(path).decode(errors="replace").partition("\n")
        except FileNotFoundError:  # removed since it was listed
            continue
        found.append(Holder(path, first.strip(), second.strip()))
    return found


def _generations(folder: Path, name: str) -> list[Path]:
    """Return a lock's files, the latest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    numbers = (entry.removeprefix(f".{name}.") for entry in names if entry.startswith(f".{name}."))
    return [folder / f".{name}.{number}" for number in sorted((int(n) for n in numbers if n.isdecimal()), reverse=True)]


class Watch:
    """Looks at a lock time and again, and so finds out whether its owner lives.

    Attributes:
        dead: those who gave no sign of life for too long; given to `Lock.acquire`.
    """

    def __init__(self, folder: Path, name: str = "lock") -> None:
        self.folder, self.name = folder, name
        self.dead: tuple[Holder, ...] = ()
        self._unchanged: dict[Holder, float] = {}  # seconds
        self._looked = time.monotonic()

    def busy(self) -> Holder | None:
        """Return who has the lock, None where it can be taken."""
        now, at = [holder for holder in holders(self.folder, self.name) if not holder.is_over], time.monotonic()
        # A waiter that was itself stopped in between has not seen the owner do nothing.
        since, self._looked = min(at - self._looked, 2 * BEAT), at
        before = self._unchanged
        self._unchanged = {holder: before[holder] + since if holder in before else 0.0 for holder in now}
        self.dead = tuple(holder for holder in now if self._unchanged[holder] > LIMIT)
        return next((holder for holder in now if holder not in self.dead), None)


@dataclass
class Lock:
    """A lock that this process has; a thread of its own shows that the process lives."""

    path: Path
    owner: str
    _descriptor: int
    _count: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @classmethod
    def acquire(cls, folder: Path, name: str = "lock", dead: Collection[Holder] = ()) -> Self | None:
        """Take a folder's lock without waiting; None where another process has it or is faster.

        Args:
            folder: must exist.
            name: lower-case letters; locks of different names are independent.
            dead: those that a `Watch` has found dead.

        Raises:
            OSError: the folder can not be written.
        """
        before = holders(folder, name)
        if not all(holder.is_over or holder in dead for holder in before):
            return None
        path = folder / f".{name}.{before[0].generation + 1 if before else 1}"
        owner = json.dumps({"token": secrets.token_hex(16), **this_process()})
        descriptor = _create(path, f"{0:<{WIDTH}}\n{owner}\n")
        if descriptor is None:
            return None
        lock = cls(path, owner, descriptor)
        there = _generations(folder, name) == [path, *(holder.path for holder in before)]
        if not there or not all(_is_owner(holder.path, holder.owner) for holder in before):
            lock._withdraw()  # what this rests on was history: others have had the lock in the meantime
            return None
        for holder in before:
            holder.path.unlink(missing_ok=True)  # from here on it notices that it is no longer the owner
        lock._thread = threading.Thread(target=lock._live, name=f"lock {folder.name[:12]}", daemon=True)
        lock._thread.start()
        return lock

    def check(self) -> None:
        """Raise a LostError unless this process still has the lock."""
        if _is_owner(self.path, self.owner):
            return
        now = holders(self.path.parent, self.path.name.split(".")[1])
        if not now:
            raise LostError(f"{self.path} has been removed; this process no longer writes there")
        raise LostError(f"{now[0]} took over while this process stood still; this one no longer writes there")

    def release(self, *, remove: bool = False) -> None:
        """Let others have the lock; `remove` it where nobody will want it. Never raises."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if not _is_owner(self.path, self.owner):
                os.close(self._descriptor)
            elif remove:
                self._withdraw()
            else:
                self._write(f"{FREE:<{WIDTH}}")
                os.close(self._descriptor)
        except OSError:
            pass  # the folder can no longer be written: the end of this process will release it

    def _live(self) -> None:
        while not self._stop.wait(BEAT):
            self._count += 1
            try:
                self._write(f"{self._count:<{WIDTH}}")
            except OSError:
                pass  # a full disk or a server that is away: another time

    def _write(self, text: str) -> None:
        # In place: a file that was removed does not come back. Flushed: other machines see what is on the server.
        os.pwrite(self._descriptor, text.encode(), 0)
        os.fsync(self._descriptor)

    def _withdraw(self) -> None:
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)


def wait_for_lock(folder: Path, name: str) -> Lock:
    """Take a lock that others have for moments only, as soon as it can be taken.

    Raises:
        OSError: the folder can not be written.
    """
    watch = Watch(folder, name)
    while True:
        if watch.busy() is None and (lock := Lock.acquire(folder, name, watch.dead)) is not None:
            return lock
        time.sleep(0.1)


def _create(path: Path, text: str) -> int | None:
    """Make a file with content that must not exist; return its descriptor, None where it exists."""
    draft = temporary_beside(path.with_name(path.name.removeprefix(".")))
    try:
        descriptor = _write_new(draft, text)
        try:
            os.link(draft, path)  # the file has its content from the first moment
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, FileExistsError):
                return None
            if error.errno not in NO_LINKS:
                raise
            descriptor = _write_new(path, text)  # one killed between the two counts as an owner for LIMIT
        return descriptor
    except FileExistsError:
        return None
    finally:
        draft.unlink(missing_ok=True)


def _write_new(path: Path, text: str) -> int:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        os.pwrite(descriptor, text.encode(), 0)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return descriptor


def _is_owner(path: Path, owner: str) -> bool:
    try:
        return read_bytes(path).decode(errors="replace").partition("\n")[2].strip() == owner
    except OSError:
        return False


@cache
def _this_machine() -> dict[str, str]:
    """Return what tells machines, their reboots and their containers apart."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:  # no Linux: the name has to do
        boot = namespace = ""
    return {"host": platform.node(), "boot": boot, "namespace": namespace}


def this_process() -> dict[str, Any]:
    """Return what tells this process from all others: machine, boot, container, number and start."""
    found = process_state(os.getpid())
    return {**_this_machine(), "pid": os.getpid(), "start": found[1] if found else ""}


def owner_is_gone(owner: dict[str, Any]) -> bool:
    """Whether what `this_process` returned once was a process of this machine that no longer runs."""
    here = _this_machine()
    if any(owner.get(key) != value for key, value in here.items()) or not isinstance(owner.get("pid"), int):
        return False
    if process_is_gone(str(owner["pid"])):
        return True
    found = process_state(owner["pid"])  # none where processes of other users are hidden
    return found is not None and found[1] != owner.get("start")
