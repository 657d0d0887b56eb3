"""Methods whose losses are sums over a tree, against published code's arrays and loops over classes and nodes."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hierbench import Hierarchy
from hierbench.hierarchy import Nodes
from hierbench.losses import node_losses
from hierbench.methods.conditional_softmax import ConditionalSoftmax
from hierbench.methods.cpcc import CPCC
from hierbench.methods.descendant_softmax import DescendantSoftmax
from hierbench.methods.hace import HACE
from hierbench.methods.hxe import HXE
from hierbench.methods.hypstructure import HypStructure
from hierbench.methods.multilevel_ce import MultilevelCE
from hierbench.methods.soft_labels import SoftLabels

METHODS = [
    pytest.param(cls, params, id="-".join([cls.name, *map(str, params.values())]))
    for cls, params in [
        (SoftLabels, {"beta": 4.0}),
        (SoftLabels, {"reduction": "mean"}),
        (HXE, {"alpha": 0.4}),
        (HXE, {"weights": "height"}),
        (HXE, {"normalised": True}),
        (ConditionalSoftmax, {}),
        (ConditionalSoftmax, {"normalised": True}),
        (DescendantSoftmax, {}),
        (DescendantSoftmax, {"form": "root"}),
        (DescendantSoftmax, {"form": "sharing"}),
        (MultilevelCE, {}),
        (MultilevelCE, {"count": "nodes"}),
        (MultilevelCE, {"form": "heads"}),
        (MultilevelCE, {"form": "heads", "count": "nodes"}),
        (HACE, {}),
        (HACE, {"d": 1.0, "smoothing": 0.2}),
    ]
]
CHAINS = {"a": ("x", "a"), "b": ("y", "z", "b"), "c": ("y", "w", "v", "c"), "d": ("d",), "e": ("y", "w", "v", "e")}
TWO_BELOW_ONE = {"a": ("x", "y", "a"), "b": ("x", "y", "z", "b")}  # the root has one child, and so has x


def built(cls, tree, **params):
    """The method in float64, its outputs being the features."""
    method = cls(tree, 1, cls.Params(**params))
    method = cls(tree, method.classifier.out_features, method.params).double()
    method.classifier.weight.data = torch.eye(method.num_features, dtype=torch.float64)
    method.classifier.bias.data.zero_()
    return method


def losses(method, values, targets):
    """The objective for these outputs and its gradient."""
    values = torch.as_tensor(values).detach().clone().requires_grad_()
    loss = sum(method.loss(method(values), torch.as_tensor(targets)).values())
    loss.backward()
    return loss.item(), values.grad


@torch.no_grad()
def scores(method, values):
    return method.scores(method(torch.as_tensor(values)))


def check(method, values, targets, loss, grad):
    """Compare with an oracle, `grad` [B, D] in our columns."""
    ours, ours_grad = losses(method, values, targets)
    assert ours == pytest.approx(float(loss), rel=1e-12)
    np.testing.assert_allclose(ours_grad, grad, rtol=1e-10, atol=1e-13 * np.abs(grad).max() + 1e-40)


@pytest.fixture(scope="module")
def oracle(shared, cifar100, reference):
    """Loads `extra-<kind>`; columns of nodes are put in our order, without the root's where we have none."""
    tree = np.load(shared / "oracles/extra-tree-cifar100.npz")
    number = reference.node_numbers(tree, Nodes(cifar100))

    def load(kind, root=False):
        file = np.load(shared / f"oracles/extra-{kind}-cifar100.npz")
        columns = number if root else number[1:]
        return {key: file[key][:, columns] if file[key].shape[1:] == number.shape else file[key] for key in file.files}

    load.number = number
    return load


