"""`etf`, `barz_denzler` and `hiercos` against arrays of the published code, and against loops over ragged trees."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity, cross_entropy

from hierbench import Hierarchy
from hierbench.hierarchy import Nodes
from hierbench.losses.class_embeddings import DepthFirstEmbedding
from hierbench.losses.frames import random_simplex
from hierbench.methods.barz_denzler import BarzDenzler
from hierbench.methods.etf import ETF
from hierbench.methods.hiercos import HierCOS, random_rotation

RAGGED = Hierarchy.from_paths(
    {
        "oak": ("plant", "tree", "oak"),
        "moss": ("moss",),
        "ash": ("plant", "tree", "ash"),
        "cat": ("animal", "mammal", "feline", "small", "cat"),  # three single-child nodes above it
        "hen": ("animal", "hen"),
    }
)


@pytest.fixture(autouse=True)
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def arrays(shared):
    """The published code's arrays of a kind, of CIFAR-100, as tensors."""

    def load(kind):
        file = np.load(shared / f"oracles/extra-{kind}-cifar100.npz")
        return {key: torch.from_numpy(np.asarray(value)) for key, value in file.items()}

    return load


def close(ours, expected, tolerance=1e-10):
    torch.testing.assert_close(ours.detach(), expected.double(), rtol=tolerance, atol=tolerance * expected.abs().max())


def loss_and_gradient(method, features, targets):
    """The sum of the loss terms, and its gradient with respect to the features."""
    features = features.clone().requires_grad_()
    loss = sum(method.loss(method(features), targets).values())
    (gradient,) = torch.autograd.grad(loss, features)
    return loss, gradient


@pytest.mark.parametrize("form", ["plain", "bn", "bn_l2"])
def test_etf_is_the_published_one(form, arrays, cifar100):
    arrays = arrays("etf")
    for loss, key in (("dot_regression", "dr"), ("cross_entropy", "ce")):
        method = ETF(cifar100, arrays["x"].shape[1], ETF.Params(features=form, loss=loss))
        method.frame.copy_(arrays["M"].T)
        ours, gradient = loss_and_gradient(method, arrays["x"], arrays["y"])
        close(ours, arrays[f"loss_{key}_{form}"])
        close(gradient, arrays[f"grad_{key}_{form}"])
        if form == "bn_l2":
            close(method.scores(method(arrays["x"])), arrays["scores_bn_l2"])


@pytest.mark.parametrize(("num_classes", "num_features"), [(2, 1), (2, 5), (7, 6), (7, 7), (100, 128), (200, 1024)])
def test_the_simplex_has_equal_cosines(num_classes, num_features):
    frame = random_simplex(num_classes, num_features)
    expected = torch.full((num_classes, num_classes), -1.0 / (num_classes - 1)).fill_diagonal_(1.0)
    torch.testing.assert_close(frame @ frame.T, expected, rtol=0, atol=1e-13)
    assert num_features == 1 or not torch.equal(frame, random_simplex(num_classes, num_features))


def test_rotations_are_uniform():
    """Moments of Haar's measure: of one row of a simplex, and of a matrix's trace, which a QR's signs would change."""
    torch.manual_seed(0)
    rows = torch.stack([random_simplex(3, 4)[1] for _ in range(3000)])
    torch.testing.assert_close(rows.mean(dim=0), torch.zeros(4), rtol=0, atol=5 * 0.5 / 3000**0.5)
    torch.testing.assert_close(rows.T @ rows / 3000, torch.eye(4) / 4, rtol=0, atol=0.03)
    traces = torch.stack([random_rotation(4).trace() for _ in range(3000)])
    assert abs(traces.mean()) < 5 / 3000**0.5
    assert abs(traces.square().mean() - 1) < 0.15  # 0 and 1 for the orthogonal group
    rotation = random_rotation(30)
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(30), rtol=0, atol=1e-13)


