"""Weights to start from: downloaded once or given by path, read without running code, and loaded without exception.

A name and a shape that is missing or unexpected is an error; nothing is skipped silently.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hierbench.errors import UserError
from hierbench.files import file_digest
from hierbench.models.backbones import Backbone

TIMEOUT = 60.0  # seconds without an answer


@dataclass(frozen=True)
class Weights:
    """A published file of ResNet-50 weights.

    Attributes:
        title: for messages.
        url: where it is.
        sha256: how its SHA-256 begins, "" where none is published.
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
        "the ImageNet-1K weights", "https://download.pytorch.org/models/resnet50-0676ba61.pth", sha256="0676ba61"
    ),
    # Asano et al., PASS, NeurIPS 2021: MoCo-v2, 800 epochs. The momentum encoder and the queue are the method's own.
    "pass": Weights(
        "the PASS weights",
        "https://www.robots.ox.ac.uk/~vgg/research/pass/pretrained_models/moco_v2_800ep.pth.tar",
        prefix="module.encoder_q.",
        dropped=("module.encoder_k.", "module.queue"),
    ),
}


def find_weights(name: str, folder: Path, given: Path | None = None) -> Path | None:
    """Return the file of the weights, or None if it would have to be downloaded.

    Args:
        name: a recipe's `model.weights`.
        folder: where downloads are kept.
        given: the user's own copy.

    Raises:
        UserError: the given file does not exist.
    """
    if given is not None:
        if not given.is_file():
            raise UserError(f"--weights: no file {given}")
        return given
    path = folder / KNOWN[name].url.rpartition("/")[2]
    return path if path.is_file() else None


def download_weights(name: str, folder: Path) -> Path:
    """Download weights with progress, check them, and return the file.

    Raises:
        UserError: naming the ways out.
    """
    known = KNOWN[name]
    path = folder / known.url.rpartition("/")[2]
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Written under another name, moved when whole, removed when the digest is another.
        torch.hub.download_url_to_file(known.url, str(path), hash_prefix=known.sha256 or None)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"{known.title} could not be downloaded from {known.url} ({error}); give your copy with --weights FILE, "
            "or train from scratch with --set model.weights=none"
        ) from None
    finally:
        socket.setdefaulttimeout(before)
    return path


def weights_digest(path: Path) -> str:
    """Return the SHA-256 of a weights file; it is part of the id of what starts from it."""
    return file_digest(path)


def load_weights(network: Backbone, name: str, path: Path) -> None:
    """Load a file into a ResNet-50 backbone.

    Raises:
        UserError: the file is damaged, is of another format or network, or holds more than tensors and plain values.
    """
    state = _network_state(KNOWN[name], path)
    own = network.layers.state_dict()
    for key in own:
        if key.endswith(".num_batches_tracked"):  # a counter that old files lack and that nothing here reads
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
    """Return the tensors of the network, without prefix and without its classifier."""
    content = _read(path)
    if known.prefix and "state_dict" in content:
        content = content["state_dict"]
    state = {}
    for key, value in content.items():
        inner = key.removeprefix(known.prefix) if isinstance(key, str) and key.startswith(known.prefix) else None
        if inner is None:
            if not isinstance(key, str) or not key.startswith(known.dropped):
                raise UserError(f"{path} has an unexpected {key}: not {known.title}")
        elif not isinstance(value, Tensor):
            raise UserError(f"{path}: {key} is no tensor: not {known.title}")
        elif not inner.startswith(known.head):
            state[inner] = value
    return state


def _read(path: Path) -> Mapping[Any, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"{path} can not be read ({error.strerror or error})") from None
    except Exception as error:  # damaged or harmful files fail in many ways
        reason = str(error).strip().splitlines()[:1]
        raise UserError(
            f"{path} is no file of weights alone ({type(error).__name__}: {''.join(reason)[:120]})"
        ) from None
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is no file of weights: it holds a {type(content).__name__}")
    return content
