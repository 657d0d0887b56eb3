"""What a recipe needs before anything can be trained: its dataset, prepared, and its weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hierbench.config.options import Options
from hierbench.config.pretrained import KNOWN
from hierbench.config.recipe import Recipe
from hierbench.data import prepared as data
from hierbench.data.prepare import NEEDS_SOURCE, prepare
from hierbench.data.prepared import Prepared
from hierbench.data.user.opening import if_current
from hierbench.models.weights import check_weights, download_weights, find_weights
from hierbench.runs.mlflow_mirror import default_uri
from hierbench.runs.store import Store
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest


@dataclass(frozen=True)
class Inputs:
    """The data and the weights of a recipe; after a dry run that misses any, `missing` says what, and how to get it."""

    prepared: Prepared | None
    weights: Path | None = None
    digest: str | None = None
    missing: str = ""


def obtain(recipe: Recipe, options: Options) -> Inputs:
    """Return data and weights, downloaded and prepared if need be; a dry run only looks what is there.

    Raises:
        UserError: something cannot be had.
    """
    variant = data.variant_name(recipe.dataset, recipe.data.jpeg_quality)
    folder, weights, needs_weights = options.data_dir / "weights", None, recipe.model.weights != "none"
    if needs_weights:
        weights = find_weights(recipe.model.weights, folder, options.weights)
    elif options.weights is not None:
        raise UserError("--weights: the recipe starts from none (model.weights = none)")
    prepared = data.find(variant, options.data_dir)
    if options.dry_run:
        missing, state = [], "is not prepared"
        if recipe.source is not None and prepared is not None:
            prepared, state = if_current(recipe, prepared, lambda line: None), "has changed since it was prepared"
        if prepared is None:
            protocol = " --protocol authors" if recipe.data.jpeg_quality else ""
            source = " --source FILE" if recipe.dataset in NEEDS_SOURCE else ""
            how = f"hierbench data prepare {options.dataset}{protocol}{source}"
            missing.append(f"{variant} {state} in {options.data_dir}; run: {how}")
        if needs_weights and weights is None:
            title = KNOWN[recipe.model.weights].title
            missing.append(f"{title} are not in {folder}; a run downloads them, or give --weights FILE")
        if missing:
            return Inputs(None, missing="; ".join(missing))
    else:
        if options.mlflow is None:
            default_uri(options.runs)  # raises where it cannot be written down
        Store(options.runs).writable()
        if prepared is None and recipe.dataset in NEEDS_SOURCE:
            prepare(recipe.dataset, options.data_dir)  # says what to get, before anything is downloaded
        if needs_weights and weights is None:  # before the data, which can take hours
            weights = download_weights(recipe.model.weights, folder)
        elif weights is not None:
            check_weights(recipe.model.weights, weights)
        prepared = prepare_with_progress(recipe, options.data_dir, jpeg_quality=recipe.data.jpeg_quality)
        with Meter(f"checking {prepared.folder.name}", 1.0) as meter:
            data.check(prepared, lambda share: meter.part("images", share, 1.0))
    return Inputs(prepared, weights, None if weights is None else file_digest(weights, follow=True))


def prepare_with_progress(recipe: Recipe, data_dir: Path, source: Path | None = None, **how: Any) -> Prepared:
    """Prepare a dataset if need be, with a progress bar; `how` is passed on to `hierbench.data.prepare.prepare`."""
    with Meter(f"preparing {recipe.dataset}", 1.0) as meter:
        prepared = prepare(
            recipe, data_dir, source, lambda share: meter.part("images", share, 1.0), announce=meter.say, **how
        )
    return prepared
