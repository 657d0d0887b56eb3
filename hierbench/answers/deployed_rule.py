"""A fitted rule as a file that a product uses by itself: rule, parameters, temperature, and the tree.

Shapes: N examples, K classes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hierbench.answers.decision_rule import Rule, find_rule, known_rules
from hierbench.hierarchy.label_tree import Distance, Hierarchy
from hierbench.hierarchy.levels import nodes_on
from hierbench.hierarchy.node_paths import MAX_DEPTH
from hierbench.metrics.calibration import ScoreKind, as_probabilities
from hierbench.metrics.node_probabilities import chunks
from hierbench.metrics.ranked_classes import as_tensor
from hierbench.utils.errors import InputError, UserError

SCHEMA = 1


@dataclass(frozen=True, eq=False)
class DeployedRule:
    """A rule that was fitted, with all that it needs.

    Attributes:
        rule: one that the project ships.
        parameters: of it.
        temperature: by which logits, or logs of probabilities, are divided.
        kind: what scores are: "probabilities", "logits" or "votes".
        tree: over the K classes.
    """

    rule: Rule
    parameters: Mapping[str, Any]
    temperature: float
    kind: ScoreKind
    tree: Hierarchy

    def __call__(self, scores: Tensor | ArrayLike) -> Any:
        """Return the node that the rule answers, for the scores [K] of an image or [N, K] of many.

        Returns:
            An int, or [N] int64, of nodes as `hierbench.hierarchy.Nodes` numbers them; see `names`.

        Raises:
            ValueError: other shapes, a NaN, or numbers of another kind than the rule was fitted to.
        """
        values = as_tensor(scores, "scores must be real numbers [K] or [N, K]")
        single = values.ndim == 1
        rows = values[None] if single else values
        if rows.ndim != 2 or rows.shape[1] != self.tree.num_classes:
            raise InputError(f"scores must be [{self.tree.num_classes}] or [N, {self.tree.num_classes}]")
        if self.kind == "probabilities" and bool((rows < 0).any()):
            raise InputError("the rule was fitted to probabilities: a score is negative")
        logits = rows.double() if self.kind == "logits" else as_probabilities(rows, self.kind).log()
        probabilities = (logits / self.temperature).softmax(dim=1)
        if not bool(probabilities.isfinite().all()):
            raise InputError("a score is NaN or +inf, or all scores of an example are -inf")
        nodes = torch.empty(len(rows), dtype=torch.int64)
        for part, chunk in chunks(probabilities, self.tree):
            nodes[part] = self.rule(chunk, **self.parameters)
        return int(nodes[0]) if single else nodes.numpy()

    def names(self, nodes: int | ArrayLike) -> Any:
        """Return the name of a node, or a list of those of nodes; the root's is "root"."""
        numbers = np.atleast_1d(np.asarray(nodes)).tolist()
        node_texts = [self._names[number] for number in numbers]
        return node_texts[0] if np.ndim(nodes) == 0 else node_texts

    @cached_property
    def _names(self) -> list[str]:
        return node_names(self.tree)

    def content(self) -> dict[str, Any]:
        """Return what `load_rule` reads: rule and parameters, and names and parents of all nodes, the root first.

        Raises:
            UserError: a rule of a user's file, which a product would have to run.
        """
        if self.rule.name not in known_rules():
            raise UserError(f"rule {self.rule.name} is your own, and cannot be written into a file")
        nodes = nodes_on(self.tree, torch.device("cpu"))
        return {
            "schema": SCHEMA,
            "rule": self.rule.name,
            "parameters": dict(self.parameters),
            "temperature": self.temperature,
            "scores": self.kind,
            "distance": self.tree.distance,
            "names": node_names(self.tree),
            "parents": nodes.parent.tolist(),
            "classes": self.tree.num_classes,
        }

    def write(self, path: str | Path) -> None:
        """Write the rule as JSON."""
        from hierbench.utils.files import write_text

        write_text(Path(path), json.dumps(self.content(), ensure_ascii=False, allow_nan=False) + "\n")


def node_names(tree: Hierarchy) -> list[str]:
    """Return the names of all nodes as `Nodes` numbers them, "root" first."""
    nodes = nodes_on(tree, torch.device("cpu"))
    names = [""] * nodes.num_nodes
    names[0] = "root"
    flat = [name for level in tree.level_names for name in level]
    for node, name in zip(nodes.levels.tolist(), flat, strict=True):
        names[node] = name
    return names


def _tree_of(names: list[str], parents: list[int], num_classes: int, distance: Distance) -> Hierarchy:
    """Return the tree whose nodes have these names and parents, numbered in the same way."""
    paths = dict[str, tuple[str, ...]]()
    for leaf in range(len(names) - num_classes, len(names)):
        upwards = [leaf]
        while parents[upwards[-1]] and len(upwards) <= MAX_DEPTH:
            upwards.append(parents[upwards[-1]])
        paths[names[leaf]] = tuple(names[node] for node in reversed(upwards))
    tree = Hierarchy.from_paths(paths, distance)
    if node_names(tree) != names:  # nodes of edges are in the order of their names alone
        edges = [(names[parent], name) for parent, name in zip(parents[1:], names[1:], strict=True)]
        tree = Hierarchy.from_edges(edges, list(paths), distance)
    if node_names(tree) != names:
        raise ValueError("its nodes are in another order than those of a tree")
    return tree


def load_rule(path: str | Path) -> DeployedRule:
    """Return the rule of a file that `hierbench report --rule` wrote.

    Raises:
        OSError: the file cannot be read.
        UserError: a ValueError: it is no rule.
    """
    where = Path(path).name
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise UserError(f"{where} is a rule of another version, {content['schema']!r}")
        tree = _tree_of(content["names"], content["parents"], content["classes"], content["distance"])
        if content["rule"] not in known_rules():  # never a path: a received file runs no code
            raise UserError(f"{where} has a rule that hierbench does not ship, {content['rule']!r}")
        rule = find_rule(content["rule"])
        parameters = rule.checked(content["parameters"])
        kind = content["scores"]
        temperature = float(content["temperature"])
    except UserError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{where} is no rule of hierbench report: {' '.join(str(error).split())[:200]}") from None
    if kind not in ("probabilities", "logits", "votes") or not temperature > 0:
        raise UserError(f"{where} is no rule of hierbench report: scores {kind!r}, temperature {temperature}")
    return DeployedRule(rule, parameters, temperature, kind, tree)
