"""Carries out commands of one tree of the project, each in a fork of this process, which has the libraries imported.

python -P side.py FOLDER, with PYTHONPATH=TREE: each line of the input is a list of arguments in JSON, of `hierbench` or
"python" and a file; the answer is a line with the exit code and the files below the folder that are new or changed.
What a command prints is in ../stdout and ../stderr.
"""

import importlib
import json
import os
import runpy
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from fork_server import call_and_exit, redirect

LIBRARIES = ("torch", "pandas", "scipy.stats", "scipy.special", "pydantic", "typer", "jinja2", "matplotlib.pyplot")
LIMIT = 300  # seconds of a command
SKIPPED = {"data", "cache", "__pycache__"}  # folders of what is kept for speed


def files_of(folder):
    """Return {path: state} of the files below a folder."""
    found = {}
    for place, names, files in os.walk(folder):
        names[:] = [name for name in names if name not in SKIPPED]
        for path in (Path(place, name) for name in files):
            stat = path.lstat()
            found[str(path.relative_to(folder))] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return found


def carry_out(folder, arguments):
    """Do what the command line does, in a fork, which never returns."""
    os.setsid()
    signal.alarm(LIMIT)
    names = (os.devnull, folder.parent / "stdout", folder.parent / "stderr")
    redirect(*(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644) for name in names))

    def call():
        sys.argv = arguments[1:] if arguments[0] == "python" else ["hierbench", *arguments]
        if arguments[0] == "python":
            runpy.run_path(arguments[1], run_name="__main__")
        else:
            importlib.import_module("hierbench.__main__").main()

    call_and_exit(call)


def main():
    """Answer orders until there are none."""
    folder = Path(sys.argv[1]).resolve()
    os.chdir(folder)
    for name in LIBRARIES:
        importlib.import_module(name)
    print(json.dumps(importlib.import_module("hierbench").__file__), flush=True)
    for line in sys.stdin:
        before = files_of(folder)
        if not (process := os.fork()):
            carry_out(folder, json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        changed = sorted(dict(files_of(folder).items() - before.items()))
        print(json.dumps([code, changed]), flush=True)


if __name__ == "__main__":
    main()
