"""Losses for anybody's training loop: functions of logits or features, targets and the tree.

`NAME(logits or features [B, .], targets [B], tree, **parameters)` returns a scalar to be minimised; methods call these
functions. With `targets_are="nodes"`, where a loss has the probabilities of nodes, a target is any node of the tree,
numbered as in `hierbench.hierarchy.Nodes`. Modules that give the logits are in `hierbench.heads`.
"""

from hierbench.losses.class_embeddings import barz_denzler
from hierbench.losses.class_losses import (
    cross_entropy,
    flamingo,
    hxe,
    multilevel_cross_entropy,
    soft_labels,
)
from hierbench.losses.correlations import cpcc, hypstructure
from hierbench.losses.frames import haframe
from hierbench.losses.level_couplings import hafeature
from hierbench.losses.node_losses import conditional_softmax, descendant_softmax, hace

__all__ = [
    "barz_denzler",
    "conditional_softmax",
    "cpcc",
    "cross_entropy",
    "descendant_softmax",
    "flamingo",
    "hace",
    "hafeature",
    "haframe",
    "hxe",
    "hypstructure",
    "multilevel_cross_entropy",
    "soft_labels",
]
