"""HAFrame, and fixed classifiers: its frame, whose cosines follow the hierarchy, and the simplex of a fixed ETF.

Shapes: B batch, K classes, D features.
"""

import math
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, DTypeLike, NDArray
from torch import Tensor, nn

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import distances_from
from hierbench.hierarchy.roots import DenseRoot, Merge, TreeRoot, merges_of, merges_of_tree
from hierbench.losses.node_targets import TargetsAre, check_batch, refuse_nodes

Mode = Literal["paper", "authors", "exact"]
Array = NDArray[Any]
Matrix = NDArray[np.float64]
REFLECTIONS_PER_BLOCK = 96  # reflections or rows at a time


def _rate(largest: float, gamma: float, d_max: float | None = None) -> float:
    """Return the factor of the exponent, -gamma / d_max, for the largest distance of two classes."""
    if not largest > 0 or not 0 < gamma < np.inf:
        raise ValueError(f"the frame needs at least two classes apart and a gamma > 0, got gamma = {gamma}")
    return -gamma / float(largest if d_max is None else d_max)


def _root_of_tree(merges: list[Merge], rate: float) -> TreeRoot:
    """Return a root of E = exp(rate D) for the distances of a tree."""
    return TreeRoot(merges, np.exp(rate * np.array([0.0, *(merge.distance for merge in merges)])))


def _root_of_decay(distances: Array, gamma: float, d_max: float | None) -> TreeRoot | DenseRoot:
    """Return a root of E = exp(-gamma D / d_max)."""
    rate = _rate(distances.max(), gamma, d_max)
    merges = merges_of(distances)
    if merges:
        return _root_of_tree(merges, rate)
    try:
        return DenseRoot(np.exp(rate * distances))
    except np.linalg.LinAlgError:
        raise ValueError(f"exp(-gamma D / d_max) is not positive definite for gamma = {gamma}") from None


def _similarity(distances: Array, rate: float, s_min: float, dtype: DTypeLike = np.float64) -> Array:
    """Return S = (1 - s_min) exp(rate D) + s_min in the shape of D."""
    if distances.dtype.kind not in "iu" or distances.min() < 0:
        return ((1.0 - s_min) * np.exp(rate * distances) + s_min).astype(dtype, copy=False)
    table = ((1.0 - s_min) * np.exp(rate * np.arange(distances.max() + 1.0)) + s_min).astype(dtype)
    similarity = np.empty(distances.shape, dtype=dtype)
    for start in range(0, len(distances), REFLECTIONS_PER_BLOCK):  # NumPy converts the indices to eight bytes each
        part = slice(start, start + REFLECTIONS_PER_BLOCK)
        np.take(table, distances[part], out=similarity[part], mode="clip")
    return similarity


def _smallest_similarity(q: float, num_classes: int, mode: Mode) -> float:
    infimum = -1.0 / (q - 1.0)
    if mode == "exact":
        return infimum
    if mode == "paper":
        grid = np.arange(-50, 51) / 50.0
    elif mode == "authors":
        grid = np.linspace(-1.0 / (num_classes - 1), -1.0, 100)[::-1]
    else:
        raise ValueError(f"mode must be paper, authors or exact, got {mode!r}")
    above = grid[grid > infimum]
    return float(above[0] if len(above) else grid[-1])  # the last value: only for a flat tree and a large gamma


def minimum_similarity_of_tree(hierarchy: Hierarchy, gamma: float, mode: Mode = "paper") -> float:
    """Return `minimum_similarity` of the distances of a tree, d_max being its height, without a matrix of them."""
    root = _root_of_tree(merges_of_tree(hierarchy), _rate(hierarchy.height, gamma))
    return _smallest_similarity(root.q, hierarchy.num_classes, mode)


def minimum_similarity(distances: ArrayLike, gamma: float, mode: Mode = "paper", d_max: float | None = None) -> float:
    """Return s_min, the smallest cosine of the mapping: S = (1 - s_min) E + s_min, E = exp(-gamma D / d_max).

    S is positive definite exactly for s_min > -1 / (q - 1) with q = 1^T E^-1 1, which for a tree takes O(K)
    operations once its nodes are found in D, else a Cholesky factorisation; the paper searches with an
    eigendecomposition per step.

    Args:
        distances: [K, K] hierarchical distances, zero on the diagonal.
        gamma: the mapping's decay, > 0.
        mode: "paper": smallest positive definite value on the grid -1, -0.98, ..., 1. "authors": on the grid of the
            authors' code, 100 values from -1 / (K - 1) to -1 (it treats eigenvalues below 1e-6 as zero, which moves
            the bound by less than one part in a million). "exact": the infimum itself, where S is singular.
        d_max: height of the hierarchy; by default the largest distance, which is less only if the root has one child.

    Raises:
        ValueError: E is not positive definite (impossible for distances from a tree), or an unknown mode.

    Reference: Liang & Davis, ICCV 2023, equation 2 and the text below it.
    """
    distances = np.asarray(distances)
    return _smallest_similarity(_root_of_decay(distances, gamma, d_max).q, len(distances), mode)


