"""The published weights that recipes can name, without importing torch."""

from dataclasses import dataclass

from hierbench.utils.download import Remote


@dataclass(frozen=True)
class Weights(Remote):
    """A published file of ResNet-50 weights."""

    prefix: str = ""  # of the network's keys; it is removed
    dropped: tuple[str, ...] = ()  # prefixes of other keys that the file may have; they are ignored
    head: str = "fc."  # prefix of the network's classifier (after `prefix`), which is ignored


KNOWN_WEIGHTS = {
    # He et al., CVPR 2016, as torchvision's IMAGENET1K_V1; the file name contains the start of its digest.
    "imagenet1k-v1": Weights(
        "the ImageNet-1K weights",
        "https://download.pytorch.org/models/resnet50-0676ba61.pth",
        sha256="0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    ),
    # Asano et al., PASS, NeurIPS 2021: MoCo-v2, 800 epochs. The momentum encoder and the queue belong to MoCo.
    "pass": Weights(
        "the PASS weights",
        "https://www.robots.ox.ac.uk/~vgg/research/pass/pretrained_models/moco_v2_800ep.pth.tar",
        prefix="module.encoder_q.",
        dropped=("module.encoder_k.", "module.queue"),
    ),
}
