"""Numbers of seeds that separate two rows."""

from collections.abc import Sequence
from typing import Any

from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.paired import SIGNIFICANT
from hierbench.leaderboard.power_analysis import MOST_SEEDS, POWER, SeedPlan
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Line, Number, Table, Text
from hierbench.leaderboard.tables.differences_table import reference_title

TESTS = {"paired": "paired by seed", "welch": "Welch"}


def power_table(plans: Sequence[SeedPlan], board: BoardData, metric: str) -> Table:
    """Return a row per plan, and below it the meaning of the numbers.

    Args:
        plans: of rows of the board, of a power of 80%.
        board: of runs.
        metric: that the rows are compared in.
    """
    ranged = any(plan.between for plan in plans)
    records = list(map(_plan_record, plans))
    notes = [
        f"{board.dataset}, protocol {board.protocol}, {metric}.",
        f"Seeds: of each row, for a power of {100 * POWER:g}% in a two-sided t-test at level {SIGNIFICANT:g}, without "
        "the corrections for several comparisons of `compare` (bold) and of a table (arrows): these need more.",
        "Power: of this whole number of seeds.",
        "Deviation: standard deviation over seeds, of the paired differences, or of each row for Welch's test."
        + (" Range: the seeds if the difference is at an end of its 95% interval." if ranged else ""),
    ]
    return Table(
        title=f"{board.dataset}, seeds",
        columns=[
            *("Model", "Method", "minus", "Difference", "Deviation", "Test", f"Seeds for {100 * POWER:g}%", "Power"),
            *(["Range"] if ranged else []),
        ],
        rows=[Line([*_rows(plan), *_numbers(plan), *([Text(_between(plan))] if ranged else [])]) for plan in plans],
        notes=notes,
        records=records,
        content={
            "power": POWER,
            "level": SIGNIFICANT,
            "dataset": board.dataset,
            "protocol": board.protocol,
            "metric": metric,
            "most": MOST_SEEDS,
            "plans": records,
        },
    )


def _rows(plan: SeedPlan) -> list[Text]:
    row, reference = _compared(plan)
    return [Text(row.type), Text(row.title), Text(reference_title(row, reference))]


def _compared(plan: SeedPlan) -> tuple[Row, Row]:
    assert plan.row is not None and plan.reference is not None
    return plan.row, plan.reference


def _numbers(plan: SeedPlan) -> list[Text | Number]:
    effect = plan.effect
    return [
        Number(effect.difference, "+.4g"),
        Text(", ".join(f"{s:.4g}" for s in effect.deviations)),
        Text(f"{TESTS[effect.test]}, from {effect.n} seeds"),
        Text(_seeds(plan.seeds)),
        Number(plan.reached, ".1%"),
    ]


def _between(plan: SeedPlan) -> str:
    return " to ".join(_seeds(seeds) for seeds in plan.between) if plan.between else "-"


def _seeds(seeds: int | None) -> str:
    return f"more than {MOST_SEEDS:,}" if seeds is None else str(seeds)


def _plan_record(plan: SeedPlan) -> dict[str, Any]:
    """Return a plan for JSON; numbers of seeds above 1,000 are None."""
    effect = plan.effect
    row, reference = _compared(plan)
    record: dict[str, Any] = {"type": row.type, "method": row.method}
    record["reference"] = f"{reference.method}:{reference.type}"
    record |= {"test": effect.test, "difference": effect.difference, "deviations": effect.deviations}
    record |= {"effect": effect.size, "n": effect.n, "seeds": plan.seeds, "reached": plan.reached}
    if plan.between:
        record |= {"ci95": effect.ci95, "seeds at least": plan.between[0], "seeds at most": plan.between[1]}
    return record
