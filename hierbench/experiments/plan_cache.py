"""The plan cache: a repeated `hierbench run` whose jobs are all done has its table without importing PyTorch.

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
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from hierbench.config.options import Options, is_path
from hierbench.config.recipe import Recipe, load_recipe, with_weights_file
from hierbench.config.spec import Spec, digest_of
from hierbench.data.prepared import Prepared, find, variant_name
from hierbench.data.user.opening import state_of
from hierbench.experiments.publishing import Published, publish_board
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.planning.dry_run import Line, say_notes, summary
from hierbench.runs.mlflow_mirror import Mirror, default_uri
from hierbench.runs.repair import is_finished
from hierbench.runs.store import Store
from hierbench.utils.console import say
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json, refuse_links, write_json

if TYPE_CHECKING:
    from hierbench.runs.job import Job

KEPT = 50  # plans per runs folder
PACKAGES = ("hierbench", "hierbench.methods", "hierbench.benchmarks", "hierbench.leaderboard")


def answer_from_cache(options: Options, columns: Sequence[Column] = PAPER) -> Published | None:
    """Return the table of a command whose jobs are all done; None if there may be something left to do."""
    store = Store(options.runs)
    try:
        recipe = with_weights_file(load_recipe(options.dataset, options.overrides, options.protocol), options.weights)
        prepared = find(variant_name(recipe.dataset, recipe.data.jpeg_quality), options.data_dir)
        if prepared is None:
            return None
        content = read_json(_file(options, recipe, prepared))
        specs = [Spec.model_validate(job["spec"]) for job in content]
        ids = [spec.id for spec in specs]
        shown = [run_id for run_id, job in zip(ids, content, strict=True) if job["shown"]]
    except (UserError, ValidationError, OSError, ValueError, KeyError, TypeError):
        return None
    if not specs or not all(is_finished(spec, store) for spec in specs):
        return None
    mirror = Mirror(options.mlflow or default_uri(options.runs), options.runs, recipe.dataset, "", say)
    if mirror.has_dead_runs() or not all(map(mirror.has, ids)):
        return None
    store.writable()
    store.ask_for(ids)
    say_notes(prepared)
    lines = [
        Line(spec.method.name, spec.type, spec.seed, "cached", run_id) for spec, run_id in zip(specs, ids, strict=True)
    ]
    say(summary(recipe, lines, None, options.device, ""))
    return publish_board(options, shown, columns)


def plan_writer(options: Options, recipe: Recipe, prepared: Prepared) -> Callable[[Sequence[Job]], None]:
    """Return a function that caches the command's plan; the key is made now, before anything can change."""
    try:
        file = _file(options, recipe, prepared)
    except (UserError, OSError, ValueError):
        return lambda plan: None

    def write(plan: Sequence[Job]) -> None:
        with suppress(OSError):  # then the next command plans again
            file.parent.mkdir(exist_ok=True)
            write_json(file, [{"spec": job.spec.content(), "shown": job.shown} for job in plan])
            others = [path for path in file.parent.glob("*.json") if path != file]  # clocks may be wrong
            for old in sorted(others, key=lambda path: path.stat().st_mtime_ns)[: 1 - KEPT]:
                old.unlink(missing_ok=True)

    return write


def _file(options: Options, recipe: Recipe, prepared: Prepared) -> Path:
    """Return the file of a command's plan.

    Raises:
        UserError: the plan depends on more than the key can hold.
    """
    names = [name.strip() for name in options.methods.split(",")]
    if options.dry_run or options.remote or any(map(is_path, names)) or entry_points(group="hierbench.methods"):
        raise UserError("methods from outside this project may depend on anything")
    if recipe.source is not None and prepared.meta.get("source") != state_of(recipe):
        raise UserError("the images, their splits or the tree have changed")
    harmless = {"runs", "data_dir", "weights", "mlflow", "as_json", "jobs"}
    content = {
        "asked": {name: str(value) for name, value in vars(options).items() if name not in harmless},
        "recipe": recipe.model_dump(mode="json"),
        "data": prepared.digest,
        "weights": _weights(recipe, options),
        "library": _library(recipe.model.backbone),
        "code": _code(),
        "machine": _machine(),
    }
    return refuse_links(options.runs, ".plans") / f"{digest_of(content)}.json"


def _weights(recipe: Recipe, options: Options) -> list[str]:
    """Return size and time of the weight files that may be used."""
    if options.weights is not None:
        return [_stamp(options.weights)]
    if recipe.model.weights == "none":
        return []
    return [_stamp(file) for file in sorted((options.data_dir / "weights").rglob("*")) if file.is_file()]


def _library(backbone: str) -> str:
    """Return the version of the package that a backbone is from: input size and normalisation may be its own."""
    package, colon, _ = backbone.partition(":")
    try:
        return version(package) if colon else ""
    except PackageNotFoundError:
        return ""


def _code() -> list[str]:
    """Return size and time of every file of this package."""
    roots = {Path(str(resources.files(package))).resolve() for package in PACKAGES}
    folders = [(folder, names) for root in roots for folder, _, names in os.walk(root)]
    files = [
        f"{folder}/{name}" for folder, names in folders for name in names if name.endswith((".py", ".toml", ".csv"))
    ]
    versions = [version(package) for package in ("hierbench", "torch", "numpy", "pydantic")]
    return [*versions, platform.python_version(), *sorted(map(_stamp, files))]


def _stamp(file: Path | str) -> str:
    status = os.stat(file)
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
