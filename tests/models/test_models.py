import pytest
import torch
from torch import nn

from hierbench.config.sections import Model
from hierbench.methods.ce import CrossEntropy
from hierbench.methods.flamingo import Flamingo
from hierbench.methods.hafeature import HAFeature
from hierbench.methods.haframe import HAFrame
from hierbench.models import TypeI, TypeII, build_backbone, build_classifier


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_wrn28_8():
    network = build_backbone(Model(backbone="wrn28-8"))
    assert network.num_channels == 512
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {norm.momentum for norm in norms} == {0.001}
    convs = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    assert len(convs) == 1 + 24 + 3  # stem, twelve blocks of two, three shortcuts
    slopes = {module.negative_slope for module in network.modules() if isinstance(module, nn.LeakyReLU)}
    assert slopes == {0.1}
    widest = convs[-1].weight
    assert widest.std().item() == pytest.approx((2 / (widest.shape[0] * 9)) ** 0.5, rel=0.05)  # He, fan-out


def test_small_networks():
    for name, size in (("wrn10-1", 8), ("wrn10-1-s2", 4), ("wrn16-2-s4", 2)):
        network = build_backbone(Model(backbone=name))
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, network.num_channels, size, size)
        assert {m.momentum for m in network.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


def test_resnet50():
    network = build_backbone(Model(backbone="resnet50")).eval()
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 64, 64)).shape == (1, 2048, 2, 2)


def test_max_pooling_is_of_type_one_alone():
    feature_map = torch.randn(4, 8, 7, 7)
    averaged, largest = TypeI(8, 0), TypeI(8, 0, pool="max")
    assert torch.allclose(averaged(feature_map), feature_map.mean(dim=(2, 3)), atol=1e-6)
    assert torch.equal(largest(feature_map), feature_map.amax(dim=(2, 3)))
    assert torch.equal(largest(feature_map), nn.MaxPool2d(7)(feature_map).flatten(1))  # 224 pixels give a 7x7 map


def test_without_the_layer_type_one_is_the_pooled_map():
    features = TypeI(512, 0)
    assert features.num_features == 512 and count(features) == 0


def test_type_two_equals_convolution_before_pooling():
    torch.manual_seed(0)
    features = TypeII(32, 10).double()
    feature_map = torch.randn(6, 32, 5, 5, dtype=torch.float64)
    expected = features.transform(features.reduce(feature_map).mean(dim=(2, 3)))
    assert torch.allclose(features(feature_map), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("backbone", "momentum"), [("wrn28-8", 0.001), ("wrn10-1", 0.1), ("wrn10-1-s2", 0.1), ("resnet50", 0.1)]
)
def test_the_norm_after_the_convolution_of_type_two_has_the_backbone_s_momentum(cifar100, backbone, momentum):
    with torch.device("meta"):
        features = build_classifier(CrossEntropy, cifar100, "type-II", Model(backbone=backbone)).features
        type_one = build_classifier(CrossEntropy, cifar100, "type-I", Model(backbone=backbone)).features
    after, *within = [module for module in features.modules() if isinstance(module, nn.BatchNorm1d)]
    assert after is features.transform[0] and after.momentum == momentum
    assert [norm.momentum for norm in within] == [0.1] * 4
    norms = [module for module in type_one.modules() if isinstance(module, nn.BatchNorm1d)]
    assert [norm.momentum for norm in norms] == [0.1] * 2


def test_the_convolution_of_type_two_starts_as_the_backbone_s(cifar100):
    torch.manual_seed(0)
    wide = build_classifier(CrossEntropy, cifar100, "type-II", Model(backbone="wrn10-8")).features.reduce.weight
    assert wide.std().item() == pytest.approx((2 / 100) ** 0.5, rel=0.02)  # He, fan-out of a 1x1 kernel
    assert wide.abs().max() > 4 * wide.std()  # normal
    residual = build_classifier(CrossEntropy, cifar100, "type-II", Model(backbone="resnet50")).features.reduce.weight
    assert residual.abs().max().item() == pytest.approx(2048**-0.5, rel=1e-3)  # PyTorch's default: uniform
    assert residual.std().item() == pytest.approx((3 * 2048) ** -0.5, rel=0.02)


TYPE_ONE = {f"features.transform.{layer}.{name}" for layer in (0, 1, 2) for name in ("weight", "bias")}
TYPE_TWO = {"features.transform.0.weight", "features.transform.0.bias"}
for block in (1, 2):
    TYPE_TWO |= {f"features.transform.{block}.layers.{layer}.weight" for layer in range(6)}
    TYPE_TWO |= {f"features.transform.{block}.layers.{norm}.bias" for norm in (1, 4)}
ONE_HEAD, HEADS = {"method.classifier.weight", "method.classifier.bias"}, {"method.heads.weight", "method.heads.bias"}
HEAD_PER_LEVEL = {f"method.heads.{level}.{name}" for level in range(5) for name in ("weight", "bias")}


@pytest.mark.parametrize("backbone", ["wrn10-1", "resnet50"])
@pytest.mark.parametrize(
    ("cls", "classifier"),
    [(CrossEntropy, ONE_HEAD), (Flamingo, HEAD_PER_LEVEL), (HAFeature, HEADS), (HAFrame, set())],
)
def test_the_group_of_every_parameter_by_name(cifar100, backbone, cls, classifier):
    form = "raw" if backbone.startswith("wrn") else "activated"
    for kind in cls.types:
        with torch.device("meta"):
            network = {f"backbone.{name}" for name, _ in build_backbone(Model(backbone=backbone)).named_parameters()}
        torch.manual_seed(0)
        model = build_classifier(cls, cifar100, kind, Model(backbone=backbone, wrn_group_input=form))
        names = {id(parameter): name for name, parameter in model.named_parameters() if parameter.requires_grad}
        groups = {group: [names.pop(id(p)) for p in members] for group, members in model.parameter_groups().items()}
        assert not names  # each is in one group
        assert {group: set(members) for group, members in groups.items()} == {
            "backbone": network | ({"features.reduce.weight"} if kind == "type-II" else set()),
            "transform": {"pooled": set(), "type-I": TYPE_ONE, "type-II": TYPE_TWO}[kind],
            "classifier": classifier,
        }
