"""Readable reference implementations: loops over examples and classes, straight from the definitions."""

import math
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from hierbench import Hierarchy


@st.composite
def ragged_trees(draw):
    """Trees of 2 to 12 classes, depths 1 to 5, with single-child chains."""
    paths = {}
    for i in range(draw(st.integers(2, 12))):
        prefix = draw(st.lists(st.sampled_from("ab"), max_size=4))
        names = ["/".join(prefix[: k + 1]) for k in range(len(prefix))]
        paths[f"class {i}"] = (*names, f"class {i}")
    return Hierarchy.from_paths(paths)


def rank(scores):
    """Classes of one example, best first, ties to the lower index."""
    return sorted(range(len(scores)), key=lambda k: (-scores[k], k))


def evaluate(scores, targets, distances, ks=(1, 5, 20)):
    scores, targets = np.asarray(scores).tolist(), np.asarray(targets).tolist()
    num_correct, severities, per_k = 0, [], {k: [] for k in ks}
    for row, target in zip(scores, targets, strict=True):
        order = rank(row)
        if order[0] == target:
            num_correct += 1
        else:
            severities.append(int(distances[target, order[0]]))
        for k in ks:
            if k <= len(row):
                per_k[k].append(sum(int(distances[target, c]) for c in order[:k]) / k)
    metrics = {
        "top1": 100.0 * num_correct / len(targets),
        "mistake_severity": sum(severities) / len(severities) if severities else math.nan,
    }
    return metrics | {f"hierdist@{k}": sum(values) / len(values) for k, values in per_k.items() if values}


def crm(probabilities, distances):
    """Minus the expected distance, class by class and example by example."""
    probabilities, distances = np.asarray(probabilities), np.asarray(distances, dtype=np.float64)
    scores = np.empty_like(probabilities)
    for i, row in enumerate(probabilities):
        for j in range(len(row)):
            scores[i, j] = -np.dot(row, distances[:, j])
    return scores


def lca_distance(path_a, path_b, paths, kind):
    """Distance of two classes from their paths, coarsest first; the root is above."""
    height = max(map(len, paths))
    if path_a == path_b:
        return 0
    depth = 0
    while depth < min(len(path_a), len(path_b)) and path_a[depth] == path_b[depth]:
        depth += 1
    if kind == "depth":
        return height - depth
    return max(len(path) for path in paths if path[:depth] == path_a[:depth]) - depth


def similarity(distances, gamma, s_min):
    return (1.0 - s_min) * np.exp(-gamma * distances / distances.max()) + s_min


def smallest_similarity_by_search(distances, gamma):
    """The paper's search: a hundred eigendecompositions along the grid."""
    best = 1.0
    for step in range(100, -1, -1):
        s_min = -1.0 + 0.02 * step
        if step < 100 and np.linalg.eigh(similarity(distances, gamma, s_min))[0][0] > 0:
            best = s_min
    return best


def frame_by_search(distances, gamma, rng):
    """W = U D^(1/2) Q^T of the paper's equation 6, one class per row."""
    s_min = smallest_similarity_by_search(distances, gamma)
    values, vectors = np.linalg.eigh(similarity(distances, gamma, s_min))
    rotation, upper = np.linalg.qr(rng.standard_normal(distances.shape))
    rotation = rotation * np.sign(np.diag(upper))
    return vectors * np.sqrt(values) @ rotation.T


def haframe_loss(features, targets, frame, alpha):
    """Equations 7 to 9, class by class."""
    cross_entropy, cosine = 0.0, 0.0
    for h, y in zip(features, targets, strict=True):
        logits = torch.stack([w @ h for w in frame])
        cross_entropy = cross_entropy + torch.logsumexp(logits, 0) - logits[y]
        for w in frame:
            cosine = cosine + (w @ h / (w.norm() * h.norm()) - w @ frame[y] / (w.norm() * frame[y].norm())) ** 2
    return ((1 - alpha) * cross_entropy + alpha * cosine) / len(features)


def kl(p, q):
    return (p * (p.log() - q.log())).sum()


def hafeature_terms(features, targets, weights, biases, hierarchy, order):
    """The four terms, example by example and node by node; weights and biases one per level, coarsest first."""
    num_levels = len(weights)
    rows = [[row / row.norm() for row in weight] for weight in weights]
    probs = [
        [torch.softmax(torch.stack([w @ x for w in rows[level]]) + biases[level], 0) for x in features]
        for level in range(num_levels)
    ]
    finest = probs[-1]
    cross_entropy = torch.stack([-p[y].log() for p, y in zip(finest, targets, strict=True)]).mean()
    jsd, weight_cosine, dissimilarity = 0.0, 0.0, 0.0
    for level in range(num_levels - 1):
        parents = hierarchy.parents[level]
        children = [[c for c in range(len(parents)) if parents[c] == n] for n in range(len(rows[level]))]
        per_example = []
        for parent, child in zip(probs[level], probs[level + 1], strict=True):
            summed = torch.stack([sum(child[c] for c in group) for group in children])
            m = (0.5 * (parent + summed)).clamp(1e-7, 1)
            per_example.append(0.5 * (kl(summed, m) + kl(parent, m)))
        jsd = jsd + torch.stack(per_example).mean()
        cosines = [
            F.cosine_similarity(rows[level][n], sum(rows[level + 1][c] for c in group), dim=0)
            for n, group in enumerate(children)
        ]
        weight_cosine = weight_cosine + torch.stack(cosines).mean()
        dissimilarities, others = [], []
        for a, b in pairwise(order):
            if hierarchy.level_targets[targets[a], level] != hierarchy.level_targets[targets[b], level]:
                p, q = probs[level][a], probs[level][b]
                m = (0.5 * (p + q)).clamp(1e-7, 1)
                dissimilarities.append((3.0 - kl(p, m)).clamp_min(0))
                others.append((3.0 - kl(q, m)).clamp_min(0))
        if dissimilarities:
            dissimilarity = dissimilarity + 0.5 * torch.stack(dissimilarities).mean() + 0.5 * torch.stack(others).mean()
    return {
        "cross_entropy": cross_entropy,
        "jsd": jsd,
        "weights": -weight_cosine,
        "dissimilarity": dissimilarity,
    }


