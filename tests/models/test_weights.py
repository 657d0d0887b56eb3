import copy

import pytest
import torch

from hierbench.config.sections import Model
from hierbench.models import build_backbone
from hierbench.models.weights import KNOWN, load_weights
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
    whole = {"epoch": 800, "arch": "resnet50", "state_dict": prefixed | heads | momentum | queue}
    return {"imagenet1k-v1": plain, "pass": whole}


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
    whole = states["imagenet1k-v1"]
    old = {key: value for key, value in whole.items() if not key.endswith("num_batches_tracked")}
    assert len(old) < len(whole)
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
        with pytest.raises(UserError, match=f"not {KNOWN[name].title}"):
            load_weights(drawn, resnet50_from(name), saved(tmp_path / "w.pth", states[other]))
