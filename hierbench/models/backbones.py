"""Backbones map images [B, 3, H, W] to feature maps [B, C, h, w], with C in `num_channels`."""

import re
from collections import OrderedDict
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from hierbench.config.sections import GroupInput, Model
from hierbench.utils.errors import UserError, unknown_name

KNOWN_BACKBONES = (
    "resnet50",
    "wrn28-8",
    "wrn<depth>-<width>",
    "wrn<depth>-<width>-s<2|4>",
    "torchvision:NAME",
    "timm:NAME",
    "features-D",
)
WIDE_RESNET = re.compile(r"wrn(\d{1,4})-(\d{1,4})(?:-s([24]))?")


class Backbone(nn.Module):
    """A network that ends in a feature map of `num_channels` channels.

    Attributes:
        norm_momentum: of its batch norms (PyTorch's convention), and of a norm that is appended.
        init_convolution: initialises a convolution that is appended; None leaves PyTorch's default.
        dropped: names that a file of weights may hold besides those of `layers`, such as the classifier's.
    """

    dropped: frozenset[str] = frozenset()

    def __init__(
        self,
        layers: nn.Module,
        num_channels: int,
        norm_momentum: float = 0.1,
        init_convolution: Callable[[nn.Conv2d], None] | None = None,
    ) -> None:
        super().__init__()
        self.layers = layers
        self.num_channels = num_channels
        self.norm_momentum = norm_momentum
        self.init_convolution = init_convolution

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to a feature map [B, C, h, w]."""
        features: Tensor = self.layers(images)
        return features


def init_he_fan_out(convolution: nn.Conv2d) -> None:
    """Draw the weights from a normal distribution of variance 2 / (out_channels kernel_height kernel_width)."""
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="leaky_relu")


class WideBlock(nn.Module):
    """Pre-activation residual block of a wide ResNet: two 3x3 convolutions, a 1x1 shortcut where the shape changes.

    With `raw_input` the first convolution and the shortcut take the input as it is. The published pipeline computes the
    first norm and discards the result; here it is not computed. Its parameters exist, count and are saved, but get no
    gradient, so no optimiser changes them, and its running statistics stay at their initial values.
    """

    def __init__(
        self, in_channels: int, out_channels: int, stride: int, momentum: float, raw_input: bool = False
    ) -> None:
        super().__init__()
        self.raw_input = raw_input
        self.bn1 = nn.BatchNorm2d(in_channels, momentum=momentum)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels, momentum=momentum)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        changes = stride != 1 or in_channels != out_channels
        self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False) if changes else None

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, h, w] to [B, out_channels, h / stride, w / stride]."""
        active = images if self.raw_input else F.leaky_relu(self.bn1(images), 0.1, inplace=True)
        residual = images if self.shortcut is None else self.shortcut(active)
        out: Tensor = self.conv2(F.leaky_relu(self.bn2(self.conv1(active)), 0.1, inplace=True))
        return out + residual


def wide_resnet(
    depth: int, width: int, *, momentum: float = 0.1, stem_stride: int = 1, group_input: GroupInput = "activated"
) -> Backbone:
    """Build a wide ResNet with LeakyReLU 0.1 and He fan-out initialisation.

    Args:
        depth: 6 n + 4 layers.
        width: channels are 16, 32 and 64 times this.
        momentum: of the batch norms (PyTorch's convention: weight of the new batch).
        stem_stride: 2 or 4 makes the network 4 or 16 times cheaper.
        group_input: see `hierbench.config.sections.Model`.

    Reference: Zagoruyko & Komodakis, BMVC 2016.
    """
    num_blocks = (depth - 4) // 6
    channels = 16
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, stem_stride, 1, bias=False)]
    for group, base in enumerate((16, 32, 64)):
        for block in range(num_blocks):
            downsamples = group > 0 and block == 0  # group 1 keeps its norm in the published pipeline too
            raw_input = downsamples and group_input == "raw"
            layers.append(WideBlock(channels, base * width, 2 if downsamples else 1, momentum, raw_input))
            channels = base * width
    layers += [nn.BatchNorm2d(channels, momentum=momentum), nn.LeakyReLU(0.1, inplace=True)]
    network = nn.Sequential(*layers)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            init_he_fan_out(module)
    return Backbone(network, channels, momentum, init_he_fan_out)


def resnet50() -> Backbone:
    """Build torchvision's ResNet-50 without pooling and classifier.

    Reference: He et al., CVPR 2016.
    """
    from torchvision.models import resnet50 as torchvision_resnet50

    network = torchvision_resnet50(weights=None)
    named = [(name, layer) for name, layer in network.named_children() if name not in ("avgpool", "fc")]
    backbone = Backbone(nn.Sequential(OrderedDict(named)), 2048)
    backbone.dropped = frozenset({"fc.weight", "fc.bias"})
    return backbone


def check_own(model: Model) -> None:
    """Raise a UserError for a name or weights that `build_own` does not support, without building anything."""
    name = model.backbone
    weights = model.weights
    match = WIDE_RESNET.fullmatch(model.backbone)
    if model.given_features:
        if weights != "none":
            raise UserError(f"{name} are features, which start from no weights: leave out --weights")
        return
    if match is None and name != "resnet50":
        raise unknown_name("backbone", name, KNOWN_BACKBONES)
    if model.tokens == "class":
        raise UserError(f"{name} has no class token: add --set model.tokens=patch")
    if match is None:
        if weights == "default":
            raise UserError("resnet50 has the weights imagenet1k-v1 and pass; default is for torchvision:resnet50")
        return
    if (int(match[1]) - 4) % 6 or int(match[1]) < 10 or int(match[2]) < 1:
        raise UserError(f"a wide ResNet has depth 6 n + 4 (10, 16, 22, 28, ...) and width >= 1, got {name}")
    if weights not in ("none", "file", "random"):
        raise UserError(f"there are no {weights} weights for {name}: use --set model.weights=none")


def build_own(name: str, group_input: GroupInput = "activated") -> Backbone:
    """Build one of the project's own backbones by name, see `hierbench.models.build_backbone`."""
    if name == "resnet50":
        return resnet50()
    match = WIDE_RESNET.fullmatch(name)
    if match is None:
        raise UserError(f"{name} is no backbone of hierbench")
    depth, width, stride = match.groups()
    momentum = 0.001 if name == "wrn28-8" else 0.1
    return wide_resnet(int(depth), int(width), momentum=momentum, stem_stride=int(stride or 1), group_input=group_input)
