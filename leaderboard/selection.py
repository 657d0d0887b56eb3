"""Which run is meant: by the beginning of its id, or by method, type and seed in a leaderboard."""

import re
from typing import get_args

from pydantic import ValidationError

from hierbench.config.names import method_names
from hierbench.config.recipe import dataset_name
from hierbench.config.scored import is_scored
from hierbench.config.sections import FeatureType, Protocol
from hierbench.config.spec import Spec
from hierbench.leaderboard.board import Board
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError, unknown_name

SHOWN = 6  # runs listed in an error


def find_run(beginning: str, store: Store, what: str = "run", hint: str = "") -> Run:
    """Return the only run whose id has this prefix; if there is none, the error calls it `what` and ends in `hint`."""
    found = [run for run in store.runs() if beginning and run.folder.name.startswith(beginning)]
    if not found:
        raise UserError(f"no {what} in {store.root} has an id that begins with {beginning!r}{hint}")
    if len(found) > 1:
        raise UserError(f"{len(found)} {what}s have an id that begins with {beginning!r}; give more of it")
    return found[0]


def run_by_id(beginning: str, dataset: str, store: Store, protocol: Protocol | None = None) -> tuple[Spec, Run]:
    """Return the finished run of a dataset whose id has this prefix, and its spec.

    Raises:
        UserError: there is no such run or several; or it is of another dataset or protocol, unfinished, of tuning, or
            rejected.
    """
    spec, run = _with_spec(find_run(beginning, store))
    if spec.dataset.name != (name := dataset_name(dataset)):
        raise UserError(f"run {beginning} is of {spec.dataset.name}, not of {name}")
    if protocol is not None and spec.protocol != protocol:
        raise UserError(f"run {beginning} is under protocol {spec.protocol}, not {protocol}")
    if spec.split != "test":
        raise UserError(f"run {beginning} ({spec.label}) is a tuning run, which has no test results")
    return _finished(spec, run, store)


def choose_run(
    board: Board,
    store: Store,
    method: str | None = None,
    feature_type: str | None = None,
    seed: int | None = None,
) -> tuple[Spec, Run]:
    """Return the finished run of a leaderboard that method, type and seed name, and its spec.

    Without a seed the smallest that is finished is taken, without a type the first that the method has.

    Raises:
        UserError: no run fits, several do, or the one that does is not finished or rejected.
    """
    known = [_with_spec(store.run(id_)) for row in board.rows for id_ in row.runs]
    known = [(spec, run) for spec, run in known if spec.method.name == method] or known
    found = [
        (spec, run)
        for spec, run in known
        if method in (None, spec.method.name) and feature_type in (None, spec.type) and seed in (None, spec.seed)
    ]
    wanted = {"method": method, "type": feature_type, "seed": seed}
    asked = ", ".join(f"{name} {value}" for name, value in wanted.items() if value is not None)
    if not found:
        names = ", ".join(sorted(f"{spec.method.name}:{spec.type}:{spec.seed}" for spec, _ in known))
        raise UserError(f"no run with {asked} in the newest table of {board.dataset}; there are {names}")
    if seed is None:
        found = [(spec, run) for spec, run in found if run.done and run.folder.name not in store.rejected] or found
        smallest = min(spec.seed for spec, _ in found)
        found = [(spec, run) for spec, run in found if spec.seed == smallest]
    if len({spec.method.name for spec, _ in found}) == 1:
        first = min(spec.type for spec, _ in found)
        found = [(spec, run) for spec, run in found if spec.type == first]
    if len(found) > 1:
        names = ", ".join(
            f"{spec.label} ({', '.join(filter(None, [run.folder.name[:12], parameters(spec)]))})"
            for spec, run in sorted(found, key=lambda one: one[0].label)[:SHOWN]
        )
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise UserError(
            f"{asked or board.dataset} matches {len(found)} runs: {names}{more}; give more of method, type and seed, "
            "or the id of one"
        )
    return _finished(*found[0], store)


def named_run(name: str, board: Board, store: Store, protocol: Protocol | None = None) -> tuple[Spec, Run]:
    """Return the finished run that METHOD[:TYPE[:SEED]] or the beginning of an id stands for, and its spec.

    A method's run is looked for in the board; the seed is 0 unless given, the type the first that has this seed.
    `protocol` is what was asked for. Errors are those of `choose_run` and `run_by_id`.
    """
    method, *rest = name.split(":")
    types_to_train = get_args(FeatureType)
    if rest and rest[0] not in types_to_train:
        raise unknown_name("type", rest[0], types_to_train)
    if len(rest) > 2 or (len(rest) == 2 and not re.fullmatch("[0-9]{1,18}", rest[1])):
        raise UserError(f"a run is an id or METHOD[:TYPE[:SEED]], as in haframe:type-II:0, got {name!r}")
    methods = {row.method for row in board.rows}
    if method in methods:
        kind, seed = rest[0] if rest else None, int(rest[1]) if len(rest) == 2 else 0
        return choose_run(board, store, method, kind, seed)
    if method in method_names():
        of_type, option = (f" {rest[0]}", f" --types {rest[0]}") if rest else ("", "")
        option += f" --protocol {protocol}" if protocol else ""
        command = f"hierbench run --methods {method}{option} --dataset {board.dataset}"
        raise UserError(f"no finished run of {method}{of_type} in {store.root}; train it with: {command}")
    if not re.fullmatch("[0-9a-f]{4,64}", name):
        raise unknown_name("run", name, methods)
    return run_by_id(name, board.dataset, store, protocol)


def parameters(spec: Spec) -> str:
    """Return a run's hyperparameters in one line, "" where it has none."""
    return ", ".join(f"{name}={value}" for name, value in spec.method.params.items())


def _with_spec(run: Run) -> tuple[Spec, Run]:
    try:
        return Spec.model_validate(run.spec()), run
    except ValidationError:
        if is_scored(run.spec()):
            raise UserError(
                f"run {run.folder.name[:12]} is of predictions made elsewhere, which only hierbench leaderboard shows"
            ) from None
        raise UserError(f"run {run.folder.name[:12]} is a record of another version of hierbench") from None


def _finished(spec: Spec, run: Run, store: Store) -> tuple[Spec, Run]:
    if run.folder.name in store.rejected:
        what = f"run {run.folder.name[:12]} ({spec.label})"
        raise UserError(f"{what} is rejected: hierbench verify {run.folder.parent} says why")
    if not run.done:
        raise UserError(f"run {run.folder.name[:12]} ({spec.label}) {run.state}")
    return spec, run
