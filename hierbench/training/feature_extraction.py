"""Extraction: a frozen backbone is run once per image and view, and its pooled features are cached.

Shapes: B block, N examples, V views, C channels, images [B, 3, H, W].
"""

import errno
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hierbench.config.sections import Model
from hierbench.data.augment import make_crop, normalise
from hierbench.data.feature_cache import (
    BACKBONE_SEED,
    CACHE_FILE,
    CacheRequest,
    Features,
    check_features,
    find_features,
)
from hierbench.data.loader import resize_to
from hierbench.data.prepare import locked_folder
from hierbench.data.prepared import Prepared
from hierbench.data.writer import RowFile, rows_file
from hierbench.models.backbones import Backbone
from hierbench.models.libraries.lookup import cached_backbone
from hierbench.models.weights import loaded_backbone
from hierbench.training.memory import is_out_of_memory
from hierbench.training.results import environment_of_features
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest, refuse_links, remove_made, sync_folder, write_json
from hierbench.utils.processes import num_cores

IMAGES_PER_BLOCK = 64  # rows at a time; part of how features are rounded
# Pixels that a core computes at a time, 4 images of 224x224: they stay in its cache, which is 2.6 times as fast as a
# block at once; part of how features are rounded.
AREA_PER_CORE = 4 * 224 * 224
MOST_AT_ONCE = 8  # blocks of images of 224x224, and fewer of larger ones: bounds the memory
BLOCK_AREA = 224 * 224
PER_THREAD = 100  # blocks in line: bounds the memory of the results, and how long threads wait for each other
FLUSH_SECONDS = 5.0  # between two flushes, which a kill can cost
OnRows = Callable[[int, int], None]  # rows that are done, rows in all


def obtain_features(
    request: CacheRequest, weights: Path | None, device: str, on_rows: OnRows = lambda done, total: None
) -> Features:
    """Return features from their cache, which is made if missing; one process extracts, others wait.

    A killed attempt is resumed by the next one.

    Args:
        request: which features.
        weights: the file with the digest of `request`.
        device: where the backbone runs: "cpu", "cuda" or "mps". Features are float32 on all of them.
        on_rows: called with the number of vectors that are done.

    Raises:
        UserError: the cache is damaged, cannot be written or does not fit on the disk, a feature is not finite, or a
            block does not fit in memory.
    """
    features = find_features(request)
    if features is None:
        target = request.folder
        partial = refuse_links(target.parent, f".{target.name}.partial")
        try:
            with locked_folder(partial):
                features = find_features(request)  # another process may have been waited for
                if features is None:
                    _extract(request, weights, device, partial, on_rows)
                    if device == "cuda":  # jobs that share the GPU need the memory of the backbone
                        torch.cuda.empty_cache()
                    partial.rename(target)
                    sync_folder(target.parent)
        except OSError as error:
            why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or error
            raise UserError(
                f"features cannot be cached in {target.parent}: {why}; extracted features are kept"
            ) from None
        features = find_features(request)
        if features is None:
            raise UserError(f"{target} has been removed by another program; run the command again")
    check_features(features)
    return features


