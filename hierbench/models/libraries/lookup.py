"""Backbones by name: the project's own, `torchvision:NAME` and `timm:NAME`."""

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Literal, cast

import torch
from torch import Tensor, nn

from hierbench.config.recipe import Recipe, ResolvedRecipe
from hierbench.config.sections import Model
from hierbench.models.backbones import WIDE_RESNET, Backbone, build_own, check_own
from hierbench.models.libraries.feature_map import (
    Configuration,
    Layout,
    LibraryBackbone,
    detect_layout,
    empty_images,
    on_meta,
)
from hierbench.utils.errors import UserError, error_line, foreign_errors

LIBRARIES = {"torchvision": "torchvision_networks", "timm": "timm_networks"}
Tokens = Literal["patch", "class"]


def _library_of(backbone: str) -> tuple[ModuleType, str]:
    """Return the library of a backbone that has a colon in its name."""
    library = find_library(backbone)
    if library is None:
        raise UserError(f"{backbone} is no library's network")
    return library


def find_library(backbone: str) -> tuple[ModuleType, str] | None:
    """Return the library of a backbone and the network's name there, None for one of the project's own.

    Raises:
        UserError: no such library.
    """
    prefix, colon, name = backbone.partition(":")
    if not colon:
        return None
    if prefix not in LIBRARIES:
        raise UserError(f"unknown backbone {backbone!r}; a library's is torchvision:NAME or timm:NAME")
    return import_module(f"hierbench.models.libraries.{LIBRARIES[prefix]}"), name  # here: it takes seconds


def resolve_model(recipe: Recipe) -> ResolvedRecipe:
    """Return the recipe with the input size, mean and standard deviation that it leaves to the backbone's library.

    Crops and flips that do not apply are left out, and random weights are "none", so that equal trainings
    have one id.

    Raises:
        UserError: the backbone is the project's own and the recipe gives no mean or standard deviation.
    """
    if not recipe.model.crops:
        recipe = recipe.model_copy(update={"augment": recipe.augment.normalisation()})
    if recipe.model.weights == "random":
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"weights": "none"})})
    library_entry = find_library(recipe.model.backbone)
    if recipe.model.given_features:
        return _resolved(recipe)
    if library_entry is None:
        for key in ("mean", "std"):
            if getattr(recipe.augment, key) is None:
                raise UserError(
                    f"augment.{key} is missing: {recipe.model.backbone} has none of its own; set it to that of the "
                    f"images, as in --set augment.{key}=[0.5,0.5,0.5]"
                )
        return _resolved(recipe)
    configuration = library_entry[0].configuration(library_entry[1])
    size = recipe.model.input_size or configuration.size
    model = recipe.model.model_copy(update={"input_size": size})
    augment = recipe.augment.model_copy(
        update={"mean": recipe.augment.mean or configuration.mean, "std": recipe.augment.std or configuration.std}
    )
    return _resolved(recipe.model_copy(update={"model": model, "augment": augment}))


def _resolved(recipe: Recipe) -> ResolvedRecipe:
    return ResolvedRecipe.model_construct(recipe.model_fields_set, **dict(recipe))


def check_backbone(model: Model) -> None:
    """Raise a UserError for a model that `build_backbone` or its weights do not support, before any download."""
    library_entry = find_library(model.backbone)
    if model.wrn_group_input == "raw" and not WIDE_RESNET.fullmatch(model.backbone):
        raise UserError(
            f"model.wrn_group_input = raw is a switch of wide ResNets, not of {model.backbone}: add "
            "--set model.wrn_group_input=activated"
        )
    if library_entry is None:
        return check_own(model)
    library, name = library_entry
    _detect_layout(model.backbone, input_size(model), model.tokens)
    if model.weights not in ("none", "default", "file", "random"):
        raise UserError(
            f"there are no {model.weights} weights for {model.backbone}: use --set model.weights=default, none, or "
            "--weights FILE"
        )
    if model.weights == "default" and library.default_weights(name) is None:
        raise UserError(f"{model.backbone} has no weights to download: use --weights FILE, or --set model.weights=none")


def input_size(model: Model) -> tuple[int, int]:
    """Return (H, W) of the images that a library's network takes."""
    if model.input_size is not None:
        return model.input_size
    library, name = _library_of(model.backbone)
    height, width = cast(Configuration, library.configuration(name)).size
    return height, width


def build_backbone(model: Model) -> Backbone:
    """Build a recipe's backbone, with fresh weights.

    Its name is `resnet50`; `wrn28-8`, the published CIFAR-100 network with batch-norm momentum 0.001; any other
    `wrn<depth>-<width>` with momentum 0.1, which suits short training; `wrn<depth>-<width>-s2` and `-s4` with a stem of
    stride 2 or 4; `torchvision:NAME` or `timm:NAME`, a library's network up to its feature map.

    Raises:
        UserError: there is no such backbone, or it has no feature map.
    """
    library_entry = find_library(model.backbone)
    if library_entry is None:
        check_backbone(model)
        return build_own(model.backbone, model.wrn_group_input)
    library, name = library_entry
    size = input_size(model)
    layout = _detect_layout(model.backbone, size, model.tokens)
    network = library.create(name, size)
    names = set(network.state_dict())
    layers = library.cut(name, network, size)
    dropped = frozenset(names - set(layers.state_dict()))
    return LibraryBackbone(layers, library.run, layout, dropped)


def cached_backbone(model: Model) -> Backbone:
    """Return the stand-in for a frozen backbone: its inputs are pooled features [B, C], and so are its outputs.

    It has no parameters and nothing to save, and no random number is drawn. `TypeI` and `TypeII` take pooled features
    in place of a map.
    """
    if model.given_features:
        return Backbone(nn.Identity(), model.given_features)
    if find_library(model.backbone) is not None:
        return Backbone(nn.Identity(), _detect_layout(model.backbone, input_size(model), model.tokens)[0])
    with torch.device("meta"):  # only its attributes are needed
        backbone = build_backbone(model)
    return Backbone(nn.Identity(), backbone.num_channels, backbone.norm_momentum, backbone.init_convolution)


@cache
def _detect_layout(backbone: str, size: tuple[int, int], tokens: Tokens) -> Layout:
    """Return the layout of a network's output, from a run on meta tensors; a UserError without a feature map."""
    library, name = _library_of(backbone)
    library.configuration(name)  # raises for a name that does not exist
    images = empty_images(size)
    refused = f"{backbone} cannot be built for images of {size[0]}x{size[1]}"
    with foreign_errors(lambda error: UserError(f"{refused}; set model.input_size ({error_line(error)})")):
        layers = library.cut(name, on_meta(lambda: library.create(name, size)), size)
        output = library.run(layers.train(), images)
    if not isinstance(output, Tensor):
        raise UserError(f"{backbone} has no feature map: it ends in a {type(output).__name__}")
    return detect_layout(backbone, tuple(output.shape[1:]), library.describe_output(layers), tokens, size)
