"""Checks a foreign method in a child process, so that whatever its file does on import or under test ends with it.

The child sends a line of JSON for each step and a final one with a nonce; one that ends earlier gave no verdict,
whatever its exit code. This guards against mistakes, not malice: the file runs with the user's rights.
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

START_LIMIT = 300.0  # seconds for the child's own imports
CHECK_LIMIT = 60.0  # seconds for the import of the method, and for each check
GRACE = 5.0  # seconds that a child which closed its pipe has to end
LONGEST_LINE = 1 << 20  # bytes of a message
NOT_RUN = "not run"
GARBLED = "it changes the checks, or what they report"
CLOSED = 74  # exit code of a child that can no longer report
START = (
    "import json, sys; order = json.load(sys.stdin); sys.path[:] = order['path']; "
    "from hierbench.api.isolated import serve; serve(order)"
)


class EndedError(UserError):
    """The child gave no verdict; the message says how it ended, as in "it ended the process (exit code 0)"."""


def check_apart(reference: str, limit: float = CHECK_LIMIT) -> Iterator[tuple[str, str]]:
    """Check a method in a child process.

    Yields:
        First ("", the method's name), then each check's name and what is wrong: "" if it passed, NOT_RUN if the checks
        ended earlier.

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
    except EndedError as error:  # with no check left, the end of the report is damaged
        yield left[0] if left else "the report is whole", str(error)
        for check in left[1:]:
            yield check, NOT_RUN


def _steps(reference: str, limit: float) -> Iterator[tuple[str, str]]:
    """Yield the child's messages until it is done: (name, names of its checks), then (check, problem) for each.

    Raises:
        UserError: the error of `find_method` in the child.
        EndedError: the child ended early, or one step took longer than the limit.
    """
    nonce = secrets.token_hex(16)
    order = {"reference": reference, "limit": limit, "nonce": nonce}
    with _process(order) as (process, pipe):
        for line in _lines(process, pipe, limit):
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
def _process(order: dict[str, Any]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a child with an order, yield it and the pipe that it writes to, and kill it at the end."""
    ours, theirs = os.pipe()
    try:
        try:
            # Prints of the method go to standard error. The new session keeps Ctrl-C away from the child.
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", START],  # -P: a json.py in the working folder must not be imported
                stdin=subprocess.PIPE,
                stdout=2,
                pass_fds=(theirs,),
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(json.dumps(order | {"pipe": theirs, "path": sys.path}).encode())
            yield process, ours
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # with its own children
            process.wait()
    finally:
        os.close(ours)


def _lines(process: subprocess.Popen[bytes], pipe: int, limit: float) -> Iterator[bytes]:
    """Yield the lines that a child writes; raise an EndedError when it ends or is silent for too long."""
    buffer, deadline = b"", time.monotonic() + max(limit, START_LIMIT)
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
        elif process.poll() is not None:  # a child of its own keeps the pipe open
            break
        elif time.monotonic() > deadline:
            raise EndedError(f"it took longer than {limit:g} s and was stopped")
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    if process.returncode in (None, CLOSED):
        raise EndedError("it closes files that are not its own")
    raise EndedError(f"it ended the process ({ending(process.returncode)})")


def ending(code: int) -> str:
    """Return how a process ended, from its exit code as `subprocess` and `multiprocessing` give it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # a real-time signal
        return f"killed by signal {-code}"
