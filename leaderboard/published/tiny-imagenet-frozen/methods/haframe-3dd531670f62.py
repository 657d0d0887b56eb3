"""HAFrame: a fixed classifier whose cosines follow the hierarchy, and features that align with it."""

from typing import Any, Literal

import numpy as np
import scipy.linalg
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from hierbench import Hierarchy, Method, hyperparameter

Mode = Literal["paper", "authors", "exact"]
Matrix = NDArray[np.float64]
BLOCK = 64  # columns drawn at a time


def _decay(distances: ArrayLike, gamma: float, d_max: float | None) -> tuple[Matrix, Matrix, Matrix]:
    """Return E = exp(-gamma D / d_max), its lower Cholesky factor L and x = E^-1 1."""
    distances = np.asarray(distances)
    largest = distances.max()
    if len(distances) < 2 or not largest > 0 or not 0 < gamma < np.inf:
        raise ValueError(f"the frame needs at least two classes apart and a gamma > 0, got gamma = {gamma}")
    rate = -gamma / (largest if d_max is None else d_max)
    if distances.dtype.kind in "iu":  # a tree has few distinct distances: look the exponentials up
        decay = np.exp(np.arange(largest + 1) * rate)[distances]
    else:
        decay = np.exp(distances * rate)
    try:
        factor = scipy.linalg.cholesky(decay.T, lower=True, check_finite=False)  # symmetric; .T gives Fortran order
    except np.linalg.LinAlgError:
        raise ValueError(f"exp(-gamma D / d_max) is not positive definite for gamma = {gamma}") from None
    return decay, factor, scipy.linalg.cho_solve((factor, True), np.ones(len(decay)), check_finite=False)


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


def minimum_similarity(distances: ArrayLike, gamma: float, mode: Mode = "paper", d_max: float | None = None) -> float:
    """Return s_min, the smallest cosine of the mapping: S = (1 - s_min) E + s_min, E = exp(-gamma D / d_max).

    S is positive definite exactly for s_min > -1 / (q - 1) with q = 1^T E^-1 1, so one Cholesky factorisation
    replaces a search with an eigendecomposition per step.

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
    _, _, solved = _decay(distances, gamma, d_max)
    return _smallest_similarity(float(solved.sum()), len(solved), mode)


def rotate_at_random(root: Matrix, seed: int) -> Matrix:
    """Return root Q^T for a Haar-distributed orthogonal Q, in the memory of `root` where its layout allows.

    Q is the orthogonal factor of a Gaussian matrix whose R has a positive diagonal. It is a product of Householder
    reflections of independent Gaussian columns (Stewart, SIAM J. Numer. Anal. 17(3), 1980, section 3), so these are
    drawn directly, without a factorisation, and LAPACK applies them.

    Args:
        root: [M, K] float64; in Fortran order (as LAPACK's factors are) it is not copied.
        seed: of the Gaussian numbers.
    """
    size = root.shape[1]
    rng = np.random.default_rng(seed)
    columns = np.empty((size, size), order="F")  # LAPACK reads only the part below the diagonal
    sign, scales = np.empty(size), np.empty(size)
    for start in range(0, size, BLOCK):  # column i starts at row i; a block stays in the cache
        stop = min(start + BLOCK, size)
        rows = rng.standard_normal((stop - start, size - start))
        rows[:, : stop - start] = np.triu(rows[:, : stop - start])
        head = rows.diagonal().copy()
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        sign[start:stop] = np.where(head < 0, -1.0, 1.0)
        scales[start:stop] = 1.0 + np.abs(head) / norms
        rows /= (head + sign[start:stop] * norms)[:, None]  # LAPACK's form: the first entry, 1, is not stored
        columns[start:, start:stop] = rows.T
    scales[-1] = 0.0  # the last reflection is only a sign
    sign[:-1] *= -1.0  # reflection i maps its column to -sign times its norm; this makes R's diagonal positive
    root *= sign
    rotated, _, info = scipy.linalg.lapack.dormqr(
        "R", "T", columns, scales, root, lwork=64 * len(root), overwrite_c=True
    )
    assert info == 0, info
    return np.asarray(rotated)


def hierarchy_aware_frame(
    distances: ArrayLike, gamma: float, mode: Mode = "paper", seed: int = 0, d_max: float | None = None
) -> tuple[Matrix, Matrix]:
    """Solve W with W W^T = S and unit rows, rotated at random.

    With E = L L^T, u = L^-1 1, q = u^T u, t = s / (1 - s) and c = (sqrt(1 + t q) - 1) / q, the rows of
    sqrt(1 - s) (L + c 1 u^T) have Gram matrix S, so the factor used for s_min also gives the root. Only L is
    rotated, to M = L Q^T; u follows as Q u = M^T E^-1 1.

    Args:
        distances: [K, K] hierarchical distances.
        gamma: the mapping's decay, > 0.
        mode: see `minimum_similarity`.
        seed: of the rotation.
        d_max: see `minimum_similarity`.

    Returns:
        W [K, K] float64 with one class per row, and S [K, K] float64.

    Reference: Liang & Davis, ICCV 2023, equations 2 to 6.
    """
    similarity, factor, solved = _decay(distances, gamma, d_max)
    q = float(solved.sum())
    s_min = _smallest_similarity(q, len(factor), mode)
    stretch = (np.sqrt(max(0.0, 1.0 + s_min / (1.0 - s_min) * q)) - 1.0) / q
    frame = rotate_at_random(factor, seed)
    # SciPy's BLAS again: the threads of NumPy's own would compete for the same cores.
    frame += scipy.linalg.blas.dgemv(stretch, frame, solved, trans=1)
    frame *= np.sqrt(1.0 - s_min)
    similarity *= 1.0 - s_min
    similarity += s_min
    return frame, similarity


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
    similarity: Tensor
    params: Params

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        super().__init__(hierarchy, num_features, params)
        if num_features != hierarchy.num_classes:
            raise ValueError(f"haframe needs as many features as classes ({hierarchy.num_classes}), got {num_features}")
        seed = int(torch.randint(2**62, ()))  # from the global generator, which the run has seeded
        frame, similarity = hierarchy_aware_frame(
            hierarchy.distances, self.params.gamma, self.params.s_min, seed, hierarchy.height
        )
        dtype = torch.get_default_dtype()
        self.register_buffer("frame", torch.from_numpy(frame).to(dtype))
        self.register_buffer("similarity", torch.from_numpy(similarity).to(dtype))

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
        cosine_loss = F.mse_loss(cosines, self.similarity[targets], reduction="sum") / len(targets)
        return {
            "cross_entropy": (1.0 - self.params.alpha) * F.cross_entropy(logits, targets),
            "cosine": self.params.alpha * cosine_loss,
        }

    def scores(self, outputs: tuple[Tensor, Tensor]) -> Tensor:
        """Return the logits [B, K]; cosines would rank the same."""
        return outputs[0]
