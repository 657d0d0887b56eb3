"""`hierbench.run`, and what `hierbench run` calls: a comparison, of which only what is missing is computed."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from hierbench.config.options import Device, Options
from hierbench.config.overrides import override_of
from hierbench.config.sections import Protocol
from hierbench.experiments.interface.board import Board, columns_of
from hierbench.experiments.plan_cache import answer_from_cache
from hierbench.experiments.publishing import Ended, say_places
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.utils.console import say
from hierbench.utils.errors import UserError, unknown_name

if TYPE_CHECKING:  # a repeated command does without PyTorch
    from hierbench.api.method import Configured, Method, PostHoc
    from hierbench.experiments.separation.record import Asked

    AskedMethod = str | Path | Configured | Method | PostHoc | type[Method] | type[PostHoc]


def run_options(
    options: Options,
    *,
    tuned: bool = False,
    file: Path | None = None,
    columns: Sequence[Column] = PAPER,
    until: "Asked | None" = None,
) -> Ended:
    """Run what is missing of a comparison and return its leaderboard; see `hierbench.experiments.comparison.compare`.

    PyTorch's random state and number of threads are afterwards as they were: a job may run in this process.
    """
    if not tuned and until is None and (published := answer_from_cache(options, columns)):
        return Ended(published)
    from hierbench.experiments.comparison import compare

    with _same_torch():
        return compare(options, tuned=tuned, file=file, columns=columns, until=until)


def run(
    methods: "AskedMethod | Sequence[AskedMethod]",
    dataset: str | Path,
    seeds: int | None = None,
    *,
    types: str | Sequence[str] = ("type-I", "type-II"),
    set: Mapping[str, Any] | None = None,
    protocol: Protocol = "paper",
    runs: str | Path = "runs",
    data_dir: str | Path = "data",
    weights: str | Path | None = None,
    source: str | Path | None = None,
    device: Device = "auto",
    jobs: int | Literal["auto"] | None = None,
    mlflow: str | None = None,
    metrics: str | Sequence[str] | None = None,
    tuned: bool | str | Path = False,
) -> Board:
    """Train and re-rank what is missing of a comparison, and return its leaderboard; as `hierbench run`.

    Runs are kept in the folder `runs` and never computed twice. Progress goes to standard error. A job that fails is
    reported there, and its row has fewer runs.

    A class or an instance may come from a notebook's cell or a script: its source is kept with what it needs in
    `runs/.methods/`, as if it had been given as a file. It must be defined at the top level.

    Args:
        methods: one or several of: a name, "paper" or "all"; the path of a method's file; a class of `Method` or
            `PostHoc`; such a class with hyperparameters, `MyMethod.with_params(beta=3)`; or an instance, of which the
            class and the hyperparameters are taken.
        dataset: a name (`hierbench data list`), or the file of a dataset of yours.
        seeds: number of seeds, 0 to seeds - 1; by default the recipe's.
        types: feature extractors, "type-I" or "type-II" or both.
        set: recipe keys to override, as in {"train.epochs": 3}; they replace hyperparameters given with a method.
        protocol: "paper", the paper's text, or "authors", their code.
        runs: folder of all runs.
        data_dir: folder of downloads and prepared datasets.
        weights: a file of the backbone's initial weights.
        source: your copy of the dataset, read if it is not prepared yet.
        device: "auto", "cpu", "cuda" or "mps".
        jobs: how many jobs train at once; "auto" or None for one per core or GPU.
        mlflow: tracking URI of MLflow, or "off"; by default a SQLite file in the runs folder.
        metrics: columns, as "hf_macro,ece" or ["hf_macro", "ece"]; with + before each they are added to the paper's.
        tuned: True for the hyperparameters that `hierbench tune` found, or the file that has them.

    Returns:
        The leaderboard of these methods alone; `hierbench.board` has all runs of the folder.

    Raises:
        UserError: a ValueError: an unknown name or key, a method whose source cannot be kept, missing data.
    """
    from hierbench.experiments.interface.methods import options_of

    if device not in get_args(Device):
        raise unknown_name("device", str(device), get_args(Device))
    names, given = options_of(methods, Path(runs))
    changes = [_override(key, value) for key, value in (set or {}).items()]
    options = Options(
        dataset=str(dataset),
        methods=",".join(names),
        types=types if isinstance(types, str) else ",".join(types),
        seeds=None if seeds is None else _whole("seeds", seeds),
        overrides=[*given, *changes],
        protocol=protocol,
        weights=None if weights is None else Path(weights),
        source=None if source is None else Path(source),
        runs=Path(runs),
        data_dir=Path(data_dir),
        device=device,
        jobs=None if jobs in (None, "auto") else _whole("jobs", jobs),
        mlflow=mlflow,
    )
    file = None if isinstance(tuned, bool) else Path(tuned)
    ended = run_options(options, tuned=bool(tuned), file=file, columns=columns_of(metrics))
    assert ended.published is not None  # only a dry run has none
    say_places(ended.published.board, options)
    for line in ended.failures:
        say(line)
    found = ended.published.counted
    return Board(ended.published.board, str(dataset), found.store, options.data_dir, found.rejected)


def _override(key: str, value: Any) -> str:
    try:
        return override_of(key, value)
    except TypeError:
        raise UserError(f"set: {key} = {value!r} is no number, text, list or dict") from None


def _whole(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise UserError(f"{name} is a whole number, got {value!r}") from None
    if number < 1 or isinstance(value, bool):
        raise UserError(f"{name} must be at least 1, got {value!r}")
    return number


@contextmanager
def _same_torch() -> Iterator[None]:
    """Restore the state of PyTorch that training changes."""
    import torch

    threads, benchmark = torch.get_num_threads(), torch.backends.cudnn.benchmark
    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=gpus):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark = benchmark
