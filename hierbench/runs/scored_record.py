"""The record of scored predictions, made from a digest of their content: scoring writes it, verification checks it.

Shapes: N examples, K classes, k ranked classes.
"""

from hashlib import sha256
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hierbench.config.scored_spec import Scored
from hierbench.config.spec import DatasetSpec
from hierbench.hierarchy.label_tree import IntArray

EXAMPLES_PER_CHUNK = 1024  # examples at a time, which bounds the memory
INDEX = np.dtype(np.int64)


def stored_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that scores are ranked and stored in: half precision is widened, integers become float64."""
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize <= 4 else np.dtype(np.float64)


def make_scored(
    name: str,
    dataset: DatasetSpec,
    scores: NDArray[Any] | None,
    classes: IntArray | None,
    targets: IntArray,
    stated_kind: Literal["probabilities", "logits", "votes"] | None = None,
) -> Scored:
    """Return the record of predictions that are in the order of a dataset.

    Args:
        name: of the row in a leaderboard.
        dataset: that they are of.
        scores: [N, K], or [N, k] of the ranked classes, or None.
        classes: [N, k] ranked classes, None where every class has a score.
        targets: [N].
        stated_kind: what the scores are, where the user says so and they look otherwise.
    """
    digest = sha256()
    scores_type = None if scores is None else stored_type(scores.dtype)
    for values, kind in ((classes, INDEX), (scores, scores_type), (targets, INDEX)):
        if values is not None and kind is not None:
            digest.update(f"{values.shape} {kind.str}".encode())
            for start in range(0, len(values), EXAMPLES_PER_CHUNK):
                digest.update(np.ascontiguousarray(values[start : start + EXAMPLES_PER_CHUNK], dtype=kind).data)
    top = None if classes is None else classes.shape[1]
    return Scored(name=name, dataset=dataset, top=top, scores=stated_kind, predictions=digest.hexdigest())
