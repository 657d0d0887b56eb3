"""The verdict: the claims of the protocol, tested over image sets from the tables of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.paired import holm
from hierbench.leaderboard.protocol import Claim, Part, Protocol, counted_ids, image_set, read_protocol
from hierbench.leaderboard.set_tests import TEST_LEVEL, SetTest, set_test
from hierbench.leaderboard.statistics import Row, ranked_rows, searched_rows

Decision = Literal["yes", "no", "open"]
BEST = "best"  # the row of a part that is chosen on validation
CHOICE_NETWORK = "lite0"  # on which it is chosen
SEEN_BY_NETWORK = ("tiny-imagenet", "cub100")  # sets whose images the networks were pretrained on, as far as is known


@dataclass(frozen=True)
class PartResult:
    """A part of a claim: {set: value}, with the margin added, and its test over the sets that decide and over all."""

    part: Part
    values: Mapping[str, float]
    test: SetTest
    test_of_all: SetTest

    @property
    def unit(self) -> str:
        """Of the values."""
        return "points" if PAPER_BY_NAME[self.part.metric].higher else "% of the reference"


@dataclass(frozen=True)
class ClaimResult:
    """A claim with its p, the largest of its parts', and the same corrected over the claims and over all sets."""

    claim: Claim
    parts: tuple[PartResult, ...]
    corrected: float = 1.0

    @property
    def n(self) -> int:
        """Number of deciding sets with a value."""
        return min(part.test.n for part in self.parts)

    @property
    def p(self) -> float:
        """Over the sets that decide."""
        return max(part.test.p for part in self.parts)

    @property
    def p_all(self) -> float:
        """Over all sets."""
        return max(part.test_of_all.p for part in self.parts)

    def verdict(self, num_deciding: int) -> Decision:
        """Return whether the claim holds; open while a set that decides is missing."""
        if self.n < num_deciding or not self.corrected < TEST_LEVEL:
            return "open"
        if all(part.test.effect > 0 and part.test_of_all.effect > 0 for part in self.parts):
            return "yes"
        return "no" if any(part.test.effect < 0 and part.test_of_all.effect < 0 for part in self.parts) else "open"


def named_rows(board: Board) -> dict[str, Row]:
    """Return the ranked rows of a board by "METHOD:TYPE".

    Of several with one name it is the one whose values were not set by hand, as for an ablation; without one there is
    none of that name.
    """
    ranked = searched_rows(ranked_rows(board.rows))
    names = [f"{row.method}:{row.type}" for row in ranked]
    return {name: row for name, row in zip(names, ranked, strict=True) if names.count(name) == 1}