@pytest.mark.parametrize("beta", [4, 10, 30])
def test_soft_labels_equal_the_oracle(oracle, cifar100, beta):
    file = oracle("softlabels")
    loss, grad = file[f"loss_batchmean_beta{beta}"], file[f"grad_batchmean_beta{beta}"]
    check(built(SoftLabels, cifar100, beta=beta), file["x"], file["y"], loss, grad)
    code = built(SoftLabels, cifar100, beta=beta, reduction="mean")
    check(code, file["x"], file["y"], file[f"loss_code_mean_beta{beta}"], grad / 100)


@pytest.mark.parametrize("alpha", [0.1, 0.4])
def test_hxe_equals_the_oracle(oracle, cifar100, alpha):
    file = oracle("hxe")
    x, y, total = file["x"], file["y"], file[f"total_alpha{alpha}"]
    loss, grad = file[f"loss_code_alpha{alpha}"], file[f"grad_code_alpha{alpha}"]
    check(built(HXE, cifar100, alpha=alpha, normalised=True), x, y, loss, grad)
    depth = file[f"loss_depth_unnormalised_alpha{alpha}"]
    check(built(HXE, cifar100, alpha=alpha), x, y, depth, grad * total)
    height = built(HXE, cifar100, alpha=alpha, weights="height")
    check(height, x, y, file[f"loss_height_alpha{alpha}"], file[f"grad_height_alpha{alpha}"])


def test_hxe_keeps_the_worst_mistakes(oracle, cifar100):
    """The published code loses the terms whose probability is 0 in floating point."""
    file = oracle("hxe")
    x, method = file["x"] * float(file["stress_scale"]), built(HXE, cifar100, alpha=0.1, normalised=True)
    loss, grad = losses(method, x, file["y"])
    assert loss == pytest.approx(float(file["stress_loss_stable_alpha0_1"]), rel=1e-12)
    assert loss > 3 * float(file["stress_loss_code_alpha0_1"])
    wrong = x.argmax(axis=1) != file["y"]
    assert (grad[torch.from_numpy(wrong), torch.from_numpy(file["y"])[torch.from_numpy(wrong)]] < 0).all()


def test_conditional_softmax_equals_the_oracle(oracle, cifar100):
    file = oracle("condsoftmax")
    x, y = file["x_nodes"], file["y"]
    method = built(ConditionalSoftmax, cifar100)
    check(method, x, y, file["loss_nll"], file["grad_nll"])
    np.testing.assert_allclose(scores(method, x), file["logp_leaf"], rtol=1e-12)
    code = built(ConditionalSoftmax, cifar100, normalised=True)
    check(code, x, y, file["loss_code_mbm"], file["grad_nll"] / 135)


