"""The requests to a runs folder: `<runs>/requests.jsonl`, a JSON object a line, in the order of asking.

    {"request": id, "time", "version", "kind", "dataset", "options": {...}, "ids": [...], "budget": {...}}

Only the command that drives the jobs appends, under the folder's lock; a worker never does. Later lines of the same id
are short: `{"request", "time"}` where the same was asked again, which makes it the last request, and
`{"request", "time", "ids", "budget"}` where a search adds its results, which does not. An incomplete line is ignored,
and so is an invalid one; one whose id is not the digest of its content is ignored with a note.

The id is a digest of the content, so that it is the same in every copy of the folder; a published request has an id of
its own. Options are closed: only those that change the jobs. Folders, devices, processes and tracking are not
part of a request, and of a path to a user's file only the file's name is kept: with that file the request can be made
again. Tuned hyperparameters are among the options with their values.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from hierbench.config.options import Options
from hierbench.config.recipe_source import is_dataset_file
from hierbench.config.spec import Spec, json_digest
from hierbench.config.validation import Closed
from hierbench.runs.store import RUN_ID
from hierbench.utils.errors import UserError
from hierbench.utils.files import LARGEST_TEXT, parse_json_object, read_bytes, refuse_links, write_bytes, write_text
from hierbench.utils.lock import Lock
from hierbench.utils.text import counted, is_path, one_line, without_paths

REQUESTS_FILE = "requests.jsonl"
ID_DIGITS = 16
SHOWN_DIGITS = 6
ASKED = ("methods", "types", "seeds", "overrides", "protocol", "weights")  # fields of `Options` that change jobs
MAX_REQUEST_LENGTH = 80  # characters of a request in a list
MAX_REQUESTS_BYTES = 8 << 20  # bytes of a file that was received

Kind = Literal["comparison", "ablation", "tuning", "scoring"]
RunId = Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$")]


class Budget(Closed):
    """How long hyperparameters were searched for, by which study, and the validation HierDist@1 of the choice."""

    trials: Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
    runs: Annotated[int, Field(strict=True, ge=1, le=10_000)]  # of each trial
    study: str
    finalists: Annotated[str, Field(max_length=20)] = ""  # see `Tuned`
    mean: Annotated[float, Field(ge=0)] | None = None
    ends: Annotated[tuple[Annotated[str, Field(max_length=100)], ...], Field(max_length=20)] = ()  # see `Tuned`


class _Line(Closed):
    """A line of the file: a whole request, or an addition to one."""

    id: str = Field(alias="request", pattern=rf"^[0-9a-f]{{{ID_DIGITS}}}$")
    time: str = ""
    version: str = ""
    kind: Kind | None = None
    dataset: str = ""
    options: dict[str, Any] = Field(default={})
    ids: tuple[RunId, ...] = ()
    budget: dict[str, Any] = Field(default={})


class Request(_Line):
    """The request of one command.

    Attributes:
        id: digest of the rest, but for time and version.
        time: of asking, UTC; "" where it is not known.
        version: of hierbench.
        kind: of the command. The table of a dataset shows the runs of comparisons.
        dataset: its name.
        options: of the command.
        ids: of the jobs, in the order of the plan; of an ablation, only the variants that a comparison does not have.
        budget: {METHOD:TYPE: `Budget`} of tuned rows, and of a search itself.
    """

    kind: Kind

    @property
    def digest(self) -> str:
        """The id that its content gives."""
        return json_digest([self.kind, self.dataset, self.options, [*self.ids], self.budget])[:ID_DIGITS]

    @property
    def line(self) -> str:
        """The request in one line, for lists."""
        methods = self.options.get("methods", "")
        seeds = self.options.get("seeds")
        parts = [self.time[:10], str(methods), f"{seeds} seeds" if seeds else ""]
        return one_line(f"{self.id[:SHOWN_DIGITS]} ({', '.join(filter(None, parts))})", MAX_REQUEST_LENGTH)


def read_requests(root: Path, notes: list[str] | None = None, *, limit: int = LARGEST_TEXT) -> tuple[Request, ...]:
    """Return the requests of a runs folder or of the records of a published table, oldest first.

    Args:
        root: the folder.
        notes: takes a line on anything that is ignored, also a file that cannot be read.
        limit: of the file's bytes.

    Raises:
        UserError: the file is there and cannot be read, and `notes` is None.
    """
    lines_by_id: dict[str, list[_Line]] = {}
    forged = 0
    try:
        for line in _lines(root, limit):
            if line.kind is not None and Request(**dict(line)).digest != line.id:
                forged += 1
                continue
            if line.kind is not None or not (line.ids or line.budget):  # asked, and not only learned
                lines_by_id[line.id] = lines_by_id.pop(line.id, [])
            lines_by_id.setdefault(line.id, []).append(line)
    except UserError as error:
        if notes is None:
            raise
        notes.append(f"{error}; it is ignored")
        return ()
    if forged and notes is not None:
        lines = counted(forged, "line", ("is", "are"))
        notes.append(f"{root / REQUESTS_FILE}: {lines} ignored, as the id is not the digest of the content")
    return tuple(_merge_lines(lines) for lines in lines_by_id.values() if any(line.kind is not None for line in lines))


def record_request(
    root: Path,
    kind: Kind,
    dataset: str,
    options: Mapping[str, Any],
    ids: Sequence[str] = (),
    budget: Mapping[str, Any] | None = None,
) -> Request:
    """Append a request, or a short line if it is a repeated one, and return it; a UserError where that fails."""
    request = with_id(
        time=_now(),
        version=version("hierbench"),
        kind=kind,
        dataset=dataset,
        options=without_paths(options),
        ids=tuple(ids),
        budget=dict(budget or {}),
    )
    with _lock_file(root):
        earlier = next((recorded for recorded in read_requests(root) if recorded.id == request.id), None)
        again = {"request": request.id, "time": request.time}
        append_line(root, again if earlier else request.model_dump(mode="json", by_alias=True))
    return earlier or request


def extend_request(
    root: Path, request: Request, ids: Iterable[str] = (), budget: Mapping[str, Any] | None = None
) -> Request:
    """Append the ids and budgets that a search has added, if they are new; return the whole request."""
    learned = _Line(id=request.id, time=_now(), ids=tuple(ids), budget=dict(budget or {}))
    if _merge_lines([request, learned]) == request:
        return request
    with _lock_file(root):
        current = {recorded.id: recorded for recorded in read_requests(root)}.get(request.id, request)
        extended = _merge_lines([current, learned])
        old_ids = set(current.ids)
        if extended != current:
            new = learned.model_copy(update={"ids": tuple(run_id for run_id in learned.ids if run_id not in old_ids)})
            append_line(root, new.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    return extended


def with_id(**content: Any) -> Request:
    """Return a request whose id is the digest of its content."""
    request = Request(**{**content, "id": "0" * ID_DIGITS})
    return request.model_copy(update={"id": request.digest})


def write_requests(root: Path, requests: Iterable[Request]) -> None:
    """Write the whole file; there is none without requests."""
    lines = [json.dumps(request.model_dump(mode="json", by_alias=True)) + "\n" for request in requests]
    if lines:
        write_text(root / REQUESTS_FILE, "".join(lines))
    else:
        (root / REQUESTS_FILE).unlink(missing_ok=True)


def request_options(options: Options, seeds: int, **more: Any) -> dict[str, Any]:
    """Return the options of a command that change its jobs; `more` holds the options of this command alone."""
    content = {name: getattr(options, name) for name in ASKED} | {"seeds": seeds, "dataset": options.dataset} | more
    content["methods"] = ",".join(
        Path(method).name if is_path(method) else method.strip() for method in options.methods.split(",")
    )
    content["weights"] = None if options.weights is None else options.weights.name
    if is_dataset_file(options.dataset):
        content["dataset"] = Path(options.dataset).name
    closed: dict[str, Any] = without_paths({name: value for name, value in content.items() if value is not None})
    return closed


def command_words(options: Mapping[str, Any]) -> list[str]:
    """Return the words of the `hierbench run` command that these options were asked with, see `request_options`."""
    words = ["hierbench", "run"]
    for name in ("methods", "types", "seeds", "dataset", "protocol", "weights"):
        value = options.get(name)
        if value not in (None, "", {"types": "type-I,type-II", "protocol": "paper"}.get(name)):
            words += [f"--{name}", str(value)]
    for override in options.get("overrides") or ():
        words += ["--set", str(override)]
    return [*words, *(["--tuned"] if options.get("tuned") else [])]


def read_budgets(requests: Iterable[Request]) -> dict[str, list[Mapping[str, Any]]]:
    """Return {id of a run: tuning budgets in the requests that name it, oldest first}; see `find_budget`."""
    budgets: dict[str, list[Mapping[str, Any]]] = {}
    for request in requests:
        if request.budget and request.kind in ("comparison", "tuning"):
            for run_id in request.ids:
                budgets.setdefault(run_id, []).append(request.budget)
    return budgets


def find_budget(run_id: str, spec: Spec, budgets: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, Any] | None:
    """Return the search that chose the hyperparameters of a run, None if no search is recorded."""
    row = f"{spec.method.name}:{spec.type}"
    content = next((budget[row] for budget in reversed(budgets.get(run_id, [])) if row in budget), None)
    try:
        return (
            None if content is None else Budget.model_validate(content).model_dump(mode="json", exclude_defaults=True)
        )
    except ValueError:  # in a received folder
        return None


def only_ablated(requests: Sequence[Request]) -> set[str]:
    """Return the ids that ablations name, and no comparison."""
    named = {
        kind: {run_id for request in requests if request.kind == kind for run_id in request.ids}
        for kind in ("ablation", "comparison")
    }
    return named["ablation"] - named["comparison"]


def oldest_first(ids: Iterable[str], requests: Iterable[Request], started: Mapping[str, float]) -> list[str]:
    """Return ids in the order in which requests name them last, after those in no request, by time of start."""
    place = {
        run_id: (number, position)
        for number, request in enumerate(requests)
        for position, run_id in enumerate(request.ids)
    }
    ids = list(ids)
    named = sorted((run_id for run_id in ids if run_id in place), key=place.__getitem__)
    return (
        sorted((run_id for run_id in ids if run_id not in place), key=lambda key: (started.get(key, 0.0), key)) + named
    )


def _merge_lines(lines: Sequence[_Line]) -> Request:
    """Return the request that lines of one id say, one of which is whole; ids and budget are of all."""
    first = next(line for line in lines if line.kind is not None)
    budget = dict[str, Any]()
    for line in lines:
        for key, value in line.budget.items():
            if isinstance(value, dict):
                budget[key] = entry if isinstance(entry := budget.get(key), dict) else {}
                budget[key].update(value)
            else:
                budget[key] = value
    ids = tuple(dict.fromkeys(run_id for line in lines for run_id in line.ids))
    return Request(**{**dict(first), "ids": ids, "budget": budget})


@contextmanager
def _lock_file(root: Path) -> Iterator[None]:
    """Hold the lock of the file; a UserError where it cannot be written."""
    try:
        with Lock(root, "requests"):
            yield
    except OSError as error:
        raise UserError(f"{root / REQUESTS_FILE} cannot be written: {error.strerror or error}") from None


def _lines(root: Path, limit: int) -> Iterator[_Line]:
    try:
        content = read_bytes(root / REQUESTS_FILE, limit)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{root / REQUESTS_FILE} cannot be read: {error.strerror or error}") from None
    for line in content.split(b"\n"):
        if b'"request"' not in line:  # no other has an id; of a file of nothing else, a million in a second
            continue
        try:
            yield _Line.model_validate(parse_json_object(line.decode()))
        except ValueError:  # torn, or of another program
            continue


def append_line(root: Path, content: Mapping[str, Any]) -> None:
    """Append a line, after the end of one that a kill has torn."""
    path = refuse_links(root, REQUESTS_FILE)
    if path.exists() and not os.access(path, os.W_OK):  # another user's, in a folder that several share
        write_bytes(path, read_bytes(path))
    with open(path, "ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(content, allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
