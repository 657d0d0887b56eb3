"""The file of a run's predictions, predictions.npz.

Shapes: N examples of the test split, K classes, L levels.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.utils.arrays import load_arrays
from hierbench.utils.files import file_digest, write_atomically

LEVELS = "level_predictions"


def write_predictions(
    path: Path,
    scores: NDArray[np.floating[Any]],
    targets: NDArray[np.int64],
    level_predictions: NDArray[np.int64] | None = None,
) -> None:
    """Write scores [N, K], targets [N] and, of a method that makes them, level-wise predictions [N, L]."""
    arrays: dict[str, Any] = {"scores": scores, "targets": targets}
    if level_predictions is not None:
        arrays[LEVELS] = level_predictions
    write_atomically(path, lambda file: np.savez(file, **arrays))


def read_predictions(path: Path, recorded: str | None, *names: str) -> list[Any]:
    """Read arrays by name, None for one that may be absent, written "NAME?", and is.

    Raises:
        ValueError: the file is missing, corrupted, or has another SHA-256 than the recorded one, if there is one.
    """
    try:
        if recorded is not None and file_digest(path) != recorded:
            raise ValueError("its checksum differs")
        return load_arrays(path, *names)
    except (OSError, ValueError) as error:
        raise ValueError(f"predictions of run {path.parent.name[:12]} cannot be read: {error}") from error


def read_levels(path: Path, recorded: str | None) -> NDArray[np.int64] | None:
    """Read the level-wise predictions [N, L], None if there are none; errors are those of `read_predictions`."""
    levels, targets = read_predictions(path, recorded, f"{LEVELS}?", "targets")
    if levels is None:
        return None
    if levels.ndim != 2 or levels.dtype.kind not in "iu" or len(levels) != len(targets) or (levels < 0).any():
        run, found = path.parent.name[:12], f"{levels.shape} {levels.dtype}"
        raise ValueError(f"predictions of run {run} are damaged: the level-wise ones, {found}, are no indices of nodes")
    return np.asarray(levels, dtype=np.int64)
