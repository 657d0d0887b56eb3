"""Numbers of seeds as markdown, CSV and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hierbench.leaderboard.power import MOST_SEEDS, Plan
from hierbench.leaderboard.render import csv_text, pipe_table
from hierbench.utils.files import as_json_text
from hierbench.utils.text import markdown_escaped

TESTS = {"paired": "paired by seed", "welch": "Welch"}


@dataclass(frozen=True)
class Setting:
    """What plans have in common; without a dataset the effect was assumed as a whole."""

    power: float
    level: float
    dataset: str | None = None
    protocol: str | None = None
    metric: str | None = None


def markdown(setting: Setting, plans: Sequence[Plan]) -> str:
    """Return a table with a row per plan, and below it what the numbers are."""
    named, ranged = setting.dataset is not None, any(plan.between for plan in plans)
    lines = [
        [*(_rows(plan) if named else []), *_numbers(plan), _reached(plan), *([_between(plan)] if ranged else [])]
        for plan in plans
    ]
    headings = [
        *(["Model", "Method", "minus"] if named else []),
        *("Difference", "Deviation", "Test", f"Seeds for {100 * setting.power:g}%", "Power"),
        *(["Range"] if ranged else []),
    ]
    note = (
        f"Seeds: of each row, for a power of {100 * setting.power:g}% in a two-sided t-test at level "
        f"{setting.level:g}, without a correction for further comparisons.\n"
        "Power: what this whole number of seeds gives.\n"
        "Deviation: standard deviation over seeds, of the paired differences, or of each row for Welch's test."
    )
    if ranged:
        note += " Range: the seeds if the difference is\nat an end of its 95% interval."
    if named:
        note = f"{markdown_escaped(setting.dataset or '')}, protocol {setting.protocol}, {setting.metric}. {note}"
    return f"{pipe_table(lines, headings)}\n\n{note}\n"


def _rows(plan: Plan) -> list[str]:
    assert plan.row is not None and plan.reference is not None
    title = markdown_escaped(plan.reference.title)
    other = title if plan.reference.type == plan.row.type else f"{title}, {plan.reference.type}"
    return [plan.row.type, markdown_escaped(plan.row.title), other]


def _numbers(plan: Plan) -> list[str]:
    effect = plan.effect
    test = TESTS[effect.test] if effect.n is None else f"{TESTS[effect.test]}, from {effect.n} seeds"
    return [f"{effect.difference:+.4g}", ", ".join(f"{s:.4g}" for s in effect.deviations), test, _seeds(plan.seeds)]


def _reached(plan: Plan) -> str:
    return "-" if plan.reached is None else f"{100 * plan.reached:.1f}%"


def _between(plan: Plan) -> str:
    return " to ".join(_seeds(seeds) for seeds in plan.between) if plan.between else "-"


def _seeds(seeds: int | None) -> str:
    return f"more than {MOST_SEEDS:,}" if seeds is None else str(seeds)


def records(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Return a record per plan; `seeds` is None for more than 1,000, as are those at the ends of the interval.

    What a plan does not have is left out: rows where the effect was assumed, the interval where a part of it was.
    """
    found = []
    for plan in plans:
        record: dict[str, Any] = {}
        if plan.row is not None and plan.reference is not None:
            record = {"type": plan.row.type, "method": plan.row.method}
            record["reference"] = f"{plan.reference.method}:{plan.reference.type}"
        effect = plan.effect
        record |= {"test": effect.test, "difference": effect.difference}
        record |= {"deviations": list(effect.deviations), "effect": effect.size, "n": effect.n, "seeds": plan.seeds}
        record["reached"] = plan.reached
        if plan.between:
            record |= {"ci95": effect.ci95, "seeds at least": plan.between[0], "seeds at most": plan.between[1]}
        found.append(record)
    return found


def as_csv(setting: Setting, plans: Sequence[Plan]) -> str:
    """Return a line per plan, numbers at full precision; nothing for more than 1,000 seeds."""
    return csv_text([record | {"deviations": " ".join(map(repr, record["deviations"]))} for record in records(plans)])


def as_json(setting: Setting, plans: Sequence[Plan]) -> str:
    """Return the records, with what they are of."""
    about = {name: value for name, value in vars(setting).items() if value is not None}
    return as_json_text({"schema": 1, **about, "most": MOST_SEEDS, "plans": records(plans)})


FORMATS = {"markdown": markdown, "csv": as_csv, "json": as_json}
