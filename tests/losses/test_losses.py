"""Losses in anybody's loop: their gradients, targets that are nodes, and the methods that call them."""

import pytest
import torch

from hierbench import Hierarchy, heads, losses
from hierbench.api.registry import find_method
from hierbench.hierarchy import Nodes
from hierbench.utils.errors import InputError

TREE = Hierarchy.from_paths(  # ragged: `fern` lies directly below a kingdom, `rock` below the root
    {
        "oak": ("plant", "tree", "oak"),
        "elm": ("plant", "tree", "elm"),
        "fern": ("plant", "fern"),
        "robin": ("animal", "bird", "robin"),
        "wren": ("animal", "bird", "wren"),
        "rock": ("rock",),
    }
)
NODES = Nodes(TREE)
K, N = TREE.num_classes, NODES.num_nodes
M = sum(TREE.level_sizes)
FRAME = heads.Frame(TREE, K, gamma=2.0, seed=0).double()
WIDTHS = {  # of the input of each loss, and its parameters
    "cross_entropy": (K, {}),
    "multilevel_cross_entropy": (K, {}),
    "soft_labels": (K, {"beta": 4.0}),
    "barz_denzler": (K, {}),
    "hxe": (K, {"alpha": 0.4}),
    "hace": (N, {"smoothing": 0.1}),
    "cpcc": (7, {"nodes": "all"}),
    "hypstructure": (7, {}),
    "conditional_softmax": (N - 1, {}),
    "descendant_softmax": (N, {}),
    "hafeature": (M, {"order": torch.arange(4)}),
    "flamingo": (M, {}),
    "haframe": (K, {"frame": FRAME}),
}
TAKE_NODES = {
    *("cross_entropy", "multilevel_cross_entropy", "hxe", "hace", "conditional_softmax", "descendant_softmax"),
    "flamingo",
}
TARGETS = torch.tensor([0, 2, 4, 5])


def call(name, values, targets=TARGETS, **options):
    inputs = values.split(list(TREE.level_sizes), dim=1) if name == "flamingo" else values
    return getattr(losses, name)(inputs, targets, TREE, **WIDTHS[name][1], **options)


def values_of(name, num=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num, WIDTHS[name][0], generator=generator, dtype=torch.float64)


def test_every_loss_has_a_case():
    assert sorted(WIDTHS) == losses.__all__


@pytest.mark.parametrize("name", WIDTHS)
def test_gradients(name):
    values = values_of(name).requires_grad_()
    assert call(name, values).ndim == 0
    assert torch.autograd.gradcheck(lambda x: call(name, x), (values,))


@pytest.mark.parametrize("name", WIDTHS)
def test_misuse(name):
    """Wrong widths, and targets that would count from the end, are an error, never another loss."""
    width = WIDTHS[name][0]
    for wrong in () if name in ("cpcc", "hypstructure") else (width - 1, width + 1):
        inputs = torch.zeros(4, wrong)
        inputs = inputs.split(TREE.level_sizes[0], dim=1) if name == "flamingo" else inputs  # not the levels
        with pytest.raises(InputError, match=f"{name} takes"):
            getattr(losses, name)(inputs, TARGETS, TREE, **WIDTHS[name][1])
    wrong_targets = [TARGETS - 1, TARGETS.double(), TARGETS[:, None], TARGETS[:3]]
    for targets, reason in zip(wrong_targets, ["from 0 up, not -1", "float64", r"\[4, 1\]", r"\[3\]"], strict=True):
        with pytest.raises(InputError, match=f"{name} takes targets.*{reason}"):
            call(name, values_of(name), targets)


@pytest.mark.parametrize("gamma", [-1.0, 0.0, float("inf"), float("nan")])
def test_a_frame_without_decay(gamma):
    with pytest.raises(ValueError, match="gamma > 0"):
        heads.Frame(TREE, K, gamma=gamma)


