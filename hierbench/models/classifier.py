"""A whole model: backbone, feature extractor and method, in groups that share a learning rate."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hierbench.api.method import Method, trainable_groups
from hierbench.config.sections import FeatureType, Model
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.models.backbones import Backbone, WideBlock
from hierbench.models.feature_extractors import TypeI, TypeII, at_least_float32
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.models.weights import loaded_backbone

# Compiling takes a while, and saves a part of each step: 600 steps of a WideResNet-28-8 took 62 s compiled, 35 s not,
# on an H100 and in both precisions.
FEW_STEPS = 3000  # fewer in a whole training are not compiled, so that it is the same after a kill
_compiled: dict[str, object] = {}  # the network of this process's compiled graphs


class Classifier(nn.Module):
    """Images, or the cached features [B, C] of a frozen backbone, in; the method's outputs out."""

    def __init__(self, backbone: nn.Module, features: TypeI | TypeII, method: Method) -> None:
        super().__init__()
        self.backbone = backbone
        self.features = features
        self.method = method
        self.compiled_embed: Callable[[Tensor], Tensor] | None = None  # see `compile_embedding`
        # With several ranks: returns the features of all ranks, so that the method sees the whole batch.
        self.gather: Callable[[Tensor], Tensor] | None = None

    def embed(self, images: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to features [B, D]."""
        features: Tensor = self.features(self.backbone(images))
        return features

    def forward(self, images: Tensor) -> Any:
        """Map images [B, 3, H, W] to the outputs that the method's `loss` and `scores` take.

        The method computes in float32 even on bfloat16 features: with 8 bits of precision the scores of many classes
        would tie. A float64 model stays in float64.
        """
        embed = self.compiled_embed if self.training and self.compiled_embed is not None else self.embed
        features = at_least_float32(embed(images))
        if self.training and self.gather is not None:
            features = self.gather(features)
        device = features.device.type
        with torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext():
            return self.method(features)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the trainable parameters that share a learning rate: backbone, transform, classifier, own groups.

        The 1x1 convolution of type II belongs to the backbone (docs/protocols.md, row 37). Own groups are those of
        `Method.parameter_groups`; a UserError if they are no groups.
        """
        reduce = [self.features.reduce] if isinstance(self.features, TypeII) else []
        groups: dict[str, list[nn.Module]] = {
            "backbone": [self.backbone, *reduce],
            "transform": [self.features.transform],
        }
        return {
            name: [p for module in modules for p in module.parameters() if p.requires_grad]
            for name, modules in groups.items()
        } | trainable_groups(self.method)

    def parameters_without_gradient(self) -> list[str]:
        """Return the names of trainable parameters that no output depends on: norms skipped by a raw input."""
        return [
            f"{name}.bn1.{parameter}"
            for name, block in self.named_modules()
            if isinstance(block, WideBlock) and block.raw_input
            for parameter, _ in block.bn1.named_parameters()
        ]


def build_classifier(
    method: type[Method],
    hierarchy: Hierarchy,
    feature_type: FeatureType,
    model: Model,
    params: Any = None,
    weights: Path | None = None,
    network: Backbone | None = None,
) -> Classifier:
    """Build a model; weights that are not loaded are drawn from the global random generator.

    Args:
        method: its class.
        hierarchy: over the K classes.
        feature_type: "pooled", "type-I" or "type-II".
        model: the recipe's section.
        params: the method's `Params`, None for the defaults.
        weights: the file of `model.weights`, None for random ones; a frozen backbone is not part of the model.
        network: the backbone if it is built already.

    Raises:
        UserError: the weights do not match the backbone.
    """
    if network is None:
        network = cached_backbone(model) if model.frozen else loaded_backbone(model, weights)
    features: TypeI | TypeII
    if feature_type == "type-II":
        features = TypeII(network.num_channels, hierarchy.num_classes, network.norm_momentum, network.init_convolution)
    else:
        layers = Model(backbone=model.backbone, type_i_units=0) if feature_type == "pooled" else model
        features = TypeI(network.num_channels, layers.type_i_units, layers.type_i_pool)
    return Classifier(network, features, method(hierarchy, features.num_features, params))


def compile_embedding(
    model: Classifier,
    shapes: Sequence[tuple[int, ...]],
    dtype: torch.dtype,
    autocast: Callable[[], AbstractContextManager[object]],
) -> bool:
    """Make a model train through `torch.compile`; return whether that works.

    Methods are not compiled: heads and losses are small, and a foreign one may not compile. PyTorch compiles lazily, so
    a batch of each shape goes forward and backward first; if that fails, the model stays uncompiled, with one warning.
    PyTorch keeps a few graphs, and computes without one when they are used up: those of another network are dropped.
    PyTorch's environment variable TORCH_COMPILE_DISABLE=1 switches compilation off.

    Args:
        model: on its device; weights, norms and gradients are the same afterwards.
        shapes: [B, 3, H, W] of each batch that training will see.
        dtype: of its images.
        autocast: the context that it trains in.
    """
    network = (repr(model.backbone), repr(model.features), *shapes, dtype)
    if network != _compiled.get("network"):
        torch.compiler.reset()
        _compiled["network"] = network
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    compiled = torch.compile(model.embed, dynamic=False)
    device = next(model.parameters()).device
    # Products of matrices stay in float32 on purpose; PyTorch advises otherwise once per process.
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    try:
        model.train()
        for shape in shapes:
            images = torch.zeros(shape, dtype=dtype, device=device).contiguous(memory_format=torch.channels_last)
            with autocast():
                features = compiled(images)
            features.float().sum().backward()
    except Exception as error:  # compilers and drivers raise errors of any type
        if isinstance(error, torch.OutOfMemoryError):
            raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        warnings.warn(f"torch.compile does not work here, training continues without it ({reason[0]})", stacklevel=2)
        return False
    finally:
        model.zero_grad()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
    model.compiled_embed = compiled
    return True
