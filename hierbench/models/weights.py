"""Initial weights: downloaded once or given by path, read without executing code, loaded with strict key matching."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hierbench.config.pretrained import KNOWN, Weights
from hierbench.models.backbones import Backbone, build_backbone
from hierbench.utils.download import obtain
from hierbench.utils.errors import UserError
from hierbench.utils.files import open_regular


def ready_weights(name: str, folder: Path, given: Path | None = None) -> Path:
    """Return the file of a recipe's `model.weights`: the user's own copy, or the download in a folder.

    It is checked once per command, before every job finds out.
    """
    path = download_weights(name, folder) if given is None else given
    load_weights(build_backbone("resnet50"), name, path)
    return path


def download_weights(name: str, folder: Path) -> Path:
    """Return weights from a folder, downloaded with progress and checked unless they are there.

    Raises:
        UserError: the download failed; the error names the ways out.
    """
    way_out = "give your copy with --weights FILE, or train from scratch with --set model.weights=none"
    # Of a file without a known digest, its content is all that can be checked.
    return obtain(KNOWN[name], folder, way_out, check=lambda path: _network_state(KNOWN[name], path))


def load_weights(network: Backbone, name: str, path: Path) -> None:
    """Load a file into a ResNet-50 backbone.

    Raises:
        UserError: the file is corrupted, has another format or network, or holds more than tensors and plain values.
    """
    state = _network_state(KNOWN[name], path)
    own = network.layers.state_dict()
    for key in own:
        if key.endswith(".num_batches_tracked"):  # an unused counter that old files lack
            state.setdefault(key, own[key])
    for problem, keys in (("lacks", own.keys() - state.keys()), ("has an unexpected", state.keys() - own.keys())):
        if keys:
            raise UserError(f"{path} {problem} {sorted(keys)[0]} ({len(keys)} such names): not {KNOWN[name].title}")
    for key, value in own.items():
        if state[key].shape != value.shape:
            shapes = f"{tuple(state[key].shape)} instead of {tuple(value.shape)}"
            raise UserError(f"{path}: {key} has the shape {shapes}: not {KNOWN[name].title}")
    network.layers.load_state_dict(state, strict=True)


def _network_state(known: Weights, path: Path) -> dict[str, Tensor]:
    """Return the tensors of the network without prefix, except its classifier's."""
    content = _read(path)
    if known.prefix and "state_dict" in content:
        content = content["state_dict"]
        if not isinstance(content, Mapping):
            raise UserError(f"{path} holds a {type(content).__name__} as state_dict: not {known.title}")
    state = {}
    for key, value in content.items():
        if not isinstance(key, str) or not key.startswith((known.prefix, *known.dropped)):
            raise UserError(f"{path} has an unexpected {key}: not {known.title}")
        if not key.startswith(known.prefix):
            continue
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_complex() or value.is_quantized:
            raise UserError(f"{path}: {key} is not a tensor of numbers: not {known.title}")
        if not key.startswith(known.prefix + known.head):
            state[key.removeprefix(known.prefix)] = value
    return state


def _read(path: Path) -> Mapping[Any, Any]:
    try:
        with open_regular(path, follow=True) as file:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error})") from None
    except Exception as error:  # corrupted or malicious files fail in many ways
        reason = str(error).strip().splitlines()[:1]
        shown = f"{type(error).__name__}: {''.join(reason)[:120]}"
        raise UserError(f"{path} is not a file of weights only ({shown})") from None
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is not a file of weights: it holds a {type(content).__name__}")
    return content
