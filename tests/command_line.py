"""The command line in this process, in a fork that has everything imported, and as a user starts it.

Starting Python and importing PyTorch takes seconds. A server process imports everything once, computes nothing, so that
no thread of PyTorch is lost in a fork, and forks for each command; a fork's workers are forked too.
"""

import atexit
import contextlib
import importlib
import io
import json
import multiprocessing
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import pytest

LIMIT = 400.0  # seconds; no command of a test takes a tenth of it


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
    """A running process, in a process group of its own, with pipes for what it prints."""

    def __init__(self, pid, wait, out, err):
        self.pid, self._wait = pid, wait
        self.stdout, self.stderr = (os.fdopen(pipe, encoding="utf-8") for pipe in (out, err))

    def kill(self, how=signal.SIGKILL):
        """Send the process and all that it started a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, how)

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
    The time of a training step is measured once for each kind of training.
    """

    def __init__(self, folder):
        self.copy_databases, self._database, self._server = True, folder / "mlflow.db", None
        self._seconds = {}

    def __call__(self, folder, *arguments, **environment):
        """Run a command in this process."""
        from hierbench.cli.main import main
        from hierbench.planning.estimate import seconds_per_image

        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "argv", ["hierbench", *map(str, arguments)])
            for name, value in environment.items():
                patch.setenv(name, value)
            measure = partial(self._measure_once, seconds_per_image)
            patch.setattr("hierbench.planning.estimate.seconds_per_image", measure)
            if self.copy_databases:
                patch.setattr("hierbench.runs.mlflow_mirror.make_database", self._make_database)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
                main()
        return Done(end.value.code, out.getvalue(), err.getvalue())

    def _measure_once(self, measure, recipe, feature_type, hierarchy, *where):
        key = repr((recipe.model, recipe.expected.image_size, feature_type, hierarchy.classes, *where))
        if key not in self._seconds:
            self._seconds[key] = measure(recipe, feature_type, hierarchy, *where)
        return self._seconds[key]

    def _make_database(self, uri, make):
        from hierbench.utils.sqlite import PREFIX, make_database

        def make_or_copy(address):
            path = address.removeprefix(PREFIX)
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
        self._server = self._server or Server()
        return self._server.start(folder, [*map(str, (*python, *arguments))], _changed(environment))

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
        command = [sys.executable, __file__, str(theirs.fileno())]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))
        theirs.close()

    def start(self, folder, arguments, environment):
        """Have it carry out `python ARGUMENTS`."""
        (out, to_out), (err, to_err), (control, theirs) = os.pipe(), os.pipe(), socket.socketpair()
        order = json.dumps([str(folder), arguments, environment]).encode()
        socket.send_fds(self.connection, [order], [to_out, to_err, theirs.fileno()])
        os.close(to_out)
        os.close(to_err)
        theirs.close()
        answers = control.makefile()

        def wait():
            with control, answers:
                return int(answers.readline())

        return Started(int(answers.readline()), wait, out, err)

    def close(self):
        """End it; it has no commands left."""
        self.connection.close()
        self.process.wait()


def import_everything():
    """Pay for the imports once; nothing is computed, so that no thread is lost in a fork."""
    os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_LOGGING_LEVEL": "WARNING"}
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    ours = ("cli.main", "data.datasets.shapes", "experiments.comparison", "experiments.tuning.tune", "methods.haframe")
    for name in (*(f"hierbench.{name}" for name in ours), "lightning_fabric", "optuna.storages", "sqlalchemy.orm"):
        importlib.import_module(name)


def fork_workers():
    """Let what this process starts be forks of it."""
    real = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: real("fork")


def redirect(out, err):
    """Let this process print to other files, given by their numbers, which are closed."""
    for number, place, buffering in ((1, out, -1), (2, err, 1)):
        os.dup2(place, number)
        os.close(place)
        stream = open(number, "w", buffering, encoding="utf-8", closefd=False)
        setattr(sys, "stdout" if number == 1 else "stderr", stream)


def call_and_exit(call, *arguments):
    """Call, then end this process as Python would, without the seconds in which it takes its modules apart."""
    code = 1
    try:
        call(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve(connection):
    """Fork for each order that comes, and return in the fork: which then is `python ARGUMENTS`, given as a list."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while True:
        order, pipes, *_ = socket.recv_fds(connection, 1 << 20, 3)
        if not order:  # the tests are over
            os._exit(0)
        if os.fork():
            for pipe in pipes:
                os.close(pipe)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.close()
        out, err, control = pipes
        pid = os.fork()
        if not pid:
            break
        os.close(out)
        os.close(err)
        status = os.waitpid(pid, 0)[1]  # the keeper, which outlives a killed command
        os.write(control, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    os.setsid()
    os.write(control, f"{os.getpid()}\n".encode())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    redirect(out, err)
    os.close(control)
    folder, arguments, environment = json.loads(order)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return arguments


def run_python(arguments):
    """Do what `python ARGUMENTS` does, with -m MODULE, -c CODE or a file."""
    first, *rest = arguments
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    import_everything()
    fork_workers()
    call_and_exit(run_python, serve(socket.socket(fileno=int(sys.argv[1]))))
