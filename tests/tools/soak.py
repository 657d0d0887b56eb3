"""Kill commands repeatedly, start them again, and compare with undisturbed results.

    python tests/tools/soak.py [--kills 60] [--seed 0] [--only training|preparing|tuning|ablating|scoring|publishing]

SIGKILL falls at three kinds of moments: at any time, while a database has a journal, and at a file that is written:
just before it is opened, renamed or removed, or some milliseconds later. It ends the whole process group, or one
worker alone. In the end everything must be bit by bit as after a command that ran alone: no result lost, no job, trial
or image counted twice, no temporary file left. After each kill, a folder of publications is one that was there before
or one that a command makes, as a whole.

The commands are real ones, but not real starts: importing takes ten seconds, so this process imports everything once
and forks for each command. It has computed nothing by then, so no thread of PyTorch is lost; workers are forked too.
The undisturbed command is a real start (not with --forked), so the comparison also says that forks compute the same.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from fork_server import call_and_exit, fork_workers, import_everything, redirect
from soak_kinds import (
    COMMANDS,
    DATABASES,
    FILES,
    WORKERS,
    carry_out,
    complaints,
    finished,
    make_data,
    make_folder,
    make_runs,
    published,
    remaining,
    result,
)

STUCK = 300.0  # seconds; no command here takes a tenth of it
MOST_KILLS = 8  # of one command, before it may end
LAST = 0.010  # seconds after a file's event in which a kill may fall
ANY, JOURNAL = "any time", "journal"


@dataclass(frozen=True)
class Moment:
    """When to kill.

    Attributes:
        phase: ANY, JOURNAL or a file's name.
        number: of its events, from 1.
        delay: seconds after the start (ANY) or after the event; 0 is before the event is carried out.
        alone: the worker that comes to the event is killed, the others not.
    """

    phase: str
    number: int = 1
    delay: float = 0.0
    alone: bool = False

    def __str__(self) -> str:
        where = f"{self.phase} {self.number}" if self.phase != ANY else ANY
        return f"{where} + {1000 * self.delay:.0f} ms{' (one worker)' if self.alone else ''}"


@dataclass
class Attempt:
    """How a command ended: its exit code, None if the killer ended it, and the events of its files."""

    code: int | None
    seconds: float
    events: Counter[str] = field(default_factory=Counter)


def phase_of(path: str, files: tuple[str, ...]) -> str | None:
    """Return which of a command's files a path is, also of its temporary file."""
    stem = re.sub(r"-[0-9a-f]{64}$", "", os.path.basename(path).lstrip(".").partition(".")[0])
    name = "artifact" if "/mlartifacts/" in path else stem
    return name if name in files else None


