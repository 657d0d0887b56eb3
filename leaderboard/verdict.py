"""The verdict: the claims of the protocol, tested over image sets from the tables of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, Literal

import numpy as np

from hierbench.answers.choices import choices_of
from hierbench.answers.node_metrics import NODE_METRICS
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_answers import DEFAULT_METRICS, board_answers
from hierbench.leaderboard.columns import PAPER_BY_NAME, Column, column_of
from hierbench.leaderboard.paired import holm
from hierbench.leaderboard.protocol import Claim, Part, Protocol, counted_ids, image_set, read_protocol
from hierbench.leaderboard.set_tests import TEST_LEVEL, SetTest, set_test
from hierbench.leaderboard.statistics import Row, ranked_rows, searched_rows
from hierbench.runs.run_evidence import Trees
from hierbench.utils.errors import UserError

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
        return "points" if self.column.higher else "% of the reference"

    @property
    def column(self) -> Column:
        """Of its metric, of classes or of answers."""
        return PAPER_BY_NAME.get(self.part.metric) or column_of(NODE_METRICS[self.part.metric])


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

    def verdict(self, num_sets: int) -> Decision:
        """Return whether the claim holds; open while one of so many sets is missing."""
        is_complete = all(len(part.values) == num_sets for part in self.parts)
        if not is_complete or not self.corrected < TEST_LEVEL:
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
    """The evidence of the protocol's tables: of runs made under it alone.

    Attributes:
        protocol: the protocol.
        rows: {network: {set: {METHOD:TYPE: row}}}.
        answers: {set: {label of a rule: {metric: value in per cent}}}, each the mean of the protocol's rows on Lite0.
    """

    protocol: Protocol
    rows: Mapping[str, Mapping[str, Mapping[str, Row]]]
    answers: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)

    @classmethod
    def of(cls, boards: Iterable[Board]) -> VerdictRows:
        """Return the rows of those boards that are tables of the protocol."""
        protocol = read_protocol()
        rows: dict[str, dict[str, dict[str, Row]]] = {network: {} for network in protocol.tables}
        answers = dict[str, dict[str, dict[str, float]]]()
        for board in boards:
            network = protocol.network_of(board.dataset)
            if network and board.records:
                counted = counted_ids(board.records)
                kept = {name: row for name, row in named_rows(board).items() if counted.issuperset(row.runs)}
                rows[network][image_set(board.dataset)] = kept
                if network == CHOICE_NETWORK:
                    answers[image_set(board.dataset)] = rule_means(protocol, board, kept)
        return cls(protocol, rows, answers)

    def only(self, network: str) -> VerdictRows:
        """Return the evidence of one network."""
        return replace(self, rows={network: self.rows[network]})

    def best_row(self, claim: Claim, data: str) -> str:
        """Return the row of `claim.best` with the least validation HierDist@1 on a set, "" unless all are there."""
        rows = self.rows.get(CHOICE_NETWORK, {}).get(data, {})
        means = {name: (rows[name].tuning or {}).get("mean") for name in claim.best if name in rows}
        measured = {name: mean for name, mean in means.items() if mean is not None}
        return min(measured, key=measured.__getitem__) if len(measured) == len(claim.best) else ""

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
        values = partial(self.values, relative=relative)
        return _tested(self.protocol.claims, values, self.protocol.decide if sets is None else sets)

    @cached_property
    def claims(self) -> list[ClaimResult]:
        """The result of each claim as the protocol has it."""
        return self.results()

    @cached_property
    def answer_claims(self) -> list[ClaimResult]:
        """The result of each claim on rules of decision, a family of their own."""
        return _tested(self.protocol.answer_claims, self.rule_values, self.protocol.decide)

    def rule_values(self, claim: Claim, part: Part) -> dict[str, float]:
        """Return {set: value} of a part on two rules, in points, in favour of the claim."""
        pairs = {
            data: [rules.get(label) for label in (part.row, part.reference)] for data, rules in self.answers.items()
        }
        return {data: a[part.metric] - b[part.metric] for data, (a, b) in pairs.items() if a and b}

    def verdict_of(self, result: ClaimResult) -> Decision:
        """Return whether a claim holds; open as long as a set, or one of its networks, lacks a row that it needs."""
        return "open" if self.sets_without(result) else result.verdict(len(self.protocol.sets))

    def is_settled(self, result: ClaimResult) -> bool:
        """Whether no run that is missing can change the verdict of a claim."""
        missing = self.sets_without(result)
        decided = all({*self.protocol.decide}.isdisjoint(self.sets_without(each)) for each in self.claims)
        return not missing or (decided and not result.corrected < TEST_LEVEL)

    def sets_without(self, result: ClaimResult) -> list[str]:
        """Return the sets that lack a row of a claim on some network."""
        return [data for data in self.protocol.sets if not all(self._has_rows(part, data) for part in result.parts)]

    def _has_rows(self, result: PartResult, data: str) -> bool:
        """Whether a set has the rows of a part on every network of which the protocol has both."""
        needed = {result.part.row, result.part.reference} - {BEST}
        networks = [name for name, kinds in self.protocol.rows.items() if needed <= {*chain(*kinds.values())}]
        has_networks = all(needed <= self.rows[name].get(data, {}).keys() for name in networks)
        return data in result.values and has_networks

    def checks(self) -> list[dict[str, Any]]:
        """Return the named checks: {claim id: the effects and the p of a claim} under each."""
        unseen = [data for data in self.protocol.sets if data not in SEEN_BY_NETWORK]
        named = {"edges in place of per cent": self.results(relative=False)}
        named |= {f"{network} alone": self.only(network).results() for network in self.rows}
        named["without tiny-imagenet and cub100"] = self.results(sets=unseen)
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
            "verdict": [self._claim_content(result) for result in self.claims],
            "answers": [self._claim_content(result) for result in self.answer_claims],
            "checks": self.checks(),
        }

    def _claim_content(self, result: ClaimResult) -> dict[str, Any]:
        return {
            "id": result.claim.id,
            "claim": result.claim.claim,
            "parts": [_part_content(part) for part in result.parts],
            "p": result.p,
            "corrected": result.corrected,
            "verdict": self.verdict_of(result),
            "n": result.n,
            "p_all": result.p_all,
        }


def rule_means(protocol: Protocol, board: Board, rows: Mapping[str, Row]) -> dict[str, dict[str, float]]:
    """Return {rule: {metric: value}}, means over the protocol's rows; {} unless all of them have answers."""
    labels = {label for claim in protocol.answer_claims for part in claim.parts for label in (part.row, part.reference)}
    choices = choices_of(sorted(labels))
    compared = [rows[name] for name in protocol.answer_rows if name in rows]
    if len(compared) < len(protocol.answer_rows):
        return {}
    tree = Trees(board.records.root).find(board.records[compared[0].runs[0]].data)
    try:
        boards = tree and board_answers(replace(board, rows=tuple(compared)), choices, tree).boards
    except UserError:  # no row has answers
        return {}
    if not boards or any(len(answered.rows) < len(compared) for answered in boards.values()):
        return {}
    return {
        label: {name: float(np.mean([row.metrics[name].mean for row in answered.rows])) for name in DEFAULT_METRICS}
        for label, answered in boards.items()
    }


def _tested(
    claims: Sequence[Claim], values_of: Callable[[Claim, Part], Mapping[str, float]], decide: Sequence[str]
) -> list[ClaimResult]:
    """Return the results of a family of claims: corrected over it."""
    results = []
    for claim in claims:
        parts = []
        for part in claim.parts:
            values = values_of(claim, part)
            tests = [set_test([values[data] for data in some if data in values]) for some in (decide, values)]
            parts.append(PartResult(part, values, *tests))
        results.append(ClaimResult(claim, tuple(parts)))
    corrected = holm([result.p for result in results])
    return [replace(result, corrected=p) for result, p in zip(results, corrected, strict=True)]


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
