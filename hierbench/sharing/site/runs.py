"""What the page of one run shows: its spec, curves, environment, verdict and files."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from hierbench.leaderboard.tables.board import HEADINGS
from hierbench.records.record import Record
from hierbench.sharing.site import svg
from hierbench.utils.errors import UserError

MOST_CURVES = 18
MOST_ENTRIES = 120  # of a record that a page lists
Entries = list[tuple[str, str]]


@dataclass(frozen=True)
class Curve:
    """One column of history.csv."""

    name: str
    first: float
    last: float
    line: Markup


@dataclass(frozen=True)
class RunPage:
    """A run as text; parts that are missing are empty."""

    settings: Entries
    results: list[tuple[str, str, str]]
    mistakes: list[int]
    environment: Entries
    tuning: Entries
    files: Entries
    curves: list[Curve]
    state: str
    epoch: int | None
    time: str


def page_of(record: Record | None, tuning: Mapping[str, Any] | None) -> RunPage:
    """Return what the page of a run and the search for its hyperparameters shows, nothing where it has no record."""
    if record is None:
        return RunPage([], [], [], [], [], [], [], "planned", None, "")
    epoch = record.result["best_epoch"] if isinstance(record.result.get("best_epoch"), int) else None
    return RunPage(
        settings=flat(record.content),
        results=_results(record.result),
        mistakes=_counts(record.result.get("mistakes_by_distance")),
        environment=flat(record.environment),
        tuning=flat(tuning or {}),
        files=[
            (name, f"{file['sha256'][:64]}, {file['size']} bytes")
            for name, file in record.status.get("files", {}).items()
        ],
        curves=curves_of(record, epoch),
        state=str(record.status.get("state", "planned")),
        epoch=epoch,
        time=time_of(record.environment.get("time")),
    )


def _results(metrics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (title, test, validation) of each metric, "-" where a split has it not."""
    test, val = (found if isinstance(found := metrics.get(split), dict) else {} for split in ("test", "val"))
    names = list(dict.fromkeys([*test, *val]))[:MOST_ENTRIES]
    return [(HEADINGS.get(name, name), shown(test.get(name, "–")), shown(val.get(name, "–"))) for name in names]


def _counts(value: Any) -> list[int]:
    whole = isinstance(value, list) and all(isinstance(count, int) and 0 <= count < 1 << 53 for count in value)
    return value if whole and sum(value) else []


def time_of(text: Any) -> str:
    """Return a record's time if it is one, else ""."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").isoformat() + "Z"
    except (ValueError, TypeError):
        return ""


def moment_of(date: str) -> str:
    """Return the moment of a date or a time, "" for anything else."""
    return time_of(date) or time_of(f"{date}T00:00:00Z")


def flat(content: Mapping[str, Any]) -> Entries:
    """Return (dotted name, value) of what a JSON object holds; lists of numbers on one line."""
    found = list(_flat(content, ""))
    if len(found) > MOST_ENTRIES:
        found = [*found[:MOST_ENTRIES], ("…", f"{len(found) - MOST_ENTRIES} more")]
    return found


def _flat(content: Mapping[str, Any], before: str) -> Iterator[tuple[str, str]]:
    for name, value in content.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, list):
            yield before + name, ", ".join(map(shown, value[:40])) + (" …" if len(value) > 40 else "")
        else:
            yield before + name, shown(value)


def shown(value: Any) -> str:
    """Return a value of a record as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def curves_of(run: Record, tested: int | None) -> list[Curve]:
    """Return the columns of a history over its epochs: loss and validation first, then the terms of the loss."""
    try:
        rows = run.history()
    except (OSError, UserError):
        return []
    names = [name for name in rows[0] if name != "epoch" and not name.startswith("lr_")] if rows else []
    names.sort(key=lambda name: (name != "train_loss", not name.startswith("val_")))
    found = []
    for name in names[:MOST_CURVES]:
        values = [row[name] for row in rows]
        if known := list(filter(math.isfinite, values)):
            found.append(Curve(name.replace("_", " "), known[0], known[-1], svg.curve(values, tested)))
    return found
