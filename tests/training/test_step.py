import pytest
import torch

from hierbench.config.sections import Model
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.methods.ce import CrossEntropy
from hierbench.models import build_classifier
from hierbench.training.step import group_layers, learning_rate, make_optimizer, set_rates
from tests.support.jobs import plan_job

TREE = Hierarchy.from_paths({name: (name[0], name) for name in ("a1", "a2", "b1")})


def test_each_key_is_part_of_the_id_and_of_the_comparison_only_where_it_differs(shapes):
    plain = plan_job(shapes)
    for override in ("train.optimizer=adamw", "train.warmup_epochs=1", "train.layer_decay=0.9"):
        spec = plan_job(shapes, override).spec
        assert spec.id != plain.id and spec.comparison != plain.spec.comparison
    assert not {"optimizer", "warmup_epochs", "layer_decay"} & plain.spec.content()["train"].keys()
    same = plan_job(shapes, "train.optimizer=sgd", "train.warmup_epochs=0", "train.layer_decay=1.0")
    assert same.id == plain.id


def test_the_rate_rises_in_steps_and_then_follows_the_cosine(shapes):
    train = plan_job(shapes, "train.epochs=6", "train.warmup_epochs=2").spec.train
    optimizer = make_optimizer(build_classifier(CrossEntropy, TREE, "type-I", Model(backbone="wrn10-1")), train)
    seen = []
    for epoch in range(6):
        for step in range(1, 5):
            set_rates(optimizer, train, epoch, step / 4)
            seen.append(optimizer.param_groups[0]["lr"] / train.lr.backbone)
    assert seen[:8] == pytest.approx([step / 8 for step in range(1, 9)])
    expected = [learning_rate(1.0, epoch, 4) for epoch in range(4)]
    assert seen[8::4] == pytest.approx(expected) and seen[11::4] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("backbone", "names"),
    [
        ("wrn10-1", ["0", "1", "2", "3", "4"]),
        ("resnet50", ["conv1", "bn1", "layer1.0", "layer1.1"]),
        ("timm:test_vit", ["", "patch_embed.proj", "blocks.0", "blocks.1"]),
        ("timm:test_efficientnet", ["conv_stem", "bn1", "blocks.0.0"]),
    ],
)
def test_layers_by_name(backbone, names):
    model = build_classifier(CrossEntropy, TREE, "type-I", Model(backbone=backbone, input_size=(32, 32)))
    by_id = {id(p): name for name, p in model.backbone.layers.named_parameters()}
    layers = group_layers(model)
    assert sum(map(len, layers)) == len(by_id)
    for layer, name in zip(layers, names, strict=False):
        inside = [by_id[id(p)] for p in layer]
        assert all(n.startswith(f"{name}.") if name else n in ("cls_token", "pos_embed", "reg_token") for n in inside)


def test_the_rate_of_a_layer_falls_with_its_distance_from_the_end(shapes):
    train = plan_job(shapes, "train.optimizer=adamw", "train.weight_decay=0.05", "train.layer_decay=0.5").spec.train
    model = build_classifier(CrossEntropy, TREE, "type-II", Model(backbone="wrn10-1"))
    optimizer = make_optimizer(model, train)
    assert isinstance(optimizer, torch.optim.AdamW)
    for group in optimizer.param_groups:
        assert (group["weight_decay"], group["betas"]) == (0.05, (0.9, 0.999))
    set_rates(optimizer, train, 0)
    rate = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert rate.keys() == {id(p) for p in model.parameters()}
    for away, layer in enumerate(reversed(group_layers(model))):
        assert {rate[id(p)] for p in layer} == {train.lr.backbone * 0.5**away}
    assert rate[id(model.features.reduce.weight)] == train.lr.backbone
    assert rate[id(model.method.classifier.weight)] == train.lr.classifier
