"""The same `hierbench run` again: a plan that was carried out is remembered, so that finding it done needs no PyTorch.

To plan, the methods must be imported, and with them PyTorch: seconds, where everything else takes milliseconds. A plan
follows from the command, the recipe, the data, the weights, the code and what the processor can do; their digest is the
key that it is remembered under. Whatever is unclear counts as not remembered.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from hierbench.config.options import Options, is_path
from hierbench.config.recipe import Recipe, load_recipe
from hierbench.config.spec import Spec, digest_of
from hierbench.data.prepared import find, variant_name
from hierbench.experiments.publishing import publish_board, say_notes, show_board
from hierbench.planning.dry_run import Line, summary
from hierbench.runs.mlflow_mirror import Mirror, default_uri
from hierbench.runs.repair import is_finished
from hierbench.runs.store import Store
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json, refuse_links, write_json

if TYPE_CHECKING:
    from hierbench.runs.job import Job

KEPT = 50  # plans per folder of runs
PACKAGES = ("hierbench", "hierbench.methods", "hierbench.benchmarks", "hierbench.leaderboard")


def again(options: Options) -> bool:
    """Print the table of a command whose jobs are all done; return False where anything is left to do or unclear."""
    try:
        recipe = load_recipe(options.dataset, options.overrides, options.protocol)
        content = read_json(_file(options, recipe))
        jobs = [(Line(job["method"], job["type"], job["seed"], "cached", job["id"]), job["shown"]) for job in content]
    except (UserError, OSError, ValueError, KeyError, TypeError):
        return False
    if not jobs or not all(str(line.id).isalnum() for line, _ in jobs):
        return False  # not what `remember` writes
    store = Store(options.runs)
    runs = [store.run(str(line.id)) for line, _ in jobs]
    try:
        specs = [Spec.model_validate(run.spec()) for run in runs]
    except (UserError, ValidationError):
        return False
    mirror = Mirror(options.mlflow or default_uri(options.runs), options.runs, recipe.dataset, "", say)
    if not all(spec.id == run.folder.name and is_finished(spec, store) for spec, run in zip(specs, runs, strict=True)):
        return False
    if mirror.has_dead_runs() or not all(mirror.has(run.folder.name) for run in runs):
        return False
    prepared = find(variant_name(recipe.dataset, recipe.data.jpeg_quality), options.data_dir)
    assert prepared is not None, "its digest is in the key"
    store.writable()
    store.ask_for([run.folder.name for run in runs])
    say_notes(prepared)
    say(summary(recipe, [line for line, _ in jobs], None, options.device, ""))
    board, _ = publish_board(recipe.dataset, options.runs, [str(line.id) for line, shown in jobs if shown])
    show_board(board, options)
    return True


def remember(options: Options, recipe: Recipe) -> Callable[[Sequence[Job]], None]:
    """Return a function that remembers the command's plan, under the key of the moment when this one was called."""
    try:
        file = _file(options, recipe)
    except (UserError, OSError, ValueError):
        return lambda plan: None

    def write(plan: Sequence[Job]) -> None:
        jobs = [
            {
                "id": job.id,
                "method": job.spec.method.name,
                "type": job.spec.type,
                "seed": job.spec.seed,
                "shown": job.shown,
            }
            for job in plan
        ]
        with suppress(OSError):  # what is not remembered is planned again
            file.parent.mkdir(exist_ok=True)
            write_json(file, jobs)
            others = [path for path in file.parent.glob("*.json") if path != file]  # the clock may say it is the oldest
            for old in sorted(others, key=lambda path: path.stat().st_mtime_ns)[: 1 - KEPT]:
                old.unlink(missing_ok=True)

    return write


def _file(options: Options, recipe: Recipe) -> Path:
    """Return where the plan of a command is remembered.

    Raises:
        UserError: its plan depends on more than can be known here.
    """
    names = [name.strip() for name in options.methods.split(",")]
    elsewhere = options.executor != "local" or options.plan_only
    if options.dry_run or elsewhere or any(map(is_path, names)) or _entries():
        raise UserError("somebody's methods may depend on anything")
    prepared = find(variant_name(recipe.dataset, recipe.data.jpeg_quality), options.data_dir)
    if prepared is None:
        raise UserError("no data")
    asked = replace(options, runs=Path(), data_dir=Path(), weights=None, mlflow=None, as_json=False, jobs=None)
    content = {
        "asked": {name: str(value) for name, value in vars(asked).items()},
        "recipe": recipe.model_dump(mode="json"),
        "data": prepared.digest,
        "weights": _weights(recipe, options),
        "code": _code(),
        "machine": _machine(),
    }
    return refuse_links(options.runs, ".plans") / f"{digest_of(content)}.json"


def _entries() -> Sequence[Any]:
    return list(entry_points(group="hierbench.methods"))


def _weights(recipe: Recipe, options: Options) -> list[str]:
    """Return size and time of the files that the backbone may start from."""
    if recipe.model.weights == "none":
        return [str(options.weights)]  # one that is given is a mistake
    folder = options.data_dir / "weights"
    files = [options.weights] if options.weights is not None else sorted(folder.iterdir())
    return [_stamp(file) for file in files]


def _code() -> list[str]:
    """Return size and time of every file of this package."""
    roots = {Path(str(resources.files(package))).resolve() for package in PACKAGES}
    files = [path for root in roots for path in root.rglob("*") if path.suffix in (".py", ".toml", ".csv")]
    versions = [version(package) for package in ("hierbench", "torch", "numpy", "pydantic")]
    return [*versions, platform.python_version(), *sorted(map(_stamp, files))]


def _stamp(file: Path) -> str:
    status = file.stat()
    return f"{file} {status.st_size} {status.st_mtime_ns}"


def _machine() -> list[str]:
    """Return what decides about device and precision."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = platform.processor()
    gpus = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return [platform.node(), flags, *gpus, os.environ.get("CUDA_VISIBLE_DEVICES", "")]
