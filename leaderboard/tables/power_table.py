"""Numbers of seeds that separate two rows."""

from collections.abc import Sequence
from typing import Any

from hierbench.leaderboard.power_analysis import MOST_SEEDS, SeedPlan
from hierbench.leaderboard.table import Line, Number, Table, Text
from hierbench.leaderboard.tables.differences_table import reference_title

TESTS = {"paired": "paired by seed", "welch": "Welch"}


def power_table(plans: Sequence[SeedPlan], power: float, level: float, **description: str) -> Table:
    """Return a row per plan, and below it the meaning of the numbers.

    Args:
        plans: of one power and level.
        power: of the test.
        level: likewise.
        description: dataset, protocol and metric of the rows; empty if the whole effect was assumed.
    """
    named = bool(description)
    ranged = any(plan.between for plan in plans)
    records = list(map(_plan_record, plans))
    notes = [
        f"Seeds: of each row, for a power of {100 * power:g}% in a two-sided t-test at level "
        f"{level:g}, without the corrections for several comparisons of `compare` (bold) and of a table (arrows): "
        "these need more.",
        "Power: of this whole number of seeds.",
        "Deviation: standard deviation over seeds, of the paired differences, or of each row for Welch's test."
        + (" Range: the seeds if the difference is at an end of its 95% interval." if ranged else ""),
    ]
    return Table(
        title=f"{description['dataset']}, seeds" if named else "Seeds",
        columns=[
            *(["Model", "Method", "minus"] if named else []),
            *("Difference", "Deviation", "Test", f"Seeds for {100 * power:g}%", "Power"),
            *(["Range"] if ranged else []),
        ],
        rows=[
            Line([*(_rows(plan) if named else []), *_numbers(plan), *([Text(_between(plan))] if ranged else [])])
            for plan in plans
        ],
        notes=["{dataset}, protocol {protocol}, {metric}.".format(**description), *notes] if named else notes,
        records=records,
        content={"power": power, "level": level, **description, "most": MOST_SEEDS, "plans": records},
    )


def _rows(plan: SeedPlan) -> list[Text]:
    if plan.row is None or plan.reference is None:
        return []
    return [Text(plan.row.type), Text(plan.row.title), Text(reference_title(plan.row, plan.reference))]


def _numbers(plan: SeedPlan) -> list[Text | Number]:
    effect = plan.effect
    test = TESTS[effect.test] if effect.n is None else f"{TESTS[effect.test]}, from {effect.n} seeds"
    return [
        Number(effect.difference, "+.4g"),
        Text(", ".join(f"{s:.4g}" for s in effect.deviations)),
        Text(test),
        Text(_seeds(plan.seeds)),
        Number(plan.reached, ".1%"),
    ]


def _between(plan: SeedPlan) -> str:
    return " to ".join(_seeds(seeds) for seeds in plan.between) if plan.between else "-"


def _seeds(seeds: int | None) -> str:
    return f"more than {MOST_SEEDS:,}" if seeds is None else str(seeds)


def _plan_record(plan: SeedPlan) -> dict[str, Any]:
    """Return a plan for JSON; numbers of seeds above 1,000 are None, and assumed parts are left out."""
    effect = plan.effect
    record = dict[str, Any]()
    if plan.row is not None and plan.reference is not None:
        record = {"type": plan.row.type, "method": plan.row.method}
        record["reference"] = f"{plan.reference.method}:{plan.reference.type}"
    record |= {"test": effect.test, "difference": effect.difference, "deviations": effect.deviations}
    record |= {"effect": effect.size, "n": effect.n, "seeds": plan.seeds, "reached": plan.reached}
    if plan.between:
        record |= {"ci95": effect.ci95, "seeds at least": plan.between[0], "seeds at most": plan.between[1]}
    return record
