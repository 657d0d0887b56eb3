"""Batches of cached features, in place of images, for models with a frozen backbone.

Shapes: B batch, N examples, V views, C channels.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from hierbench.config.spec import Spec
from hierbench.data.features import Features, Wanted, find_features
from hierbench.data.loader import EVAL_BATCH, Split, evaluated_rows, streamed
from hierbench.data.prepared import Prepared
from hierbench.utils.errors import UserError


class FeatureSplit(Split):
    """One split of a dataset, fed as pooled features of PyTorch's default dtype; each step draws a view per image."""

    def __init__(
        self,
        prepared: Prepared,
        features: Features,
        name: str,
        spec: Spec,
        device: torch.device,
        rank: int = 0,
        num_ranks: int = 1,
        resident: bool | None = None,
    ) -> None:
        """Open "train", "val" or "test"; the arguments are those of `Split`, and the cache."""
        array, labels = features.array(name), prepared.arrays(name)[1]
        self.num_views, num, channels = array.shape
        self._hold(array.reshape(self.num_views * num, channels), labels, device, rank, num_ranks, resident)
        self.evaluated = torch.from_numpy(evaluated_rows(labels, name, spec))

    def train_batches(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features [b, C] of this rank's share of each batch, and labels [B] of all of it; see `Split`.

        The views are drawn for all batches at once, on the CPU, so that neither the device nor the number of ranks
        changes them.
        """
        order = torch.cat(list(batches))
        labels = self.labels[order.to(self.device)].split([len(batch) for batch in batches])
        if self.num_views > 1:
            order = order + len(self) * torch.randint(self.num_views, order.shape)
        parts = []
        for batch in order.split([len(batch) for batch in batches]):
            share = len(batch) // self.num_ranks
            parts.append(batch[self.rank * share : (self.rank + 1) * share])
        yield from zip(self._picked(parts), labels, strict=True)

    def eval_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features [b, C] of the first view and labels [b] of this rank's share of the evaluated examples."""
        share = -(-len(self.evaluated) // self.num_ranks)
        mine = self.evaluated[self.rank * share : (self.rank + 1) * share]
        batches = mine.split(EVAL_BATCH) if len(mine) else []
        for rows, features in zip(batches, self._picked(batches), strict=True):
            yield features, self.labels[rows.to(self.device)]

    def _picked(self, batches: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the features of each batch of rows of all views."""
        dtype = torch.get_default_dtype()
        if not batches:
            return
        if not self.resident:
            for features in streamed(self.images, batches, self.device):
                yield features.to(dtype)
            return
        for rows in torch.cat(list(batches)).to(self.device).split([len(batch) for batch in batches]):
            yield self.images.index_select(0, rows).to(dtype)


def open_split(
    prepared: Prepared, name: str, spec: Spec, device: torch.device, rank: int = 0, num_ranks: int = 1
) -> Split:
    """Return a split of what a job trains on: images, or cached features where its backbone is frozen.

    Raises:
        UserError: the features are not cached, or damaged.
    """
    if not spec.model.frozen:
        return Split(prepared, name, spec, device, rank, num_ranks)
    wanted = Wanted.by_spec(prepared, spec)
    features = find_features(wanted)
    if features is None:
        raise UserError(f"the features that {spec.label} trains on are not in {wanted.folder}; run the command again")
    return FeatureSplit(prepared, features, name, spec, device, rank, num_ranks)
