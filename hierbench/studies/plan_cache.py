"""The plan cache: a repeated `hierbench run` whose jobs are all done has its table without importing PyTorch.

Planning imports the methods, and with them PyTorch: measured on two cores, 5 s instead of 1.7. A plan follows from the
command, the recipe, the data, the weights, the code and the machine, so their digest is its key. In any doubt there is
no cached plan.
"""

import os
from collections.abc import Sequence
from importlib import resources
from importlib.metadata import entry_points, version
from pathlib import Path

from hierbench.config.names import GROUP
from hierbench.config.options import Options, is_path
from hierbench.config.recipe import Recipe, load_recipe, with_weights_file
from hierbench.config.spec import Spec, digest_of
from hierbench.data.prepared import Prepared, find, variant_name
from hierbench.data.user.opening import state_of
from hierbench.leaderboard.columns import PAPER, Column
from hierbench.planning.dry_run import Line, say_notes, summary
from hierbench.runs.mlflow_mirror import Mirror, default_uri
from hierbench.runs.repair import is_finished
from hierbench.runs.requests import asked_options, record_request
from hierbench.runs.store import Store
from hierbench.studies.publishing import Ended, publish_board
from hierbench.utils.console import say
from hierbench.utils.files import read_json_object
from hierbench.utils.processes import this_machine

PACKAGES = ("hierbench", GROUP, "hierbench.benchmarks", "hierbench.leaderboard")
HARMLESS = {
    "runs",
    "data_dir",
    "weights",
    "mlflow",
    "as_json",
    "jobs",
}  # options that change no plan, or count by content


def answer_from_cache(options: Options, columns: Sequence[Column] = PAPER) -> Ended | None:
    """Return the table of a command whose jobs are all done; None if there may be something left to do."""
    store = Store(options.runs)
    try:
        recipe = with_weights_file(load_recipe(options.dataset, options.overrides, options.protocol), options.weights)
        prepared = find(variant_name(recipe.dataset, recipe.data.jpeg_quality), options.data_dir)
        file = None if prepared is None else plan_file(options, recipe, prepared)
        if prepared is None or file is None:
            return None
        shown: dict[str, bool] = read_json_object(file)
        specs = [Spec.model_validate(store.run(run_id).spec()) for run_id in shown]
    except (ImportError, OSError, TypeError, ValueError):  # planning says what is wrong
        return None
    if not specs or [spec.id for spec in specs] != [*shown] or not all(is_finished(spec, store) for spec in specs):
        return None
    mirror = Mirror(options.mlflow or default_uri(options.runs), options.runs, recipe.dataset, "", say)
    if mirror.has_dead_runs() or not all(map(mirror.has, shown)):
        return None
    store.writable()
    store.tidy([*shown])
    asked = asked_options(options, options.seeds or recipe.seeds)
    record_request(options.runs, "comparison", recipe.dataset, asked, [*shown])
    say_notes(prepared)
    lines = [Line(spec.method.name, spec.type, spec.seed, "cached", spec.id) for spec in specs]
    say(summary(recipe, lines, None, options.device, ""))
    ended, _ = publish_board(options, [run_id for run_id in shown if shown[run_id]], columns)
    return ended


def plan_file(options: Options, recipe: Recipe, prepared: Prepared) -> Path | None:
    """Return the file of a command's plan, {id: whether it is a row}; None where more than the key decides."""
    outside = any(map(is_path, options.methods.split(","))) or entry_points(group=GROUP)  # may depend on anything
    changed = recipe.source is not None and prepared.meta.get("source") != state_of(recipe)
    folder = options.runs / ".plans"
    if options.dry_run or options.remote or outside or changed or folder.is_symlink():
        return None
    library, colon, _ = recipe.model.backbone.partition(":")  # input size and normalisation may be its own
    packages = ["hierbench", "torch", "numpy", "pydantic", *([library] if colon else [])]
    entries = {path for package in PACKAGES for path in Path(str(resources.files(package))).rglob("*")}
    files = {path for path in entries if path.suffix in (".py", ".toml", ".csv")}
    if options.weights is not None:
        files.add(options.weights)
    elif recipe.model.weights != "none":
        files.update(file for file in (options.data_dir / "weights").rglob("*") if file.is_file())
    stamps = [f"{file} {status.st_size} {status.st_mtime_ns}" for file in sorted(files) if (status := file.stat())]
    content = {
        "asked": {name: str(value) for name, value in vars(options).items() if name not in HARMLESS},
        "recipe": recipe.model_dump(mode="json"),
        "data": prepared.digest,
        "code": [*map(version, packages), *stamps],
        "machine": [this_machine(), *sorted(map(str, Path("/dev").glob("nvidia[0-9]*")))],
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
    }
    return folder / f"{digest_of(content)}.json"
