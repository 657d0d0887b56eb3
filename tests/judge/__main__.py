"""Compares what two commits print and write: python tests/judge OLD NEW, in some minutes.

Both run the same commands (`commands.py`), in one environment, on copies of folders that the old one made. Numbers,
ids, JSON keys and the cells of tables must be equal; notes and layout are not compared. A commit may be a folder too:
`.` is the work tree. Differences that are meant are on the list below; the exit code is 1 if there are others, or if
nothing compares a command of the program.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from commands import COMPARED, INTERFACE, LEFT_OUT, MADE, lines_of
from compare import differing_files, differing_texts

# (of the command, of the difference, reason): two regular expressions. A change of numbers is not for this list.
ALLOWED: list[tuple[str, str, str]] = [
    (".", r"further-metrics\.json", "further values are in the user's cache, and published by a table"),
    ("^verify runs", r"number \d+: |folders\[0\]\.notes", "so none are beside runs, to be compared or not"),
    ("^verify|^reproduce", r"^stdout: (number|word)", "verification and reproduction are tables"),
]

HERE = Path(__file__).resolve().parent
SHOWN = 3  # differences of a command that are printed
LIST_COMMANDS = """
import json, typer
from hierbench.cli.main import app
def leaves(command, words=()):
    inner = getattr(command, "commands", None)
    return [leaf for name in inner for leaf in leaves(inner[name], (*words, name))] if inner else [" ".join(words)]