def frozen_backbone(model: Model, weights: Path | None) -> Backbone:
    """Return the backbone in evaluation mode; without weights it is drawn from one seed, for all jobs alike."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(BACKBONE_SEED)
        return loaded_backbone(model, weights).eval().to(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Block:
    """Rows `first` to `last`, without it, of one view of a split."""

    split: str
    view: int
    first: int
    last: int


class Extractor:
    """Computes the pooled features of blocks, in several threads at once."""

    def __init__(self, request: CacheRequest, backbone: Backbone, device: torch.device) -> None:
        self.wanted = request
        self.backbone = backbone.to(device)
        self.device = device
        self.drawing = threading.Lock()  # random numbers come from the global generator
        self.images = {split: request.prepared.arrays(split)[0] for split in request.prepared.splits}
        self.crop = make_crop(request.augment)
        self.mean, self.std = (
            torch.tensor(values, device=device) for values in (request.augment.mean, request.augment.std)
        )

    def __call__(self, block: Block) -> Tensor:
        """Return the features [B, C] float32 of a block, on the CPU."""
        with torch.inference_mode():
            images = normalise(self.make_view(block).to(self.device), self.mean, self.std)
            images = resize_to(images, self.wanted.model.input_size)
            on_cpu = self.device.type == "cpu"
            part = max(1, AREA_PER_CORE // (images.shape[2] * images.shape[3])) if on_cpu else len(images)
            return torch.cat([pool(self.backbone(few), self.wanted.pool) for few in images.split(part)]).cpu()

    def make_view(self, block: Block) -> Tensor:
        """Return the images [B, 3, H, W] of a view, 0 to 255: themselves, mirrored, or cropped at random.

        Crops are drawn on the CPU, from a seed of their view and rows, so that they are the same on every device and
        after every kill.
        """
        images = torch.from_numpy(np.array(self.images[block.split][block.first : block.last]))
        if self.wanted.views(block.split) <= 2:
            return images.flip(3) if block.view else images
        seed = np.random.SeedSequence([BACKBONE_SEED, block.view, block.first]).generate_state(1, np.uint64)[0] >> 1
        with self.drawing, torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seed))
            return self.crop(images, torch.arange(len(images)))


def pool(feature_map: Tensor, kind: str) -> Tensor:
    """Pool [B, C, h, w] to [B, C]."""
    return feature_map.amax(dim=(2, 3)) if kind == "max" else feature_map.mean(dim=(2, 3))


def plan_blocks(request: CacheRequest) -> Iterator[Block]:
    """Yield all blocks; those of evaluation first, as a broken image or backbone shows there as well."""
    for split in reversed(request.prepared.splits):
        num = request.prepared.size(split)
        for view in range(request.views(split)):
            for first in range(0, num, IMAGES_PER_BLOCK):
                yield Block(split, view, first, min(first + IMAGES_PER_BLOCK, num))


def _extract(request: CacheRequest, weights: Path | None, device: str, partial: Path, on_rows: OnRows) -> None:
    """Fill a folder with a complete cache, or go on where a killed attempt left it."""
    prepared = request.prepared
    start = time.monotonic()
    channels = cached_backbone(request.model).num_channels
    total = request.num_rows()
    needed = total * channels * np.dtype(np.float32).itemsize
    needed -= sum(path.stat().st_blocks * 512 for path in partial.glob("*-rows.npy"))
    free = shutil.disk_usage(partial).free
    if free < needed:
        mib = 1 << 20
        raise UserError(f"features need {needed / mib:.1f} MiB in {partial.parent}, {free / mib:.1f} MiB are free")
    extractor = Extractor(request, frozen_backbone(request.model, weights), torch.device(device))
    with ExitStack() as stack:
        files: dict[str, RowFile] = {}
        for split in prepared.splits:
            views = request.views(split)
            files[split] = RowFile(partial, split, views * prepared.size(split), (channels,), np.float32, views)
            stack.callback(files[split].file.close)
        missing = [b for b in plan_blocks(request) if not files[b.split].done[_rows(b, prepared)].all()]
        done = sum(int(file.done.sum()) for file in files.values())
        on_rows(done, total)
        flushed = time.monotonic()
        try:
            for block, features in _compute_blocks(extractor, missing):
                if not features.isfinite().all():
                    raise UserError(
                        f"{request.model.backbone} gives values that are not finite on images of {block.split}"
                    )
                rows = _rows(block, prepared)
                files[block.split].write_rows(rows.start, features.numpy())
                files[block.split].done[rows] = True
                done += len(features)
                on_rows(done, total)
                if time.monotonic() - flushed > FLUSH_SECONDS:
                    _flush(files)
                    flushed = time.monotonic()
            assert all(file.done.all() for file in files.values())
            _flush(files)
        except BaseException as error:
            if isinstance(error, UserError):  # trying again would not help
                remove_made(partial, CACHE_FILE, keep=True)
                raise
            with suppress(OSError):
                _flush(files)  # also the features of an interrupted attempt
            if is_out_of_memory(error):
                images = f"{IMAGES_PER_BLOCK} images of {'x'.join(map(str, _image_size(request)))} at a time"
                raise UserError(
                    f"{request.model.backbone} needs more memory than there is for {images}; set a smaller "
                    "model.input_size, or let fewer processes use the memory; extracted features are kept"
                ) from None
            raise
    _complete(request, channels, time.monotonic() - start, environment_of_features(extractor.device), partial)


def _rows(block: Block, prepared: Prepared) -> slice:
    """Return where a block lies among the rows of all views."""
    before = block.view * prepared.size(block.split)
    return slice(before + block.first, before + block.last)


def _compute_blocks(extractor: Extractor, blocks: list[Block]) -> Iterator[tuple[Block, Tensor]]:
    """Yield blocks with their features, computed in several threads."""
    # Blocks with a thread each are faster on a CPU than one with several, and give the same numbers on any cores.
    at_once = blocks_at_once(extractor.device.type, _image_size(extractor.wanted))
    cropping = num_cores()  # threads, all that the CPU does where the backbone runs on another device
    with one_thread_each(1 if extractor.device.type == "cpu" else cropping), ThreadPoolExecutor(at_once) as threads:
        try:
            for first in range(0, len(blocks), PER_THREAD * at_once):
                part = blocks[first : first + PER_THREAD * at_once]
                yield from zip(part, threads.map(extractor, part), strict=True)
        finally:
            threads.shutdown(cancel_futures=True)


def blocks_at_once(device: str, size: tuple[int, int]) -> int:
    """Return how many blocks of images of `size` (H, W) are computed at once on this machine."""
    if device != "cpu":  # one is read, cropped and copied while the device computes another
        return 2
    return max(1, min(num_cores(), MOST_AT_ONCE, MOST_AT_ONCE * BLOCK_AREA // (size[0] * size[1])))


def _image_size(request: CacheRequest) -> tuple[int, int]:
    height, width = request.model.input_size or request.prepared.meta["image_size"]
    return height, width


@contextmanager
def one_thread_each(num: int = 1) -> Iterator[None]:
    """Let PyTorch use one thread, or the given number, in each thread of Python; in full float32 on CUDA as well."""
    before = torch.get_num_threads()
    torch.set_num_threads(num)
    try:
        with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False, benchmark=False):
            yield
    finally:
        torch.set_num_threads(before)


def _flush(files: dict[str, RowFile]) -> None:
    for file in files.values():
        file.flush()


def _complete(request: CacheRequest, channels: int, seconds: float, environment: dict[str, Any], partial: Path) -> None:
    """Give the files their names and write meta.json last; seconds and environment are those of the last attempt."""
    meta: dict[str, Any] = {"schema": 1, "content": request.content(), "dataset": request.prepared.folder.name}
    meta |= {"channels": channels, "seconds": seconds, "environment": environment, "files": {}}
    for split in request.prepared.splits:
        path = partial / f"{split}-features.npy"
        rows_file(partial, split).replace(path)
        meta["files"][split] = {"bytes": path.stat().st_size, "sha256": file_digest(path)}
    for split in request.prepared.splits:
        (partial / f"{split}-done").unlink(missing_ok=True)
    write_json(partial / "meta.json", meta)