@dataclass(frozen=True)
class VerdictRows:
    """The rows of the protocol's tables, {network: {set: {METHOD:TYPE: row}}}: of runs made under it alone."""

    protocol: Protocol
    rows: Mapping[str, Mapping[str, Mapping[str, Row]]]

    @classmethod
    def of(cls, boards: Iterable[Board]) -> VerdictRows:
        """Return the rows of those boards that are tables of the protocol."""
        protocol = read_protocol()
        rows: dict[str, dict[str, dict[str, Row]]] = {network: {} for network in protocol.tables}
        for board in boards:
            network = protocol.network_of(board.dataset)
            if network and board.records:
                counted = counted_ids(board.records)
                kept = {name: row for name, row in named_rows(board).items() if counted.issuperset(row.runs)}
                rows[network][image_set(board.dataset)] = kept
        return cls(protocol, rows)

    def only(self, network: str) -> VerdictRows:
        """Return the evidence of one network."""
        return replace(self, rows={network: self.rows[network]})

    def best_row(self, claim: Claim, data: str) -> str:
        """Return the row of `claim.best` with the least validation HierDist@1 on a set, "" unless all are there."""
        rows = self.rows.get(CHOICE_NETWORK, {}).get(data, {})
        means = {name: (rows[name].tuning or {}).get("mean") for name in claim.best if name in rows}
        known = {name: mean for name, mean in means.items() if mean is not None}
        return min(known, key=known.__getitem__) if len(known) == len(claim.best) else ""

    def values(self, claim: Claim, part: Part, *, relative: bool = True) -> dict[str, float]:
        """Return {set: value} of a part: the mean over networks, in favour of the claim, with its margin.

        `relative` to the reference in per cent where less is better; accuracy is always in points.
        """
        values = dict[str, float]()
        for data in self.protocol.sets:
            networks = [self.rows[network].get(data, {}) for network in self.rows]
            name = self.best_row(claim, data) if part.row == BEST else part.row
            pairs = [(rows[name], rows[part.reference]) for rows in networks if {name, part.reference} <= rows.keys()]
            gains = [gain for pair in pairs if (gain := _gain(*pair, part.metric, relative)) is not None]
            if gains:
                values[data] = float(np.mean(gains)) + part.margin
        return values

    def results(self, *, relative: bool = True, sets: Sequence[str] | None = None) -> list[ClaimResult]:
        """Return the result of each claim; `sets` decide in place of the protocol's."""
        decide = self.protocol.decide if sets is None else sets
        results = []
        for claim in self.protocol.claims:
            parts = []
            for part in claim.parts:
                values = self.values(claim, part, relative=relative)
                tests = [set_test([values[data] for data in some if data in values]) for some in (decide, values)]
                parts.append(PartResult(part, values, *tests))
            results.append(ClaimResult(claim, tuple(parts)))
        corrected = holm([result.p for result in results])
        return [replace(result, corrected=p) for result, p in zip(results, corrected, strict=True)]

    @cached_property
    def claims(self) -> list[ClaimResult]:
        """The result of each claim as the protocol has it."""
        return self.results()

    def verdict_of(self, result: ClaimResult) -> Decision:
        """Return whether a claim holds."""
        return result.verdict(len(self.protocol.decide))

    def checks(self) -> list[dict[str, Any]]:
        """Return the named checks: {claim id: the effects and the p of a claim} under each."""
        known = [data for data in self.protocol.sets if data not in SEEN_BY_NETWORK]
        named = {"edges in place of per cent": self.results(relative=False)}
        named |= {f"{network} alone": self.only(network).results() for network in self.rows}
        named["without tiny-imagenet and cub100"] = self.results(sets=known)
        lines: list[dict[str, Any]] = [
            {"check": check, "claims": {r.claim.id: _numbers(r) for r in results}} for check, results in named.items()
        ]
        holding = {result.claim.id for result in self.claims if self.verdict_of(result) == "yes"}
        for left_out in self.protocol.decide if holding else ():
            results = self.results(sets=[data for data in self.protocol.decide if data != left_out])
            kept = {r.claim.id: _numbers(r) for r in results if r.claim.id in holding}
            lines.append({"check": f"without {left_out}", "claims": kept})
        return lines

    def content(self) -> dict[str, Any]:
        """Return the verdict for JSON."""
        return {
            "protocol": self.protocol.digest,
            "sets": {"decide": list(self.protocol.decide), "shown": list(self.protocol.shown)},
            "verdict": [
                {
                    "id": result.claim.id,
                    "claim": result.claim.claim,
                    "parts": [_part_content(part) for part in result.parts],
                    "p": result.p,
                    "corrected": result.corrected,
                    "verdict": self.verdict_of(result),
                    "n": result.n,
                    "p_all": result.p_all,
                }
                for result in self.claims
            ],
            "checks": self.checks(),
        }


def _gain(row: Row, reference: Row, metric: str, relative: bool) -> float | None:
    """Return by how much a row is better than its reference, None where one has no such mean."""
    means = [each.metrics[metric].mean if metric in each.metrics else None for each in (row, reference)]
    if means[0] is None or means[1] is None:
        return None
    if PAPER_BY_NAME[metric].higher:
        return means[0] - means[1]
    return (means[1] - means[0]) * (100.0 / means[1] if relative else 1.0)


def _part_content(part: PartResult) -> dict[str, Any]:
    test = {name: _or_none(value) for name, value in asdict(part.test).items() if name != "n"}
    return {"metric": part.part.metric, "unit": part.unit, "margin": part.part.margin, "values": part.values} | test


def _numbers(result: ClaimResult) -> dict[str, Any]:
    return {"effects": [_or_none(part.test.effect) for part in result.parts], "p": result.p, "n": result.n}


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
