"""The best class, and the others by their distance from it: a reference that needs no training with the tree."""

import torch
from torch import Tensor

from hierbench import PostHoc
from hierbench.hierarchy import distances_from


class Nearest(PostHoc):
    """Re-ranks by the tree alone: of the base's predictions nothing but the best class of each example is used."""

    name = "nearest"
    title = "nearest classes"
    source = "no publication: the order of all classes that follows from the best one and the tree"
    types = ("pooled", "type-I", "type-II")

    def rescore(self, probabilities: Tensor) -> Tensor:
        """Return minus the distance [N, K] from the best class, ties to the lower index, for probabilities [N, K]."""
        classes = torch.arange(probabilities.shape[1], device=probabilities.device)
        largest = probabilities.amax(dim=1, keepdim=True)
        best = torch.where(probabilities == largest, classes, len(classes)).amin(dim=1)
        return -distances_from(best, self.hierarchy).to(probabilities)
