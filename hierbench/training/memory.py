"""Too little memory on the device: dividing a batch, and finding how much of it would fit."""

import gc
from collections.abc import Sequence

import torch

from hierbench.data.feature_split import open_split
from hierbench.data.prepared import Prepared
from hierbench.runs.job import Job
from hierbench.training.fabric import make_fabric
from hierbench.training.step import Step, make_optimizer, new_classifier
from hierbench.utils.errors import UserError
from hierbench.utils.text import counted

# Messages of PyTorch's allocator on a CPU; of the driver, Triton and MPS; of cuBLAS and cuDNN.
NO_MEMORY = ("can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
SMALLEST = 2  # images: batch norm has no statistics of one


class OutOfMemoryError(RuntimeError):
    """A job does not fit on its device; the message names a size that would."""


def count_micro_batches(batch_size: int, micro_batch: int, num_ranks: int) -> int:
    """Return into how many parts a batch is divided.

    Args:
        batch_size: images of a step.
        micro_batch: most images at a time; 0 for all.
        num_ranks: devices that share the images of a part.

    Raises:
        UserError: the parts would differ between devices, or one would be left with a single image.
    """
    num, smallest = _divide(batch_size, micro_batch)
    if num_ranks > 1 and batch_size % (num * num_ranks):
        divided = f" in {num} parts" if num > 1 else ""
        raise UserError(f"a batch of {batch_size} images{divided} cannot be shared by {num_ranks} devices equally")
    if smallest // num_ranks < SMALLEST:
        num_left = max(smallest, 0) // num_ranks
        raise UserError(
            f"train.micro_batch = {micro_batch} leaves {counted(num_left, 'image')} of a batch of {batch_size} to "
            f"themselves; batch norm needs at least {SMALLEST}"
        )
    return num


def _divide(batch_size: int, micro_batch: int) -> tuple[int, int]:
    """Return the number of parts of a batch, and the images of the smallest."""
    num = -(-batch_size // micro_batch) if micro_batch else 1
    return num, batch_size - (num - 1) * -(-batch_size // num)  # as torch.chunk divides


def batch_shapes(batch_size: int, num_micro: int, num_ranks: int, size: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes [b, 3, H, W] of the parts of a batch that one device sees; the last may be smaller."""
    parts = torch.empty(batch_size).chunk(num_micro)
    return [(num, 3, *size) for num in dict.fromkeys(len(part) // num_ranks for part in parts)]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device, or this machine, has no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY)


def what_would_fit(job: Job, prepared: Prepared, device: str, gpus: Sequence[int] = (), num_ranks: int = 1) -> str:
    """Return the error for a job that ran out of memory, after finding by trial how many images at a time fit.

    Where `num_ranks` devices share a batch, one device is tried with its share.
    """
    spec = job.spec
    batch = min(spec.train.batch_size, prepared.size("train"))
    tried = min(spec.train.micro_batch or batch, batch)
    micro = tried
    while micro := _largest_part(batch, micro // 2, num_ranks):
        if _fits(job, prepared, device, gpus, micro // num_ranks):
            break
    if not micro:
        return f"the device has too little memory for {tried} images at a time, and for {SMALLEST} as well"
    return (
        f"the device has too little memory for {tried} images at a time; {micro} fit: --set train.micro_batch={micro} "
        f"(batch norm then takes its statistics from {micro} images, so it is another job with another result)"
    )


def _largest_part(batch: int, limit: int, num_ranks: int) -> int:
    """Return the largest size of a part, up to `limit`, that a batch can be divided into; 0 without one."""
    for size in range(limit, SMALLEST * num_ranks - 1, -1):
        num, smallest = _divide(batch, size)
        if batch % (num * num_ranks) == 0 or num_ranks == 1:
            if smallest // num_ranks >= SMALLEST:
                return size
    return 0


def _fits(job: Job, prepared: Prepared, device: str, gpus: Sequence[int], images_at_a_time: int) -> bool:
    """Whether two steps with this many images run; the second one needs memory for the momentum too."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    try:
        spec = job.spec
        fabric = make_fabric(device, spec.train.precision, gpus)
        model = new_classifier(job, prepared.hierarchy(spec.dataset.distance)).to(memory_format=torch.channels_last)
        wrapped, optimizer = fabric.setup(model, make_optimizer(model, spec.train))
        step = Step(model.method, wrapped, optimizer, fabric.backward)
        split = open_split(prepared, "train", spec, fabric.device)
        for part in split.train_batches([torch.arange(images_at_a_time)] * 2):
            step([part], images_at_a_time)
        if device == "cuda":
            torch.cuda.synchronize()
    except Exception as error:  # a method may raise anything; only this one kind is expected
        if not is_out_of_memory(error):
            raise
        return False
    return True
