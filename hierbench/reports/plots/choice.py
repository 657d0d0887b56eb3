"""Choosing one finished run, by the beginning of its id or by method, type and seed."""

from __future__ import annotations

from pydantic import ValidationError

from hierbench.config.spec import Spec
from hierbench.reports.plots.source import Request, board_of, finished_runs
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError

SHOWN = 6  # choices in an error's line


def choose_run(request: Request) -> tuple[Run, Spec]:
    """Return the run that was asked for and its spec: with the smallest seed and of the first type, unless given.

    Raises:
        UserError: no such run, several that fit, or one of another dataset, without result or of validation alone.
    """
    if request.run is not None:
        return _by_id(request, request.run)
    board = board_of(request)
    found = [(run, Spec.model_validate(run.spec())) for row in board.rows for run in finished_runs(request, row)]
    for name, value in (("method", request.method), ("type", request.type), ("seed", request.seed)):
        known = sorted({str(_value(spec, name)) for _, spec in found})
        found = [(run, spec) for run, spec in found if value is None or _value(spec, name) == value]
        if not found:
            raise UserError(f"no finished run of {request.dataset} with {name} {value}; there is {', '.join(known)}")
    smallest = min(spec.seed for _, spec in found)
    found = [(run, spec) for run, spec in found if spec.seed == smallest]
    several = len({spec.method.name for _, spec in found}) > 1
    if not several:
        first = min(spec.type for _, spec in found)
        found = [(run, spec) for run, spec in found if spec.type == first]
    if len(found) > 1:
        choices = [f"{spec.label} (--run {run.folder.name[:8]})" for run, spec in found[:SHOWN]]
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        how = "--method or --run" if several else "--run"
        raise UserError(f"say which run with {how}: {', '.join(choices)}{more}")
    return found[0]


def _value(spec: Spec, name: str) -> str | int:
    values: dict[str, str | int] = {"method": spec.method.name, "type": spec.type, "seed": spec.seed}
    return values[name]


def _by_id(request: Request, prefix: str) -> tuple[Run, Spec]:
    runs = [run for run in Store(request.runs).runs() if prefix and run.folder.name.startswith(prefix)]
    if len(runs) != 1:
        problem = "no run begins with" if not runs else f"{len(runs)} runs begin with"
        raise UserError(f"--run {prefix}: {problem} it in {request.runs}")
    (run,) = runs
    try:
        spec = Spec.model_validate(run.spec())
    except ValidationError:
        raise UserError(f"--run {prefix}: a record of another version") from None
    if spec.dataset.name != request.dataset:
        raise UserError(f"--run {prefix} is of {spec.dataset.name}, not of {request.dataset}")
    if run.damaged():
        raise UserError(f"--run {prefix}: {spec.label} {run.state}")
    if not run.done or spec.split != "test":
        raise UserError(f"--run {prefix}: {spec.label} has no test result")
    return run, spec
