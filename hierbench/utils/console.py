"""Messages to the user, and progress: bars with an ETA in a terminal, a line now and then in a log or notebook."""

import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hierbench.utils.errors import UserError

LINE_EVERY = 10.0  # seconds between lines where there is no terminal


def duration(seconds: float) -> str:
    """Return a duration for people, e.g. "5 min"."""
    if seconds < 1:
        return "under 1 s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 86400:
        return f"{seconds / 3600:.1f} h"
    days = seconds / 86400
    return f"{days:.1f} days" if days < 10 else f"{days:,.0f} days"


def say(line: str) -> None:
    """Print a message to standard error; standard output is for results."""
    print(line, file=sys.stderr, flush=True)


def install_command(extra: str) -> str:
    """Return the command that adds one of this package's extras to this environment, as docs/installation.md has it."""
    return f"uv sync --inexact --extra {extra}" if "UV" in os.environ else f"pip install '.[{extra}]' in the checkout"


def require(module: str, extra: str) -> None:
    """Raise a UserError that names the extra unless a module is installed."""
    if find_spec(module) is None:
        raise UserError(f"{module} is not installed; run: {install_command(extra)}")


def throttled(report: Callable[[float, int], None], seconds: float) -> Callable[[float, int], None]:
    """Return a function that calls `report` at most once every `seconds` seconds."""
    last = 0.0

    def seldom(done: float, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > seconds:
            last = time.monotonic()
            report(done, total)

    return seldom


class Meter:
    """Progress of a total and of the parts that are running.

    Args:
        title: the name of the total.
        total: amount of work in any unit; parts are measured in the same.
    """

    def __init__(self, title: str, total: float) -> None:
        self.what = title
        self.total = total
        self.done = 0.0
        self.started = self.reported = time.monotonic()
        self.resumed = 0.0  # what parts had done when they were first reported, at no pace
        self.first: tuple[float, float] | None = None  # time and amount of the first work: starting up is not pace
        self.parts: dict[str, tuple[TaskID, float]] = {}
        # A notebook's kernel calls itself a terminal, and shows bars as many lines of control characters.
        notebook = type(sys.stderr).__module__.startswith("ipykernel.")
        console = Console(stderr=True, force_jupyter=False, force_terminal=False if notebook else None)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.main = self.bars.add_task(title, total=total)

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.bars.stop()

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        if self.bars.disable:
            say(line)
        else:
            self.bars.console.print(line, markup=False, highlight=False)

    def expect(self, work: float) -> None:
        """Add work to the total."""
        self.total += work
        self.bars.update(self.main, total=self.total)

    def part(self, name: str, done: float, total: float) -> None:
        """Report how much of a part is done."""
        if name not in self.parts:
            self.parts[name] = self.bars.add_task(f"  {name}", total=total), done
            self.resumed += done
        task = self.parts[name][0]
        self.parts[name] = task, done
        self.bars.update(task, completed=done)
        self._update()

    def end_part(self, name: str, total: float) -> None:
        """Count a part as finished."""
        if name in self.parts:
            self.bars.remove_task(self.parts.pop(name)[0])
        self.done += total
        self._update()

    def _update(self) -> None:
        done = self.done + sum(amount for _, amount in self.parts.values())
        worked = done - self.resumed
        self.bars.update(self.main, completed=min(done, 0.999 * self.total) if self.parts else done)
        if self.bars.disable and self.total and time.monotonic() - self.reported > LINE_EVERY:
            self.reported = time.monotonic()
            line = f"{self.what}: {100 * done / self.total:.0f}%, {duration(self.reported - self.started)} elapsed"
            if self.first is not None and worked - self.first[1] > 0.01 * self.total:
                seconds = (self.reported - self.first[0]) * (self.total - done) / (worked - self.first[1])
                line += f", about {duration(seconds)} left" if seconds >= 1 else ", finishing"
            running = ", ".join(self.parts)
            self.say(f"{line} ({running})" if running else line)
        if self.first is None and worked > 0:
            self.first = time.monotonic(), worked
