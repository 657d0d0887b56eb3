import pytest
import torch
from torch import nn
from torch.nn.functional import leaky_relu

from hierbench.config.rates import Rates
from hierbench.config.sections import Model
from hierbench.config.spec import TrainSpec
from hierbench.methods.ce import CrossEntropy
from hierbench.methods.flamingo import Flamingo
from hierbench.methods.hafeature import HAFeature
from hierbench.methods.haframe import HAFrame
from hierbench.models import TypeI, TypeII, build_backbone, build_classifier
from hierbench.training.step import make_optimizer

RATES = ("backbone", "transform", "classifier")
RUNNING = ("running_mean", "running_var", "num_batches_tracked")


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
        network = build_backbone(Model(backbone=name))
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, network.num_channels, size, size)
        assert {m.momentum for m in network.modules() if isinstance(m, nn.BatchNorm2d)} == {0.1}


def test_resnet50():
    network = build_backbone(Model(backbone="resnet50")).eval()
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 64, 64)).shape == (1, 2048, 2, 2)
    assert count(network) == 25_557_032 - (2048 * 1000 + 1000)  # torchvision's count without its classifier


def test_the_first_block_of_groups_2_and_3_in_both_forms():
    """Either normalises and activates the input of its first convolution and shortcut, or takes it as it is."""
    networks = {form: build_backbone(Model(backbone="wrn16-2", wrn_group_input=form)) for form in ("activated", "raw")}
    networks["raw"].load_state_dict(networks["activated"].state_dict())  # the same names and shapes
    for form, network in networks.items():
        for number in (1, 2, 3, 4, 5, 6):  # two blocks in each group
            block = network.layers[number]
            images = torch.randn(4, block.conv1.in_channels, 8, 8)
            first_of_groups_2_and_3 = number in (3, 5)
            active = leaky_relu(block.bn1(images), 0.1)
            start = images if first_of_groups_2_and_3 and form == "raw" else active
            kept = images if number in (2, 4, 6) else block.shortcut(start)
            expected = kept + block.conv2(leaky_relu(block.bn2(block.conv1(start)), 0.1))
            assert torch.allclose(block(images), expected, atol=1e-5), (form, number)
    published = build_backbone(Model(backbone="wrn28-8", wrn_group_input="raw"))
    raw = [name for name, block in published.layers.named_children() if getattr(block, "raw_input", False)]
    assert raw == ["5", "9"]  # after the stem, groups of four blocks
    assert count(published) == count(build_backbone(Model(backbone="wrn28-8")))


def test_a_norm_that_a_raw_input_goes_round_is_there_and_stays_as_it_was(cifar100):
    model = build_classifier(CrossEntropy, cifar100, "type-II", Model(backbone="wrn10-1", wrn_group_input="raw"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    how = TrainSpec(epochs=1, batch_size=8, momentum=0.9, weight_decay=0.5, lr=Rates(**dict.fromkeys(RATES, 0.1)))
    optimizer = make_optimizer(model, how)
    for _ in range(2):
        optimizer.zero_grad()
        terms = model.method.loss(model(torch.randn(8, 3, 32, 32)), torch.arange(8))
        terms["cross_entropy"].backward()
        optimizer.step()
    idle = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert idle == [f"backbone.layers.{block}.bn1.{name}" for block in (2, 3) for name in ("weight", "bias")]
    assert idle == model.parameters_without_gradient()
    kept = {name for name, value in model.state_dict().items() if torch.equal(value, before[name])}
    norms = [f"backbone.layers.{block}.bn1.{name}" for block in (2, 3) for name in RUNNING]
    assert kept == {*idle, *norms}  # no weight decay, and no statistics
    activated = build_classifier(CrossEntropy, cifar100, "type-II", Model(backbone="wrn10-1"))
    assert activated.parameters_without_gradient() == [] and activated.state_dict().keys() == before.keys()


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
            "transform": TYPE_TWO if kind == "type-II" else TYPE_ONE,
            "classifier": classifier,
        }
