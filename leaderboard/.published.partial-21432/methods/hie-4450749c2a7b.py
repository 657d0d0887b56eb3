"""HiE: a class's probability is multiplied by that of its parent, which a coarse network predicts."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hierbench import Hierarchy, PostHoc, hyperparameter
from hierbench.hierarchy import Nodes


class HierarchicalEnsemble(PostHoc):
    """Re-rank by p_c q_parent(c), normalised: p of the cross-entropy model, q of a network over the parents.

    The second base spreads a parent's probability over its classes; its sum over them is q. Self-marginalised, q comes
    from p itself and the second base has no effect. Shapes: N examples, K classes, P parents of classes.
    """

    name = "hie"
    title = "HiE"
    source = "Jain et al., Test-Time Amendment with a Coarse Classifier for Fine-Grained Classification, NeurIPS 2023"
    base = ("ce", "_coarse_ce")

    class Params(PostHoc.Params):
        """What q is.

        "network": the coarse network's probability of the parent. Self-marginalised forms: "sum", the sum of p over
        the parent's classes, its marginal probability; "mean", their mean, with products that are not normalised, as
        the published code has it.
        """

        parents: Literal["network", "sum", "mean"] = hyperparameter("network")

    params: Params

    def __init__(self, hierarchy: Hierarchy, params: Any = None) -> None:
        super().__init__(hierarchy, params)
        nodes = Nodes(hierarchy)
        _, self.parent, self.num_children = nodes.parent[nodes.num_inner :].unique(  # [K], [P]
            return_inverse=True, return_counts=True
        )
        # [P, most children], K where there are fewer; column by column, every device adds up in one order.
        classes = self.parent.argsort(stable=True).split(self.num_children.tolist())
        self.children = nn.utils.rnn.pad_sequence(list(classes), batch_first=True, padding_value=len(self.parent))

    def rescore(self, fine: Tensor, coarse: Tensor) -> Tensor:
        """Return [N, K] for the probabilities [N, K] of the cross-entropy model and of the coarse network."""
        parent = self.parent = self.parent.to(fine.device)  # kept there for the next chunk
        children = self.children = self.children.to(fine.device)
        summands = F.pad(coarse if self.params.parents == "network" else fine, (0, 1))
        parent_probabilities = torch.zeros_like(fine[:, : len(children)])
        for column in children.unbind(1):
            parent_probabilities += summands.index_select(1, column)
        if self.params.parents == "mean":
            parent_probabilities = parent_probabilities / self.num_children.to(parent_probabilities)
        products: Tensor = fine * parent_probabilities.index_select(1, parent)
        if self.params.parents == "mean":
            return products
        return products / products.sum(dim=1, keepdim=True).clamp_min(torch.finfo(products.dtype).tiny)