def node_path(nodes, node):
    """The node and all above it, the root last, by following the parents."""
    path = [int(node)]
    while path[-1]:
        path.append(int(nodes.parent[path[-1]]))
    return path


def subtree(nodes, node):
    """The node and all nodes below it."""
    return [other for other in range(nodes.num_nodes) if node in node_path(nodes, other)]


def classes_below(nodes, node):
    return [other - nodes.num_inner for other in subtree(nodes, node) if other >= nodes.num_inner]


def soft_label_loss(logits, targets, distances, beta):
    """KL divergence of the predictions from the targets, class by class."""
    total = 0.0
    for x, y in zip(logits, targets.tolist(), strict=True):
        soft = torch.softmax(torch.tensor(-beta * distances[y] / distances.max(), dtype=x.dtype), 0)
        log_p = x - torch.logsumexp(x, 0)
        total = total + sum(soft[c] * (soft[c].log() - log_p[c]) for c in range(len(x)))
    return total / len(logits)


def hxe_loss(logits, targets, nodes, weight):
    """Weighted log-probability of each node of the path given its parent; weight(node) is a number."""
    total = 0.0
    for x, y in zip(logits, targets.tolist(), strict=True):
        for edge in pairwise(node_path(nodes, nodes.num_inner + y)):
            below, above = (torch.logsumexp(x[classes_below(nodes, node)], 0) for node in edge)
            total = total + weight(edge[0]) * (above - below)
    return total / len(logits)


def conditional_log_probabilities(logits, nodes):
    """Log-probabilities of the classes of one example, from its logits of all nodes."""
    children = {n: [c for c in range(1, nodes.num_nodes) if nodes.parent[c] == n] for n in range(nodes.num_inner)}
    results = []
    for leaf in range(nodes.num_inner, nodes.num_nodes):
        edges = pairwise(node_path(nodes, leaf))
        results.append(sum(logits[n] - torch.logsumexp(logits[children[above]], 0) for n, above in edges))
    return torch.stack(results)


def descendant_loss(logits, targets, nodes, form):
    """The losses of Valmadre from sums over lists of nodes; with "cousins" all but those above and below the node."""
    total = 0.0
    for x, y in zip(logits, targets.tolist(), strict=True):
        for node in node_path(nodes, nodes.num_inner + y):
            others = set(range(nodes.num_nodes))
            if form == "cousins":
                others -= {*node_path(nodes, node), *subtree(nodes, node)} - {node}
            weight = 1.0 / len(classes_below(nodes, node))
            total = total + weight * (torch.logsumexp(x[sorted(others)], 0) - x[node])
    return total / len(logits)


def level_losses(logits, targets, level_targets, nodes, count):
    """The cross-entropy of each level's summed probabilities; "nodes": a level below the class does not count."""
    losses = []
    for level in range(level_targets.shape[1]):
        total = 0.0
        for x, y in zip(logits, targets.tolist(), strict=True):
            if count == "levels" or level < len(node_path(nodes, nodes.num_inner + y)) - 1:
                same = [c for c in range(len(x)) if level_targets[c, level] == level_targets[y, level]]
                total = total + torch.logsumexp(x, 0) - torch.logsumexp(x[same], 0)
        losses.append(total / len(logits))
    return losses


def node_numbers(tree_arrays, nodes):
    """Return [N] int64: for each node of `hierbench.hierarchy.Nodes`, its number in the oracles' tree.

    A node is known by its depth and the classes below it; the classes alone would not tell a node from its only child.

    Args:
        tree_arrays: `node_parent` [N] (-1 for the root) and `leaf_node` [K], of an `extra-tree-*.npz`.
        nodes: the `Nodes` of the same tree, with the same class order.
    """
    leaves = range(nodes.num_inner, nodes.num_nodes)
    ours = _known_nodes([-1, *nodes.parent.tolist()[1:]], leaves)
    theirs = _known_nodes(tree_arrays["node_parent"].tolist(), tree_arrays["leaf_node"].tolist())
    assert len(set(ours)) == len(ours) and set(ours) == set(theirs)
    number = {name: node for node, name in enumerate(theirs)}
    return np.array([number[name] for name in ours])


def _known_nodes(parent, leaves):
    """Return (depth, classes at or below) of every node; the root's parent is -1."""
    below = [set() for _ in parent]
    depth = [0 for _ in parent]
    for y, leaf in enumerate(leaves):
        path = [leaf]
        while parent[path[-1]] >= 0:
            path.append(parent[path[-1]])
        for steps, node in enumerate(reversed(path)):
            depth[node] = steps
            below[node].add(y)
    return list(zip(depth, map(frozenset, below), strict=True))