@pytest.mark.parametrize("name", WIDTHS)
def test_targets_that_are_nodes(name):
    values = values_of(name)
    classes = NODES.num_inner + TARGETS
    if name not in TAKE_NODES:
        with pytest.raises(InputError, match="takes classes alone") as error:
            call(name, values, classes, targets_are="nodes")
        assert error.value.argument == "targets_are" and error.value.value == "nodes"
        return
    # A class is a node, too. Where a class above the deepest level counts once per level, a node counts once.
    expected = call(name, values) if name != "multilevel_cross_entropy" else call(name, values, count="nodes")
    if name != "flamingo":
        assert float(call(name, values, classes, targets_are="nodes")) == pytest.approx(float(expected), abs=1e-12)
    if name not in ("hace", "descendant_softmax"):  # whose terms of all classes, and of the root, stay
        assert float(call(name, values[:1], torch.tensor([0]), targets_are="nodes")) == pytest.approx(0.0)
    inner = torch.tensor([1, 2, 3, 1])
    doubled = values.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: call(name, x, inner, targets_are="nodes"), (doubled,))


def test_a_node_has_the_probability_of_its_classes():
    logits = values_of("cross_entropy")
    probabilities = logits.softmax(dim=1)
    (tree_node,) = {int(NODES.paths[0, 1])}
    expected = -(probabilities[:, 0] + probabilities[:, 1]).log().mean()
    nodes = torch.full((4,), tree_node)
    assert float(losses.cross_entropy(logits, nodes, TREE, targets_are="nodes")) == pytest.approx(float(expected))
    hxe = losses.hxe(logits, nodes, TREE, alpha=0.0, targets_are="nodes")  # telescopes
    assert float(hxe) == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("method", "name", "params"),
    [
        ("hxe", "hxe", {"alpha": 0.4}),
        ("soft_labels", "soft_labels", {"beta": 4.0}),
        ("hace", "hace", {"smoothing": 0.1}),
        ("descendant_softmax", "descendant_softmax", {}),
        ("multilevel_ce", "multilevel_cross_entropy", {}),
    ],
)
def test_methods_call_them(method, name, params):
    cls = find_method(method).cls
    module = cls(TREE, 5, cls.Params(**params)).double()
    features = torch.randn(4, 5, dtype=torch.float64)
    outputs = module(features).detach()
    terms = module.loss(outputs, TARGETS)
    assert float(torch.stack(list(terms.values())).sum().detach()) == pytest.approx(float(call(name, outputs)))


@pytest.mark.parametrize("in_features", [K, 9, 3])
def test_heads(in_features):
    features = torch.randn(4, in_features)
    frame = heads.Frame(TREE, in_features, gamma=2.0)
    logits, cosines = frame.outputs(features)
    assert torch.equal(logits, frame(features)) and cosines.abs().max() <= 1.0 + 1e-6
    rows = torch.nn.functional.normalize(frame.weight, dim=1)
    distances = torch.tensor(TREE.distances)
    torch.testing.assert_close(rows @ rows.T, frame.cosines[distances.long()], atol=1e-5, rtol=0)
    etf = heads.Etf(TREE, in_features)
    assert etf(features).shape == (4, K)
    gram = etf.weight @ etf.weight.T
    torch.testing.assert_close(gram, (torch.eye(K) * K - 1.0) / (K - 1), atol=1e-5, rtol=0)
    level_heads = heads.LevelHeads(TREE, in_features, normalised=True)
    parts = level_heads.split(level_heads(features))
    assert [part.shape[1] for part in parts] == list(TREE.level_sizes)
    assert losses.hafeature(level_heads(features), TARGETS, TREE, weight=level_heads.weight).isfinite()
    if in_features >= TREE.num_levels:
        assert losses.flamingo(heads.FlamingoHeads(TREE, in_features)(features), TARGETS, TREE) > 0.0
    else:
        with pytest.raises(ValueError, match="a feature per level"):
            heads.FlamingoHeads(TREE, in_features)
