import pytest
import timm
import torch
from torch import nn
from torch.nn import functional
from torchvision import models

from hierbench.config.recipe import load_recipe
from hierbench.config.sections import Model
from hierbench.data.loader import resize_to
from hierbench.models.libraries.lookup import build_backbone, check_backbone, resolve_model
from hierbench.models.libraries.torchvision_networks import configuration
from hierbench.utils.errors import UserError

SIZE = (64, 96)
# Where torchvision's own forward pass has the feature map: what this module gets, or what it returns.
ENDS = {
    "resnet18": ("gets", "avgpool"),
    "squeezenet1_1": ("returns", "features"),
    "mnasnet0_5": ("returns", "layers"),
    "shufflenet_v2_x0_5": ("returns", "conv5"),
    "mobilenet_v3_small": ("gets", "avgpool"),
    "regnet_y_400mf": ("gets", "avgpool"),
    "swin_t": ("gets", "avgpool"),
    "googlenet": ("gets", "avgpool"),
}


LONGER = ("shufflenet_v2_x0_5", "regnet_y_400mf", "swin_t", "mobilenet_v3_small")  # they end as others do


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.thorough] * (n in LONGER)) for n in ENDS])
def test_torchvision_s_networks_end_before_the_pooling(name):
    backbone = build_backbone(Model(backbone=f"torchvision:{name}", input_size=SIZE))
    more = {"init_weights": False} if name == "googlenet" else {}
    network = models.get_model(name, weights=None, **more)
    state, backbone_state = network.state_dict(), backbone.layers.state_dict()
    assert backbone_state.keys() | backbone.dropped == state.keys() and backbone.dropped.isdisjoint(backbone_state)
    state.update(backbone_state)
    network.load_state_dict(state)
    which, module = ENDS[name]
    seen = []
    hook = (lambda _, inputs: seen.append(inputs[0])) if which == "gets" else (lambda _, __, out: seen.append(out))
    part = network.get_submodule(module)
    (part.register_forward_pre_hook if which == "gets" else part.register_forward_hook)(hook)
    images = torch.randn(2, 3, *SIZE)
    for training in (False, True):
        torch.manual_seed(0)  # of dropped paths
        ours = backbone.train(training)(images)
        torch.manual_seed(0)
        network.train(training)(images)
        assert torch.equal(ours, seen.pop()) and ours.shape[1] == backbone.num_channels
    ours.sum().backward()
    assert all(p.grad is not None for p in backbone.parameters() if p.requires_grad)


CHANNELS = {"vgg11": 512, "alexnet": 256, "densenet121": 1024, "convnext_tiny": 768, "efficientnet_b0": 1280}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.thorough] * (n[0] not in "va")) for n in CHANNELS])
def test_the_channels_of_larger_networks_without_building_them(name):
    with torch.device("meta"):
        backbone = build_backbone(Model(backbone=f"torchvision:{name}", input_size=SIZE))
        feature_map = backbone.train()(torch.empty(2, 3, *SIZE))
    assert feature_map.shape[1] == backbone.num_channels == CHANNELS[name]
    assert feature_map.shape[2] < feature_map.shape[3]
    names = [name for name, _ in backbone.named_parameters()]
    assert not [name for name in names if name.startswith(("layers.classifier", "layers.fc"))]


@pytest.mark.parametrize(
    "name", ["test_resnet", "test_vit", "test_vit_relpos", "test_convnext", "test_mambaout", "mobilenetv3_small_050"]
)
def test_timm_s_networks_end_before_the_pooling(name):
    size = (64, 96) if "relpos" not in name else (64, 64)
    backbone = build_backbone(Model(backbone=f"timm:{name}", input_size=size)).eval()
    img_size = {"img_size": size} if "vit" in name else {}
    network = timm.create_model(name, num_classes=0, **img_size).eval()
    unmatched = network.load_state_dict(backbone.layers.state_dict(), strict=False)
    assert not unmatched.unexpected_keys and set(unmatched.missing_keys) <= backbone.dropped
    images = torch.randn(2, 3, *size)
    ours, theirs = backbone(images), network.forward_features(images)
    if theirs.ndim == 3:
        num_prefix = network.num_prefix_tokens
        for row in range(ours.shape[2]):
            for column in range(ours.shape[3]):
                token = theirs[:, num_prefix + row * ours.shape[3] + column]
                assert torch.equal(ours[:, :, row, column], token)
    else:
        assert torch.equal(ours, theirs.permute(0, 3, 1, 2) if name == "test_mambaout" else theirs)
    assert ours.shape[1] == backbone.num_channels and ours.shape[3] / ours.shape[2] == size[1] / size[0]
    assert not {name for name, _ in backbone.named_parameters() if "classifier" in name}


def test_the_class_token_is_a_map_of_one_place():
    model = Model(backbone="timm:test_vit", input_size=(64, 64), tokens="class")
    backbone = build_backbone(model).eval()
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(backbone(images), backbone.layers.forward_features(images)[:, 0, :, None, None])