@pytest.mark.parametrize("num_features", [1, 3, 4, 9])
@pytest.mark.parametrize("length", [1.0, 4.0])
def test_etf_is_a_loop_over_examples(num_features, length):
    """With 1 and 3 features of five classes a linear layer precedes; the frame is then the simplex of its outputs."""
    torch.manual_seed(1)
    method = ETF(RAGGED, num_features, ETF.Params(length=length))
    features, targets = torch.randn(6, num_features), torch.tensor([0, 1, 1, 4, 3, 0])
    frame, inner = method.frame, features
    assert (frame is None) == (num_features < 4) == (method.linear is not None)
    if frame is None:
        frame, inner = math.sqrt(5 / 4) * (torch.eye(5) - 0.2), method.linear(features)
    cosines = torch.stack([torch.stack([m @ h / h.norm() for m in frame]) for h in inner])
    torch.testing.assert_close(method.scores(method(features)), length * cosines)
    expected = sum((length * row[y] - length) ** 2 / (2 * length) for row, y in zip(cosines, targets, strict=True))
    torch.testing.assert_close(*(sum(method.loss(method(features), targets).values()), expected / 6))
    method.params = ETF.Params(length=length, loss="cross_entropy")
    terms = method.loss(method(features), targets)
    torch.testing.assert_close(terms, {"cross_entropy": cross_entropy(length * cosines, targets)})


def test_barz_denzler_is_the_published_one(arrays, cifar100):
    arrays = arrays("barzdenzler")
    method = BarzDenzler(cifar100, 100)
    close(method.classes, arrays["embedding"])
    close(method.scores(method(arrays["x"])), arrays["scores"])
    for params, key in ({}, "cos"), ({"embedding_weight": 0.1}, "cos_ce_mbm"):
        method.params = BarzDenzler.Params(**params)
        loss, gradient = loss_and_gradient(method, arrays["x"], arrays["y"])
        close(loss, arrays[f"loss_{key}"])
        close(gradient, arrays[f"grad_{key}"])


@given(data=st.data())
def test_cosines_of_classes_are_those_of_the_heights(data, reference):
    tree = data.draw(reference.ragged_trees())
    paths = [tuple(Nodes(tree).paths[y][: tree.num_levels].tolist()) for y in range(tree.num_classes)]
    paths = [path[: path.index(path[-1]) + 1] for path in paths]
    height = max(map(len, paths))
    gram = [[1 - reference.lca_distance(a, b, paths, "height") / height for b in paths] for a in paths]
    for distance in ("height", "depth"):
        as_read = Hierarchy.from_paths({str(p[-1]): tuple(map(str, p)) for p in paths}, distance)
        classes = BarzDenzler(as_read, tree.num_classes).classes
        torch.testing.assert_close(classes @ classes.T, torch.tensor(gram))
        torch.testing.assert_close(classes, classes.tril())
    nodes = Nodes(as_read)  # the form of large trees
    embedding = DepthFirstEmbedding(nodes)
    order = embedding.place.argsort()
    rows = embedding.rows(torch.arange(len(order)), classes)
    factor = torch.linalg.cholesky(torch.tensor(gram)[order][:, order])
    torch.testing.assert_close(rows[order], factor)
    vectors = torch.randn(3, len(order))
    torch.testing.assert_close(embedding.cosines(vectors), vectors @ rows.T)


def test_the_head_stands_on_the_normalised_embedding():
    torch.manual_seed(3)
    method = BarzDenzler(RAGGED, 9, BarzDenzler.Params(head_weight=0.3)).eval()
    features, targets = torch.randn(6, 9), torch.tensor([0, 1, 2, 3, 4, 0])
    embedding = method.linear(features)
    cosines = [1 - cosine_similarity(x, method.classes[y], dim=0) for x, y in zip(embedding, targets, strict=True)]
    rows = [(x / x.norm()).clamp_min(0) / math.sqrt(1 + 1e-5) for x in embedding]  # fresh batch norm
    logits = torch.stack([method.head[2].weight @ row + method.head[2].bias for row in rows])
    terms = method.loss(method(features), targets)
    torch.testing.assert_close(method.scores(method(features)), logits)
    expected = {"cosine": sum(cosines) / 6, "cross_entropy": 0.3 * cross_entropy(logits, targets)}
    torch.testing.assert_close(terms, expected)