print(json.dumps(leaves(typer.main.get_command(app))))
"""


def export(commit, folder):
    """Write the tree of a commit, or of a folder; return where it is as installed, and as it is."""
    root, whole = HERE.parents[1], folder / "whole"
    whole.mkdir(parents=True)
    if Path(commit).is_dir():
        listed = ["git", "-C", commit, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, check=True, capture_output=True).stdout
        copy = ["tar", "-c", "--ignore-failed-read", "-C", commit, "--null", "--files-from=-"]
        packed = subprocess.run(copy, input=names, stdout=subprocess.PIPE, check=True).stdout
    else:
        packed = subprocess.run(["git", "-C", root, "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", whole], input=packed, check=True)
    tree = shutil.copytree(whole / "hierbench", folder / "tree/hierbench").parent
    for name in ("methods", "benchmarks", "leaderboard"):
        shutil.copytree(whole / name, tree / "hierbench" / name)
    return tree, whole


class Side:
    """The commands of one tree, in a folder of their own; `place` holds it, and what a command printed."""

    def __init__(self, tree, place):
        self.tree, self.place, self.folder = tree, place, place / "work"
        self.folder.mkdir(parents=True, exist_ok=True)
        unwanted = ("HIERBENCH", "MLFLOW", "PYTHONDONTWRITEBYTECODE")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)} | {
            "PYTHONPATH": str(tree),
            "PYTHONHASHSEED": "0",
            "PYTHONPYCACHEPREFIX": str(place.parent / "bytecode"),
            "HIERBENCH_CACHE_DIR": str(place / "cache"),
            "DO_NOT_TRACK": "true",
            "OMP_NUM_THREADS": "1",
            "MPLBACKEND": "Agg",
            "COLUMNS": "160",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "side.py"), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        found = json.loads(self._process.stdout.readline())
        if not found.startswith(str(tree)):  # a tree that is installed in the environment comes after it
            raise SystemExit(f"judge: {found} is imported instead of {tree}/hierbench")

    def start(self, arguments):
        """Start a command."""
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()

    def finish(self):
        """Return its exit code, and the files that it wrote."""
        return json.loads(self._process.stdout.readline())

    def close(self):
        """End the process."""
        self._process.stdin.close()
        self._process.wait()

    def clean(self, text):
        """Return a text without the folders of this side."""
        for folder in (self.folder, self.tree, self.place):
            text = text.replace(str(folder), "<here>")
        return text

    def printed(self, name="stdout"):
        """Return what the last command printed."""
        return self.clean((self.place / name).read_bytes().decode(errors="replace"))


def make(side, whole):
    """Make the folders that the commands are tried on."""
    shutil.copytree(whole / "leaderboard/published", side.folder / "published")
    (side.folder / "interface.py").write_text(INTERFACE)
    first = f"python {HERE}/fixture.py {whole}/tests"
    for arguments, _ in lines_of(f"{first}\n{MADE}"):
        began = time.monotonic()
        if arguments[0] == "cp":
            subprocess.run(arguments, check=True, cwd=side.folder)
            continue
        side.start(arguments)
        code, _ = side.finish()
        print(f"{time.monotonic() - began:5.1f} s  made, exit code {code}: {shlex.join(arguments)}", flush=True)
        if code and "buggy" not in " ".join(arguments):
            raise SystemExit(f"judge: the old commit cannot make what is compared:\n{side.printed('stderr')[-2000:]}")


def differences(sides, arguments, kind):
    """Run a command on both sides; return the exit code and where they differ."""
    for side in sides:
        side.start(arguments)
    (old_code, old_files), (new_code, new_files) = (side.finish() for side in sides)
    old, new = sides
    if old_code != new_code:
        said = (new if new_code else old).printed("stderr").strip()
        found = [f"exit code: {old_code} | {new_code} ({said[-300:]})"]
    else:
        texts = differing_texts(old.printed(), new.printed(), kind) if kind != "exit" else ()
        found = [f"stdout: {difference}" for difference in texts]
    found += [f"file missing: {name}" for name in sorted({*old_files} - {*new_files})]
    found += [f"file added: {name}" for name in sorted({*new_files} - {*old_files})]
    for name in (name for name in old_files if name in new_files):
        several = differing_files(old.folder / name, new.folder / name, [old.clean, new.clean])
        found += [f"{name}: {difference}" for difference in several]
    return old_code, found


def judge(sides, only):
    """Print a line for every command; return how many differ."""
    lines = [line for line in lines_of(COMPARED) if re.search(only, shlex.join(line[0]))]
    num_differ, num_allowed, used = 0, 0, set()
    for arguments, kind in lines:
        command, began = shlex.join(arguments), time.monotonic()
        (code, found), left = differences(sides, arguments, kind), []
        for difference in found:
            fits = {entry for entry in ALLOWED if re.search(entry[0], command) and re.search(entry[1], difference)}
            used |= fits
            left += [] if fits else [difference]
        num_differ += bool(left)
        num_allowed += bool(found) and not left
        word = "DIFFERS" if left else "allowed" if found else "same"
        print(f"{time.monotonic() - began:5.1f} s  {word:7}  exit {code}: {command}", flush=True)
        for difference in left[:SHOWN]:
            print(f"{'':10}{difference[:500]}")
        if len(left) > SHOWN:
            print(f"{'':10}and {len(left) - SHOWN} more")
    for command, difference, _ in () if only else [entry for entry in ALLOWED if entry not in used]:
        print(f"allowed, and no longer there: {command} {difference}")
    print(f"{len(lines)} commands, {num_differ} differ, {num_allowed} allowed")
    return num_differ


def unnamed(sides):
    """Return the commands of the program that nothing compares."""
    missing, named = set(), [" ".join(arguments[:3]) + " " for arguments, _ in lines_of(COMPARED)]
    for side in sides:
        script = side.place / "list.py"
        script.write_text(LIST_COMMANDS)
        side.start(["python", str(script)])
        side.finish()
        leaves = json.loads(side.printed())
        missing |= {leaf for leaf in leaves if not any(line.startswith(f"{leaf} ") for line in named)}
    return missing - LEFT_OUT.keys()


def main():
    """Compare two commits."""
    parser = argparse.ArgumentParser(prog="python tests/judge", description=__doc__.partition("\n")[0])
    parser.add_argument("old", help="Commit, or folder of a work tree.")
    parser.add_argument("new", help="Commit, or folder of a work tree.")
    parser.add_argument(
        "--keep", type=Path, help="Folder to work in; the next time, what the old commit made is there."
    )
    parser.add_argument("--only", default="", help="Regular expression of the commands to run.")
    asked, captured = parser.parse_args(), {"cwd": HERE, "capture_output": True, "text": True}
    with tempfile.TemporaryDirectory() as temporary:
        place = (asked.keep or Path(temporary)).resolve()
        for name in ("old", "new"):
            shutil.rmtree(place / name, ignore_errors=True)
        (old, whole), (new, _) = export(asked.old, place / "old"), export(asked.new, place / "new")
        ready, made_by = place / "made/ready", subprocess.run(["git", "rev-parse", asked.old], **captured).stdout
        if not ready.exists() or ready.read_text() != made_by:
            shutil.rmtree(place / "made", ignore_errors=True)
            maker = Side(old, place / "made")
            make(maker, whole)
            maker.close()
            ready.write_text(made_by)
        for name in ("old", "new"):
            shutil.copytree(place / "made/work", place / name / "work")
        sides = [Side(old, place / "old"), Side(new, place / "new")]
        missing = unnamed(sides)
        for leaf in sorted(missing):
            print(f"no line of commands.py compares: {leaf}")
        num = judge(sides, asked.only)
        for side in sides:
            side.close()
    raise SystemExit(1 if num or missing else 0)


if __name__ == "__main__":
    main()
