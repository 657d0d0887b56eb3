"""docs/seeds.md: its numbers are what the functions return."""

import re
from pathlib import Path

import numpy as np

from hierbench.experiments.separation.design import LEVEL, crossing, look_at, make_design
from hierbench.experiments.separation.record import Plan, Record
from hierbench.leaderboard.power import Effect, plan, power_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/seeds.md").read_text(encoding="utf-8")
FLAT = " ".join(PAGE.split())


def tables():
    """The cells of each table's lines, without its head."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", PAGE, re.M)
    return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()] for block in blocks]


def test_levels_of_looks():
    first, *_ = tables()
    assert len(first) == 6
    for what, nominal, bonferroni in first[2:]:
        start, most = map(int, re.findall(r"\d+", what))
        assert f"{make_design(start, most).nominal:.4f}" == nominal
        assert f"{LEVEL / (most - start + 1):.4f}" == bonferroni
    assert f"in {100 * crossing(5, 20, 0.05):.1f}% of cases" in FLAT


def test_power_of_whole_seeds():
    half, large = plan(Effect(0.5, (1.0,))), plan(Effect(2.0, (1.0,)))
    assert f"{100 * half.reached:.1f}% with {half.seeds} seeds for a difference of half a standard" in FLAT
    assert f"({100 * large.reached:.1f}% with {large.seeds} seeds for two standard deviations" in FLAT
    assert f"where 4 would give {100 * float(power_of(large.effect, 4)):.1f}%" in FLAT


def test_the_example():
    gaps = np.array([float(cell) for cell in tables()[1][2][1:]])
    design = make_design(3, 10)
    record = Record(
        Path("x"),
        Plan(
            dataset="shapes", protocol="paper", rows=("a:type-I", "b:type-I"), settings=("0", "1"), start=3, most=10,
            metric="mistake_severity", level=LEVEL, nominal=design.nominal,
        ),
    )  # fmt: skip
    lines = []
    for n in (3, 4):
        record.looks.append(look_at(gaps[:n], design.nominal))
        lines.append(record.line())
    assert "\n".join(lines) in PAGE and record.outcome == "separated"
    said = record.conclusion().split(" are ")[1].replace(" in mistake_severity", "").partition(" for looks")[0]
    assert f'"{said}"' in FLAT


def test_costs():
    """Power of a fixed number exactly; what the design does is simulated in test_separation.py."""
    costs = tables()[2][2:]
    assert [(row[1], row[3]) for row in costs] == [("41%", "16.9"), ("95%", "10.4"), ("100%", "5.8")]
    for size, _, fixed, _ in costs:
        assert f"{100 * float(power_of(Effect(float(size), (1.0,)), 20)):.0f}%" == fixed