def hiercos_terms(z, targets, nodes, paths):
    """KL divergence and level term, example by example and depth by depth; `z` has column n - 1 for node n."""
    depth = nodes.depth.tolist()
    divergence, levels = 0.0, 0.0
    for row, y in zip(z, targets.tolist(), strict=True):
        weights = [math.exp(2 / (len(paths[y]) - i + 1)) for i in range(1, len(paths[y]) + 1)]
        logs = row.abs().log_softmax(0)
        for n, weight in zip(paths[y], weights, strict=True):
            g = weight / sum(weights)
            divergence = divergence + g * (math.log(g) - logs[n - 1]) / len(targets)
    for at in range(1, max(depth) + 1):
        members = [n for n in range(1, nodes.num_nodes) if depth[n] == at]
        present, absent = [], []
        for row, y in zip(z, targets.tolist(), strict=True):
            sizes = row[[n - 1 for n in members]].abs()
            if len(paths[y]) >= at:
                is_ancestor = torch.tensor([float(n == paths[y][at - 1]) for n in members])
                present.append((is_ancestor - sizes / sizes.norm()).abs().sum())
            else:
                absent.append(sizes.sum())
        levels = levels + sum(sum(part) / len(part) for part in (present, absent) if part)
    return divergence, levels


def test_hiercos_is_the_published_one(shared, arrays, cifar100, reference):
    arrays, nodes = arrays("hiercos"), Nodes(cifar100)
    theirs = reference.node_numbers(np.load(shared / "oracles/extra-tree-cifar100.npz"), nodes)
    columns = torch.from_numpy(theirs[1:] - 1)  # of our nodes among theirs
    method = HierCOS(cifar100, nodes.num_nodes - 1, HierCOS.Params(alpha=float(arrays["alpha"])))
    method.rotation.copy_(arrays["W"][columns])
    h, y = arrays["h"], arrays["y"]
    terms = method.loss(method(h), y)
    close(terms["kl"], arrays["kl"])
    close(terms["levels"], arrays["alpha"] * arrays["aux_without_their_slip"])
    close(method.scores(method(h)), arrays["scores"])
    levels = torch.cat(method.level_scores(method(h)), dim=1)
    close(levels, arrays["node_scores"][:, columns][:, nodes.levels - 1])
    loss, gradient = loss_and_gradient(method, h, y)
    close(loss, arrays["loss"])
    close(gradient, arrays["grad_h"])
    method.params = HierCOS.Params(alpha=1.0)
    close(loss_and_gradient(method, h, y)[1], arrays["grad_h_alpha1"])
    slip = method.loss(method(h[:2]), arrays["slip_y"])
    close(sum(slip.values()), arrays["slip_loss_without_alpha1"])


@given(data=st.data())
def test_hiercos_is_a_loop_over_nodes(data, reference):
    tree = data.draw(reference.ragged_trees())
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    nodes = Nodes(tree)
    method = HierCOS(tree, nodes.num_nodes - 1, HierCOS.Params(alpha=0.3))
    targets = torch.tensor(data.draw(st.lists(st.integers(0, tree.num_classes - 1), min_size=1, max_size=5)))
    features = torch.randn(len(targets), nodes.num_nodes - 1)
    loss, gradient = loss_and_gradient(method, features, targets)
    features.requires_grad_()
    z = features @ method.rotation.T
    leaves = range(nodes.num_inner, nodes.num_nodes)
    paths = [reference.node_path(nodes, leaf)[-2::-1] for leaf in leaves]  # from below the root
    divergence, levels = hiercos_terms(z, targets, nodes, paths)
    expected = divergence + 0.3 * levels
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradient, *torch.autograd.grad(expected, features), rtol=1e-9, atol=1e-10)

    z = z.detach()
    scores = [z[:, [n - 1 for n in path]].norm(dim=1) for path in paths]
    torch.testing.assert_close(method.scores(z), torch.stack(scores, dim=1))
    levels = torch.cat(method.level_scores(z), dim=1)
    for entry, node in enumerate(nodes.levels.tolist()):
        through = [path for path in paths if node in path]
        above = through[0][: through[0].index(node)]
        related = {*above, *(n for path in through for n in path[path.index(node) :])}
        torch.testing.assert_close(levels[:, entry], z[:, [n - 1 for n in related]].norm(dim=1))


@pytest.mark.parametrize("cls", [ETF, BarzDenzler, HierCOS])
def test_features_of_zero_have_a_finite_loss(cls):
    method = cls(RAGGED, {ETF: 5, BarzDenzler: 5, HierCOS: 11}[cls])
    loss, gradient = loss_and_gradient(method, torch.zeros(2, method.num_features), torch.tensor([0, 1]))
    assert loss.isfinite() and gradient.isfinite().all()
