"""Processes and cores of this machine."""

import gc
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def this_machine() -> str:
    """Return a digest that tells machines and containers apart, which number their processes separately."""
    namespace = ""
    with suppress(OSError):  # not Linux: the host name must do
        namespace = os.readlink("/proc/self/ns/pid")
    return sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:8]


def process_is_gone(pid: str) -> bool:
    """Whether no process of this machine has this number; a zombie has ended too."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    with suppress(OSError):  # no Linux
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[0] in "ZX"
    return False


@contextmanager
def starting_children(*, forked: bool = False) -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which is the parent's to handle, and run nothing of the user's.

    A spawned process imports the script that the program began with, and would train there too if the script has no
    guard `if __name__ == "__main__"`. A Python that is started with -c, as all of these, looks for modules in the
    working folder first, where a file of a received folder may have the name of one.

    Args:
        forked: by a server that ignores Ctrl-C itself: while it imports, which takes seconds, the parent does not.

    Raises:
        ChildProcessError: a process ended as it started.
    """
    main = threading.current_thread() is threading.main_thread() and not forked
    script = sys.modules["__main__"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None  # only the main thread can, and gets it
    sys.modules["__main__"] = ModuleType("__main__")
    safe = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    except (EOFError, ConnectionError) as error:
        raise ChildProcessError("a process of hierbench cannot start; its message is above") from error
    finally:
        sys.modules["__main__"] = script
        os.environ.pop("PYTHONSAFEPATH") if safe is None else os.environ.update(PYTHONSAFEPATH=safe)
        if main:
            signal.signal(signal.SIGINT, before)


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let this process have the memory that is free and no more, on Linux, which ends one that writes to more."""
    try:
        import resource

        lines = [*Path("/proc/meminfo").read_text().splitlines(), *Path("/proc/self/status").read_text().splitlines()]
    except (ImportError, OSError):
        yield
        return
    kilobytes = {line.split(":")[0]: int(line.split()[-2]) for line in lines if line.endswith(" kB")}
    most = 1024 * sum(kilobytes.get(name, 0) for name in ("VmData", "MemAvailable", "SwapFree"))
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def describe_exit(code: int) -> str:
    """Return how a process ended, from its exit code as `subprocess` and `multiprocessing` report it."""
    names = {-signal_: f" ({signal_.name})" for signal_ in signal.Signals}  # real-time signals have no name
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}{names.get(code, '')}"


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep Python from looking for cycles among many new objects again and again: a fourth of the time, or more."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
