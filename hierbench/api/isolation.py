"""Checks a third-party method in a separate process, which contains whatever its file does on import and in the checks.

This guards against mistakes, not malice: the file runs with the user's rights.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import Any, NoReturn

from hierbench.utils.errors import BrokenMethodError, UserError

START_LIMIT = 300.0  # seconds in which the process imports what it needs itself
CHECK_LIMIT = 60.0  # seconds, of the import and of each check
GRACE = 5.0  # seconds for a process that closed its pipe to exit by itself
NOT_RUN = "not run"
CLOSED = 74  # exit code of the process where it cannot report any more
START = (
    # What a method prints goes to standard error.
    "import json, os, sys; pipe = os.dup(1); os.dup2(2, 1); order = json.loads(sys.argv[1]); "
    "sys.path[:] = order.pop('path'); from hierbench.api.isolation import serve; serve(pipe, **order)"
)


class Ended(str):
    """How the process ended without a verdict, as in "it ended the process (exit code 0)"."""


def check_apart(reference: str, limit: float = CHECK_LIMIT) -> Iterator[tuple[str, str]]:
    """Check a method in a separate process.

    Yields:
        First ("", the method's name), then each check's name and what is wrong: "" if nothing is, NOT_RUN where the
        checks ended before, or the first of them failed.

    Raises:
        UserError: the method cannot be found or imported.
    """
    with _process({"reference": reference, "limit": limit, "path": sys.path}) as process:
        messages = _messages(process, limit)
        next(messages)  # it has imported what it needs itself
        found = next(messages)
        if isinstance(found, Ended):
            raise BrokenMethodError(f"method {reference} cannot be imported: {found}")
        if "error" in found:
            raise (BrokenMethodError if found["broken"] else UserError)(found["error"])
        yield "", found["name"]
        problem = ""
        for check in found["checks"]:
            problem = NOT_RUN if isinstance(problem, Ended) or problem == NOT_RUN else next(messages)
            yield check, problem


def serve(pipe: int, reference: str, limit: float) -> NoReturn:
    """Import a method, check it, write what was found to a pipe, a line of JSON each, and end this process."""
    from hierbench.api.contract import check_method, checks_of
    from hierbench.api.registry import find_method

    def send(message: Any) -> None:
        signal.alarm(int(limit) + 60)  # ends this process if its parent is gone
        try:
            os.write(pipe, json.dumps(message).encode() + b"\n")
        except OSError:
            os._exit(CLOSED)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C; see `is_interrupt`
    send("ready")
    try:
        found = find_method(reference)
    except UserError as error:
        send({"error": str(error), "broken": isinstance(error, BrokenMethodError)})
        os._exit(0)
    checks = [check.name for check in checks_of(found.cls)]
    send({"name": found.name, "checks": checks})
    for check, problem in check_method(found.cls):
        send(problem)
        checks.remove(check)
    for _ in checks:
        send(NOT_RUN)
    os._exit(0)  # neither threads nor exit handlers delay it


@contextmanager
def _process(order: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that carries out an order and reports on its standard output; at the end it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", START, json.dumps(order)],  # -P: a json.py in the working folder is not imported
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is ours to handle
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # with its children
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _messages(process: subprocess.Popen[bytes], limit: float) -> Iterator[Any]:
    """Yield what a process reports, and how it ended, again and again, once it has or is silent for too long."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    buffer, deadline = b"", time.monotonic() + max(limit, START_LIMIT)  # its own imports, before the first line
    while time.monotonic() <= deadline:
        if select.select([pipe], [], [], 0.2)[0]:
            if not (content := os.read(pipe, 1 << 16)):
                break
            *lines, buffer = (buffer + content).split(b"\n")
            for line in lines:
                yield json.loads(line)
                deadline = time.monotonic() + limit
        elif process.poll() is not None:  # a child of it keeps the pipe open
            break
    else:
        yield from repeat(Ended(f"it took longer than {limit:g} s and was stopped"))
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    closed = process.returncode in (None, CLOSED)
    how = "it closes files that are not its own" if closed else f"it ended the process ({ending(process.returncode)})"
    yield from repeat(Ended(how))


def ending(code: int) -> str:
    """Return how a process ended, from its exit code as `subprocess` and `multiprocessing` report it."""
    names = {-one: f" ({one.name})" for one in signal.Signals}  # real-time signals have none
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}{names.get(code, '')}"
