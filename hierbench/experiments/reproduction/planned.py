"""The command of a row, planned as `hierbench run` plans it: it must give the recorded jobs."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hierbench.api.registry import find_method
from hierbench.config.options import Options
from hierbench.config.recipe import Recipe, load_recipe
from hierbench.config.spec import Spec
from hierbench.data.prepared import Prepared, find, variant_name
from hierbench.experiments.reproduction.command import needs_weights
from hierbench.experiments.reproduction.rows import Recorded
from hierbench.hierarchy.tree import Hierarchy
from hierbench.planning.plan import make_plan
from hierbench.runs.job import Job
from hierbench.utils.errors import UserError

FIELDS = {"--methods": "methods", "--types": "types", "--dataset": "dataset", "--protocol": "protocol"}


def options_of(command: Sequence[str], **more: Any) -> Options:
    """Return the options of a command from `command_of`; `more` replaces fields or adds others."""
    words: dict[str, Any] = {"overrides": []}
    for option, value in zip(command[2::2], command[3::2], strict=True):
        if option == "--set":
            words["overrides"].append(value)
        elif option == "--seeds":
            words["seeds"] = int(value)
        elif option in FIELDS:
            words[FIELDS[option]] = value
    return Options(**(words | more))


def check_plan(found: Recorded, data_dir: Path) -> str:
    """Plan the command of a row as `hierbench run` does, on the recorded data; return why it cannot be planned, or "".

    The command leaves nothing to the backbone's library, which is not asked.

    Raises:
        UserError: the plan has other jobs than the record.
    """
    if found.files:
        return f"not planned: the code of {', '.join(found.files)} that came with the record is run with --run alone"
    options, spec = options_of(found.command), found.spec
    recipe = load_recipe(options.dataset, options.overrides, options.protocol)
    if needs_weights(spec) and recipe.model.weights == "none":
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"weights": "file"})})
    if not recipe.model.crops:
        recipe = recipe.model_copy(update={"augment": recipe.augment.normalisation()})
    data = _data_of(spec, recipe, data_dir)
    with redirect_stdout(sys.stderr):  # a method may print
        methods = [find_method(name) for name in options.methods.split(",")]
        plan = make_plan(recipe, data, methods, [spec.type], options.seeds or 0, spec.weights)
    check_ids(found, plan)
    return ""


def _data_of(spec: Spec, recipe: Recipe, data_dir: Path) -> Prepared:
    """Return the data of a run where it is prepared, else what planning needs of it: its digests."""
    there = find(variant_name(recipe.dataset, recipe.data.jpeg_quality), data_dir)
    if there is not None and there.digest == spec.dataset.digest:
        return there
    return Prepared(Path(), {"digest": spec.dataset.digest}, {recipe.distance: cast(Hierarchy, _Tree(spec))})


@dataclass(frozen=True)
class _Tree:
    """The tree of a run, of which its digest alone is known."""

    spec: Spec

    def digest(self) -> str:
        return self.spec.dataset.hierarchy


def check_ids(found: Recorded, plan: Sequence[Job]) -> None:
    """Raise a UserError unless a plan has all the jobs of a row."""
    if lacking := found.specs.keys() - {job.id for job in plan}:
        labels = sorted(found.specs[id_].label for id_ in lacking)
        raise UserError(f"the command does not give {labels[0]}: hyperparameters or versions of its method differ here")
