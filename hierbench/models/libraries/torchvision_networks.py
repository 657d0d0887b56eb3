"""The networks of torchvision: names, configuration, published weights, and the layers up to the feature map."""

import math
import re
from functools import cache
from typing import Any, cast

import torch
import torchvision
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torchvision import models

from hierbench.models.libraries.entry import Configuration, unknown_network
from hierbench.models.libraries.feature_map import Output, empty_images, on_meta
from hierbench.utils.download import Remote
from hierbench.utils.errors import UserError

# Modules after the feature map, by the names that torchvision gives them.
HEADS = ("avgpool", "classifier", "fc", "head", "heads")


def configuration(name: str) -> Configuration:
    """Return what the transforms of a network's default weights say; without weights, what is usual for ImageNet.

    Raises:
        UserError: no such network.
    """
    if (weights := _default(name)) is None:
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


class _Tracer(fx.Tracer):
    """Traces torchvision's networks, whose own operations stay whole: they depend on the sizes of what they get."""

    def __init__(self) -> None:
        super().__init__(autowrap_modules=(math, torchvision.ops))

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return super().is_leaf_module(m, module_qualified_name) or type(m).__module__.startswith("torchvision.ops")


def cut(name: str, network: nn.Module, size: tuple[int, int]) -> nn.Module:
    """Return the network up to its feature map or tokens, without what comes after them.

    The names of parameters and buffers stay. Training and evaluation behave as in the whole network.
    """
    last = _last_node(name, size)
    graph = _traced(network)
    node = next(node for node in graph.nodes if node.name == last)
    with graph.inserting_after(node):
        graph.output(node)
    for other in reversed(list(graph.nodes)):
        is_new_end = other.op == "output" and other.args[0] is node
        if not other.users and not is_new_end and other.op != "placeholder":
            graph.erase_node(other)
    for other in list(graph.nodes):
        if "training" in other.kwargs:  # traced as a constant
            with graph.inserting_before(other):
                other.update_kwarg("training", graph.get_attr("training"))
    return fx.GraphModule(network, graph)


def _traced(network: nn.Module) -> fx.Graph:
    """Trace in evaluation mode, in which no network has auxiliary classifiers."""
    was_training = network.training
    graph = _Tracer().trace(network.eval())
    network.train(was_training)
    return graph


@cache
def _last_node(name: str, size: tuple[int, int]) -> str:
    """Return the node of the graph whose output is the feature map.

    It is the last one with places, as a map [B, C, h, w] or tokens [B, N, C], outside of pooling and classifier. Small
    images may end in a single place, so networks that take any size are asked about their own.
    """
    if not name.startswith(("vit_", "maxvit")):
        side = configuration(name).size
        size = (side[0], side[1])
    network = on_meta(lambda: create(name, size))
    module = fx.GraphModule(network.eval(), _traced(network))
    with torch.no_grad():
        ShapeProp(module).propagate(empty_images(size))
    found, after = "", set[fx.Node]()  # nodes that pooling or classifier come before
    for node in module.graph.nodes:
        is_head = node.op == "call_module" and str(node.target).split(".")[0] in HEADS
        if is_head or not after.isdisjoint(node.all_input_nodes):
            after.add(node)
        shape = getattr(node.meta.get("tensor_meta"), "shape", ())
        if node.op.startswith("call_") and node not in after and _has_places(shape):
            found = node.name
    if not found:
        raise UserError(f"torchvision:{name} has no feature map")
    return found


def _has_places(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 or (len(shape) == 4 and shape[2] * shape[3] > 1)


def run(network: nn.Module, images: Tensor) -> Tensor:
    """Return the map or the tokens that images [B, 3, H, W] end in."""
    features: Tensor = network(images)
    return features


def output_of(network: nn.Module, shape: tuple[int, ...]) -> Output:
    """Describe an output [B, ...] of a network; tokens are a vision transformer's, with its class token first."""
    return Output(shape[1:], num_prefix=int(len(shape) == 3))


def default_weights(name: str) -> Remote | None:
    """Return the file of the network's default weights, whose name holds the first digits of its digest."""
    if (weights := _default(name)) is None:
        return None
    digest = re.search(r"-([0-9a-f]{8,64})\.pth", weights.url)
    return Remote(f"the weights of torchvision:{name}", weights.url, sha256=digest[1] if digest else "")


def convert(name: str, network: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state for a network, with the position embeddings of a vision transformer resized to its images."""
    if not name.startswith("vit_") or "encoder.pos_embedding" not in state:
        return state
    from torchvision.models.vision_transformer import interpolate_embeddings

    own = network.get_parameter("encoder.pos_embedding").shape[1] - 1
    patch = cast(nn.Conv2d, network.get_submodule("conv_proj")).kernel_size[0]
    return dict(interpolate_embeddings(math.isqrt(own) * patch, patch, state))


def _default(name: str) -> Any:
    """Return a network's default weights, None without any."""
    if name not in (known := models.list_models(module=models)):
        raise unknown_network("torchvision", name, known)
    return getattr(models.get_model_weights(name), "DEFAULT", None)
