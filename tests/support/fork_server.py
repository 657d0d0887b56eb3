"""A process that imports everything once and forks for each command: python tests/support/fork_server.py SOCKET.

Starting Python and importing PyTorch takes seconds. This process computes nothing, so that no thread of PyTorch is lost
in a fork; a fork's workers are forked too.
"""

import atexit
import importlib
import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import traceback
from itertools import pairwise


def import_everything():
    """Pay for the imports once; nothing is computed, so that no thread is lost in a fork."""
    os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_LOGGING_LEVEL": "WARNING"}
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    ours = ("api.contract", "cli.main", "data.datasets.shapes", "studies.comparison", "studies.tuning.tuning_study")
    ours += ("methods.haframe",)
    for name in (*(f"hierbench.{name}" for name in ours), "optuna.storages", "sqlalchemy.orm"):
        importlib.import_module(name)
    importlib.import_module("hierbench.training.fabric").make_fabric("cpu", "float32")  # imports Fabric


def fork_workers():
    """Let child processes be forks of this one."""
    real = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: real("fork")
    importlib.import_module("hierbench.execution.workers").start_server = lambda: real("fork")


def redirect(stdin, out, err):
    """Let this process read from and print to other files, given by their numbers, which are closed."""
    os.dup2(stdin, 0)
    os.close(stdin)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
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
        order, pipes, *_ = socket.recv_fds(connection, 1 << 20, 4)
        if not order:  # the tests are over
            os._exit(0)
        if os.fork():
            for pipe in pipes:
                os.close(pipe)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.close()
        *standard, control = pipes
        pid = os.fork()
        if not pid:
            break
        for pipe in standard:
            os.close(pipe)
        status = os.waitpid(pid, 0)[1]  # the keeper, which outlives a killed command
        os.write(control, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    os.setsid()
    os.write(control, f"{os.getpid()}\n".encode())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    redirect(*standard)
    os.close(control)
    folder, arguments, environment = json.loads(order)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return arguments


def run_python(arguments):
    """Do the same as `python ARGUMENTS`, with -m MODULE, -c CODE or a file."""
    first, *rest = arguments
    if ("--jobs", "1") in pairwise(arguments):  # one thread, as in command_line.py: results are compared with its
        importlib.import_module("hierbench.execution.resources").num_cores = lambda: 1
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
