"""Batches of features, cached or given, in place of images, for models with a frozen backbone or without one.

Shapes: B batch, N examples, V views, C channels.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hierbench.config.spec import Spec
from hierbench.data.feature_cache import CacheRequest, Features, find_features
from hierbench.data.loader import Split, evaluated_rows
from hierbench.data.prepared import Prepared
from hierbench.utils.arrays import release
from hierbench.utils.errors import UserError

# A larger file is not kept in memory: its pages are given back each time that RELEASED_BYTES were gathered of it, for
# each row of which the system may map a megabyte.
MAX_RESIDENT_BYTES = 1 << 30
RELEASED_BYTES = 1 << 19
PIECE = 4096  # neighbouring rows that are read together where sampling is in blocks
PIECES_AT_A_TIME = 64  # whose rows are shuffled together


class Pieces:
    """The pieces of a mapped array [N, C] that were last asked for, in memory: those of two pools.

    Two pools may share a piece, where the last one of the array is short.
    """

    def __init__(self, mapped: NDArray[Any]) -> None:
        self.mapped = mapped
        self.most = 2 * (PIECES_AT_A_TIME + 1)
        self.buffer = torch.empty((self.most * PIECE, mapped.shape[1]), dtype=_dtype_of(mapped))
        self.slots = dict[int, int]()  # {piece: its place in the buffer}, the one last used at the end

    def rows(self, rows: Tensor) -> Tensor:
        """Return rows [B, C] of the array; whole pieces are read."""
        piece = rows // PIECE
        needed = piece.unique().tolist()
        self.slots |= {number: self.slots.pop(number) for number in needed if number in self.slots}
        for number in needed:
            if number not in self.slots:
                self._read(number)
        starts = torch.tensor([PIECE * self.slots[number] for number in piece.tolist()])
        return self.buffer.index_select(0, starts + rows % PIECE)

    def _read(self, number: int) -> None:
        slot = self.slots.pop(next(iter(self.slots))) if len(self.slots) == self.most else len(self.slots)
        self.slots[number] = slot
        values = np.array(self.mapped[number * PIECE : (number + 1) * PIECE])
        self.buffer[slot * PIECE : slot * PIECE + len(values)] = torch.from_numpy(values)
        release(self.mapped)


def _dtype_of(array: NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype=array.dtype)).dtype


class FeatureSplit(Split):
    """One split of a dataset, fed as pooled features of PyTorch's default dtype; each step draws a view per image."""

    scale: Tensor | None = None
    mapped: NDArray[Any] | None = None
    gathered = 0  # bytes since pages were released
    pieces: Pieces | None = None

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
        """Open "train", "val" or "test"; arguments as of `Split`, and the cache."""
        array = features.array(name)
        labels = prepared.arrays(name)[1]
        self.num_views, num, channels = array.shape
        self.mapped = array if array.nbytes > MAX_RESIDENT_BYTES else None
        self._hold(array.reshape(self.num_views * num, channels), labels, device, rank, num_ranks, resident)
        on_gpu = self.resident and device.type != "cpu"
        in_blocks = name == "train" and spec.train.sampling == "blocks"
        if in_blocks and self.mapped is not None and self.num_views == 1 and not on_gpu:
            self.pieces = Pieces(array[0])
        self.evaluated = torch.from_numpy(evaluated_rows(labels, name, spec))
        if features.scale is not None:
            self.scale = torch.tensor(features.scale, device=device)

    def _draw_images(self, batches: Sequence[Tensor]) -> Sequence[Tensor]:
        """Draw a view for each row, for all batches at once on the CPU: neither device nor ranks change them."""
        order = torch.cat(list(batches))
        if self.num_views > 1:
            order = order + len(self) * torch.randint(self.num_views, order.shape)
        return list(order.split([len(batch) for batch in batches]))

    def _gather(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        if self.pieces is None:
            yield from super()._gather(batches)
            return
        for rows in batches:
            yield self.pieces.rows(rows).to(self.device), torch.arange(len(rows), device=self.device)

    def _augment(self, images: Tensor, rows: Tensor, batch: int, first: int) -> Tensor:
        return self._load_unaugmented(images, rows)

    def _load_unaugmented(self, images: Tensor, rows: Tensor) -> Tensor:
        vectors = images.index_select(0, rows).to(torch.get_default_dtype())
        if self.mapped is not None and self.pieces is None:
            self.gathered += vectors.nbytes
            if self.gathered > RELEASED_BYTES:
                release(self.mapped)
                self.gathered = 0
        return vectors if self.scale is None else vectors * self.scale


def open_split(
    prepared: Prepared, name: str, spec: Spec, device: torch.device, rank: int = 0, num_ranks: int = 1
) -> Split:
    """Return a split of a job's images, or of cached features where its backbone is frozen.

    Raises:
        UserError: the features are not cached, or damaged.
    """
    if not spec.model.frozen:
        return Split(prepared, name, spec, device, rank, num_ranks)
    request = CacheRequest.by_spec(prepared, spec)
    features = find_features(request)
    if features is None:
        raise UserError(f"the features that {spec.label} trains on are not in {request.folder}; run the command again")
    return FeatureSplit(prepared, features, name, spec, device, rank, num_ranks)
