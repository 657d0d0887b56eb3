"""Carries out commands of one tree of the project, each in a fork of this process, which has the libraries imported.

python -P side.py FOLDER, with PYTHONPATH=TREE: each line of the input is a list of arguments in JSON, of `hierbench` or
"python" and a file; the answer is a line with the exit code and the files below the folder that are new or changed.
What a command prints is in ../stdout and ../stderr.
"""

import atexit
import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

LIBRARIES = ("torch", "pandas", "scipy.stats", "scipy.special", "pydantic", "typer", "jinja2", "matplotlib.pyplot")
LIMIT = 300  # seconds of a command
SKIPPED = {"data", "cache", ".plans", "__pycache__"}  # folders of what is kept for speed


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
    for number, name in ((0, os.devnull), (1, folder.parent / "stdout"), (2, folder.parent / "stderr")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644), number)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in ((0, "r"), (1, "w"), (2, "w")))
    code = 1
    try:
        if arguments[0] == "python":
            sys.argv = arguments[1:]
            runpy.run_path(arguments[1], run_name="__main__")
            code = 0
        else:
            sys.argv = ["hierbench", *arguments]
            importlib.import_module("hierbench.__main__").main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


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
