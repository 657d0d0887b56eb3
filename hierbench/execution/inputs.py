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
    """The data and the weights of a recipe: `weights` a file or None for random ones, `digest` its SHA-256."""

    prepared: Prepared
    weights: Path | None = None
    digest: str | None = None


@dataclass(frozen=True)
class MissingInputs:
    """What is not here, and how to get it: `to_bring` by the user, `made_first` by the run itself; "" for nothing."""

    to_bring: str = ""
    made_first: str = ""


def obtain_inputs(recipe: Recipe, options: Options) -> Inputs:
    """Return data and weights, downloaded and prepared if need be.

    Raises:
        UserError: something is not available.
    """
    model = recipe.model
    weights = options.weights
    source = options.source
    check_source(recipe, source)
    if source is not None and data.find(recipe.data.variant, options.data_dir) is not None:
        say(f"note: {recipe.data.dataset} is already prepared in {options.data_dir}; --source is not read")
        source = None
    quality = recipe.data.jpeg_quality
    if recipe.data.dataset in NEEDS_SOURCE:  # names the file to get, before anything is downloaded
        prepare_with_progress(recipe, options.data_dir, source, jpeg_quality=quality)
        source = None
    if model.weights != "none":  # before the data, which can take hours
        weights = ready_weights(model, options.data_dir / "weights", weights)
    prepared = prepare_with_progress(recipe, options.data_dir, source, jpeg_quality=quality)
    with Meter(f"checking {prepared.folder.name}", 1.0) as meter:
        data.check(prepared, lambda share: meter.part("images", share, 1.0))
    return _checked(recipe, prepared, weights)


def find_inputs(recipe: Recipe, options: Options) -> Inputs | MissingInputs:
    """Return data and weights as `obtain_inputs`, or what of them is not here: for a dry run, which makes nothing."""
    model = recipe.model
    weights = options.weights
    to_bring = list[str]()
    made_first = list[str]()
    check_source(recipe, options.source)
    prepared = data.find(recipe.data.variant, options.data_dir)
    state = "is not prepared"
    if recipe.source is not None and prepared is not None:
        prepared = if_current(recipe, prepared, lambda line: None)
        state = "has changed since it was prepared"
    if prepared is None:
        needs_source = recipe.data.dataset in NEEDS_SOURCE
        protocol = " --protocol authors" if recipe.data.jpeg_quality else ""
        source = f" --source {options.source}" if options.source else " --source FILE" if needs_source else ""
        folders = folder_options(data_dir=options.data_dir)
        command = f"hierbench data prepare {options.dataset}{protocol}{source}{folders}"
        problem = f"{recipe.data.variant} {state} in {options.data_dir}"
        if needs_source and not options.source:
            to_bring.append(f"{problem}; run: {command}")
        else:
            made_first.append(f"{problem}, which the run does first; or run: {command}")
    if model.weights != "none":
        weights = find_weights(model, options.data_dir / "weights", weights)
        problem = f"{weights_title(model)} are not here"
        if weights is None and model.weights == "file":
            to_bring.append(f"{problem}; give --weights FILE")
        elif weights is None:
            made_first.append(f"{problem}; the run downloads them, or give --weights FILE")
    if prepared is None or to_bring or made_first:
        return MissingInputs("; ".join(to_bring), "; ".join(made_first))
    return _checked(recipe, prepared, weights)


def _checked(recipe: Recipe, prepared: Prepared, weights: Path | None) -> Inputs:
    """Return inputs that fit each other and the recipe, with the digest of the weights."""
    _check_inputs(recipe, prepared)
    if recipe.evaluation.drop_order == "file" and not prepared.ordered:
        raise UserError(
            f"{recipe.data.dataset} was prepared from pictures, whose official order is lost: protocol authors drops "
            f"the last images by it; prepare the official archive, hierbench data prepare {recipe.dataset} --force"
        )
    return Inputs(prepared, weights, None if weights is None else file_digest(weights, follow=True))


def check_runs_folder(recipe: Recipe, options: Options) -> str:
    """Return why the runs folder cannot be written, "" if it can; a UserError unless its runs may all be there."""
    if options.mlflow is None:
        default_uri(options.runs)  # raises where it cannot be written down
    problem = Store(options.runs).write_problem()
    if problem and data.find(recipe.data.variant, options.data_dir) is None:
        raise UserError(problem)
    return problem


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
