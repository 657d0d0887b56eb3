"""Progress of long work: bars with an ETA in a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_EVERY = 10.0  # seconds between lines where there is no terminal


def duration(seconds: float) -> str:
    """Return seconds as a person says them."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 86400 else f"{seconds / 86400:.1f} days"


def say(line: str) -> None:
    """Tell the user something; results alone go to standard output."""
    print(line, file=sys.stderr, flush=True)


def throttled(report: Callable[[float, int], None], seconds: float) -> Callable[[float, int], None]:
    """Return a function that passes progress on to `report` at most once in so many seconds."""
    last = 0.0

    def seldom(done: float, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > seconds:
            last = time.monotonic()
            report(done, total)

    return seldom


class Meter:
    """One total and the parts that are running.

    Args:
        what: the total's name.
        total: amount of work in any unit; parts are measured in the same.
    """

    def __init__(self, what: str, total: float) -> None:
        self.what, self.total, self.done = what, total, 0.0
        self.started = self.said = time.monotonic()
        self.first: tuple[float, float] | None = None  # when work was first seen, and how much: starting up is not pace
        self.parts: dict[str, tuple[TaskID | None, float]] = {}
        console = Console(stderr=True)
        self.bars = (
            Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(elapsed_when_finished=False),
                console=console,
                transient=True,
            )
            if console.is_terminal
            else None
        )
        self.main = self.bars.add_task(what, total=total) if self.bars else None

    def __enter__(self) -> Self:
        if self.bars:
            self.bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.bars:
            self.bars.stop()

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        if self.bars:
            self.bars.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def part(self, name: str, done: float, total: float) -> None:
        """Say how far a part is."""
        task, _ = self.parts.get(name, (None, 0.0))
        if self.bars and task is None:
            task = self.bars.add_task(f"  {name}", total=total)
        self.parts[name] = (task, done)
        if self.bars and task is not None:
            self.bars.update(task, completed=done)
        self._update()

    def end_part(self, name: str, total: float) -> None:
        """Count a part as finished."""
        task, _ = self.parts.pop(name, (None, 0.0))
        if self.bars and task is not None:
            self.bars.remove_task(task)
        self.done += total
        self._update()

    def _update(self) -> None:
        done = self.done + sum(amount for _, amount in self.parts.values())
        if self.bars and self.main is not None:
            self.bars.update(self.main, completed=done)
        elif time.monotonic() - self.said > LINE_EVERY:
            self.said = time.monotonic()
            line = f"{self.what}: {100 * done / self.total:.0f} %, {duration(self.said - self.started)} gone"
            if self.first is not None and done - self.first[1] > 0.01 * self.total:
                seconds = (self.said - self.first[0]) * (self.total - done) / (done - self.first[1])
                line += f", about {duration(seconds)} left"
            running = ", ".join(self.parts)
            self.say(f"{line} ({running})" if running else line)
        if self.first is None and done > 0:
            self.first = time.monotonic(), done
