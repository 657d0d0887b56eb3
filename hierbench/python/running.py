"""`hierbench.run`: a comparison from Python; only missing runs are computed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from hierbench.config.options import Device, Options
from hierbench.config.overrides import format_override
from hierbench.config.sections import PROTOCOLS, Protocol
from hierbench.leaderboard.board import Board
from hierbench.python.boards import check_known, parse_columns, whole_number
from hierbench.utils.console import say
from hierbench.utils.errors import UserError

if TYPE_CHECKING:  # a repeated command does without PyTorch
    from hierbench.api.method import Configured, Method, PostHoc

    AskedMethod = str | Path | Configured | Method | PostHoc | type[Method] | type[PostHoc]


DICT_KEYS = re.compile(r"tune\.grid|methods\.[^.]+\.(?!lr$)[^.]+")  # keys of which a dict is the value


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
    """Train and re-rank the missing runs of a comparison, and return its leaderboard; as `hierbench run`.

    PyTorch's random state and number of threads are afterwards as they were: a job may run in this process.

    Runs are kept in the folder `runs` and never computed twice. Progress goes to standard error. A job that fails is
    reported there, and its row has fewer runs.

    A class or an instance may come from a notebook's cell or a script: its source and its imports are kept in
    `runs/.methods/`, as if it had been given as a file. It must be defined at the top level.

    Args:
        methods: one or several of: a name, "paper" or "all"; the path of a method's file; a class of `Method` or
            `PostHoc`; such a class with hyperparameters, `MyMethod.with_params(beta=3)`; or an instance, of which the
            class and the hyperparameters are taken.
        dataset: a name (`hierbench data list`), or the file of a dataset of yours.
        seeds: number of seeds, 0 to seeds - 1; by default the recipe's.
        types: feature extractors, "type-I" or "type-II" or both.
        set: recipe keys to override, as in {"train.epochs": 3} or {"train": {"epochs": 3}}; they replace
            hyperparameters given with a method.
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
    from hierbench.python.method_classes import method_options
    from hierbench.studies.comparison import compare

    check_known("device", device, get_args(Device))
    check_known("protocol", protocol, PROTOCOLS)
    if not isinstance(tuned, bool | str | Path) or tuned == "":
        raise UserError(f"tuned is True, False or a file, got {tuned!r}")
    types = types if isinstance(types, str) else ",".join(types)
    if not types.strip(" ,"):
        raise UserError("types names no type; known: type-I, type-II")
    names, settings = method_options(methods, Path(runs))
    if not names:
        raise UserError('methods names no method; give "all", "paper", names or classes')
    changes = [format_override(key, value) for key, value in flatten_settings(set)]
    options = Options(
        dataset=str(dataset),
        methods=",".join(names),
        types=types,
        seeds=None if seeds is None else whole_number("seeds", seeds),
        overrides=[*settings, *changes],
        protocol=protocol,
        weights=None if weights is None else Path(weights),
        source=None if source is None else Path(source),
        runs=Path(runs),
        data_dir=Path(data_dir),
        device=device,
        jobs=None if jobs in (None, "auto") else whole_number("jobs", jobs),
        mlflow=mlflow,
    )
    file = None if isinstance(tuned, bool) else Path(tuned)
    with _same_torch():
        ended = compare(options, tuned=bool(tuned), file=file, columns=parse_columns(metrics))
    if ended.board is None:
        raise UserError("a dry run has no leaderboard")
    for line in ended.shown.lines:
        say(line)
    return ended.board


def flatten_settings(settings: Any, section: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values; the dict of a key without a dot is a section, but for grids and a method's."""
    if settings is not None and not isinstance(settings, Mapping):
        raise UserError(f'set is a dict, as in {{"train.epochs": 3}}, got {settings!r}')
    for name, value in (settings or {}).items():
        if not isinstance(name, str):
            raise UserError(f'set: a key is a text, as in "train.epochs", got {name!r}')
        key = f"{section}{name}"
        if isinstance(value, Mapping) and (section or "." not in name) and not DICT_KEYS.fullmatch(key):
            yield from flatten_settings(value, f"{key}.")
        else:
            yield key, _to_python(key, value)


def _to_python(key: str, value: Any) -> Any:
    """Return a value with numbers and arrays of NumPy, or tensors, as numbers and lists of Python."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _to_python(key, item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_python(key, item) for item in value]
    if not isinstance(value, str | int | float | None):
        raise UserError(f"set: {key} = {value!r} is not a number, text, list or dict")
    return value


@contextmanager
def _same_torch() -> Iterator[None]:
    """Restore the state of PyTorch that training changes."""
    import torch

    threads = torch.get_num_threads()
    benchmark = torch.backends.cudnn.benchmark
    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=gpus):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark = benchmark