def test_a_vision_transformer_of_torchvision(monkeypatch):
    small = {"patch_size": 16, "num_layers": 2, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 64}
    transformer = models.vision_transformer.VisionTransformer

    def build(*_, image_size, **options):
        return transformer(**small, image_size=image_size)

    monkeypatch.setattr(models, "get_model", build)
    images = torch.randn(2, 3, 64, 64)
    for tokens in ("patch", "class"):
        backbone = build_backbone(Model(backbone="torchvision:vit_b_16", input_size=(64, 64), tokens=tokens)).eval()
        network = build(image_size=64).eval()
        network.heads = nn.Identity()
        network.load_state_dict(backbone.layers.state_dict())
        if tokens == "class":
            assert torch.equal(backbone(images)[:, :, 0, 0], network(images))
        else:
            end = network.encoder(
                torch.cat([network.class_token.expand(2, -1, -1), network._process_input(images)], dim=1)
            )
            assert torch.equal(backbone(images), end[:, 1:].transpose(1, 2).reshape(2, 32, 4, 4))
    with pytest.raises(UserError, match="takes square images, not 64x96"):
        check_backbone(Model(backbone="torchvision:vit_b_16", input_size=(64, 96)))


def test_a_network_without_a_feature_map(monkeypatch):
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        def forward_features(self, images):
            return self.layer(images.mean(dim=(2, 3)))

        def reset_classifier(self, num_classes):
            pass

    monkeypatch.setattr(timm, "create_model", lambda *_, **__: Pooled())
    with pytest.raises(UserError, match="timm:test_byobnet has no feature map: it ends in 4 per image"):
        check_backbone(Model(backbone="timm:test_byobnet"))


def test_input_size_and_normalisation_are_the_library_s_unless_the_recipe_says_otherwise():
    def resolved(*overrides):
        recipe = load_recipe("shapes", overrides)
        bare = recipe.augment.model_copy(update={"mean": None, "std": None})
        return resolve_model(recipe.model_copy(update={"augment": bare}))

    ours = resolved("model.backbone=timm:test_vit")
    cfg = timm.get_pretrained_cfg("test_vit")
    assert ours.model.input_size == cfg.input_size[1:] == (160, 160)
    assert (ours.augment.mean, ours.augment.std) == (cfg.mean, cfg.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    ours = resolved("model.backbone=torchvision:efficientnet_b3")
    weights = models.EfficientNet_B3_Weights.DEFAULT.transforms()
    assert ours.model.input_size == (300, 300) == (*weights.crop_size, *weights.crop_size)
    assert (ours.augment.mean, ours.augment.std) == (tuple(weights.mean), tuple(weights.std))
    assert resolved("model.backbone=timm:test_vit", "model.input_size=[64,32]").model.input_size == (64, 32)
    with_mean = load_recipe("shapes", ["model.backbone=timm:test_vit"])
    assert resolve_model(with_mean).augment == with_mean.augment
    unchanged = load_recipe("shapes")
    assert dict(resolve_model(unchanged)) == dict(unchanged)


def test_crops_that_do_not_apply_are_left_out():
    def augment(*overrides):
        return resolve_model(load_recipe("shapes", ["augment.pad=2", "augment.flip=true", *overrides])).augment

    requested = load_recipe("shapes", ["augment.pad=2", "augment.flip=true"]).augment
    for views in (1, 2):
        resolved = augment("model.frozen=true", f"model.views={views}")
        assert (resolved.pad, resolved.flip, resolved.mean, resolved.std) == (0, False, requested.mean, requested.std)
    assert augment("model.frozen=true", "model.views=3") == requested == augment()
    ready = load_recipe("tiny-imagenet-frozen")
    assert resolve_model(ready).augment == ready.augment.model_copy(
        update={"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    )


def test_every_network_of_torchvision_has_a_configuration():
    for name in models.list_models(module=models):
        assert len(configuration(name).mean) == 3 and min(configuration(name).size) >= 224


def test_images_are_resized_as_pillow_does():
    import numpy as np
    from PIL import Image

    images = torch.randint(0, 256, (1, 3, 32, 40), dtype=torch.uint8)
    floats = images.float()
    assert resize_to(floats, None) is floats and resize_to(floats, (32, 40)) is floats
    pillow = Image.fromarray(images[0].permute(1, 2, 0).numpy())
    for size in ((15, 17), (64, 96), (16, 80)):
        expected = np.asarray(pillow.resize(size[::-1], Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        ours = resize_to(floats, size)[0].numpy()
        assert np.abs(ours - expected).max() < 1.01  # Pillow rounds after each axis
    plain = functional.interpolate(floats, (64, 96), mode="bilinear")
    assert torch.equal(resize_to(floats, (64, 96)), plain)
