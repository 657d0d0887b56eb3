"""Networks that cannot be a backbone, and files that are not its weights. The wording is pinned here."""

import pickle

import pytest
import timm
import torch
from safetensors.torch import save_file
from torchvision import models

from hierbench.config.recipe import load_recipe
from hierbench.config.sections import Model
from hierbench.models.libraries.lookup import build_backbone, check_backbone, resolve_model
from hierbench.models.weights import find_weights, load_weights
from tests.support.messages import check_message

TORCHVISION, TIMM, VIT = "torchvision:resnet18", "timm:test_resnet", "timm:test_vit"
NETWORKS = [  # keys of [model], and parts of the line
    ({"backbone": "torchvision:resnet81"}, "torchvision has no network 'resnet81'", TORCHVISION),
    ({"backbone": "torchvision:raft_small"}, "torchvision has no network 'raft_small' for classification"),
    ({"backbone": "timm:test_vt"}, "timm has no network 'test_vt'", "timm:test_vit"),
    ({"backbone": "timm:test_vit.nosuch"}, "timm has no weights 'nosuch' of test_vit; known: test_vit.r160_in1k"),
    ({"backbone": "timm:hf-hub:anyone/anything"}, "timm has no network 'hf-hub:anyone/anything'"),
    ({"backbone": "keras:resnet50"}, "unknown backbone 'keras:resnet50'", "timm:NAME"),
    ({"backbone": TORCHVISION, "tokens": "class"}, "has no class token: add --set model.tokens=patch"),
    ({"backbone": "timm:test_vit_relpos", "tokens": "class"}, "has no class token"),
    ({"backbone": "wrn10-1", "tokens": "class"}, "wrn10-1 has no class token"),
    ({"backbone": TIMM, "weights": "pass"}, "there are no pass weights for timm:test_resnet"),
    ({"backbone": "resnet50", "weights": "default"}, "default is for torchvision:resnet50"),
    ({"backbone": "wrn10-1", "weights": "default"}, "there are no default weights for wrn10-1", "model.weights=none"),
    ({"backbone": "resnet5"}, "unknown backbone 'resnet5'; did you mean 'resnet50'"),
    ({"backbone": "wrn11-1"}, "depth 6 n + 4"),
    ({"backbone": "resnet50", "wrn_group_input": "raw"}, "is a switch of wide ResNets, not of resnet50"),
    ({"backbone": TIMM, "wrn_group_input": "raw"}, "is a switch of wide ResNets, not of timm:"),
    ({"backbone": VIT, "input_size": (8, 8)}, "cannot be built for images of 8x8"),
    ({"backbone": "torchvision:alexnet", "input_size": (16, 16)}, "cannot be built for images of 16x16"),
]


class Harmful:
    def __reduce__(self):
        return print, ("harm",)


def truncated(path, state, save):
    save(state, path)
    path.write_bytes(path.read_bytes()[:-1000])


ONLY, NUMBERS = "is not a file of weights only", "is not a tensor of numbers"
FILES = [  # for timm:test_vit
    ("w.pth", lambda path, state: path.write_bytes(pickle.dumps(Harmful())), ONLY),
    ("w.pth", lambda path, state: torch.save({"a": Harmful()}, path), ONLY),
    ("w.pth", lambda path, state: truncated(path, state, torch.save), ONLY),
    ("w.safetensors", lambda path, state: truncated(path, state, save_file), ONLY),
    ("w.safetensors", lambda path, state: torch.save(state, path), ONLY),
    ("w.pth", lambda path, state: torch.save([1], path), "it holds a list"),
    ("w.pth", lambda path, state: path.write_text("<html>not found</html>"), ONLY),
    ("w.pth", lambda path, state: torch.save({"state_dict": [1]}, path), f"state_dict {NUMBERS}"),
    ("w.pth", lambda path, state: torch.save({"a": 1}, path), f"a {NUMBERS}"),
    ("w.pth", lambda path, state: torch.save(state | {"extra": torch.zeros(1)}, path), "has an unexpected extra"),
    ("w.pth", lambda path, state: torch.save({k: state[k] for k in list(state)[:9]}, path), "lacks blocks"),
    ("w.pth", lambda path, state: torch.save(models.squeezenet1_1().state_dict(), path), f"not weights of {VIT}"),
]


@pytest.fixture(scope="module")
def state():
    torch.manual_seed(0)
    return timm.create_model("test_vit").state_dict()


def without_mean():
    recipe = load_recipe("shapes")
    resolve_model(recipe.model_copy(update={"augment": recipe.augment.model_copy(update={"mean": None})}))


def load(folder, state, name, write):
    model = Model(backbone=VIT, weights="file", input_size=(160, 160))
    write(folder / name, state)
    load_weights(build_backbone(model), model, folder / name)


PASS, FILE = (Model(backbone=name, weights=weights) for name, weights in (("resnet50", "pass"), ("wrn10-1", "file")))
CALLS = [
    *((parts, lambda *_, k=keys: check_backbone(Model(**k))) for keys, *parts in NETWORKS),
    *(([part], lambda folder, state, n=name, w=write: load(folder, state, n, w)) for name, write, part in FILES),
    (["augment.mean is missing: wrn10-1-s4 has none"], lambda *_: without_mean()),
    (["--weights: no file"], lambda folder, _: find_weights(PASS, folder, folder / "nowhere.pth")),
    (["give the file with --weights FILE"], lambda folder, _: find_weights(FILE, folder)),
]


@pytest.mark.parametrize(("parts", "call"), CALLS)
def test_a_mistake_is_one_line(tmp_path, state, capsys, parts, call):
    check_message(parts, call, tmp_path, state)
    assert "harm" not in capsys.readouterr().out
