"""The output of a library's network as a feature map [B, C, h, w].

Shapes: B batch, C channels, N tokens.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from hierbench.models.backbones import Backbone
from hierbench.utils.errors import UserError

Run = Callable[[nn.Module, Tensor], Tensor]  # (network, images) to the output of the network
# The channels of an output as a map, and the function that makes it a map [B, C, h, w].
Layout = tuple[int, Callable[[Tensor], Tensor]]
Network = TypeVar("Network", bound=nn.Module)
# Of ImageNet's training images, which the libraries normalise by.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Configuration:
    """The images that a library's weights were trained on.

    Attributes:
        size: (H, W).
        mean: per channel, of values from 0 to 1.
        std: per channel.
    """

    size: tuple[int, ...] = (224, 224)
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD


def unknown_network(library: str, name: str, names: Iterable[str]) -> UserError:
    """Return the error for a name that a library does not have; the nearest are suggested, as it has hundreds."""
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"; the nearest: {', '.join(f'{library}:{other}' for other in near)}" if near else ""
    return UserError(f"{library} has no network {name!r} for classification{hint}")


@dataclass(frozen=True)
class Output:
    """The output of a network: a map [B, C, h, w] or [B, h, w, C], or tokens [B, N, C].

    Attributes:
        channels_last: of a map.
        num_prefix: tokens before those of the patches, the class token first.
        grid: (h, w) of the patches, of which later layers may merge some; None where the network does not tell.
    """

    channels_last: bool = False
    num_prefix: int = 0
    grid: tuple[int, ...] | None = None


def detect_layout(
    backbone: str, shape: tuple[int, ...], output: Output, tokens: Literal["patch", "class"], size: tuple[int, int]
) -> Layout:
    """Return the layout of an output, given its shape without B, for images of `size` (H, W).

    Raises:
        UserError: the output is neither a map nor tokens on a grid, or it has no class token where one is asked for.
    """
    if tokens == "class" and (len(shape) != 2 or output.num_prefix == 0):
        raise UserError(f"{backbone} has no class token: add --set model.tokens=patch")
    if len(shape) == 3:
        return (
            (shape[2], lambda maps: maps.permute(0, 3, 1, 2)) if output.channels_last else (shape[0], lambda maps: maps)
        )
    if len(shape) != 2:
        shown = "x".join(map(str, shape)) or "one value"
        raise UserError(f"{backbone} has no feature map: it ends in {shown} per image")
    num_tokens, num_channels = shape
    if tokens == "class":
        return num_channels, lambda every: every[:, 0, :, None, None]
    first = output.num_prefix
    patches = num_tokens - first
    height = round((patches * size[0] / size[1]) ** 0.5)  # of a grid in the images' proportions
    grids = [grid for grid in (output.grid, (height, patches // max(height, 1))) if grid]
    fitting = [(rows, columns) for rows, columns in grids if rows * columns == patches > 0]
    if not fitting:
        raise UserError(f"{backbone} has no feature map: its {num_tokens} tokens lie on no grid")
    return num_channels, lambda every: every[:, first:].transpose(1, 2).unflatten(2, fitting[0])


class LibraryBackbone(Backbone):
    """A library's network up to its feature map; parameters and buffers keep the names that the library gives them.

    Attributes:
        dropped: names of the whole network's state that this part lacks, such as the classifier's.
    """

    def __init__(self, layers: nn.Module, run: Run, layout: Layout, dropped: frozenset[str]) -> None:
        num_channels, map_of = layout
        super().__init__(layers, num_channels)
        self.run = run
        self.map_of = map_of
        self.dropped = dropped

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to a feature map [B, C, h, w]."""
        return self.map_of(self.run(self.layers, images))


def on_meta(create: Callable[[], Network]) -> Network:
    """Return the module that `create` builds, without values; the random generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                return create().to("meta")
        except Exception:  # it computes with values while it is built
            with torch.device("cpu"):
                return create().to("meta")


def empty_images(size: tuple[int, int]) -> Tensor:
    """Return a batch on the meta device; two images, since a batch norm in training refuses one."""
    return torch.empty(2, 3, *size, device="meta")
