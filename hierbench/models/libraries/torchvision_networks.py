"""The networks of torchvision: names, configuration, published weights, and the layers up to the feature map."""

import math
import re
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from hierbench.models.libraries.feature_map import Configuration, Output, empty_images, on_meta, unknown_network
from hierbench.utils.download import Remote
from hierbench.utils.errors import UserError

# Modules after the feature map, by the names that torchvision gives them.
HEADS = ("avgpool", "classifier", "fc", "head", "heads")
TAIL = 16  # operations before the head among which the last with places is; asking about all takes seconds


def configuration(name: str) -> Configuration:
    """Return the configuration by the transforms of a network's default weights; without weights, ImageNet's usual one.

    Raises:
        UserError: no such network.
    """
    weights = _default_weights(name)
    if weights is None:
        return Configuration()
    transforms = weights.transforms()
    side = transforms.crop_size[0]
    return Configuration((side, side), tuple(transforms.mean), tuple(transforms.std))


def create(name: str, size: tuple[int, int]) -> nn.Module:
    """Return a whole network with random weights, for images of `size` (H, W)."""
    options: dict[str, Any] = {}
    if name.startswith("vit_"):
        if size[0] != size[1]:
            raise UserError(f"torchvision:{name} takes square images, not {size[0]}x{size[1]}: set model.input_size")
        options["image_size"] = size[0]
    elif name.startswith("maxvit"):
        options["input_size"] = size
    elif name in ("googlenet", "inception_v3"):
        options["init_weights"] = True  # their own initialisation; leaving it out warns
    network: nn.Module = models.get_model(name, weights=None, **options)
    return network


def cut(name: str, network: nn.Module, size: tuple[int, int]) -> nn.Module:
    """Return the network up to its feature map or tokens, without its last layers.

    The names of parameters and buffers stay. Training and evaluation behave as in the whole network.
    """
    end = {_last_node(name, size): "map"}
    extractor: nn.Module = create_feature_extractor(network, end, suppress_diff_warning=True)
    return extractor


@cache
def _last_node(name: str, size: tuple[int, int]) -> str:
    """Return the last node before pooling and classifier with places: a map [B, C, h, w], or tokens [B, N, C]."""
    if not name.startswith(("vit_", "maxvit")):  # small images may end in a single place: its own are asked about
        side = configuration(name).size
        size = (side[0], side[1])
    network = on_meta(lambda: create(name, size)).eval()
    _, nodes = get_graph_node_names(network, suppress_diff_warning=True)
    heads = [place for place, node in enumerate(nodes) if node.split(".")[0] in HEADS]
    before = nodes[: min(heads, default=len(nodes))][-TAIL:]
    with torch.no_grad():
        outputs = create_feature_extractor(network, before, suppress_diff_warning=True).eval()(empty_images(size))
    shapes: dict[str, tuple[int, ...]] = {node: getattr(outputs.get(node), "shape", ()) for node in before}
    candidates = [
        node for node, shape in shapes.items() if len(shape) == 3 or (len(shape) == 4 and shape[2] * shape[3] > 1)
    ]
    if not candidates:
        raise UserError(f"torchvision:{name} has no feature map")
    return candidates[-1]


def run(network: nn.Module, images: Tensor) -> Tensor:
    """Return the map or the tokens that images [B, 3, H, W] end in."""
    features: Tensor = network(images)["map"]
    return features


def describe_output(network: nn.Module) -> Output:
    """Describe the output of a network; tokens are a vision transformer's, with its class token first."""
    return Output(num_prefix=1)


def default_weights(name: str) -> Remote | None:
    """Return the file of the network's default weights; its name holds the first digits of its digest."""
    weights = _default_weights(name)
    if weights is None:
        return None
    digest = re.search(r"-([0-9a-f]{8,64})\.pth", weights.url)
    return Remote(f"the weights of torchvision:{name}", weights.url, sha256=digest[1] if digest else "")


def convert(name: str, network: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state for a network, with the position embeddings of a vision transformer resized to its images."""
    if not name.startswith("vit_") or "encoder.pos_embedding" not in state:
        return state
    from torchvision.models.vision_transformer import interpolate_embeddings

    num_patches = network.get_parameter("encoder.pos_embedding").shape[1] - 1
    patch = cast(nn.Conv2d, network.get_submodule("conv_proj")).kernel_size[0]
    return dict(interpolate_embeddings(math.isqrt(num_patches) * patch, patch, state))


def _default_weights(name: str) -> Any:
    """Return a network's default weights, None without any."""
    names = models.list_models(module=models)
    if name not in names:
        raise unknown_network("torchvision", name, names)
    return getattr(models.get_model_weights(name), "DEFAULT", None)
