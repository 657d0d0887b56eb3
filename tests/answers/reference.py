"""Decision rules and metrics by loops over nodes, straight from their definitions; a node is its path from the root."""

import math

TIE = 1e-12


class PathTree:
    """The nodes of a hierarchy as paths, in the numbers of `hierbench.hierarchy.Nodes`."""

    def __init__(self, hierarchy):
        from hierbench.hierarchy import Nodes

        tables = Nodes(hierarchy)
        chains = [
            [int(node) for node, real in zip(*row, strict=True) if real]
            for row in zip(tables.paths.tolist(), tables.on_path.tolist(), strict=True)
        ]
        self.leaves = [chain[-1] for chain in chains]
        self.path = {0: ()}
        for chain in chains:
            for depth in range(len(chain)):
                self.path[chain[depth]] = tuple(chain[: depth + 1])
        self.nodes = sorted(self.path)
        self.depth = {node: len(path) for node, path in self.path.items()}
        self.below = {n: [i for i, leaf in enumerate(self.leaves) if self.is_above(n, leaf)] for n in self.nodes}
        self.children = {
            n: [m for m in self.nodes if self.depth[m] == self.depth[n] + 1 and self.is_above(n, m)] for n in self.nodes
        }
        self.information = {n: math.log2(len(self.leaves) / len(self.below[n])) for n in self.nodes}
        self.height = {n: max(self.depth[self.leaves[i]] - self.depth[n] for i in self.below[n]) for n in self.nodes}

    def is_above(self, node, other):
        """Whether a node is an ancestor of another, or the same."""
        return self.path[other][: self.depth[node]] == self.path[node] if node else True

    def lca(self, first, second):
        return max((n for n in self.nodes if self.is_above(n, first) and self.is_above(n, second)), key=self.depth.get)

    def probability(self, p):
        return {n: sum(p[i] for i in self.below[n]) if n else 1.0 for n in self.nodes}

    def edges(self, n, m):
        return self.depth[n] + self.depth[m] - 2 * self.depth[self.lca(n, m)]

    def hf(self, n, m, beta, root):
        shared, predicted, true = (self.depth[x] + root for x in (self.lca(n, m), n, m))
        return (1 + beta**2) * shared / (predicted + beta**2 * true)


def best(tree, scores, p):
    """The node of the largest score; ties go to the larger probability, the smaller depth, the lower number."""
    top = max(scores.values())
    tied = [n for n in scores if scores[n] >= top - TIE]
    most = max(p[n] for n in tied)
    return min((n for n in tied if p[n] >= most - TIE), key=lambda n: (tree.depth[n], n))


def first_leaf(tree, p):
    return next(leaf for leaf, share in zip(tree.leaves, p, strict=True) if share >= max(p) - TIE)


def top_down(tree, p):
    node, every = 0, tree.probability(p)
    while tree.children[node]:
        node = best(tree, {n: every[n] for n in tree.children[node]}, every)
    return node


def majority(tree, p):
    every = tree.probability(p)
    return max((n for n in tree.nodes if every[n] > 0.5 + TIE or n == 0), key=tree.depth.get)


def plurality(tree, p):
    every = tree.probability(p)
    families = [children for children in tree.children.values() if len(children) > 1]
    second = [sorted((every[n] for n in children), reverse=True)[1] for children in families]
    bound = max(second, default=0.0)
    return max((n for n in tree.nodes if every[n] > bound + TIE or n == 0), key=tree.depth.get)


def confidence_threshold(tree, p, threshold):
    every = tree.probability(p)
    passing = [n for n in tree.nodes if every[n] >= threshold - TIE or n == 0]
    return best(tree, {n: tree.information[n] for n in passing}, every)


def information_threshold(tree, p, bits):
    every = tree.probability(p)
    return best(tree, {n: every[n] for n in tree.nodes if tree.information[n] >= bits - TIE}, every)


def darts(tree, p, weight):
    every = tree.probability(p)
    return best(tree, {n: (tree.information[n] + weight) * every[n] for n in tree.nodes}, every)


def expected_information(tree, p):
    return darts(tree, p, 0.0)


def climbing(tree, p, threshold):
    every = tree.probability(p)
    path = [0, *tree.path[first_leaf(tree, p)]]
    return next(n for n in reversed(path) if every[n] >= threshold - TIE or n == 0)


def jumping(tree, p, threshold):
    every = tree.probability(p)
    for level in range(max(tree.depth.values()), 0, -1):
        nodes = [n for n in tree.nodes if tree.depth[n] == level or (n in tree.leaves and tree.depth[n] < level)]
        most = max(every[n] for n in nodes)
        if most >= threshold - TIE:
            return [n for n in nodes if every[n] == most]  # any of these
    return 0


def least_cost(tree, p, cost="edges", beta=1.0, root=False):
    every = tree.probability(p)

    def score(n):
        if not isinstance(cost, str):
            costs = [-value for value in cost[n]]
        elif cost == "edges":
            costs = [-tree.edges(n, leaf) for leaf in tree.leaves]
        elif cost == "information":
            info = tree.information
            costs = [2 * info[tree.lca(n, leaf)] - info[n] - info[leaf] for leaf in tree.leaves]
        else:
            costs = [tree.hf(n, leaf, beta, root) for leaf in tree.leaves]
        return sum(share * value for share, value in zip(p, costs, strict=True))

    return best(tree, {n: score(n) for n in tree.nodes}, every)


def crm(tree, p):
    every = tree.probability(p)
    scores = {}
    for leaf in tree.leaves:
        heights = [0 if leaf == other else tree.height[tree.lca(leaf, other)] for other in tree.leaves]
        scores[leaf] = -sum(share * height for share, height in zip(p, heights, strict=True))
    return best(tree, scores, every)
