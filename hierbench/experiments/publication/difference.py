"""What a new publication of a table changes, and what of that is worse."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hierbench.experiments.verification.findings import VERDICTS, Report
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.paired import SIGNIFICANT, difference, holm
from hierbench.leaderboard.statistics import Row
from hierbench.utils.text import one_line

Change = dict[str, Any]  # {"row": label, metric or "seeds" or "verdict": [old, new]}


@dataclass(frozen=True)
class BoardDifference:
    """How a table differs from an earlier one.

    Attributes:
        added: labels of rows.
        removed: labels of rows.
        changed: of rows that both have, what is not equal.
        worse: (label, why) of rows that disappear, lose seeds, have a weaker verdict or a significantly worse mean.
    """

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[Change] = field(default_factory=list)
    worse: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.added or self.removed or self.changed)

    def lines(self) -> list[str]:
        """Return a line per row that differs."""
        changed = [
            f"changed {one['row']}: "
            + ", ".join(f"{name} {_shown(old)} -> {_shown(new)}" for name, (old, new) in list(one.items())[1:])
            for one in self.changed
        ]
        return [*(f"added {row}" for row in self.added), *changed, *(f"removed {row}" for row in self.removed)]


@dataclass(frozen=True)
class State:
    """A table, and {run id: verdict} of its runs."""

    board: Board
    verdicts: Mapping[str, str]

    @classmethod
    def of(cls, board: Board, report: Report) -> "State":
        """Return the state that a verification found."""
        return cls(board, {run.id: run.verdict for run in report.runs})

    def verdict_of(self, row: Row) -> str:
        """Return the weakest verdict of a row's runs."""
        return max((self.verdicts.get(run_id, "claimed") for run_id in row.runs), key=_rank, default="claimed")


def label_of(row: Row) -> str:
    """Return how commands and cards name a row: METHOD:TYPE."""
    return one_line(f"{row.method}:{row.type}")


def compare_states(old: State, new: State) -> BoardDifference:
    """Compare two tables of one dataset row by row.

    A mean is significantly worse if the difference of the two rows, paired by seed where they share seeds, has an
    adjusted p below 0.05 (Holm over all metrics of all rows).
    """
    pairs, added, removed = _matched(old.board.rows, new.board.rows)
    found = BoardDifference([label_of(row) for row in added], [label_of(row) for row in removed])
    found.worse.extend((label_of(row), "the row disappears") for row in removed)
    for before, after in pairs:
        change, label = _change(before, after, new.board.columns), label_of(after)
        verdicts = old.verdict_of(before), new.verdict_of(after)
        if before.runs != after.runs:
            change["seeds"] = [before.n, after.n]
        if verdicts[0] != verdicts[1]:
            change["verdict"] = list(verdicts)
        if change:
            found.changed.append({"row": label, **change})
        if _lost(before, after):
            found.worse.append((label, f"it has {after.n} seeds instead of {before.n}, or others"))
        if _rank(verdicts[1]) > _rank(verdicts[0]):
            found.worse.append((label, f"it is {verdicts[1]}, and was {verdicts[0]}"))
    found.worse.extend(_significantly_worse(pairs, new.board.columns))
    return found


def _matched(old: Sequence[Row], new: Sequence[Row]) -> tuple[list[tuple[Row, Row]], list[Row], list[Row]]:
    """Return (pairs, added, removed): rows that share runs, then those of one method and type, in the order of new."""
    pairs, left = dict[int, Row](), list(old)
    for share in (True, False):
        for place, row in enumerate(new):
            if place in pairs:
                continue
            same = (one for one in left if (one.method, one.type, one.scored) == (row.method, row.type, row.scored))
            twin = next((one for one in same if not share or set(one.runs) & set(row.runs)), None)
            if twin is not None:
                pairs[place] = twin
                left.remove(twin)
    both = [(pairs[place], row) for place, row in enumerate(new) if place in pairs]
    return both, [row for place, row in enumerate(new) if place not in pairs], left


def _change(before: Row, after: Row, columns: Iterable[Column]) -> Change:
    means = {
        name: [row.metrics[name].mean if name in row.metrics else None for row in (before, after)]
        for name in (column.name for column in columns)
    }
    return {name: pair for name, pair in means.items() if pair[0] != pair[1]}


def _lost(before: Row, after: Row) -> bool:
    return after.n < before.n or bool(set(before.seeds) - set(after.seeds))


def _significantly_worse(pairs: Sequence[tuple[Row, Row]], columns: Sequence[Column]) -> list[tuple[str, str]]:
    tests = []
    for before, after in pairs:
        for column in columns:
            values = [_by_seed(row, column.name) for row in (after, before)]
            gap = difference(*values)
            if gap is not None and (before.runs != after.runs):
                tests.append((label_of(after), column, gap))
    adjusted = holm([gap.p for _, _, gap in tests]) if tests else []
    return [
        (label, f"{column.name} is worse by {abs(gap.mean):.4g} (p = {p:.2g})")
        for (label, column, gap), p in zip(tests, adjusted, strict=True)
        if p < SIGNIFICANT and (gap.mean < 0) == column.higher
    ]


def _by_seed(row: Row, metric: str) -> dict[int, float]:
    values = row.metrics[metric].values if metric in row.metrics else []
    return dict(zip(row.seeds or range(len(values)), values, strict=False))


def _rank(verdict: str) -> int:
    return VERDICTS.index(verdict) if verdict in VERDICTS else len(VERDICTS)


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
