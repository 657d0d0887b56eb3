"""Neural collapse in numbers: class means of features, angular collapse, and self-duality.

Shapes: B batch, N examples, K classes, D features.

Vectors collapse to one of two frames. On a simplex ETF all pairs of classes have the cosine -1 / (K - 1), and the
class means are taken relative to the mean of all features. On a hierarchy-aware frame the pairs have the cosines S of
the mapping, and the class means are taken as they are.

Reference: Liang & Davis, ICCV 2023, section "Neural Collapse on Hierarchy-Aware Frame", which carries quantities of
Papyan, Han & Donoho, PNAS 117(40), 2020, over from the ETF to the HAFrame.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Deviation = Literal["absolute", "raw"]
Form = Literal["norm", "square"]


class ClassMeans(NamedTuple):
    """Means of features.

    Attributes:
        means: [K, D] float64, h_k, one class per row.
        overall: [D] float64, h_G, the mean over all N features; with classes of unequal size not the mean of `means`.
    """

    means: Tensor
    overall: Tensor

    @property
    def centred(self) -> Tensor:
        """[K, D], h_k - h_G."""
        return self.means - self.overall


def class_means(batches: Iterable[tuple[Tensor, Tensor]], num_classes: int) -> ClassMeans:
    """Average features per class in one pass, in float64; memory depends on K, D and B, not on N.

    Args:
        batches: features [B, D] and their classes [B] int64, any number of them.
        num_classes: K.

    Returns:
        The means, on the features' device (on the CPU for one that has no float64).

    Raises:
        ValueError: some class has no example, so it has no mean.
    """
    sums: Tensor | None = None
    counts = torch.zeros(0)
    for features, targets in batches:
        if features.device.type == "mps":  # has no float64
            features = features.cpu()
            targets = targets.cpu()
        if sums is None:
            sums = features.new_zeros((num_classes, features.shape[1]), dtype=torch.float64)
            counts = torch.zeros(num_classes, dtype=torch.int64, device=features.device)
        sums.index_add_(0, targets, features.double())
        counts += torch.bincount(targets, minlength=num_classes)
    missing = num_classes if sums is None else int((counts == 0).sum())
    if sums is None or missing:
        raise ValueError(f"{missing} of {num_classes} classes have no example, so their features have no mean")
    return ClassMeans(sums / counts[:, None], sums.sum(dim=0) / counts.sum())


def etf_similarity(num_classes: int) -> float:
    """Return -1 / (K - 1), the cosine between any two of K vectors of a simplex ETF."""
    return -1.0 / (num_classes - 1)


def angular_collapse(vectors: Tensor, ideal: Tensor | float, deviation: Deviation = "absolute") -> tuple[float, float]:
    """Return mean and standard deviation, over the pairs i < j, of the cosines' distance from the ideal ones.

    mean = Avg |cos(x_i, x_j) - S_ij|, the same for either `deviation`; std = Std |cos(x_i, x_j) - S_ij| for
    "absolute", as in the text, and Std (cos(x_i, x_j) - S_ij) for "raw", as in the authors' code (docs/protocols.md,
    row 7). The standard deviation divides by the number of pairs, as these are all there are.

    Args:
        vectors: [K, D], K >= 2: class means (centred for an ETF, not centred for a HAFrame) or a classifier's rows.
        ideal: [K, K] S, or one cosine for all pairs.
        deviation: the quantity to take the standard deviation of.

    Returns:
        Both in units of a cosine, 0 at collapse; NaN where a vector is zero and has no angle.

    Reference: Liang & Davis, ICCV 2023, equations of the angular collapse's mean and standard deviation (10 and 11).
    """
    vectors = vectors.double()
    unit = vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    first, second = torch.triu_indices(len(unit), len(unit), offset=1, device=unit.device)
    difference = unit @ unit.T
    difference -= ideal.to(difference) if isinstance(ideal, Tensor) else ideal
    pairs = difference[first, second]
    spread = pairs.abs() if deviation == "absolute" else pairs
    return float(pairs.abs().mean()), float(spread.std(correction=0))


def self_duality(weights: Tensor, means: Tensor, form: Form = "norm") -> float:
    """Return || W / ||W||_F - H / ||H||_F ||_F: the distance of a classifier from the class means, up to scale.

    Args:
        weights: [K, D] W, the classifier's rows; of a classifier with a bias the bias does not count.
        means: [K, D] H. For an ETF give them centred: the text defines H by "class feature means" alone, but measures
            "following" Papyan et al., whose self-duality (NC3) subtracts the global mean, and takes class means
            centred for an ETF and not centred for a HAFrame in its angular collapse.
        form: "norm", as in the text, or its "square", as in the authors' code (docs/protocols.md, row 6).

    Returns:
        Between 0 (collapsed) and 2 (opposite); squared up to 4. NaN where either is all zero.

    Reference: Liang & Davis, ICCV 2023, equation of the self-duality (12).
    """
    weights = weights.double()
    means = means.double()
    distance = float(torch.linalg.matrix_norm(weights / weights.norm() - means / means.norm()))
    return distance if form == "norm" else distance**2