def watch_files(files: tuple[str, ...], moment: Moment | None, pipe: int, command: int) -> None:
    """Report each event of the files from now on, and die before that of the moment; for a process and its forks."""
    counts: Counter[str] = Counter()

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "ctypes.dlsym":  # folders change places
            arguments = arguments[1:]
        elif event not in ("open", "os.rename", "os.remove"):
            return
        if not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        if event == "open" and not int(arguments[2]) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):  # type: ignore[call-overload]
            return
        name = phase_of(os.fsdecode(arguments[0]), files)
        if name is None:
            return
        counts[name] += 1
        os.write(pipe, f"{name}\n".encode())
        if moment is None or moment.delay or moment.phase != name or counts[name] < moment.number:
            return
        if not moment.alone:
            os.killpg(0, signal.SIGKILL)
        elif os.getpid() != command:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def fork(call: Callable[[], object], log: Path) -> int:
    """Call something in a process group of its own that is a copy of this process; return its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    os.setpgid(0, 0)
    logs = (os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666) for name in (log, log.with_suffix(".err")))
    redirect(os.open(os.devnull, os.O_RDONLY), *logs)
    call_and_exit(call)


def command_of(
    kind: str, folder: Path, moment: Moment | None, pipe: int, commands: Sequence[Sequence[str]]
) -> Callable[[], None]:
    """Return what carries commands out in a fork."""

    def call() -> None:
        from hierbench.data import writer

        fork_workers()
        writer.FLUSH_EVERY = 128 * 3 * 32 * 32  # marks more often than in a large dataset
        os.chdir(folder)
        watch_files(FILES[kind], moment, pipe, os.getpid())
        for command in commands:
            carry_out(*command)

    return call


def attempt(kind: str, folder: Path, moment: Moment | None, commands: Sequence[Sequence[str]]) -> Attempt:
    """Carry commands of a kind out, and kill them at the moment if that comes."""
    reading, writing = os.pipe()
    began = time.monotonic()
    pid = fork(command_of(kind, folder, moment, writing, commands), folder / "out")
    os.close(writing)
    result, journals, was_there, text = Attempt(None, 0.0), 0, False, b""
    due = began + moment.delay if moment and moment.phase == ANY else None
    spin = moment is None or moment.phase == JOURNAL
    try:
        while True:
            ready = select.select([reading], [], [], 0.0002 if spin else 0.01)[0]
            text += os.read(reading, 65536) if ready else b""
            *lines, text = text.split(b"\n")
            for line in lines:
                result.events[line.decode()] += 1
            if spin and due is None:
                is_there = any((folder / f"{name}-journal").exists() for name in DATABASES)
                journals, was_there = journals + (is_there and not was_there), is_there
                result.events[JOURNAL] = journals
            if due is None and moment and moment.phase != ANY and result.events[moment.phase] >= moment.number:
                due = time.monotonic() + moment.delay if moment.delay else None
            if due is not None and time.monotonic() >= due:
                os.killpg(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                result.code = None if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() - began > STUCK:
                raise SystemExit(f"{kind} hangs in {folder}")
    finally:
        with contextlib.suppress(OSError):  # workers of a command that was killed alone
            os.killpg(pid, signal.SIGKILL)
        os.close(reading)
    result.seconds = time.monotonic() - began
    return result


class Soak:
    """One kind of command: what it leaves undisturbed, then rounds of kills."""

    def __init__(self, kind: str, place: Path, seed: int) -> None:
        self.kind, self.place, self.rng = kind, place, random.Random(f"{seed} {kind}")
        self.kills: Counter[str] = Counter()
        self.wrong: list[str] = []

    def prepare(self, forked: bool) -> None:
        """Carry the command out undisturbed: as a user does, and in a fork."""
        rehearsal = self.folder("rehearsal")
        self.alone, self.whole = Attempt(0, 0.0), [published(rehearsal)]
        for command in COMMANDS[self.kind]:
            ended = attempt(self.kind, rehearsal, None, [command])
            if ended.code != 0 or complaints(rehearsal):
                raise SystemExit((rehearsal / "out.err").read_text())
            self.alone.seconds += ended.seconds
            self.alone.events += ended.events
            self.whole.append(published(rehearsal))
        self.expected = result(self.kind, rehearsal)
        if not forked:
            folder = self.folder("alone")
            with (folder / "out").open("w") as out, (folder / "out.err").open("w") as err:
                for command in COMMANDS[self.kind]:
                    real = [sys.executable, "-m", "hierbench", *command]
                    subprocess.run(real, cwd=folder, check=True, stdout=out, stderr=err)
            self.compare(folder, ["in a fork, undisturbed"])

    def folder(self, name: str) -> Path:
        """Return a new folder."""
        folder = self.place / f"{self.kind}-{name}"
        make_folder(self.kind, folder)
        return folder

    def moment(self) -> Moment:
        """Choose when to kill."""
        draw = self.rng.random()
        if draw < 0.25:
            return Moment(ANY, delay=self.rng.uniform(0, self.alone.seconds))
        phase = JOURNAL if draw < 0.4 else self.rng.choice(sorted(self.alone.events))
        if not self.alone.events[phase]:
            return self.moment()
        # The smaller of two: what goes on after a kill has less to write.
        number = min(self.rng.randint(1, self.alone.events[phase]) for _ in range(2))
        if phase == JOURNAL or self.rng.random() < 0.5:
            return Moment(phase, number, self.rng.uniform(1e-4, LAST))
        if self.kind not in WORKERS:
            return Moment(phase, number)
        # These are counted in each process, of which there are up to three.
        return Moment(phase, -(-number // 3), alone=self.rng.random() < 0.3)

    def round(self, name: str, kills: int) -> int:
        """Kill a command until it ends by itself; return how often that was."""
        folder, moments, done = self.folder(name), [], dict[str, float]()
        while True:
            moment = self.moment() if len(moments) < min(kills, MOST_KILLS) else None
            ended = attempt(self.kind, folder, moment, remaining(self.kind, folder))
            lines = complaints(folder)
            lost = {job: began for job, began in done.items() if finished(folder).get(job) != began}
            if lost or lines:
                self.wrong.append(f"{self.kind}: after {moment}: {'; '.join(lines) or f'trained again: {lost}'}")
            if published(folder) not in self.whole:
                self.wrong.append(f"{self.kind}: after {moment}: {folder / 'published'} is neither old nor new")
            done = finished(folder)
            if ended.code == 0:
                break
            killed = ended.code is None or "SIGKILL" in (folder / "out.err").read_text()
            if not killed or moment is None:
                self.wrong.append(f"{self.kind}: exit code {ended.code} after {', '.join(map(str, moments))}: {folder}")
                return len(moments)
            moments.append(moment)
            self.kills[moment.phase] += 1
        if self.compare(folder, moments):
            shutil.rmtree(folder)
        return len(moments)

    def compare(self, folder: Path, moments: list[object]) -> bool:
        """Say what differs from the undisturbed command."""
        left_behind = result(self.kind, folder)
        odd = [name for name in self.expected if left_behind[name] != self.expected[name]]
        if odd:
            history = ", ".join(map(str, moments))
            self.wrong.append(f"{self.kind}: {', '.join(odd)} differ in {folder} after: {history}")
        return not odd


def in_fork(make: Callable[[Path], None], place: Path) -> None:
    """Call something that computes."""

    def call() -> None:
        fork_workers()
        make(place)

    _, status = os.waitpid(fork(call, place / "out"), 0)
    if status:
        raise SystemExit((place / "out.err").read_text())


def main() -> int:
    """Run the rounds; return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=60, help="how many in all")
    parser.add_argument("--seed", type=int, default=random.randrange(1000000), help="of the moments; random by default")
    parser.add_argument("--only", choices=COMMANDS, action="append", help="kill this kind alone; may be repeated")
    parser.add_argument("--forked", action="store_true", help="take a fork for the undisturbed command too")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # two jobs, one thread each, on any machine
    place, began = Path(tempfile.mkdtemp(prefix="soak-")), time.monotonic()
    print(f"seed {options.seed}; in {place}", flush=True)
    import_everything()
    importlib.import_module("hierbench.data.datasets.tiny_imagenet")
    importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
    importlib.import_module("hierbench.sharing.publication")
    importlib.import_module("hierbench.studies.scoring.score_files")
    importlib.import_module("matplotlib.pyplot")
    os.environ["HIERBENCH_CACHE_DIR"] = "cache"  # in the folder of each round
    kinds = options.only or list(COMMANDS)
    in_fork(make_data, place)
    if {"scoring", "publishing"} & set(kinds):
        in_fork(make_runs, place)
    total, soaks, done = options.kills, list[Soak](), 0
    for number, kind in enumerate(kinds):
        soak = Soak(kind, place, options.seed)
        soaks.append(soak)
        soak.prepare(options.forked)
        goal = total * (number + 1) // len(kinds)
        for turn in range(10 * total):
            if done >= goal or soak.wrong:
                break
            done += soak.round(str(turn), goal - done)
            gone = time.monotonic() - began
            remaining = f", about {gone * (total - done) / done:.0f} s left" if done else ""
            print(f"{kind}: {done} of {total} kills, {gone:.0f} s gone{remaining}", flush=True)
    return report(soaks, place, options.seed)


def report(soaks: list[Soak], place: Path, seed: int) -> int:
    """Print the kills by phase, and what was lost."""
    for soak in soaks:
        shown = ", ".join(f"{phase} {number}" for phase, number in sorted(soak.kills.items()))
        print(f"{soak.kind}: {sum(soak.kills.values())} kills ({shown})")
    wrong = [line for soak in soaks for line in soak.wrong]
    print("".join(f"WRONG: {line}\n" for line in wrong), end="")
    killed = sum(sum(soak.kills.values()) for soak in soaks)
    print(f"{killed} kills, {f'{len(wrong)} differences; --seed {seed}' if wrong else 'nothing lost'}", flush=True)
    if not wrong:
        shutil.rmtree(place)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
