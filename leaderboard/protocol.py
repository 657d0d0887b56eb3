"""The protocol of the verdict: its tables, rows and claims, and the digest that the requests of its runs carry."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from pydantic import Field

from hierbench.config.recipe import shipped_recipe
from hierbench.config.spec import json_digest
from hierbench.config.validation import Closed
from hierbench.runs.records import Records

PROTOCOL_OPTION = "verdict"  # of a request: the digest of the protocol that it was made under


class Part(Closed):
    """A comparison of two rows, METHOD:TYPE, or of two rules of decision by their labels.

    `margin` is the loss that counts as none, in the metric's unit.
    """

    metric: str
    row: str
    reference: str
    margin: float = Field(default=0.0, ge=0)


class Claim(Closed):
    """A claim; `best` are the rows of which one is chosen on validation, for the part whose row is "best"."""

    id: str
    claim: str
    parts: tuple[Part, ...]
    best: tuple[str, ...] = ()


class Protocol(Closed):
    """The parts of the protocol that are computed with.

    Attributes:
        digest: SHA-256 of its content, without `changes`.
        accepted: with those of the versions before a change.
        decide, shown: names of image sets.
        tables: {network: recipes}.
        rows: {network: METHOD:TYPE of trained and of re-ranked rows}.
        claims: in their order.
        ranks: the rows whose order is told.
        answer_rows: the rows whose answers are compared.
        answer_claims: on rules of decision, in their order.
    """

    digest: str
    accepted: tuple[str, ...]
    decide: tuple[str, ...]
    shown: tuple[str, ...]
    tables: dict[str, tuple[str, ...]]
    rows: dict[str, dict[str, tuple[str, ...]]]
    claims: tuple[Claim, ...]
    ranks: tuple[str, ...]
    answer_rows: tuple[str, ...]
    answer_claims: tuple[Claim, ...]

    @property
    def sets(self) -> tuple[str, ...]:
        """All image sets, those that decide first."""
        return (*self.decide, *self.shown)

    def network_of(self, recipe: str) -> str:
        """Return the network of one of its tables, "" for any other recipe."""
        return next((network for network, names in self.tables.items() if recipe in names), "")


@cache
def read_protocol() -> Protocol:
    """Return the protocol of protocol.toml."""
    content = tomllib.loads((resources.files("hierbench.leaderboard") / "protocol.toml").read_text(encoding="utf-8"))
    changes = content.pop("changes", [])
    digest = json_digest(content)
    return Protocol(
        digest=digest,
        accepted=(digest, *(change["before"] for change in changes)),
        decide=content["sets"]["decide"],
        shown=content["sets"]["shown"],
        tables=content["tables"],
        rows={network: content["rows"][network] for network in content["tables"]},
        claims=content["claims"],
        ranks=content["ranks"]["rows"],
        answer_rows=content["answers"]["rows"],
        answer_claims=[_rule_claim(**claim) for claim in content["answers"]["claims"]],
    )


def _rule_claim(id: str, claim: str, metric: str, rule: str, reference: str) -> Claim:
    return Claim(id=id, claim=claim, parts=(Part(metric=metric, row=rule, reference=reference),))


def protocol_options(recipe: str) -> dict[str, Any]:
    """Return the option that a request for runs of one of the protocol's tables carries, else none."""
    protocol = read_protocol()
    return {PROTOCOL_OPTION: protocol.digest} if protocol.network_of(recipe) else {}


def counted_ids(records: Records) -> set[str]:
    """Return the ids of the runs that were asked for under the protocol."""
    accepted = read_protocol().accepted
    return {i for request in records.requests if request.options.get(PROTOCOL_OPTION) in accepted for i in request.ids}


def image_set(recipe: str) -> str:
    """Return the image set of one of the protocol's tables."""
    return shipped_recipe(recipe).data.dataset
