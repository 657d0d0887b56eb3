"""The networks of timm: names, configuration, published weights, and the layers up to the feature map."""

import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import timm
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import LocalEntryNotFoundError
from torch import Tensor, nn

from hierbench.models.libraries.feature_map import Configuration, Output, unknown_network
from hierbench.utils.download import Remote
from hierbench.utils.errors import UserError


def configuration(name: str) -> Configuration:
    """Return timm's configuration of a network, which may be named with a tag of its weights: "resnet18.a1_in1k".

    Raises:
        UserError: no such network or tag.
    """
    cfg = _published_weights(name)
    return Configuration(tuple(cfg.input_size[1:]), tuple(cfg.mean), tuple(cfg.std))


def create(name: str, size: tuple[int, int]) -> nn.Module:
    """Return a whole network with random weights, for images of `size` (H, W)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for the authors of its networks
        if size != configuration(name).size:
            # Networks with position embeddings or windows are built for a size, the others refuse the argument.
            with suppress(TypeError):
                return cast(nn.Module, timm.create_model(name, img_size=size))
        return cast(nn.Module, timm.create_model(name))


def cut(name: str, network: nn.Module, size: tuple[int, int]) -> nn.Module:
    """Return the network without its classifier; `run` leaves out pooling."""
    cast(Any, network).reset_classifier(0)
    return network


def run(network: nn.Module, images: Tensor) -> Tensor:
    """Return the map or the tokens that images [B, 3, H, W] end in."""
    return cast(Tensor, cast(Any, network).forward_features(images))


def describe_output(network: nn.Module) -> Output:
    """Describe the output of a network."""
    grid = getattr(getattr(network, "patch_embed", None), "grid_size", None)
    channels_last = getattr(network, "output_fmt", "NCHW") == "NHWC"
    return Output(channels_last, getattr(network, "num_prefix_tokens", 0) or 0, grid and tuple(grid))


@dataclass(frozen=True)
class HubFile:
    """A file of the Hugging Face Hub, which huggingface_hub downloads and keeps: HF_HOME, HF_HUB_OFFLINE, tokens."""

    repository: str
    name: str

    def there(self) -> Path | None:
        """Return the file if it has been downloaded."""
        with suppress(LocalEntryNotFoundError):
            return Path(hf_hub_download(self.repository, self.name, local_files_only=True))
        return None

    def download(self) -> Path:
        """Download the file, with progress; errors are those of huggingface_hub."""
        return Path(hf_hub_download(self.repository, self.name))


def default_weights(name: str) -> HubFile | Remote | None:
    """Return the file of published weights, or None if each needs code to be read."""
    cfg = _published_weights(name)
    # Some networks have a way of loading of their own: for the file at the url, or, marked "hf", for that on the hub.
    if cfg.hf_hub_id and cfg.custom_load != "hf":
        return HubFile(cfg.hf_hub_id, cfg.hf_hub_filename or "model.safetensors")
    has_url = isinstance(cfg.url, str) and cfg.url and not cfg.custom_load
    return Remote(f"the weights of timm:{name}", cfg.url) if has_url else None


def convert(name: str, network: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state as timm converts it for a network: other releases' names, position embeddings of another size."""
    convert = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    return state if convert is None else dict(convert(state, network))


def _published_weights(name: str) -> Any:
    """Return timm's record of a network and its weights."""
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise unknown_network("timm", architecture, timm.list_models())
    try:
        cfg = timm.get_pretrained_cfg(name)
    except RuntimeError:
        tags = sorted(timm.list_pretrained(f"{architecture}.*"))
        choices = f"known: {', '.join(tags)}" if tags else "timm has none for it"
        raise UserError(f"timm has no weights {tag!r} of {architecture}; {choices}") from None
    return timm.models.PretrainedCfg() if cfg is None else cfg
