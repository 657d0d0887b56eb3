"""A command that trains, resolved: its recipe on data and weights that are here, for a number of seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hierbench.api.registry import LoadedMethod
from hierbench.config.options import Options
from hierbench.config.recipe import Recipe, ResolvedRecipe, chosen_types, load_recipe, with_weights_file
from hierbench.config.sections import FeatureType
from hierbench.data.prepared import Prepared
from hierbench.data.user.user_dataset import with_sizes
from hierbench.execution.inputs import Inputs, MissingInputs, check_runs_folder, find_inputs, obtain_inputs
from hierbench.execution.jobs import check_request
from hierbench.execution.resources import choose_device
from hierbench.models.libraries.lookup import resolve_model
from hierbench.runs.store import Store
from hierbench.training.fabric import resolve_precision
from hierbench.utils.console import require, say
from hierbench.utils.errors import UserError

MAX_SEEDS = 1000  # also of a recipe
NOTHING_MISSING = MissingInputs()


@dataclass(frozen=True)
class ResolvedRequest:
    """The options of a command that trains, and all that follows from them before there is a plan.

    Attributes:
        options: of the command, with a device in place of "auto".
        recipe: of the dataset, with the command's overrides; backbone, precision and sizes are resolved.
        types: of the models.
        num_seeds: as requested, or the recipe's.
        inputs: data and weights; None in a dry run that lacks any.
        missing: what it lacks.
        unwritable: why the runs folder cannot be written: a comparison whose runs are all there can still be shown.
    """

    options: Options
    recipe: ResolvedRecipe
    types: Sequence[FeatureType]
    num_seeds: int
    inputs: Inputs | None
    missing: MissingInputs = NOTHING_MISSING
    unwritable: str = ""

    @property
    def prepared(self) -> Prepared | None:
        """The data; None in a dry run that lacks data or weights."""
        return None if self.inputs is None else self.inputs.prepared

    @property
    def weights(self) -> Path | None:
        """The file of weights; None for random ones, and in a dry run that lacks data or weights."""
        return None if self.inputs is None else self.inputs.weights

    @property
    def weights_digest(self) -> str | None:
        """The digest of that file."""
        return None if self.inputs is None else self.inputs.digest

    @property
    def store(self) -> Store:
        """The runs folder."""
        return Store(self.options.runs.resolve())


def requested_recipe(options: Options) -> Recipe:
    """Return the recipe of a command's dataset, with its overrides and its file of weights."""
    return with_weights_file(load_recipe(options.dataset, options.overrides, options.protocol), options.weights)


def requested_seeds(options: Options, recipe: Recipe) -> int:
    """Return the number of seeds of a command."""
    num_seeds = recipe.seeds if options.seeds is None else options.seeds
    if num_seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {num_seeds}")
    if num_seeds > MAX_SEEDS:
        raise UserError(
            f"--seeds {num_seeds}: this is the number of seeds, at most {MAX_SEEDS:,}, which begin at 0; "
            "a single seed cannot be chosen"
        )
    return num_seeds


def resolve(
    options: Options, recipe: Recipe, methods: Sequence[LoadedMethod], *, may_be_unwritable: bool = False
) -> ResolvedRequest:
    """Check a request, choose device and precision, and obtain data and weights; a dry run may lack them.

    Args:
        options: of the command.
        recipe: see `requested_recipe`.
        methods: that take part.
        may_be_unwritable: whether a runs folder that cannot be written is no error, as it may hold all runs.

    Raises:
        UserError: the options do not fit, or something is not available.
    """
    require("lightning_fabric", "train")
    types = chosen_types(options.types)
    num_seeds = requested_seeds(options, recipe)
    check_request(recipe, methods, types, options.overrides)
    # Jobs that run elsewhere keep the device as asked.
    device = options.device if options.plan_only else choose_device(options.device)
    if device == "cuda" and options.device == "auto" and recipe.model.frozen:
        say("note: heads on frozen features train on the GPU; many CPU cores may be faster: --device cpu")
    precision = resolve_precision(recipe.train.precision, device, frozen=recipe.model.frozen)
    train = recipe.train.model_copy(update={"precision": precision})
    resolved = resolve_model(recipe.model_copy(update={"train": train}))
    options = replace(options, device=device)
    unwritable = "" if options.dry_run else check_runs_folder(resolved, options)
    inputs = find_inputs(resolved, options) if options.dry_run else obtain_inputs(resolved, options)
    if unwritable and not may_be_unwritable:
        raise UserError(unwritable)
    if isinstance(inputs, MissingInputs):
        return ResolvedRequest(options, with_sizes(resolved, None), types, num_seeds, None, inputs)
    resolved = with_sizes(resolved, inputs.prepared)
    return ResolvedRequest(options, resolved, types, num_seeds, inputs, unwritable=unwritable)
