"""The verdict as a table and as sentences."""

import math

from hierbench.leaderboard.table import Line, Number, Table, Text
from hierbench.leaderboard.verdict import ClaimResult, PartResult, VerdictRows

VERDICT_NOTES = (
    "Effect over the sets that decide, with its 95% interval: in per cent of the reference, of accuracy in points. "
    "p of a claim is the largest of its parts' (exact signed-rank tests; accuracy against a loss of half a point), "
    "corrected by Holm over the claims. Yes and no: corrected p below 0.05 and the same direction over all sets; open: "
    "else, and as long as sets are missing.",
)


def effect_text(part: PartResult) -> str:
    """Return the effect of a part and its interval as the row minus the reference, without the margin."""
    test = part.test
    margin = part.part.margin
    column = part.column
    if not test.n:
        return f"{column.title}: no set"
    sign = 1.0 if column.higher else -1.0
    effect, *ends = (sign * (value - margin) for value in (test.effect, test.low, test.high))
    interval = f" [{min(ends):+.1f}, {max(ends):+.1f}]" if math.isfinite(test.low + test.high) else ""
    return f"{column.title} {effect:+.1f}{interval} {'points' if column.higher else '%'}"


def claim_sentence(result: ClaimResult, evidence: VerdictRows) -> str:
    """Return a claim in a line: its verdict, the effect of each part, p and the number of sets."""
    parts = ", ".join(map(effect_text, result.parts))
    tested = f"p {result.p:.2g}, corrected {result.corrected:.2g}, {result.n} sets"
    return f"({result.claim.id}) {evidence.verdict_of(result)}: {result.claim.claim}: {parts}; {tested}"


def verdict_table(evidence: VerdictRows) -> Table:
    """Return a line per claim."""
    lines = [
        Line(
            [
                Text(result.claim.id),
                Text(result.claim.claim),
                Text(evidence.verdict_of(result)),
                Text("; ".join(map(effect_text, result.parts))),
                Number(result.corrected, ".2g"),
                Number(result.p_all, ".2g"),
                Number(result.n, "d"),
            ]
        )
        for result in evidence.claims
    ]
    columns = ["", "Claim", "Verdict", "Effect", "p, corrected", "p over all sets", "Sets"]
    return Table("What holds over image sets", columns, lines, notes=VERDICT_NOTES, content=evidence.content())
