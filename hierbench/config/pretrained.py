"""The published weights that recipes name; what is known of each file, without importing torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Weights:
    """A published file of ResNet-50 weights.

    Attributes:
        title: for messages.
        url: where it is.
        sha256: of the file, "" where none is published.
        prefix: of the names that belong to the network; it is taken off.
        dropped: how the other names begin; with `head`, all that may stand in the file besides the network.
        head: how the network's own classifier is called (without the prefix); it is left out.
    """

    title: str
    url: str
    sha256: str = ""
    prefix: str = ""
    dropped: tuple[str, ...] = ()
    head: str = "fc."


KNOWN = {
    # He et al., CVPR 2016, as torchvision's IMAGENET1K_V1; the file's name holds the beginning of its digest.
    "imagenet1k-v1": Weights(
        "the ImageNet-1K weights",
        "https://download.pytorch.org/models/resnet50-0676ba61.pth",
        sha256="0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    ),
    # Asano et al., PASS, NeurIPS 2021: MoCo-v2, 800 epochs. The momentum encoder and the queue are the method's own.
    "pass": Weights(
        "the PASS weights",
        "https://www.robots.ox.ac.uk/~vgg/research/pass/pretrained_models/moco_v2_800ep.pth.tar",
        prefix="module.encoder_q.",
        dropped=("module.encoder_k.", "module.queue"),
    ),
}
