"""The files of one run against its id, its seal and each other; nothing is computed from predictions here."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from hierbench.config.scored import Scored, is_scored
from hierbench.config.spec import CODE_VERSION, DatasetSpec, Spec, digest_of
from hierbench.experiments.verification.findings import Finding
from hierbench.runs.integrity import PREDICTIONS, RESULTS, is_as_recorded, parse_status
from hierbench.runs.known import row_of
from hierbench.runs.store import HistoryRow, Run
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object, read_text

WHAT_FAILS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
)  # on a damaged record


@dataclass(frozen=True)
class Facts:
    """What the other checks need of a run's predictions, which are not kept.

    Attributes:
        num: N examples.
        num_ranked: k classes that are ranked per example.
        num_mistakes: examples whose first class is not the target.
        ranking: SHA-256 of the ranked classes [N, k].
        top: SHA-256 of the first classes [N].
        targets: SHA-256 of the targets [N].
        compared: whether the targets were compared with those of prepared data.
    """

    num: int
    num_ranked: int
    num_mistakes: int
    ranking: str
    top: str
    targets: str
    compared: bool

    @property
    def free_places(self) -> int:
        """How many places of the rankings a method was free to fill after the first."""
        return self.num * (self.num_ranked - 1)


@dataclass
class Record:
    """One run as it is checked; `spec` is None for scored predictions, and both for what is no run."""

    run: Run
    finding: Finding
    spec: Spec | None = None
    scored: Scored | None = None
    status: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    history: list[HistoryRow] = field(default_factory=list)
    facts: Facts | None = None
    targets: str | None = None  # SHA-256 of those that its predictions say they are of
    unchecked: list[str] = field(default_factory=list)  # metrics beyond the paper's that were kept, and not compared
    is_intact: bool = False  # its files are those that status.json records

    @cached_property
    def row(self) -> str:
        """What it shares with the other runs of its row, "" for what is no job."""
        return "" if self.spec is None else row_of(self.spec)

    @property
    def dataset(self) -> DatasetSpec:
        """The data that it is of."""
        known = self.spec or self.scored
        assert known is not None
        return known.dataset

    @property
    def is_tested(self) -> bool:
        """Whether it has a result on the test split, which tuning runs do not."""
        return bool(self.metrics) and (self.spec is None or self.spec.split == "test")

    @property
    def trains(self) -> bool:
        """Whether it was trained, rather than re-ranked or only scored."""
        return self.spec is not None and not self.spec.bases

    @property
    def predictions_digest(self) -> str | None:
        """The SHA-256 of its predictions.npz, as status.json records it."""
        recorded = self.status.get("files", {}).get(PREDICTIONS)
        return None if recorded is None else str(recorded["sha256"])


def read_record(run: Run) -> Record:
    """Return a run with its files, after comparing them with its id and its seal; problems are in its finding."""
    record = Record(run, Finding(run.folder.name[:12], run.folder.name, "claimed"))
    try:
        if _identify(record) and _unseal(record):
            _compare_files(record)
            _read_contents(record)
    except WHAT_FAILS as error:
        record.finding.reject(f"its files cannot be read: {error}")
    return record


def _identify(record: Record) -> bool:
    """Read the spec, and compare its digest with the folder's name; return whether there is a spec."""
    run, finding = record.run, record.finding
    if run.folder.is_symlink():
        finding.reject("its folder is a symbolic link, which is not followed")
        return False
    try:
        content = read_json_object(run.folder / "spec.json")
        if is_scored(content):
            scored = Scored.model_validate(content)
            finding.label, known = f"{scored.name} scored", scored.content()
            record.scored = scored
        else:
            spec = Spec.model_validate(content)
            finding.label, known = spec.label, spec.content()
            record.spec = spec
    except FileNotFoundError:
        finding.reject("spec.json is missing")
        return False
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        finding.reject(f"spec.json is not a spec of this version of hierbench ({place})")
        return False
    except (OSError, ValueError) as error:
        finding.reject(f"spec.json cannot be read: {error}")
        return False
    if known != content or digest_of(content) != run.folder.name:
        finding.reject(f"its folder is not named after its spec, whose digest is {digest_of(content)[:12]}")
        record.spec = record.scored = None  # it may say anything: no row counts it
        return False
    if record.spec is not None and record.spec.code != CODE_VERSION:
        finding.note(f"made by version {record.spec.code} of the engine's numbers; this one is {CODE_VERSION}")
    return True


def _unseal(record: Record) -> bool:
    """Read status.json; return whether the run is finished."""
    finding = record.finding
    try:
        record.status = parse_status(read_text(record.run.folder / "status.json"))
    except FileNotFoundError:
        finding.reject("status.json is missing")
        return False
    except (OSError, ValueError) as error:
        finding.reject(f"status.json: {error}")
        return False
    if record.status["state"] == "done":
        return True
    finding.verdict = "unfinished"
    why = record.status.get("error")
    finding.note(f"{record.status['state']}: {why}" if why else record.status["state"])
    return False


def _compare_files(record: Record) -> None:
    """Compare every file with its digest in status.json; predictions may be absent, as in published records."""
    folder, finding, files = record.run.folder, record.finding, record.status["files"]
    needed = ["spec.json", "metrics.json", "environment.json"]
    needed += ["history.csv"] if record.trains else []
    needed += [PREDICTIONS] if record.spec is None or record.spec.split == "test" else []
    lacking = [name for name in needed if name not in files]
    if lacking:
        finding.reject(f"status.json has no digest of {' and '.join(lacking)}")
    for name in RESULTS:
        path = folder / name
        if not os.path.lexists(path):
            if name in files and name != PREDICTIONS:
                finding.reject(f"{name} is missing")
        elif name not in files:
            finding.reject(f"status.json has no digest of {name}")
        elif not is_as_recorded(path, files[name], trust_time=False):
            finding.reject(f"{name} is not the file that status.json records")
    record.is_intact = not finding.rejected


def _read_contents(record: Record) -> None:
    """Read metrics, environment and history."""
    run, finding = record.run, record.finding
    try:
        record.metrics = run.metrics()
    except UserError:
        finding.reject("metrics.json holds no possible result")
    try:
        record.environment = read_json_object(run.folder / "environment.json")
    except (OSError, ValueError) as error:
        finding.reject(f"environment.json cannot be read: {error}")
    data = record.environment.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("splits"), dict):
        record.environment["data"] = {"splits": {}}
        if record.spec is not None:
            finding.reject("environment.json does not say which data it was computed with")
    if record.trains:
        try:
            record.history = run.history()
        except (OSError, UserError) as error:
            finding.reject(f"history.csv cannot be read: {error}")
