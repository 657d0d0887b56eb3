"""Re-ranking itself, which needs nothing of training.

Shapes: N examples, K classes.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from hierbench.api.method import PostHoc
from hierbench.metrics import CHUNK


def rescored_chunks(
    posthoc: PostHoc, scores: Tensor | Sequence[Tensor], targets: Tensor, device: torch.device
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield rows, re-ranked scores and targets of one chunk after another, on the device.

    The softmax is taken in float64, so that classes tie only where the bases' scores do. The scores [N, K] of the base,
    or of each base, and the targets [N] may be anywhere; one chunk of them is on the device at a time.
    """
    each = [scores] if isinstance(scores, Tensor) else scores
    for start in range(0, len(targets), CHUNK):
        rows = slice(start, start + CHUNK)
        with torch.inference_mode():
            chunk = posthoc.rescore(*(of_base[rows].to(device).double().softmax(dim=1) for of_base in each))
        yield rows, chunk, targets[rows].to(device)