@pytest.mark.parametrize(("form", "name"), [("cousins", "cousin"), ("root", "descendant"), ("sharing", "sharing")])
def test_descendant_softmax_equals_the_oracle(oracle, cifar100, form, name):
    file = oracle("descendant", root=True)
    method = built(DescendantSoftmax, cifar100, form=form)
    check(method, file["x_nodes"], file["y"], file[f"loss_{name}"], file[f"grad_{name}"])
    expected = (
        file["logits_sharing"] if form == "sharing" else file["logp_nodes"][:, Nodes(method.hierarchy).num_inner :]
    )
    np.testing.assert_allclose(scores(method, file["x_nodes"]), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("count", ["levels", "nodes"])
def test_lifted_levels_equal_the_oracle(oracle, cifar100, count):
    file = oracle("multilevel")
    method = built(MultilevelCE, cifar100, count=count)
    check(method, file["x"], file["y"], file[f"loss_{count}"], file[f"grad_{count}"])
    with torch.no_grad():
        terms = method.loss(method(torch.from_numpy(file["x"])), torch.from_numpy(file["y"]))
    np.testing.assert_allclose(list(terms.values()), file["loss_per_level"], rtol=1e-12)


def test_level_heads_equal_the_oracle(oracle, cifar100):
    file = oracle("multilevel")
    method = built(MultilevelCE, cifar100, form="heads")
    column_of = {node: column for column, node in enumerate(file["head_nodes"].tolist())}
    columns = [column_of[node] for node in oracle.number[Nodes(method.hierarchy).levels].tolist()]
    check(method, file["x_heads"][:, columns], file["y"], file["loss_heads"], file["grad_heads"][:, columns])


def class_scores(reference, method, values):
    """The logits of the classes [B, K], whose softmax post-hoc methods take."""
    nodes = Nodes(method.hierarchy)
    if isinstance(method, ConditionalSoftmax):
        with_root = torch.cat([values.new_zeros(len(values), 1), values], dim=1)
        return torch.stack([reference.conditional_log_probabilities(x, nodes) for x in with_root])
    if isinstance(method, DescendantSoftmax):
        if method.params.form != "sharing":
            return values.log_softmax(dim=1)[:, nodes.num_inner :]
        leaves = range(nodes.num_inner, nodes.num_nodes)
        paths = [reference.node_path(nodes, leaf)[:-1] for leaf in leaves]
        return torch.stack([values[:, path].sum(dim=1) for path in paths], dim=1)
    return values[:, -method.hierarchy.num_classes :]


def loop(reference, method, values, targets):
    """The objective by loops over nodes and classes."""
    tree, nodes, params = method.hierarchy, Nodes(method.hierarchy), method.params
    if isinstance(method, SoftLabels):
        scale = tree.num_classes if params.reduction == "mean" else 1
        return reference.soft_label_loss(values, targets, tree.distances, params.beta) / scale
    if isinstance(method, HXE):
        steps = nodes.depth if params.weights == "depth" else nodes.height
        total = np.exp(-params.alpha * steps.numpy()).sum() if params.normalised else 1.0
        return reference.hxe_loss(values, targets, nodes, lambda n: np.exp(-params.alpha * int(steps[n])) / total)
    if isinstance(method, ConditionalSoftmax):
        scale = nodes.num_nodes if params.normalised else 1
        return torch.nn.functional.nll_loss(class_scores(reference, method, values), targets) / scale
    if isinstance(method, DescendantSoftmax):
        if params.form != "sharing":
            return reference.descendant_loss(values, targets, nodes, params.form)
        return torch.nn.functional.cross_entropy(class_scores(reference, method, values), targets)
    if isinstance(method, HACE):
        total = 0.0
        for x, y in zip(values, targets.tolist(), strict=True):
            shares = np.full(tree.num_classes, params.smoothing / tree.num_classes)
            shares[y] += 1.0 - params.smoothing
            total = total - sum(share * hace_target(reference, nodes, params.d, x, c) for c, share in enumerate(shares))
        return total / len(targets)
    if params.form == "lifted":
        return sum(reference.level_losses(values, targets, tree.level_targets, nodes, params.count))
    total = 0.0
    for level, head in enumerate(values.split(list(tree.level_sizes), dim=1)):
        for x, y in zip(head, targets.tolist(), strict=True):
            if params.count == "levels" or level < len(reference.node_path(nodes, nodes.num_inner + y)) - 1:
                total = total - x.log_softmax(0)[tree.level_targets[y, level]] / len(targets)
    return total


def hace_target(reference, nodes, d, x, c):
    """The sum of T(n, c) log(P(n) + 1e-6) over the path of a class, the root's being 0."""
    p = x.softmax(0)
    path = reference.node_path(nodes, nodes.num_inner + c)[:-1]  # the class first
    sums = [p[reference.subtree(nodes, node)].sum() for node in path]
    return sum(d * (1 - d) ** j * (below + 1e-6).log() for j, below in enumerate(sums))


def check_loop(reference, cls, params, tree, targets, seed, scale=2.0):
    method = built(cls, tree, **params)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(len(targets), method.num_features, generator=generator, dtype=torch.float64) * scale
    values.requires_grad_()
    expected = loop(reference, method, values, targets)
    (grad,) = torch.autograd.grad(expected, values)
    with pytest.MonkeyPatch.context() as patch:  # the loops have exact weights
        patch.setattr(node_losses, "_leaf_shares", lambda tree, device: 1.0 / Nodes(tree).num_leaves.double())
        check(method, values.detach(), targets, expected.item(), grad.numpy())
    torch.testing.assert_close(scores(method, values), class_scores(reference, method, values.detach()))


@pytest.mark.parametrize(("cls", "params"), METHODS)
@given(data=st.data())
@settings(max_examples=12)
def test_losses_are_those_of_loops_on_ragged_trees(data, reference, cls, params):
    tree = data.draw(reference.ragged_trees())
    targets = data.draw(st.lists(st.integers(0, tree.num_classes - 1), min_size=1, max_size=4))
    check_loop(reference, cls, params, tree, torch.tensor(targets), data.draw(st.integers(0, 2**31)))


@pytest.mark.parametrize(("cls", "params"), METHODS)
@pytest.mark.parametrize("paths", [CHAINS, TWO_BELOW_ONE, {"a": ("a",), "b": ("b",)}], ids=["chains", "one", "flat"])
@pytest.mark.parametrize(("distance", "scale"), [("height", 600.0), ("depth", 2.0)])
def test_losses_are_those_of_loops_in_corner_cases(reference, cls, params, paths, distance, scale):
    """Probabilities underflow to 0 at 300 times the ordinary logits."""
    tree = Hierarchy.from_paths(paths, distance)
    for targets in ([1], [1, 1, 1], list(range(tree.num_classes))):  # one example, one class, all classes
        check_loop(reference, cls, params, tree, torch.tensor(targets), 0, scale)


@pytest.mark.parametrize(("cls", "params"), [case for case in METHODS if case.values[0] is not HACE])  # 1e-6 hides them
def test_large_logits_in_single_precision(cifar100, cls, params):
    method = built(cls, cifar100, **params)
    values = 600.0 * torch.randn(64, method.num_features, generator=torch.Generator().manual_seed(0)).double()
    double, grad = losses(method, values, torch.arange(64))
    single, single_grad = losses(method.float(), values.float(), torch.arange(64))
    assert grad.any(dim=1).all()
    assert single == pytest.approx(double, rel=1e-5)
    np.testing.assert_allclose(single_grad, grad, atol=1e-3 * float(grad.abs().max()))


@pytest.mark.parametrize("form", ["lifted", "heads"])
def test_level_scores_are_log_probabilities_of_the_levels(form):
    tree = Hierarchy.from_paths(CHAINS)
    method = built(MultilevelCE, tree, form=form)
    values = torch.randn(3, method.num_features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    levels = method.level_scores(method(values))
    assert [level.shape for level in levels] == [(3, size) for size in tree.level_sizes]
    for number, level in enumerate(levels):
        if form == "heads":
            torch.testing.assert_close(level, values.split(list(tree.level_sizes), dim=1)[number].log_softmax(dim=1))
            continue
        p = values.softmax(dim=1)
        for node in range(tree.level_sizes[number]):
            below = np.flatnonzero(tree.level_targets[:, number] == node)
            torch.testing.assert_close(level[:, node].exp(), p[:, below].sum(dim=1))


CORRELATIONS = [  # the array of each, and how near single-precision constants of the published code let us come
    (CPCC, {}, "leaves_l2", 1e-12),
    (CPCC, {"nodes": "all"}, "nodes_l2", 1e-12),
    (HypStructure, {}, "nodes_poincare_mean", 1e-6),
    (HypStructure, {"means": "features"}, "nodes_poincare", 1e-6),
]
FLOWS = [(CPCC, {"distance": "fft"}, "leaves_fft", 0), (CPCC, {"distance": "fft", "nodes": "all"}, "nodes_fft", 0)]


@pytest.mark.parametrize(("cls", "params", "name", "near"), CORRELATIONS)
def test_correlations_equal_the_oracle(oracle, cifar100, cls, params, name, near):
    file = oracle("cpcc")
    method = cls(cifar100, 24, cls.Params(**params)).double()
    features = torch.from_numpy(file["x"]).requires_grad_()
    terms = method.loss(method(features), torch.from_numpy(file["y"]))
    (grad,) = torch.autograd.grad(terms["correlation"], features, retain_graph=True)
    assert terms["correlation"].item() == pytest.approx(float(file[f"loss_{name}"]), rel=near)
    np.testing.assert_allclose(grad, file[f"grad_{name}"], atol=near * np.abs(file[f"grad_{name}"]).max())
    if params.get("means") == "features":
        assert terms["centre"].item() == pytest.approx(0.01 * float(file["loss_center"]), rel=1e-12)


@pytest.mark.parametrize(("cls", "params", "name", "near"), [*CORRELATIONS, *FLOWS])
@given(data=st.data())
@settings(max_examples=12)
def test_correlations_are_those_of_loops_on_ragged_trees(data, reference, cls, params, name, near):
    """Of the distances of means with path lengths, over all pairs of nodes; a batch without two lengths gives 1."""
    tree = data.draw(reference.ragged_trees())
    targets = data.draw(st.lists(st.integers(0, tree.num_classes - 1), min_size=1, max_size=9))
    method = cls(tree, 3, cls.Params(**params, weight=1.0)).double()
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))
    features = torch.randn(len(targets), 3, generator=generator, dtype=torch.float64)
    got = method.loss(method(features), torch.tensor(targets))["correlation"].item()
    above = [reference.node_path(Nodes(method.hierarchy), Nodes(method.hierarchy).num_inner + y) for y in targets]
    counted = {path[0] for path in above} if name.startswith("leaves") else {node for path in above for node in path}
    places = {node: [x for x, path in zip(features.numpy(), above, strict=True) if node in path] for node in counted}
    lengths, distances = [], []
    for first, second in combinations(sorted(counted), 2):
        paths = [reference.node_path(Nodes(method.hierarchy), node) for node in (first, second)]
        lengths.append(len(set(paths[0]) ^ set(paths[1])))
        distances.append(distance_of(name, places[first], places[second]))
    if len(set(lengths)) < 2 or np.ptp(distances) == 0.0:
        assert got == pytest.approx(1.0)
    else:
        assert got == pytest.approx(1.0 - np.corrcoef(distances, lengths)[0, 1], abs=1e-9)


