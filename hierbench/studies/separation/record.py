"""What was planned before any look, and what the looks showed: a request of the folder, and lines for the user."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from hierbench.config.sections import FEATURE_TYPES
from hierbench.config.validation import Closed
from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.runs.requests import FILE, SHOWN_DIGITS, Request, extend_request, read_requests, record_request
from hierbench.studies.separation.design import FEWEST, MOST, Design, Look, adjusted_p, make_design
from hierbench.utils.errors import UserError, unknown_name

DESIGN = "Pocock: paired t-tests after every seed, at one nominal level"
Outcome = Literal["separated", "not separated", "open"]


@dataclass(frozen=True)
class Asked:
    """What --until-separated, --max-seeds and --separation-metric say."""

    rows: tuple[str, str]
    most: int
    metric: str

    @property
    def options(self) -> dict[str, Any]:
        """The options, as they are recorded."""
        return {"until_separated": ",".join(self.rows), "max_seeds": self.most, "separation_metric": self.metric}


def asked_separation(rows: str | None, most: int | None, metric: str | None) -> Asked:
    """Return what the options ask for, of which one or more are given; a UserError where they do not fit."""
    if rows is None:
        option = "--max-seeds" if most is not None else "--separation-metric"
        raise UserError(f"{option} is for --until-separated A,B")
    names = [name.strip() for name in rows.split(",")]
    if len(names) != 2 or not all(names):
        raise UserError(f"--until-separated takes two rows, METHOD[:TYPE],METHOD[:TYPE], got {rows!r}")
    if most is None:
        raise UserError("--until-separated needs --max-seeds, the seeds after which it gives up: they fix the design")
    if not FEWEST <= most <= MOST:
        raise UserError(f"--max-seeds must be from {FEWEST} to {MOST}, got {most}")
    metric = metric or "mistake_severity"
    if metric not in PAPER_BY_NAME:
        raise unknown_name("metric of --separation-metric", metric, PAPER_BY_NAME)
    for name in names:
        kind = name.partition(":")[2]
        if ":" in name and kind not in FEATURE_TYPES:
            raise unknown_name("type", kind, FEATURE_TYPES)
    return Asked((names[0], names[1]), most, metric)


class Plan(Closed):
    """What is fixed before the first look."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    dataset: str
    protocol: str
    rows: tuple[str, str]  # METHOD:TYPE; differences are the first minus the second
    settings: tuple[str, str]  # digests of the rows' specs without seeds
    metric: str
    design: str = DESIGN
    level: float
    nominal: float  # level of each look
    start: int  # seeds at the first look
    most: int
    there: dict[str, tuple[int, ...]] = Field(default={})  # {row: seeds after the first look that were there before}

    @property
    def looks(self) -> Design:
        """The design."""
        return Design(self.start, self.most, self.nominal, self.level)


FIXED = ("dataset", "protocol", "settings", "metric", "design", "level", "start", "most")


@dataclass
class Record:
    """A plan, the looks that were made, in order, and the request in the runs folder that holds them."""

    root: Path
    plan: Plan
    request: Request
    looks: list[Look] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        """Whether a look separated the rows, none of all did, or looks are left."""
        if self.looks and self.looks[-1].p < self.plan.nominal:
            return "separated"
        return "not separated" if len(self.looks) == self.plan.looks.looks else "open"

    @property
    def seeds(self) -> int:
        """Seeds at the last look, or before the first those that it needs."""
        return self.plan.start + max(len(self.looks) - 1, 0)

    def content(self) -> dict[str, Any]:
        """Return all as JSON types."""
        done: dict[str, Any] = {"looks": self._looks(), "outcome": self.outcome}
        if self.looks:
            done |= {"seeds": self.seeds, "adjusted_p": adjusted_p(self.plan.looks, self.looks)}
        return self.plan.model_dump(mode="json", by_alias=True) | done

    def _looks(self) -> list[dict[str, Any]]:
        return [{"seeds": self.plan.start + i, **asdict(look)} for i, look in enumerate(self.looks)]

    def add(self, look: Look, ids: Iterable[str]) -> None:
        """Add a look at runs with these ids; what the request has already is not written again."""
        self.looks.append(look)
        last = self._looks()[-1]
        self.request = extend_request(self.root, self.request, ids, {"looks": {str(last["seeds"]): last}})

    def line(self) -> str:
        """Return the last look in one line."""
        look, plan = self.looks[-1], self.plan
        gap = f"{look.mean:+.4g} +/- {look.ci:.2g}"
        if look.p == 1.0 and look.ci <= 1e-9:
            return f"look at {self.seeds} seeds: all differences are {look.mean:+.4g}; a t-test needs some that vary"
        return f"look at {self.seeds} seeds: {plan.metric} {gap}, p {look.p:.2g}, separated below {plan.nominal:.2g}"

    def conclusion(self) -> str:
        """Return what may be said after the last look."""
        plan, (one, other) = self.plan, self.plan.rows
        if not self.looks:
            return f"{one} and {other}: no look was made yet; the first is at {plan.start} seeds"
        look = self.looks[-1]
        valid = (
            f"{look.mean:+.4g} +/- {look.ci:.2g} (repeated {100 * (1 - plan.level):g}% interval), adjusted p "
            f"{adjusted_p(plan.looks, self.looks):.2g} for looks after every seed from {plan.start} to {plan.most}"
        )
        if self.outcome == "separated":
            return f"{one} and {other} are separated in {plan.metric} after {self.seeds} seeds: {valid}"
        if self.outcome == "open":
            return f"{one} and {other} are not separated yet in {plan.metric}, with {self.seeds} seeds: {valid}"
        command = f"hierbench power --dataset {plan.dataset} {one} {other} --metric {plan.metric}"
        return (
            f"{one} and {other} are not separated in {plan.metric} with {self.seeds} seeds: {valid}; "
            f"how many might do: {command}"
        )


def open_record(root: Path, asked: Plan, options: Mapping[str, Any]) -> Record:
    """Return the record of two rows in a runs folder, in either order and without its looks, or write a new plan.

    Raises:
        UserError: there is another plan, whose error would not be kept, or one that cannot be read.
    """
    for request in read_requests(root):
        rows = request.budget.get("rows")
        if request.kind == "separation" and request.dataset == asked.dataset and isinstance(rows, list):
            if sorted(map(str, rows)) == sorted(asked.rows):
                return _known_record(root, request, asked)
    content = asked.model_dump(mode="json", by_alias=True)
    return Record(root, asked, record_request(root, "separation", asked.dataset, options, budget=content))


def _known_record(root: Path, request: Request, asked: Plan) -> Record:
    where = f"request {request.id[:SHOWN_DIGITS]} in {root / FILE}"
    try:
        known = Plan.model_validate({key: value for key, value in request.budget.items() if key != "looks"})
    except ValidationError:
        raise UserError(f"{where} is damaged; ask in another runs folder to plan again") from None
    if known.rows != asked.rows:  # the same rows in the other order
        asked = asked.model_copy(update={"rows": asked.rows[::-1], "settings": asked.settings[::-1]})
    odd = [name for name in FIXED if getattr(known, name) != getattr(asked, name)]
    if odd:
        what = "other settings of a row" if odd[0] == "settings" else f"{odd[0]} {getattr(known, odd[0])}"
        raise UserError(
            f"{where} is a plan for these rows with {what}: a second plan would add its own chance of a false finding; "
            "repeat the first command, or ask in another runs folder"
        )
    nominal = make_design(known.start, known.most, known.level).nominal
    return Record(root, known.model_copy(update={"nominal": nominal}), request)
