"""Batches from prepared arrays to augmented, normalised images on the device.

Shapes: B batch, N examples, images [., 3, H, W].
"""

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hierbench.config.spec import Spec
from hierbench.data.augment import make_crop, normalise
from hierbench.data.prepared import Prepared
from hierbench.data.source import Labels

EVAL_BATCH = 256
RESIDENT_SHARE = 0.5  # of the device's free memory that a split's images may take


class Split:
    """One split of a dataset, fed to one device as images of PyTorch's default dtype.

    The images stay on the device where they fit. Otherwise they stay memory-mapped, and a thread copies the next batch
    through pinned memory while the device computes on the previous one. Nothing here waits for the device.
    """

    def __init__(
        self,
        prepared: Prepared,
        name: str,
        spec: Spec,
        device: torch.device,
        rank: int = 0,
        num_ranks: int = 1,
        resident: bool | None = None,
    ) -> None:
        """Open "train", "val" or "test" for one of `num_ranks` processes; each takes its share of every batch.

        `resident` says whether the images stay on the device; None decides by its free memory.
        """
        images, labels = prepared.arrays(name)
        self._hold(images, labels, device, rank, num_ranks, resident)
        self.evaluated = torch.from_numpy(evaluated_rows(labels, name, spec))
        self.crop = make_crop(spec.augment)
        self.mean = torch.tensor(spec.augment.mean, device=device)
        self.std = torch.tensor(spec.augment.std, device=device)
        self.input_size = spec.model.input_size

    def _hold(
        self,
        images: NDArray[Any],
        labels: Labels,
        device: torch.device,
        rank: int,
        num_ranks: int,
        resident: bool | None,
    ) -> None:
        """Keep images, or features in their place, [N, ...], and labels [N]."""
        with warnings.catch_warnings():  # read-only memory: nothing here writes to it
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            self.images = torch.from_numpy(images)
        self.device = device
        self.rank = rank
        self.num_ranks = num_ranks
        self.resident = _fits(self.images, device) if resident is None else resident
        if self.resident:
            self.images = self.images.to(device)
        self.labels = torch.from_numpy(labels).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def train_batches(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield augmented images [b, 3, H, W] of this rank's share of each batch, and labels [B] of all of it.

        Args:
            batches: rows [B] of each batch, on the CPU; B is a multiple of the number of ranks.
        """
        # Random numbers are drawn for the whole batch on every rank, so that the images do not depend on their number.
        shares = [len(batch) // self.num_ranks for batch in batches]
        drawn = zip(self._draw_images(batches), shares, strict=True)
        parts = [rows[self.rank * share : (self.rank + 1) * share] for rows, share in drawn]
        labels = self.labels[torch.cat(list(batches)).to(self.device)].split([len(batch) for batch in batches])
        for share, targets, (images, rows) in zip(shares, labels, self._gather(parts), strict=True):
            yield self._augment(images, rows, len(targets), self.rank * share), targets

    @property
    def share(self) -> Tensor:
        """The rows of this rank's share of the evaluated examples."""
        share = -(-len(self.evaluated) // self.num_ranks)
        return self.evaluated[self.rank * share : (self.rank + 1) * share]

    def eval_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images [b, 3, H, W] and labels [b] of this rank's share of the evaluated examples, in order."""
        batches = self.share.split(EVAL_BATCH) if len(self.share) else []
        labels = self.labels[self.share.to(self.device)].split(EVAL_BATCH) if len(self.share) else []
        for some, (images, rows) in zip(labels, self._gather(batches), strict=True):
            yield self._load_unaugmented(images, rows), some

    def _draw_images(self, batches: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the images that stand for the rows of each batch: here the rows themselves."""
        return batches

    def _augment(self, images: Tensor, rows: Tensor, batch: int, first: int) -> Tensor:
        return resize_to(normalise(self.crop(images, rows, batch, first), self.mean, self.std), self.input_size)

    def _load_unaugmented(self, images: Tensor, rows: Tensor) -> Tensor:
        return resize_to(normalise(images[rows], self.mean, self.std), self.input_size)

    def _gather(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield for each batch of rows: images on the device, and where among them the batch is."""
        if not batches:
            return
        if self.resident:
            rows_on_device = torch.cat(list(batches)).to(self.device)  # one copy
            for rows in rows_on_device.split([len(batch) for batch in batches]):
                yield self.images, rows
            return
        places = torch.arange(max(len(batch) for batch in batches), device=self.device)
        for batch, images in zip(batches, streamed(self.images, batches, self.device), strict=True):
            yield images, places[: len(batch)]


def resize_to(images: Tensor, size: tuple[int, int] | None) -> Tensor:
    """Return images [B, 3, H, W] of floats resized to `size` (H', W'), bilinearly, antialiased where they shrink.

    None and the size that they have return the images themselves.
    """
    if size is None or images.shape[2:] == size:
        return images
    shrinks = size[0] < images.shape[2] or size[1] < images.shape[3]
    return F.interpolate(images, size, mode="bilinear", antialias=shrinks)


def evaluated_rows(labels: Labels, name: str, spec: Spec) -> Labels:
    """Return the rows [M] of a split with labels [N] that are evaluated, in ascending order.

    With `evaluation.drop_last` the last incomplete batch of validation and test is left out, as in the published
    pipeline (docs/protocols.md, row 5); a split that is smaller than a batch is kept whole.
    """
    batch = EVAL_BATCH if name == "test" else spec.train.batch_size
    num_dropped = len(labels) % batch
    if name == "train" or not spec.evaluation.drop_last or num_dropped in (0, len(labels)):
        return np.arange(len(labels))
    if spec.evaluation.drop_order == "class":
        order = np.argsort(labels, kind="stable")
    elif name == "test":
        order = np.arange(len(labels))
    else:  # shuffled once per run
        order = np.random.default_rng(spec.seed).permutation(len(labels))
    return np.sort(order[:-num_dropped])


def _fits(images: Tensor, device: torch.device) -> bool:
    if device.type != "cuda":
        return device.type == "cpu"
    return images.nbytes < RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]


def streamed(images: Tensor, batches: Sequence[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Yield the uint8 images, or float32 features, of each batch of rows on the device, while the next is on its way.

    A batch may be overwritten once the one after the next is requested.
    """
    cuda = device.type == "cuda"
    side = torch.cuda.Stream(device) if cuda else None
    largest = max(len(batch) for batch in batches)
    buffers = [torch.empty((largest, *images.shape[1:]), dtype=images.dtype, pin_memory=cuda) for _ in range(2)]
    copied = [torch.cuda.Event() if cuda else None for _ in range(2)]

    def fetch(index: int) -> Tensor:
        event = copied[index % 2]
        buffer = buffers[index % 2][: len(batches[index])]
        if event is not None:
            event.synchronize()  # this thread alone waits, until the copy before last has left the buffer
        torch.index_select(images, 0, batches[index], out=buffer)
        if side is None or event is None:
            return buffer.to(device)
        with torch.cuda.stream(side):
            on_device = buffer.to(device, non_blocking=True)
            event.record(side)
        return on_device

    with ThreadPoolExecutor(1) as pool:
        following: Future[Tensor] = pool.submit(fetch, 0)
        for index in range(len(batches)):
            ready = following.result()
            if side is not None:  # the device waits for the copy, not the host
                torch.cuda.current_stream(device).wait_stream(side)
                ready.record_stream(torch.cuda.current_stream(device))
            if index + 1 < len(batches):
                following = pool.submit(fetch, index + 1)
            yield ready
