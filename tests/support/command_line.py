"""The command line in this process, in a fork that has everything imported, and as a user starts it."""

import contextlib
import functools
import io
import json
import os
import select
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

LIMIT = 400.0  # seconds; no command of a test takes a tenth of it
SECONDS_PER_IMAGE = 1e-3  # of training, for estimates

CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect("{address}")
    server.sendall(json.dumps([os.getcwd(), sys.argv[1:], dict(os.environ)]).encode() + b"\\n")
    code, out, err = json.load(server.makefile())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def said(self):
        """All that it printed."""
        return self.out + self.err

    def ok(self):
        """Return it after checking that the command ended well."""
        assert self.code == 0, self.err
        return self

    def one_line(self, *parts, codes=(2,), prints=False):
        """Return the one line on standard error that a user's mistake ends in, after notes; it names the parts."""
        assert self.code in codes and (prints or self.out == ""), self
        lines = [line for line in self.err.strip().splitlines() if not line.startswith("note: ")]
        assert len(lines) == 1 and lines[0].startswith("hierbench: error: ") and len(lines[0]) < 5000, self.err
        assert all(part in lines[0] for part in parts), lines[0]
        return lines[0]


class Started:
    """A running process, in a process group of its own, with pipes for its output."""

    def __init__(self, pid, wait, out, err):
        self.pid, self._wait = pid, wait
        self.stdout, self.stderr = (os.fdopen(pipe, encoding="utf-8") for pipe in (out, err))

    def kill(self, signal_number=signal.SIGKILL):
        """Send the process and all that it started a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal_number)

    def finish(self, limit=LIMIT):
        """Wait for its end; past the limit it is killed."""
        timer = threading.Timer(limit, self.kill)
        timer.start()
        try:
            with ThreadPoolExecutor(2) as pool:
                out, err = pool.map(lambda pipe: pipe.read(), (self.stdout, self.stderr))
            return Done(self._wait(), out, err)
        finally:
            timer.cancel()
            self.stdout.close()
            self.stderr.close()


class CommandLine:
    """Runs commands in a folder; `environment` is added to the test's own, and None removes a variable.

    In this process, MLflow makes its tables once, which takes seconds; later databases are copies, if `copy_databases`.
    Jobs run in this process by default.
    The time of a training step, for estimates that no test looks at, is not measured.
    """

    def __init__(self, folder):
        self.copy_databases = True
        self._get_command = functools.cache(typer.main.get_command)  # a tenth of a second each time
        self._database, self._server = folder / "mlflow.db", None

    def __call__(self, folder, *arguments, **environment):
        """Run a command in this process."""
        from hierbench.cli.main import main

        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "argv", ["hierbench", *map(str, arguments)])
            patch.setattr(typer.main, "get_command", self._get_command)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr("hierbench.execution.estimate.seconds_per_image", lambda *_: SECONDS_PER_IMAGE)
            words = [*map(str, arguments)]
            if not {"--jobs", "--devices"} & {*words} or ("--jobs", "1") in pairwise(words):  # jobs run here, in turn
                # A second thread makes small networks hardly faster and costs as much again.
                patch.setattr("hierbench.execution.resources.num_cores", lambda: 1)
            if self.copy_databases:
                patch.setattr("hierbench.runs.mlflow_mirror.make_database", self._make_database)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
                main()
        return Done(end.value.code, out.getvalue(), err.getvalue())

    def _make_database(self, uri, make):
        from hierbench.utils.files import SQLITE, make_database

        def make_or_copy(address):
            path = address.removeprefix(SQLITE)
            if not self._database.exists():
                make(address)
                shutil.copyfile(path, self._database)
            else:
                shutil.copyfile(self._database, path)

        make_database(uri, make_or_copy)

    def real(self, folder, *arguments, python=("-m", "hierbench"), limit=LIMIT, **environment):
        """Run a command as a user starts it; `python` may be other arguments of Python's."""
        done = subprocess.run(
            [sys.executable, *map(str, (*python, *arguments))],
            cwd=folder,
            env=_changed(environment),
            capture_output=True,
            encoding="utf-8",
            timeout=limit,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, folder, *arguments, python=("-m", "hierbench"), **environment):
        """Start a command in a fork that has everything imported."""
        return self.server.start(folder, [*map(str, (*python, *arguments))], _changed(environment))

    @contextlib.contextmanager
    def program(self, path, python=("-m", "hierbench")):
        """Write an executable for scripts: each call of it is a command in a fork that has everything imported."""
        forks = self.server

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                where, arguments, environment = json.loads(self.rfile.readline())
                done = forks.start(where, [*python, *arguments], environment).finish()
                self.wfile.write(json.dumps(done).encode())

        with tempfile.TemporaryDirectory() as folder:  # the name of a socket is short
            path.write_text(CLIENT.format(python=sys.executable, address=f"{folder}/socket"), encoding="utf-8")
            path.chmod(0o755)
            with socketserver.UnixStreamServer(f"{folder}/socket", Handler) as server:
                thread = threading.Thread(target=server.serve_forever)
                thread.start()
                try:
                    yield
                finally:
                    server.shutdown()
                    thread.join()

    @property
    def server(self):
        """The process that forks."""
        self._server = self._server or Server()
        return self._server

    def close(self):
        """End the server."""
        if self._server is not None:
            self._server.close()


def _changed(environment):
    changed = os.environ | environment
    return {name: value for name, value in changed.items() if value is not None}


class Server:
    """The process that forks, seen from the tests; it ends when they do."""

    def __init__(self):
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, Path(__file__).with_name("fork_server.py"), str(theirs.fileno())]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))
        theirs.close()

    def start(self, folder, arguments, environment, stderr=None):
        """Have it carry out `python ARGUMENTS`, with nothing to read; errors go to a file of that number."""
        (out, to_out), (err, to_err), (control, theirs) = os.pipe(), os.pipe(), socket.socketpair()
        order = json.dumps([str(folder), arguments, environment]).encode()
        nothing = os.open(os.devnull, os.O_RDONLY)
        pipes = [nothing, to_out, to_err if stderr is None else stderr, theirs.fileno()]
        socket.send_fds(self.connection, [order], pipes)
        for pipe in (nothing, to_out, to_err):
            os.close(pipe)
        theirs.close()
        answers = control.makefile()

        def wait(limit=None):
            if not select.select([control], [], [], limit)[0]:
                raise TimeoutError
            with control, answers:
                return int(answers.readline())

        return Started(int(answers.readline()), wait, out, err)

    def close(self):
        """End it; it has no commands left."""
        self.connection.close()
        self.process.wait()