def random_rotation(size: int, seed: int, dtype: DTypeLike = np.float64) -> Array:
    """Return a Haar-distributed orthogonal matrix [size, size]: 4/3 size^3 operations in one matrix's memory.

    It is the orthogonal factor of a Gaussian matrix whose R has a positive diagonal. That is a product of Householder
    reflections of independent Gaussian columns and of signs (Stewart, SIAM J. Numer. Anal. 17(3), 1980, section 3), so
    these are drawn directly. From the last to the first, a reflection meets only the part that later ones filled. With
    their vectors as the rows of V, a block of them is I - V^T T^-1 V, T = triu(V V^T) with half the diagonal (Puglisi,
    SIAM J. Sci. Stat. Comput. 13(3), 1992).

    Args:
        size: K.
        seed: of the Gaussian numbers, which are float32 and do not depend on `dtype`; as PyTorch's generator computes
            them, kinds of processors agree on them to about 2e-6.
        dtype: float64 or float32, of all that is computed from them.
    """
    generator = torch.Generator().manual_seed(seed)
    rotation = np.zeros((size, size), dtype=dtype)
    for start in reversed(range(0, size, REFLECTIONS_PER_BLOCK)):
        rest = torch.from_numpy(rotation[start:, start:])
        num = min(REFLECTIONS_PER_BLOCK, len(rest))
        v = torch.randn(num, len(rest), generator=generator, dtype=torch.float32).to(rest.dtype)
        square = v[:, :num].triu_()
        heads = square.diagonal()
        signs = torch.ones_like(heads).copysign_(heads)
        heads += signs * torch.linalg.vector_norm(v, dim=1)
        heads.masked_fill_(heads == 0, 1.0)  # in the last reflection, of one number, which can be 0
        rest.diagonal()[:num] = -signs  # reflection i maps its column to -sign times its norm
        products = torch.empty_like(v)  # V rest, less the zeros
        torch.mul(square, -signs, out=products[:, :num])
        torch.mm(v[:, num:], rest[num:, num:], out=products[:, num:])
        t = (v @ v.T).triu_()
        t.diagonal().mul_(0.5)
        inverse = torch.linalg.solve_triangular(t, torch.eye(num, dtype=t.dtype), upper=True)
        rest.addmm_(v.T, inverse @ products, alpha=-1.0)
    return rotation


def _frame(
    root: TreeRoot | DenseRoot, num_classes: int, mode: Mode, seed: int, dtype: DTypeLike
) -> tuple[Array, float]:
    s_min = _smallest_similarity(root.q, num_classes, mode)
    frame = random_rotation(num_classes, seed, dtype)
    root.raised_to(s_min).apply_(frame)
    # Unit rows up to rounding, which the reflections add up.
    for part in torch.from_numpy(frame).split(REFLECTIONS_PER_BLOCK):
        part /= torch.linalg.vector_norm(part, dim=1, keepdim=True, dtype=torch.float64)
    return frame, s_min


def hierarchy_aware_frame(
    distances: ArrayLike,
    gamma: float,
    mode: Mode = "paper",
    seed: int = 0,
    d_max: float | None = None,
    dtype: DTypeLike = np.float64,
) -> tuple[Array, Array]:
    """Solve W with W W^T = S and unit rows, rotated at random.

    A root of S follows from the tree in O(K) numbers, so the cost is that of the rotation, 4/3 K^3 operations, and the
    memory that of W and S. For distances that are not of a tree the root is a Cholesky factor, at 7/3 K^3 more.

    Args:
        distances: [K, K] hierarchical distances.
        gamma: the mapping's decay, > 0.
        mode: see `minimum_similarity`.
        seed: of the rotation.
        d_max: see `minimum_similarity`.
        dtype: float64; or float32, with two thirds of the time, half the memory, and W W^T = S to a few 1e-7.

    Returns:
        W [K, K] with one class per row, and S [K, K].

    Raises:
        ValueError: see `minimum_similarity`.

    Reference: Liang & Davis, ICCV 2023, equations 2 to 6.
    """
    distances = np.asarray(distances)
    frame, s_min = _frame(_root_of_decay(distances, gamma, d_max), len(distances), mode, seed, dtype)
    return frame, _similarity(distances, _rate(distances.max(), gamma, d_max), s_min, dtype)


