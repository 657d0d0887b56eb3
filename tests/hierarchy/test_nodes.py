"""`hierbench.hierarchy.Nodes` against plain loops over the tree, and against the trees of the published code."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierbench import Hierarchy
from hierbench.hierarchy import Nodes

TREES = ("cifar100", "fgvc", "inat19", "tieredimagenet-h")


def ancestors(parent, node):
    """The node and all above it without the root, by following the parents."""
    nodes_above = []
    while node:
        nodes_above.append(node)
        node = parent[node]
    return nodes_above


def child_to(parent, node, nodes, y):
    """The child of the node on the path to class y, or None for the class itself."""
    path = [*ancestors(parent, nodes.num_inner + y), 0]
    return path[path.index(node) - 1] if path.index(node) else None


@given(data=st.data())
def test_tables_follow_from_the_parents(data, reference):
    tree = data.draw(reference.ragged_trees())
    nodes = Nodes(tree)
    parent = nodes.parent.tolist()
    names = {path for y in range(tree.num_classes) for path in [tuple(nodes.paths[y][nodes.on_path[y]].tolist())]}
    assert len(names) == tree.num_classes
    assert all(parent[n] < n for n in range(1, nodes.num_nodes))
    for n in range(nodes.num_nodes):
        below = [y for y in range(tree.num_classes) if n == 0 or n in ancestors(parent, nodes.num_inner + y)]
        depths = [len(ancestors(parent, nodes.num_inner + y)) for y in below]
        assert nodes.num_leaves[n] == len(below)
        assert nodes.depth[n] == len(ancestors(parent, n))
        assert nodes.height[n] == max(depths) - nodes.depth[n]
        parting = [(a, b) for a in below for b in below if len({child_to(parent, n, nodes, c) for c in (a, b)}) == 2]
        assert all(tree.distances[pair] == nodes.distance[n] for pair in parting)
        assert n < nodes.num_inner or nodes.distance[n] == 0
    for y in range(tree.num_classes):
        path = ancestors(parent, nodes.num_inner + y)[::-1]
        assert nodes.paths[y].tolist() == path + [nodes.num_inner + y] * (tree.num_levels - len(path))


@given(data=st.data())
def test_sums_are_those_of_a_loop(data, reference):
    tree = data.draw(reference.ragged_trees())
    nodes = Nodes(tree)
    parent = nodes.parent.tolist()
    rng = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))
    leaves = torch.randn(3, tree.num_classes, generator=rng, dtype=torch.float64)
    values = torch.randn(3, nodes.num_nodes, generator=rng, dtype=torch.float64)
    path_of = [ancestors(parent, nodes.num_inner + y) for y in range(tree.num_classes)]
    for n in range(nodes.num_nodes):
        below = [y for y, path in enumerate(path_of) if n == 0 or n in path]
        torch.testing.assert_close(nodes.leaf_sums(leaves)[:, n], leaves[:, below].sum(dim=1))
        torch.testing.assert_close(nodes.leaf_log_sums(leaves)[:, n], leaves[:, below].logsumexp(dim=1))
        under = [m for m in range(nodes.num_nodes) if n == 0 or n in ancestors(parent, m)]
        torch.testing.assert_close(nodes.subtree_sums(values)[:, n], values[:, under].sum(dim=1))
        torch.testing.assert_close(nodes.subtree_log_sums(values)[:, n], values[:, under].logsumexp(dim=1))
        torch.testing.assert_close(nodes.ancestor_sums(values)[:, n], values[:, ancestors(parent, n)].sum(dim=1))
        children = [m for m in range(1, nodes.num_nodes) if parent[m] == n]
        if children:
            torch.testing.assert_close(nodes.child_log_sums(values)[:, n], values[:, children].logsumexp(dim=1))
        siblings = [m for m in range(1, nodes.num_nodes) if parent[m] == parent[n]]
        if n:
            expected = values[:, n] - values[:, siblings].logsumexp(dim=1)
            torch.testing.assert_close(nodes.sibling_log_softmax(values)[:, n], expected)
    for y, path in enumerate(path_of):
        torch.testing.assert_close(nodes.path_sums(values)[:, y], values[:, path].sum(dim=1))


SUMS = (
    "leaf_sums leaf_log_sums subtree_sums subtree_log_sums ancestor_sums path_sums child_log_sums sibling_log_softmax"
)
RAGGED = {"a": ("x", "a"), "b": ("x", "y", "b"), "c": ("x", "y", "c"), "d": ("d",), "e": ("z", "w", "v", "e")}


@pytest.mark.parametrize("name", [*SUMS.split(), "sibling_log_softmax"])
@pytest.mark.parametrize("size", [(2,), (1,), (2, 3), ()], ids=str)
def test_gradients_keep_the_shape_and_the_arguments(name, size):
    nodes = Nodes(Hierarchy.from_paths(RAGGED))
    function, width = getattr(nodes, name), 5 if name.startswith("leaf") else nodes.num_nodes
    values = torch.randn(*size, width, dtype=torch.float64, requires_grad=True)
    kept = values.detach().clone()
    assert torch.autograd.gradcheck(function, (values,))
    assert torch.equal(values, kept)
    flat = torch.stack([function(row) for row in values.detach().reshape(-1, width)])
    torch.testing.assert_close(function(values), flat.reshape(*size, -1))
    assert function(values).is_contiguous()


@pytest.mark.parametrize("name", ["leaf_log_sums", "subtree_log_sums", "child_log_sums"])
def test_a_probability_of_zero_adds_nothing_and_is_not_nan(name):
    nodes = Nodes(Hierarchy.from_paths(RAGGED))
    function, width = getattr(nodes, name), 5 if name.startswith("leaf") else nodes.num_nodes
    values = torch.zeros(3, width, dtype=torch.float64)
    values[1, -1] = values[2, -4:-2] = -torch.inf  # the only child of its parent; both children of y
    values.requires_grad_()
    sums = function(values)
    far = function(torch.where(values.isinf(), -1e5, values))
    finite = far > -1e4
    assert torch.equal(sums.isfinite(), finite) and not finite.all()
    torch.testing.assert_close(sums[finite], far[finite])
    (grad,) = torch.autograd.grad(sums[finite].sum(), values)
    (far_grad,) = torch.autograd.grad(far[finite].sum(), values)
    torch.testing.assert_close(grad, far_grad)


def test_extreme_values_keep_their_gradient():
    tree = Hierarchy.from_paths({"a": ("x", "a"), "b": ("x", "y", "b"), "c": ("x", "y", "c"), "d": ("d",)})
    nodes = Nodes(tree)
    logs = torch.tensor([[0.0, -2000.0, -2000.0, -1e-3]], requires_grad=True)  # exp(-2000) is 0 in every precision
    sums = nodes.leaf_log_sums(logs)
    node_y = int(nodes.parent[nodes.num_inner + 1])
    assert sums[0, node_y].item() == pytest.approx(-2000.0 + math.log(2.0))
    sums[0, node_y].backward()
    assert logs.grad.tolist() == [[0.0, 0.5, 0.5, 0.0]]


@pytest.mark.parametrize("name", TREES)
def test_nodes_are_those_of_the_published_code(name, shared, reference):
    path = shared / f"oracles/extra-tree-{name}.npz"
    if not path.is_file():
        pytest.skip(f"no tree of {name} among the oracles")
    file = np.load(path)
    nodes = Nodes(Hierarchy.load(name, "depth" if name == "tieredimagenet-h" else "height"))
    number = reference.node_numbers(file, nodes)
    assert sorted(number.tolist()) == list(range(nodes.num_nodes))
    assert number[nodes.num_inner :].tolist() == file["leaf_node"].tolist()  # the arrays have our class order
    assert number[nodes.parent.numpy()][1:].tolist() == file["node_parent"][number][1:].tolist()
    assert nodes.depth.tolist() == file["node_depth"][number].tolist()
    assert nodes.height.tolist() == file["node_height"][number].tolist()
