"""A lock on a folder, for the processes of one machine or of several that share a file system.

It is a lease of `filelock`: the owner touches the file `.<name>` every `BEAT` seconds. A dead owner on this machine is
replaced at once, any other when its file has not changed for `LEASE_SECONDS` of the waiter's clock; times of machines
are never compared. An owner that was stopped for longer finds out by `check`, to be called before each write.
"""

import fcntl
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from hierbench.utils.processes import process_is_gone

BEAT = 2.0  # seconds between two heartbeats
GRACE = 1.0  # seconds for filelock to replace a dead owner by itself
LEASE_SECONDS = 30.0  # seconds without one, after which an owner counts as dead


class LostError(RuntimeError):
    """Another process has taken over this one's lock, or its file was removed."""


class Lock:
    """A folder's lock, held or waited for. Detecting a dead owner takes repeated calls on the same object."""

    def __init__(self, folder: Path, name: str = "lock") -> None:
        self.path = folder / f".{name}"
        self._watch()

    def _watch(self) -> None:
        self._lease = SoftFileLease(
            self.path, lease_duration=LEASE_SECONDS, heartbeat_interval=BEAT, thread_local=False
        )
        self._seen: tuple[int, int] | None = None  # inode and change time of the file, which is unchanged since:
        self._since = self._looked = time.monotonic()

    def acquire(self) -> bool:
        """Take the lock without waiting; False where another process has it.

        Raises:
            OSError: the folder cannot be written.
        """
        if (
            time.monotonic() - self._looked > LEASE_SECONDS / 2
        ):  # this process was stopped itself, perhaps with the owner
            self._watch()
        self._looked = time.monotonic()
        try:
            self._lease.acquire(blocking=False)
        except (Timeout, LeaseSettingsMismatch):
            self._break_dead()
            return False
        return True

    def __enter__(self) -> Self:  # waits: for a lock that others have for moments only
        while not self.acquire():
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def holder(self) -> str | None:
        """Return the owner of the lock, None if it can be taken."""
        with suppress(OSError):  # taking it will report the error
            if os.path.lexists(self.path) and not self.acquire():
                return self._name()
            self.release()
        return None

    def check(self) -> None:
        """Raise a LostError unless this process still has the lock."""
        for _ in range(3):
            owner = self._lease.owner
            if owner is not None and owner.token == self._lease.token:
                return
            time.sleep(0.02)  # a waiter may have moved the file for a moment, to look at it
        if not self.path.exists():
            raise LostError(f"{self.path} has been removed; this process no longer writes there")
        raise LostError(f"{self._name()} took over while this process was stopped; this one no longer writes there")

    def release(self) -> None:
        """Release the lock; does nothing where it is not held or was lost. Never raises."""
        with suppress(OSError):
            for leftover in self.path.parent.glob(f"{self.path.name}.*.*.*") if self._lease.is_locked else ():
                if process_is_gone(leftover.name.split(".")[-2]):  # it was killed while it took a lock over
                    leftover.unlink()
        with suppress(OSError):  # the folder can no longer be written: the end of this process releases the lock
            self._lease.release()

    def _name(self) -> str:
        owner = self._lease.owner
        return f"process {owner.pid} on {owner.hostname.partition('?')[0]}" if owner else "another process"

    def _break_dead(self) -> None:
        """Remove the files that filelock keeps: empty ones, zombies', and all where names cannot be exchanged (NFS)."""
        with suppress(OSError):
            stat = self.path.lstat()
            if self._seen != (stat.st_ino, stat.st_ctime_ns):
                self._seen = (stat.st_ino, stat.st_ctime_ns)
                self._since = self._looked
            owner = self._lease.owner
            dead = owner is not None and process_is_gone(str(owner.pid)) and owner.hostname == _machine()
            if self._looked - self._since <= (GRACE if dead else LEASE_SECONDS):
                return
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)  # one waiter at a time, or one removes the next owner's lock
                if self.path.lstat().st_ctime_ns == stat.st_ctime_ns:
                    self._lease.force_break()
            finally:
                os.close(folder)


@cache
def _machine() -> str:
    """Return how leases name this machine, and the container on it."""
    with TemporaryDirectory() as folder, SoftFileLease(Path(folder) / "lock") as lease:
        return lease.owner.hostname if lease.owner else ""