def frame_of_tree(tree: Hierarchy, gamma: float, mode: Mode, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the frame W [K, K] of a tree, one class per row, and the cosine S at each distance [height + 1]."""
    precision = np.float64 if dtype == torch.float64 else np.float32
    rate = _rate(tree.height, gamma)
    root = _root_of_tree(merges_of_tree(tree), rate)
    frame, s_min = _frame(root, tree.num_classes, mode, seed, precision)
    cosines = _similarity(np.arange(tree.height + 1), rate, s_min)
    return torch.from_numpy(frame).to(dtype), torch.from_numpy(cosines).to(dtype)


def frame_outputs(features: Tensor, frame: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits [B, K] and cosines [B, K] of features [B, K] with the rows of a frame."""
    logits = F.linear(features, frame)
    # Rounding changes the rows' lengths, which is visible when a float32 model is converted to float64.
    lengths = torch.linalg.vector_norm(frame, dim=1)
    norms = torch.linalg.vector_norm(features, dim=1, keepdim=True) * lengths
    return logits, logits / norms.clamp_min(torch.finfo(norms.dtype).tiny)


def frame_terms(
    outputs: tuple[Tensor, Tensor], targets: Tensor, tree: Hierarchy, cosines: Tensor, alpha: float
) -> dict[str, Tensor]:
    """Return the two weighted terms of HAFrame for logits and cosines [B, K], and targets [B].

    Args:
        outputs: of `frame_outputs`.
        targets: [B] classes.
        tree: over the K classes.
        cosines: [height + 1], S at each distance; rows of S are looked up, S is not stored.
        alpha: weighs the terms.

    Reference: Liang & Davis, ICCV 2023, equations 8 and 9.
    """
    logits, predicted = outputs
    target_cosines = cosines[distances_from(targets, tree)]
    cosine_loss = F.mse_loss(predicted, target_cosines, reduction="sum") / len(targets)
    return {"cross_entropy": (1.0 - alpha) * F.cross_entropy(logits, targets), "cosine": alpha * cosine_loss}


class Frame(nn.Module):
    """HAFrame's fixed classifier W [K, K], whose cosines follow the hierarchy.

    Args:
        tree: over the K classes.
        in_features: D; a linear layer without bias maps features of another width than K to it.
        gamma: decay of the cosines with the distance.
        s_min: how the smallest cosine is chosen, see `minimum_similarity`.
        seed: of the rotation of the frame; by default drawn from torch's generator.

    Reference: Liang & Davis, ICCV 2023, equations 2 to 6.
    """

    weight: Tensor
    cosines: Tensor

    def __init__(
        self, tree: Hierarchy, in_features: int, gamma: float = 3.0, *, s_min: Mode = "paper", seed: int | None = None
    ) -> None:
        super().__init__()
        num_classes = tree.num_classes
        self.in_features = in_features
        self.project = nn.Identity() if in_features == num_classes else nn.Linear(in_features, num_classes, bias=False)
        seed = int(torch.randint(2**62, ())) if seed is None else seed
        weight, cosines = frame_of_tree(tree, gamma, s_min, seed, torch.get_default_dtype())
        self.register_buffer("weight", weight)
        self.register_buffer("cosines", cosines)  # [height + 1], at each distance

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [B, K] for features [B, D]."""
        return F.linear(self.project(features), self.weight)

    def outputs(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and cosines, [B, K] each, for features [B, D]."""
        return frame_outputs(self.project(features), self.weight)


def haframe(
    features: Tensor,
    targets: Tensor,
    tree: Hierarchy,
    *,
    frame: Frame,
    alpha: float = 0.4,
    targets_are: TargetsAre = "classes",
) -> Tensor:
    """Return (1 - alpha) cross-entropy + alpha sum_i (cos(w_i, h) - S_iy)^2, averaged over the batch.

    Args:
        features: h [B, D].
        targets: [B] classes.
        tree: over the K classes.
        frame: the fixed classifier of the tree, whose logits are `frame(features)`.
        alpha: weighs the terms.
        targets_are: "classes".

    Reference: Liang & Davis, ICCV 2023, equations 8 and 9.
    """
    refuse_nodes("haframe", targets_are)
    check_batch("haframe", features, frame.in_features, targets)
    terms = frame_terms(frame.outputs(features), targets, tree, frame.cosines, alpha)
    return torch.stack(list(terms.values())).sum()


def random_simplex(num_classes: int, num_features: int) -> Tensor:
    """Return M [K, D] float64, D >= K - 1: unit rows, every cosine of two -1 / (K - 1), rotated at random.

    M = sqrt(K / (K - 1)) B Q^T, where B [K, K - 1] is an orthonormal basis of the vectors whose entries sum to zero
    (K - 1 columns of a Householder reflection) and Q [D, K - 1] has Haar-distributed orthonormal columns: the
    orthogonal factor of a Gaussian matrix whose R has a positive diagonal. The numbers come from torch's generator.

    Reference: Yang et al., NeurIPS 2022, whose M = sqrt(K / (K - 1)) U (I - 1 1^T / K) has the same distribution.
    """
    size = float(num_classes)
    q, r = torch.linalg.qr(torch.randn(num_features, num_classes - 1, dtype=torch.float64))
    columns: Tensor = (q * r.diagonal().sign()).T  # [K - 1, D]
    total = columns.sum(dim=0, keepdim=True)
    rows = torch.cat([-total / math.sqrt(size), columns - total / (size + math.sqrt(size))])
    return rows * math.sqrt(size / (size - 1.0))
