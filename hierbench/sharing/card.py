"""`card.toml`: who submits results, under what licence, what they took to compute, and which rows they replace."""

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from pydantic import AfterValidator, Field

from hierbench.config.overrides import toml_text
from hierbench.config.validation import Closed, validated
from hierbench.records.record import Record
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_text
from hierbench.utils.text import one_line

FILE = "card.toml"
Kind = TypeVar("Kind", bound="Statement")
LINK = re.compile(r"https?://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?([/?#][A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*)?")


def _plain(text: str) -> str:
    if not text or one_line(text) != text:
        raise ValueError("must be one line of printable text")
    return text


def _licence(text: str) -> str:
    try:
        return canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        raise ValueError("must be an SPDX identifier, as MIT or CC-BY-4.0, or LicenseRef-NAME") from None


def _link(text: str) -> str:
    if not LINK.fullmatch(text):
        raise ValueError("must begin with http:// or https:// and be a plain address")
    return text


Name = Annotated[str, Field(max_length=120), AfterValidator(_plain)]
Text = Annotated[str, Field(max_length=2000), AfterValidator(_plain)]
Link = Annotated[str, Field(max_length=500), AfterValidator(_link)]
Row = Annotated[str, Field(max_length=200, pattern=r"^[^:]+:[^:]+$"), AfterValidator(_plain)]


class Replaces(Closed):
    """A row of the board that may get worse or disappear."""

    dataset: Name
    row: Row  # METHOD:TYPE
    why: Text


class Statement(Closed):
    """What the authors say."""

    title: Annotated[str, Field(max_length=200), AfterValidator(_plain)]
    authors: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)]
    licence: Annotated[str, Field(max_length=200), AfterValidator(_licence)]
    links: Annotated[tuple[Link, ...], Field(max_length=20)] = ()
    notes: Annotated[str, Field(max_length=2000), AfterValidator(lambda text: _plain(text) if text else text)] = ""
    replaces: Annotated[tuple[Replaces, ...], Field(max_length=200)] = ()


class Compute(Closed):
    """What the records say of the submission's runs.

    Attributes:
        runs: with a result, those that are re-ranked or only scored included.
        training_seconds: of all runs that were trained, as their status.json has them.
        devices: how many runs each device computed.
    """

    runs: int
    training_seconds: float
    devices: dict[Name, int]


class Card(Statement):
    """A statement, and what follows from the records."""

    schema_version: Literal[1] = 1
    datasets: Annotated[tuple[Name, ...], Field(min_length=1)]
    methods: Annotated[tuple[Name, ...], Field(min_length=1)]
    compute: Compute


def compute_of(runs: Sequence[Record]) -> Compute:
    """Return what runs took, from their records."""
    seconds, devices = 0.0, Counter[str]()
    for run in runs:
        seconds += 0.0 if run.bases else run.seconds
        if isinstance(device := run.environment.get("device"), str):
            devices[one_line(device, 120)] += 1
    return Compute(runs=len(runs), training_seconds=round(seconds, 1), devices=dict(sorted(devices.items())))


def read_statement(path: Path) -> Statement:
    """Read the file of --card; a UserError names the first problem with it."""
    return _read(path, Statement, follow=True)


def read_card(folder: Path) -> Card:
    """Read a submission's card; a UserError names the first problem with it."""
    return _read(folder / FILE, Card, follow=False)


def asked_statement(
    card: Path | None,
    *,
    author: list[str] | None,
    title: str | None,
    licence: str | None,
    link: list[str] | None,
    notes: str | None,
) -> Statement:
    """Return the statement of --card, or else of the options that have its parts; a UserError names a problem."""
    given = {"--author": author, "--title": title, "--licence": licence, "--link": link, "--notes": notes}
    if card is not None:
        if extra := next((name for name, value in given.items() if value), None):
            raise UserError(f"--card has all of it; leave out {extra}")
        return read_statement(card)
    if lacking := next((name for name in ("--author", "--title", "--licence") if not given[name]), None):
        raise UserError(f"Missing option '{lacking}'; or give all of it by --card FILE")
    parts = {"title": title, "authors": author, "licence": licence, "links": link or [], "notes": notes or ""}
    return validated(Statement, parts, "the card")


def _read(path: Path, kind: type[Kind], *, follow: bool) -> Kind:
    try:
        content = tomllib.loads(read_text(path, follow=follow))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(one_line(f"{path.name} cannot be read: {error}", 400)) from None
    return validated(kind, content, path.name)


def as_toml(card: Card) -> str:
    """Return a card as TOML."""

    def lines_of(table: dict[str, Any]) -> list[str]:
        return [f"{name} = {toml_text(value)}" for name, value in table.items()]

    content = card.model_dump(mode="json")
    replaces, compute = content.pop("replaces"), content.pop("compute")
    lines = lines_of(content)
    for replaced in replaces:
        lines += ["", "[[replaces]]", *lines_of(replaced)]
    return "\n".join([*lines, "", "[compute]", *lines_of(compute), ""])
