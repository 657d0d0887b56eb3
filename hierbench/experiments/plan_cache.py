"""The plan cache: a repeated `hierbench run` whose jobs are all done prints its table without importing PyTorch.

Planning imports the methods, and with them PyTorch, which takes seconds; everything else takes milliseconds. A plan
follows from the command, the recipe, the data, the weights, the code and the processor, so their digest is its key.
In any doubt there is no cached plan.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import resources
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from hierbench.config.options import Options, is_path
from hierbench.config.recipe import Recipe, load_recipe
from hierbench.config.spec import Spec, digest_of
from hierbench.data.prepared import find, variant_name
from hierbench.data.user.opening import state_of
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


def answer_from_cache(options: Options) -> bool:
    """Print the table of a command whose jobs are all done; return False if there may be something left to do."""
    store = Store(options.runs)
    try:
        recipe = load_recipe(options.dataset, options.overrides, options.protocol)
        content = read_json(_file(options, recipe))
        lines = [Line(job["method"], job["type"], job["seed"], "cached", job["id"]) for job in content]
        ids, shown = [job["id"] for job in content], [job["id"] for job in content if job["shown"]]
        if not ids or not all(job_id.isalnum() for job_id in ids):
            return False  # `plan_writer` did not write this
        specs = [Spec.model_validate(store.run(job_id).spec()) for job_id in ids]
    except (UserError, ValidationError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    if [spec.id for spec in specs] != ids or not all(is_finished(spec, store) for spec in specs):
        return False
    mirror = Mirror(options.mlflow or default_uri(options.runs), options.runs, recipe.dataset, "", say)
    if mirror.has_dead_runs() or not all(map(mirror.has, ids)):
        return False
    prepared = find(variant_name(recipe.dataset, recipe.data.jpeg_quality), options.data_dir)
    assert prepared is not None, "its digest is in the key"
    store.writable()
    store.ask_for(ids)
    say_notes(prepared)
    say(summary(recipe, lines, None, options.device, ""))
    board, _ = publish_board(options.dataset, options.runs, shown)
    show_board(board, options)
    return True


def plan_writer(options: Options, recipe: Recipe) -> Callable[[Sequence[Job]], None]:
    """Return a function that caches the command's plan; the key is made now, before anything can change."""
    try:
        file = _file(options, recipe)
    except (UserError, OSError, ValueError):
        return lambda plan: None

    def write(plan: Sequence[Job]) -> None:
        specs = [(job.spec, job.shown) for job in plan]
        jobs = [
            {"id": spec.id, "method": spec.method.name, "type": spec.type, "seed": spec.seed, "shown": shown}
            for spec, shown in specs
        ]
        with suppress(OSError):  # then the next command plans again
            file.parent.mkdir(exist_ok=True)
            write_json(file, jobs)
            others = [path for path in file.parent.glob("*.json") if path != file]  # clocks may be wrong
            for old in sorted(others, key=lambda path: path.stat().st_mtime_ns)[: 1 - KEPT]:
                old.unlink(missing_ok=True)

    return write


def _file(options: Options, recipe: Recipe) -> Path:
    """Return the file of a command's plan.

    Raises:
        UserError: the plan depends on more than the key can hold.
    """
    names = [name.strip() for name in options.methods.split(",")]
    if options.dry_run or options.remote or any(map(is_path, names)) or _entries():
        raise UserError("methods from outside this project may depend on anything")
    prepared = find(variant_name(recipe.dataset, recipe.data.jpeg_quality), options.data_dir)
    if prepared is None or (recipe.source is not None and prepared.meta.get("source") != state_of(recipe)):
        raise UserError("no data, or other data")
    harmless = {"runs", "data_dir", "weights", "mlflow", "as_json", "jobs"}
    content = {
        "asked": {name: str(value) for name, value in vars(options).items() if name not in harmless},
        "recipe": recipe.model_dump(mode="json"),
        "data": prepared.digest,
        "weights": _weights(recipe, options),
        "code": _code(),
        "machine": _machine(),
    }
    return refuse_links(options.runs, ".plans") / f"{digest_of(content)}.json"


def _entries() -> Sequence[EntryPoint]:
    return list(entry_points(group="hierbench.methods"))


def _weights(recipe: Recipe, options: Options) -> list[str]:
    """Return size and time of the weight files that may be used."""
    if recipe.model.weights == "none":
        return [str(options.weights)]  # a given file is a mistake
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
    """Return what determines the device and the precision."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        flags = platform.processor()
    gpus = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return [platform.node(), flags, *gpus, os.environ.get("CUDA_VISIBLE_DEVICES", "")]