def distance_of(name, first, second):
    """The distance of the middles of two lists of features, or the cost of moving one to the other in their order."""
    if name.endswith("fft"):
        supply = [len(second)] * len(first)  # in units of 1 / (n m)
        demand = [len(first)] * len(second)
        cost = 0.0
        for i, j in np.ndindex(len(first), len(second)):
            moved = min(supply[i], demand[j])
            supply[i] -= moved
            demand[j] -= moved
            cost += moved * np.linalg.norm(first[i] - second[j])
        return cost / (len(first) * len(second))
    if name.endswith("l2"):
        return np.linalg.norm(np.mean(first, axis=0) - np.mean(second, axis=0))

    def ball(x):
        return np.tanh(np.linalg.norm(x)) * x / np.linalg.norm(x)

    def middle(rows):
        if name == "nodes_poincare":
            return ball(np.mean(rows, axis=0))
        klein = [2 * ball(x) / (1 + ball(x) @ ball(x)) for x in rows]
        factors = [1 / np.sqrt(1 - k @ k) for k in klein]
        mean = sum(factor * k for factor, k in zip(factors, klein, strict=True)) / sum(factors)
        return mean / (1 + np.sqrt(1 - mean @ mean))

    u, v = middle(first), middle(second)
    return np.arccosh(1 + 2 * (u - v) @ (u - v) / ((1 - u @ u) * (1 - v @ v)))
