"""The inputs of a recipe, needed before anything is trained: its prepared dataset and its weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hierbench.config.options import Options, folder_options
from hierbench.config.recipe import Recipe
from hierbench.data import prepared as data
from hierbench.data.prepare import NEEDS_SOURCE, check_source, prepare
from hierbench.data.prepared import Prepared
from hierbench.data.user.user_dataset import if_current
from hierbench.models.weights import find_weights, ready_weights, weights_title
from hierbench.runs.mlflow_mirror import default_uri
from hierbench.runs.store import Store
from hierbench.utils.console import Meter, say
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest


@dataclass(frozen=True)
class Inputs:
    """The data and the weights of a recipe.

    After a dry run that misses any, `missing` names it, and how to get it; `needed` says what a run gets by itself, as
    far as it does. `unwritable` says why the runs folder cannot be
    written: a comparison whose runs are all there can still be shown.
    """

    prepared: Prepared | None
    weights: Path | None = None
    digest: str | None = None
    missing: str = ""
    needed: str = ""
    unwritable: str = ""


def obtain(recipe: Recipe, options: Options) -> Inputs:
    """Return data and weights, downloaded and prepared if need be; a dry run only checks that they exist.

    Raises:
        UserError: something is not available.
    """
    model = recipe.model
    folder = options.data_dir / "weights"
    weights = options.weights
    prepared: Prepared | None
    unwritable = ""
    check_source(recipe, options.source)
    if not options.dry_run:
        if options.mlflow is None:
            default_uri(options.runs)  # raises where it cannot be written down
        unwritable = Store(options.runs).write_problem()
        if unwritable and data.find(recipe.data.variant, options.data_dir) is None:
            raise UserError(unwritable)
        quality = recipe.data.jpeg_quality
        source = options.source
        if source is not None and data.find(recipe.data.variant, options.data_dir) is not None:
            say(f"note: {recipe.data.dataset} is already prepared in {options.data_dir}; --source is not read")
            source = None
        if recipe.data.dataset in NEEDS_SOURCE:  # names the file to get, before anything is downloaded
            prepare_with_progress(recipe, options.data_dir, source, jpeg_quality=quality)
            source = None
        if model.weights != "none":  # before the data, which can take hours
            weights = ready_weights(model, folder, weights)
        prepared = prepare_with_progress(recipe, options.data_dir, source, jpeg_quality=quality)
        with Meter(f"checking {prepared.folder.name}", 1.0) as meter:
            data.check(prepared, lambda share: meter.part("images", share, 1.0))
    else:
        variant = recipe.data.variant
        missing = list[str]()
        needed = list[str]()
        prepared = data.find(variant, options.data_dir)
        state = "is not prepared"
        if recipe.source is not None and prepared is not None:
            prepared = if_current(recipe, prepared, lambda line: None)
            state = "has changed since it was prepared"
        if prepared is None:
            protocol = " --protocol authors" if recipe.data.jpeg_quality else ""
            option = f" --source {options.source}" if options.source else ""
            if recipe.data.dataset in NEEDS_SOURCE and not option:
                option = " --source FILE"
            folders = folder_options(data_dir=options.data_dir)
            command = f"hierbench data prepare {options.dataset}{protocol}{option}{folders}"
            if recipe.data.dataset in NEEDS_SOURCE and not options.source:
                missing.append(f"{variant} {state} in {options.data_dir}; run: {command}")
            else:
                needed.append(f"{variant} {state} in {options.data_dir}, which the run does first; or run: {command}")
        if model.weights != "none" and (weights := find_weights(model, folder, weights)) is None:
            can_load = model.weights != "file"
            problem = f"{weights_title(model)} are not here; " + "the run downloads them, or " * can_load
            (needed if can_load else missing).append(f"{problem}give --weights FILE")
        if missing or needed:
            return Inputs(None, missing="; ".join(missing), needed="; ".join(needed))
    if prepared is not None:
        _check_inputs(recipe, prepared)
    if recipe.evaluation.drop_order == "file" and prepared is not None and not prepared.ordered:
        raise UserError(
            f"{recipe.data.dataset} was prepared from pictures, whose official order is lost: protocol authors drops "
            f"the last images by it; prepare the official archive, hierbench data prepare {recipe.dataset} --force"
        )
    digest = None if weights is None else file_digest(weights, follow=True)
    return Inputs(prepared, weights, digest, unwritable=unwritable)


def _check_inputs(recipe: Recipe, prepared: Prepared) -> None:
    """Raise a UserError for a backbone on features, or "features-D" on images or on other features."""
    model = recipe.model
    vectors = prepared.vectors
    backbone, views = ("", 1) if vectors is None else (f"features-{vectors['num_channels']}", vectors["views"])
    if not backbone and model.given_features:
        raise UserError(
            f"{recipe.data.dataset} has images: model.backbone = {model.backbone} is for a dataset of features"
        )
    if backbone and (model.backbone, model.views) != (backbone, views):
        raise UserError(
            f"{recipe.data.dataset} has features: its model.backbone is {backbone} and its model.views is {views}, not "
            f"{model.backbone} and {model.views}"
        )


def prepare_with_progress(recipe: Recipe, data_dir: Path, source: Path | None = None, **options: Any) -> Prepared:
    """Prepare a dataset if need be, with a progress bar; `options` is passed on to `hierbench.data.prepare.prepare`."""
    with Meter(f"preparing {recipe.data.dataset}", 1.0) as meter:
        prepared = prepare(
            recipe, data_dir, source, lambda share: meter.part("images", share, 1.0), announce=meter.say, **options
        )
    return prepared
