"""HAFrame: a fixed classifier whose cosines follow the hierarchy, and features that align with it."""

from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, DTypeLike, NDArray
from torch import Tensor

from hierbench import Hierarchy, Method, hyperparameter
from hierbench.hierarchy import distances_from
from hierbench.hierarchy.roots import DenseRoot, Merge, TreeRoot, merges_of, merges_of_tree

Mode = Literal["paper", "authors", "exact"]
Array = NDArray[Any]
Matrix = NDArray[np.float64]
REFLECTIONS_PER_BLOCK = 96  # reflections or rows at a time


def _rate(distances: Array, gamma: float, d_max: float | None) -> float:
    """Return the factor of the exponent, -gamma / d_max."""
    largest = distances.max()
    if len(distances) < 2 or not largest > 0 or not 0 < gamma < np.inf:
        raise ValueError(f"the frame needs at least two classes apart and a gamma > 0, got gamma = {gamma}")
    return -gamma / float(largest if d_max is None else d_max)


def _root_of_tree(merges: list[Merge], rate: float) -> TreeRoot:
    """Return a root of E = exp(rate D) for the distances of a tree."""
    return TreeRoot(merges, np.exp(rate * np.array([0.0, *(merge.distance for merge in merges)])))


def _root_of_decay(distances: Array, gamma: float, d_max: float | None) -> TreeRoot | DenseRoot:
    """Return a root of E = exp(-gamma D / d_max)."""
    rate = _rate(distances, gamma, d_max)
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
    root = _root_of_tree(merges_of_tree(hierarchy), -gamma / hierarchy.height)
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
    for part in torch.from_numpy(frame).split(
        REFLECTIONS_PER_BLOCK
    ):  # unit rows up to rounding, which the reflections add up
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
    return frame, _similarity(distances, _rate(distances, gamma, d_max), s_min, dtype)


class HAFrame(Method):
    """Logits W h with a fixed frame W; loss (1 - alpha) cross-entropy + alpha sum_i (cos(w_i, h) - S_iy)^2."""

    name = "haframe"
    title = "HAFrame"
    source = "Liang & Davis, ICCV 2023, equations 2 to 9"
    types = ("type-II",)

    class Params(Method.Params):
        """alpha weighs the losses, gamma spaces the classes, s_min is how the smallest cosine is chosen."""

        alpha: float = hyperparameter(0.4, low=0.0, high=1.0, grid=(0.3, 0.4, 0.5, 0.6))
        gamma: float = hyperparameter(3.0, low=0.1, high=20.0, grid=(1.0, 2.0, 3.0, 4.0, 5.0))
        s_min: Mode = "paper"

    frame: Tensor
    cosines: Tensor  # [height + 1], S at each distance
    params: Params

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        if num_features != hierarchy.num_classes:
            raise ValueError(f"haframe needs as many features as classes ({hierarchy.num_classes}), got {num_features}")
        seed = int(torch.randint(2**62, ()))  # from the global generator, which the run has seeded
        dtype = torch.get_default_dtype()
        precision = np.float64 if dtype == torch.float64 else np.float32
        gamma = self.params.gamma
        height = hierarchy.height
        root = _root_of_tree(merges_of_tree(hierarchy), -gamma / height)
        frame, s_min = _frame(root, hierarchy.num_classes, self.params.s_min, seed, precision)
        self.register_buffer("frame", torch.from_numpy(frame).to(dtype))
        cosines = _similarity(np.arange(height + 1), -gamma / height, s_min)
        self.register_buffer("cosines", torch.from_numpy(cosines).to(dtype), persistent=False)

    def similarity(self, classes: Tensor) -> Tensor:
        """Return the rows [B, K] of S for classes [B]; they are looked up, S is not stored."""
        return self.cosines[distances_from(classes, self.hierarchy)]

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [B, K] and cosines [B, K] for features [B, K]."""
        logits = F.linear(features, self.frame)
        # Rounding changes the rows' lengths, which is visible when a float32 model is converted to float64.
        lengths = torch.linalg.vector_norm(self.frame, dim=1)
        norms = torch.linalg.vector_norm(features, dim=1, keepdim=True) * lengths
        return logits, logits / norms.clamp_min(torch.finfo(norms.dtype).tiny)

    def loss(self, outputs: tuple[Tensor, Tensor], targets: Tensor) -> dict[str, Tensor]:
        """Return the two weighted terms for targets [B] (equations 8 and 9)."""
        logits, cosines = outputs
        cosine_loss = F.mse_loss(cosines, self.similarity(targets), reduction="sum") / len(targets)
        return {
            "cross_entropy": (1.0 - self.params.alpha) * F.cross_entropy(logits, targets),
            "cosine": self.params.alpha * cosine_loss,
        }

    def scores(self, outputs: tuple[Tensor, Tensor]) -> Tensor:
        """Return the logits [B, K]; cosines would rank the same."""
        return outputs[0]
