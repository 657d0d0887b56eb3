"""What a site is made of: tables with their boards, what verification said, and what stands beside the records."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hierbench.config.spec import Spec
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.statistics import Row
from hierbench.reports.site.names import LONGEST, name_of
from hierbench.runs.store import Store
from hierbench.utils.files import read_json, read_json_object, read_text
from hierbench.utils.text import one_line

MOST = 20  # of reasons, notes, authors or changed rows that a page lists
# From the strongest to the weakest.
VERDICTS = ("reproduced", "recomputed", "claimed", "unfinished", "rejected")
# From specs, a dataset and {method: its file} to the arguments of a command.
Command = Callable[[Sequence[Spec], str, Mapping[str, str]], Sequence[str]]


@dataclass(frozen=True)
class Said:
    """What verification says of a run, row or table."""

    label: str
    verdict: str
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()  # of a row


@dataclass(frozen=True)
class Card:
    """Who stands behind a submission."""

    title: str = ""
    authors: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    licence: str = ""
    compute: str = ""
    notes: str = ""


@dataclass(frozen=True)
class Change:
    """One release of a table, compared with the one before."""

    date: str
    because: str
    lines: tuple[str, ...]


@dataclass
class Table:
    """One published table.

    Attributes:
        dataset: as the folder names it.
        submission: folder of the submission that it is part of, "" for none.
        folder: with `<dataset>.json`.
        store: its records.
        board: what follows from the records that verification did not reject; without rows where nothing does.
        runs: what is said of each run, by id.
        rows, tables: what is said of rows, and of the published files.
        trouble: why the board has no rows, "" where it has.
    """

    dataset: str
    submission: str
    folder: Path
    store: Store
    board: Board
    runs: dict[str, Said]
    rows: list[Said] = field(default_factory=list)
    tables: list[Said] = field(default_factory=list)
    trouble: str = ""

    @property
    def name(self) -> str:
        """Its name on the site."""
        return name_of(f"{self.submission}: {self.dataset}" if self.submission else self.dataset)

    def counts(self) -> dict[str, int]:
        """Return how many runs have each verdict, none left out but the zeros."""
        found = {verdict: sum(said.verdict == verdict for said in self.runs.values()) for verdict in VERDICTS}
        return {verdict: number for verdict, number in found.items() if number}

    def verdict_of(self, row: Row) -> str:
        """Return the weakest verdict of a row's runs, "" for a row without any."""
        found = [self.runs[run].verdict for run in row.runs if run in self.runs]
        return row.verdict or max(found, key=lambda verdict: VERDICTS.index(verdict), default="")

    @property
    def rejected(self) -> list[Said]:
        """The published files and the rows that are rejected."""
        return [said for said in (*self.tables, *self.rows) if said.verdict == "rejected"]


def read_card(folder: Path) -> Card | None:
    """Return the card of a submission, None where there is none; what is malformed in it is left out."""
    try:
        content: Mapping[str, Any] = tomllib.loads(read_text(folder / "card.toml"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return Card(notes="card.toml cannot be read")

    def texts(key: str) -> tuple[str, ...]:
        value = content.get(key)
        parts = value if isinstance(value, list) else [_in_words(value)]
        return tuple(one_line(part, LONGEST) for part in parts if isinstance(part, str) and part.strip())[:MOST]

    title, licence, compute, notes = ("".join(texts(key)[:1]) for key in ("title", "licence", "compute", "notes"))
    return Card(title, texts("authors"), texts("links"), licence, compute, notes)


def _in_words(value: Any) -> Any:
    """Return a table of a card as text, {"runs": 3, "devices": {"cpu": 3}} as "runs 3, devices cpu 3"."""
    if not isinstance(value, dict):
        return value
    parts = [f"{name.replace('_', ' ')} {_in_words(part)}" for name, part in value.items()]
    return ", ".join(parts)


def read_changes(table: Table) -> list[Change]:
    """Return the releases of a table, newest first; what is malformed is left out."""
    try:
        content = read_json(table.folder / f"{table.dataset}-changes.json")
    except (OSError, ValueError):
        return []
    entries = content if isinstance(content, list) else []
    return [_change(entry) for entry in entries[:MOST] if isinstance(entry, dict)]


def _change(entry: Mapping[str, Any]) -> Change:
    lines = []
    for what in ("added", "removed", "changed"):
        rows = _list(entry.get(what))
        lines += [f"{what}: {_moved(row) if isinstance(row, dict) else row}" for row in rows[:MOST]]
        lines += [f"{what}: {len(rows) - MOST} more"] if len(rows) > MOST else []
    return Change(
        one_line(str(entry.get("date", "")), 40),
        one_line(str(entry.get("because") or ""), LONGEST),
        tuple(one_line(line, LONGEST) for line in lines),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _moved(changed: Mapping[str, Any]) -> str:
    moved = [f"{name} {_from_to(pair)}" for name, pair in changed.items() if name != "row"]
    return f"{changed.get('row')}: {', '.join(moved)}"


def _from_to(pair: Any) -> str:
    if isinstance(pair, list) and len(pair) == 2:
        return " → ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in pair)
    return str(pair)


def claimed_counts(table: Table) -> dict[str, int]:
    """Return what the publisher's own verdict file counts, {} without one; it is shown as a claim, never relied on."""
    try:
        counts = read_json_object(table.folder / f"{table.dataset}-verdict.json")["folders"][0]["counts"]
        return {verdict: int(counts[verdict]) for verdict in VERDICTS if counts.get(verdict)}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return {}
