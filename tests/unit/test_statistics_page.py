"""The worked example of docs/statistics.md: every printed number is what the functions return."""

import re
from pathlib import Path

import pytest

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import column_of
from hierbench.leaderboard.paired import difference, holm
from hierbench.leaderboard.power import effect_of_values, effects_of_paper, seeds_needed
from hierbench.leaderboard.statistics import Row, summarise
from hierbench.leaderboard.ties import with_letters

PAGE = (Path(__file__).resolve().parents[2] / "docs/statistics.md").read_text(encoding="utf-8")
SEVERITY = column_of("mistake_severity")


def cells(line):
    return [cell.strip() for cell in line.split("|")[1:-1]]


@pytest.fixture(scope="module")
def values():
    """{row: {seed: value}} of the first table of the example."""
    lines = re.findall(r"^\| (?:seed|[0-9]) \|.*\|$", PAGE, re.M)
    (_, *names), *rows = map(cells, lines)
    assert len(names) == 4 and len(rows) == 5
    return {name: {int(row[0]): float(row[1 + place]) for row in rows} for place, name in enumerate(names)}


def printed_table(values):
    """The lines of the second table of the example."""
    reference, *others = values
    gaps = {name: difference(values[name], values[reference]) for name in others}
    adjusted = dict(zip(others, holm([gap.p for gap in gaps.values()]), strict=True))
    rows = [
        Row("type-I", name, name, 5, 5, {SEVERITY.name: summarise(list(v.values()))}, seeds=list(v))
        for name, v in values.items()
    ]
    rows, _ = with_letters(rows, [SEVERITY], range(5))
    lines = []
    for row in sorted(rows, key=lambda row: row.metrics[SEVERITY.name].mean):
        cell, gap = row.metrics[SEVERITY.name], gaps.get(row.method)
        against = [f"{gap.mean:+.3f} +/- {gap.ci95:.3f}", f"{adjusted[row.method]:.4f}"] if gap else ["", ""]
        lines.append([row.method, f"{cell.mean:.3f} +/- {cell.ci95:.3f}", *against, "".join(cell.groups)])
    return lines


def test_the_table_is_computed_from_the_values(values):
    table = PAGE[PAGE.index("| row | mean |") :].split("\n\n")[0].splitlines()
    assert [cells(line) for line in table[2:]] == printed_table(values)


def test_numbers_of_the_plan(values):
    flat = " ".join(PAGE.split())
    paired, apart = (effect_of_values(values["Flamingo"], values["CRM"], paired=paired) for paired in (True, False))
    assert (
        f"Flamingo is {paired.difference:.3f} above CRM, with a standard deviation of {paired.deviations[0]:.3f} over "
        f"seeds: {seeds_needed(paired)} seeds would separate them, {seeds_needed(apart)} if they shared no seeds"
    ) in flat


def test_numbers_from_the_paper():
    flat = " ".join(PAGE.split())
    names = ("haframe:type-II", "hafeature:type-I")
    ((row, reference, effect),) = effects_of_paper(Board.paper("cifar100"), names, SEVERITY)
    severities = [of.metrics[SEVERITY.name] for of in (row, reference)]
    texts = [f"{cell.mean:.2f} +/- {cell.ci95:.4f}" for cell in severities]
    assert (
        f"prints {texts[0]} for HAFrame and {texts[1]} for HAFeature of type I: deviations of "
        f"{effect.deviations[0]:.4f} and {effect.deviations[1]:.4f}, and {seeds_needed(effect)} seeds"
    ) in flat
