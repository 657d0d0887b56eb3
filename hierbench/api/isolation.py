"""Checks a third-party method in a separate process, which contains whatever its file does on import and in the checks.

The process sends a line of JSON for each step and one with a number of its own at the end. A process that ends before
has no verdict, whatever its exit code. This guards against mistakes, not malice: the file runs with the user's rights.
"""

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hierbench.utils.errors import BrokenMethodError, UserError

START_LIMIT = 300.0  # seconds in which the process imports what it needs itself
CHECK_LIMIT = 60.0  # seconds, of the import and of each check
GRACE = 5.0  # seconds for a process that closed its pipe to exit by itself
LONGEST_LINE = 1 << 20  # bytes of a message
NOT_RUN = "not run"
GARBLED = "it changes the checks, or what they report"
CLOSED = 74  # exit code of the process where it cannot report any more
START = (
    # What a method prints goes to standard error.
    "import json, os, sys; pipe = os.dup(1); os.dup2(2, 1); order = json.load(sys.stdin); sys.path[:] = order['path']; "
    "from hierbench.api.isolated import serve; serve(order, pipe)"
)


class EndedError(UserError):
    """The process gave no verdict; the message says how it ended, as in "it ended the process (exit code 0)"."""


def check_apart(reference: str, limit: float = CHECK_LIMIT) -> Iterator[tuple[str, str]]:
    """Check a method in a separate process.

    Yields:
        First ("", the method's name), then each check's name and what is wrong: "" if nothing is, NOT_RUN where the
        checks ended before, or the first of them failed.

    Raises:
        UserError: the method cannot be found or imported.
    """
    steps = _steps(reference, limit)
    try:
        name, checks = next(steps)
    except EndedError as error:
        raise BrokenMethodError(f"method {reference} cannot be imported: {error}") from None
    yield "", name
    left = checks.split("\n")
    try:
        for check, problem in steps:
            if not left or check != left[0]:
                raise EndedError(GARBLED)
            yield left.pop(0), problem
        if left:
            raise EndedError(GARBLED)
    except EndedError as error:  # after the last check: it corrupted the end of the report
        yield left[0] if left else "the report is complete", str(error)
        for check in left[1:]:
            yield check, NOT_RUN


def _steps(reference: str, limit: float) -> Iterator[tuple[str, str]]:
    """Yield what the process reports until it is done; the first is (name, the names of its checks).

    Raises:
        UserError: what `find_method` raised there.
        EndedError: it ended before, or took longer than the limit for one step.
    """
    nonce = secrets.token_hex(16)
    order = {"reference": reference, "limit": limit, "nonce": nonce}
    with _process(order) as process:
        for line in _lines(process, limit):
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if message == {"done": nonce}:
                return
            match message:
                case "ready":
                    continue
                case {"error": str(text), "broken": bool(broken)}:
                    raise (BrokenMethodError if broken else UserError)(text)
                case [str(name), str(text)]:
                    yield name, text
                case _:
                    raise EndedError(GARBLED)


@contextmanager
def _process(order: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process that carries out an order and reports on its standard output; at the end it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", START],  # -P: a json.py in the working folder must not be imported
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is ours to handle
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(order | {"path": sys.path}).encode())
        yield process
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # with its children
        process.wait()
        process.stdout.close()


def _lines(process: subprocess.Popen[bytes], limit: float) -> Iterator[bytes]:
    """Yield the lines that a process writes; raise an EndedError when it ends or is silent for too long."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    buffer, deadline = b"", time.monotonic() + max(limit, START_LIMIT)  # its own imports, before the first line
    while True:
        ready, _, _ = select.select([pipe], [], [], 0.2)
        if ready:
            content = os.read(pipe, 1 << 16)
            buffer += content
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                yield line
                deadline = time.monotonic() + limit
            if not content or len(buffer) > LONGEST_LINE:
                break
        elif process.poll() is not None:  # a child of it keeps the pipe open
            break
        elif time.monotonic() > deadline:
            raise EndedError(f"it took longer than {limit:g} s and was stopped")
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    if process.returncode in (None, CLOSED):
        raise EndedError("it closes files that are not its own")
    raise EndedError(f"it ended the process ({ending(process.returncode)})")


def ending(code: int) -> str:
    """Return how a process ended, from its exit code as `subprocess` and `multiprocessing` report it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # a real-time signal
        return f"killed by signal {-code}"
