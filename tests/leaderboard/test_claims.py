"""Claims on a table and over tables, against the published values and worked examples."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from hierbench.leaderboard.claims import (
    Claim,
    ClaimTest,
    claim_tests,
    claims_over_tables,
    named_rows,
    random_effects,
    read_claims,
)
from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.open_board import open_boards
from hierbench.leaderboard.paired import Difference
from hierbench.leaderboard.statistics import BY_HAND, Row, summarise

PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published"
PAPER = ("ce", "crm", "flamingo", "hafeature", "haframe")


@pytest.fixture(scope="module")
def boards():
    return open_boards([PUBLISHED], paper=False)


def by_hand(rows):
    """[(gain, p, tie)] of all claims that a table has, p before the correction, from the values by seed."""
    found = []
    for claim in read_claims():
        sign = 1.0 if claim.metric == "top1" else -1.0
        method, kind = claim.row.split(":")
        reference = claim.reference if ":" in claim.reference else f"{claim.reference}:{kind}"
        if claim.row not in rows or (claim.is_ != "best" and reference not in rows):
            found.append(None)
            continue
        ours, other = rows[claim.row][claim.metric], None
        if claim.is_ == "best":
            means = {name: sign * values[claim.metric].mean() for name, values in rows.items()
                     if name.split(":")[0] in PAPER}  # fmt: skip
            best = max((name for name in means if name.startswith(f"{method}:")), key=means.get)
            ours = rows[best][claim.metric]
            reference = max((name for name in means if not name.startswith(f"{method}:")), key=means.get)
        other = rows[reference][claim.metric]
        gain = sign * (ours - other)
        p = stats.ttest_1samp(gain, 0.0).pvalue
        if claim.is_ == "no worse":
            p = stats.ttest_1samp(gain, -claim.margin, alternative="greater").pvalue
            p = min(p, 1.0 - p)
        tie = claim.is_ == "best" and f"{ours.mean():.2f}" == f"{other.mean():.2f}"
        found.append((gain.mean() + claim.margin, p, tie))
    return found


def test_a_claim_is_about_the_row_that_was_not_set_by_hand():
    tuned, ablated, other = (
        Row("type-II", "haframe", "HAFrame", 5, 5, {}, runs=(run,), tuned=tuned)
        for run, tuned in (("a", "24 x 1"), ("b", BY_HAND), ("c", "defaults"))
    )
    name = "haframe:type-II"
    assert named_rows(SimpleNamespace(rows=[ablated, tuned])) == {name: tuned}
    assert named_rows(SimpleNamespace(rows=[ablated])) == {name: ablated}
    assert not named_rows(SimpleNamespace(rows=[ablated, tuned, other]))
    assert not named_rows(SimpleNamespace(rows=[ablated, replace(ablated, runs=("d",))]))


def test_a_tie_is_of_the_rows_that_are_compared():
    """Here CRM on type I with HAFrame; CRM on type II, which the claim names, prints as HAFrame does."""
    values = {"crm:type-I": [1.7, 1.72, 1.72], "crm:type-II": [1.84, 1.84, 1.84], "haframe:type-II": [1.83, 1.84, 1.85]}
    rows = []
    for name, cells in values.items():
        method, kind = name.split(":")
        rows.append(Row(kind, method, method, 3, 3, {"hierdist@5": summarise(cells)}, runs=(name,), seeds=(0, 1, 2)))
    claim = Claim.model_validate({"says": "x", "row": "crm:type-II", "metric": "hierdist@5", "is": "best"})
    board = SimpleNamespace(rows=rows, protocol="paper", seeds=(0, 1, 2))
    (test,) = claim_tests([claim], board, PAPER_BY_NAME)
    assert test.verdict == "yes" and test.gap.mean == pytest.approx(-0.38 / 3)


def test_claims_on_the_published_tables(boards):
    for board in boards:
        content = json.loads((PUBLISHED / f"{board.dataset}.json").read_text())
        rows = {
            f"{row['method']}:{row['type']}": {name: np.array(cell["values"]) for name, cell in row["metrics"].items()}
            for row in sorted(content["rows"], key=lambda row: "tuning" in row)  # a searched row replaces others
        }
        expected = by_hand(rows)
        known = [each for each in expected if each is not None]
        adjusted = iter(holm_by_hand([p for _, p, _ in known]))
        for claim, test, hand in zip(
            read_claims(), claim_tests(read_claims(), board, PAPER_BY_NAME), expected, strict=True
        ):
            if hand is None:
                assert test == ClaimTest("-")
                continue
            gain, _, tie = hand
            p = next(adjusted)
            assert test.gap.p_holm == pytest.approx(p)
            assert test.verdict == ("tie" if tie else "open" if p >= 0.05 else "yes" if gain > 0 else "no"), claim


def holm_by_hand(ps):
    order = sorted(range(len(ps)), key=ps.__getitem__)
    adjusted, largest = [0.0] * len(ps), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[index]))
        adjusted[index] = largest
    return adjusted


def gap(mean, error=0.1):
    return Difference(mean, 0.2, 5, "paired", None, 0.5, 0.5, error, 4.0)


class Printed:
    """A board as far as tests over tables look at it."""

    def __init__(self, dataset, protocol="paper"):
        self.dataset, self.protocol = dataset, protocol


CLAIM = Claim.model_validate({"says": "x", "row": "a:type-I", "metric": "top1", "is": "better"})


def over(gains, datasets=None, claim=CLAIM, *, by_images=True):
    names = datasets or [f"mine-{place}" for place in range(len(gains))]
    tests = [[ClaimTest("open", gap(gain))] for gain in gains]
    (found,) = claims_over_tables([claim], [Printed(name) for name in names], tests, PAPER_BY_NAME, by_images=by_images)
    return found


def test_over_tables_the_tests_are_exact():
    found = over([0.3, 0.5, 0.2, 0.9, 0.4, 0.7, 0.1, 0.8, 0.6, 1.1])
    assert (found.verdict, found.units, found.wins) == ("yes", 10, 10)
    assert found.wilcoxon == found.sign == pytest.approx(2 / 2**10)
    assert over([-0.3, -0.5, -0.2, -0.9, -0.4, -0.7]).verdict == "no"
    found = over([0.3, 0.5, 0.2, 0.9, 0.4])
    assert found.verdict == "open" and found.wilcoxon == pytest.approx(0.0625)
    assert found.ci95 == pytest.approx(stats.t.ppf(0.975, 4) * np.std([0.3, 0.5, 0.2, 0.9, 0.4], ddof=1) / 5**0.5)


def test_zeros_are_split_and_a_margin_is_added():
    assert over([0.0, 0.4, -0.1, 0.3]).wilcoxon == pytest.approx(
        stats.wilcoxon([0.0, 0.4, -0.1, 0.3], zero_method="zsplit").pvalue
    )
    loss = CLAIM.model_copy(update={"is_": "no worse", "margin": 0.5})
    assert over([-0.1, -0.2, 0.3, -0.3, 0.2, 0.1], claim=loss).verdict == "yes"
    assert over([-0.1, -0.2, 0.3, -0.3, 0.2, 0.1]).verdict == "open"


def test_tables_of_the_same_images_are_one_unit():
    names = ["cifar100-frozen", "cifar100-lite2", "tiny-imagenet-frozen"]
    found = over([0.2, 0.4, -0.1], names)
    assert (found.units, found.wins, found.gain) == (2, 1, pytest.approx(0.1))
    assert over([0.2, 0.4, -0.1], names, by_images=False).units == 3


def test_random_effects_are_those_of_dersimonian_and_laird():
    """With equal errors and a spread beyond them the interval is that of the means; without, that of the errors."""
    mean, half_width = random_effects([gap(value) for value in (0.0, 1.0, 2.0)], PAPER_BY_NAME["top1"])
    assert (mean, half_width) == (pytest.approx(1.0), pytest.approx(1.959964 * (1.0 / 3) ** 0.5))
    mean, half_width = random_effects([gap(0.5, 0.2), gap(0.5, 0.1)], PAPER_BY_NAME["mistake_severity"])
    assert (mean, half_width) == (pytest.approx(-0.5), pytest.approx(1.959964 / (25 + 100) ** 0.5))
