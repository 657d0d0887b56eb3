import pytest
import torch
from torch import nn

from hierbench.errors import UserError
from hierbench.methods.ce import CrossEntropy
from hierbench.methods.haframe import HAFrame
from hierbench.models import TypeI, TypeII, build_backbone, build_classifier
from hierbench.models.backbones import check_backbone
from hierbench.recipe import Model


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_wrn28_8():
    network = build_backbone("wrn28-8")
    assert network.num_channels == 512
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {norm.momentum for norm in norms} == {0.001}
    convs = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    assert len(convs) == 1 + 24 + 3  # stem, twelve blocks of two, three shortcuts
    slopes = {module.negative_slope for module in network.modules() if isinstance(module, nn.LeakyReLU)}
    assert slopes == {0.1}
    widest = convs[-1].weight
    assert widest.std().item() == pytest.approx((2 / (widest.shape[0] * 9)) ** 0.5, rel=0.05)  # He, fan-out
    # By hand: convolutions 3x3 per group, shortcuts, batch norms; the classifier is not part of the backbone.
    convolutions = 3 * 16 * 9
    norm_params, channels = 0, 16
    for width in (128, 256, 512):
        convolutions += channels * width * 9 + channels * width + 7 * width * width * 9
        norm_params += 2 * channels + 7 * 2 * width
        channels = width
    assert count(network) == convolutions + norm_params + 2 * 512


def test_small_networks():
    for name, size in (("wrn10-1", 8), ("wrn10-1-s2", 4), ("wrn16-2-s4", 2)):
        network = build_backbone(name)
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, network.num_channels, size, size)
        assert {m.momentum for m in network.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


def test_resnet50():
    network = build_backbone("resnet50").eval()
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 64, 64)).shape == (1, 2048, 2, 2)
    assert count(network) == 25_557_032 - (2048 * 1000 + 1000)  # torchvision's count without its classifier


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("resnet5", "none", "unknown backbone 'resnet5'; did you mean 'resnet50'"),
        ("wrn11-1", "none", "depth 6 n \\+ 4"),
        ("wrn28-8", "imagenet1k-v1", "model.weights=none"),
    ],
)
def test_unknown_backbones(name, weights, message):
    with pytest.raises(UserError, match=message):
        check_backbone(name, weights)


def test_type_one():
    features = TypeI(512)
    layers = [type(layer) for layer in features.transform]
    assert layers == [nn.BatchNorm1d, nn.Linear, nn.BatchNorm1d, nn.ELU]
    assert features(torch.randn(4, 512, 8, 8)).shape == (4, 600)


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


def test_type_two_is_spelt_as_in_the_published_code():
    features = TypeII(32, 10)
    norm, *blocks = features.transform
    assert isinstance(norm, nn.BatchNorm1d) and len(blocks) == 2
    for block in blocks:
        kinds = [type(layer) for layer in block.layers]
        assert kinds == [nn.Linear, nn.BatchNorm1d, nn.PReLU] * 2
        assert all(layer.bias is None for layer in block.layers if isinstance(layer, nn.Linear))
        assert all(layer.num_parameters == 10 for layer in block.layers if isinstance(layer, nn.PReLU))
    assert features.reduce.bias is None
    assert count(features) == 32 * 10 + 20 + 2 * (2 * 100 + 2 * 20 + 2 * 10)


def test_parameter_groups_hold_every_trainable_parameter_once(cifar100):
    for cls, kind in ((CrossEntropy, "type-I"), (CrossEntropy, "type-II"), (HAFrame, "type-II")):
        model = build_classifier(cls, cifar100, kind, Model(backbone="wrn10-1"))
        groups = model.parameter_groups()
        assert list(groups) == ["backbone", "transform", "classifier"]
        grouped = [id(p) for group in groups.values() for p in group]
        assert sorted(grouped) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    assert groups["classifier"] == []  # HAFrame's classifier is fixed
