"""What the processes that train one model share, so that their number changes nothing: norms and the method's batch.

Shapes: B batch of one process, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from hierbench.models.features import at_least_float32


class _SumOverRanks(torch.autograd.Function):
    """The sum of all ranks' tensors; each rank's tensor adds to the sum of every rank, and so do the gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        torch.distributed.all_reduce(total)
        return total


def _mean_over_ranks(tensor: Tensor) -> Tensor:
    total: Tensor = _SumOverRanks.apply(tensor)
    return total / torch.distributed.get_world_size()


class _GatherFromRanks(torch.autograd.Function):
    """The rows [B, ...] of all ranks, in their order; all ranks compute the same loss of them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        every = [torch.empty_like(rows) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(every, rows.contiguous())
        return torch.cat(every)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        # The mean over ranks, which DDP takes of every gradient, undoes the factor.
        num_ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
        return gradient.chunk(num_ranks)[rank] * num_ranks


def gather_rows(rows: Tensor) -> Tensor:
    """Return the rows [W B, D] of all W ranks, each with B."""
    gathered: Tensor = _GatherFromRanks.apply(rows)
    return gathered


class RankNorm(_BatchNorm):
    """Batch norm whose statistics are those of all ranks' examples together.

    PyTorch's SyncBatchNorm does the same, on accelerators alone; this one is for processes on a CPU. All ranks have
    the same number of examples.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected [B, C, ...], got {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        """Map [B, C, ...] to the same shape."""
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None and self.momentum is not None
        values = at_least_float32(input)
        axes = [axis for axis in range(input.ndim) if axis != 1]
        shape = [1, -1, *[1] * (input.ndim - 2)]
        # Twice through the data, because a difference of large sums would lose digits.
        mean = _mean_over_ranks(values.mean(axes))
        centred = values - mean.view(shape)
        variance = _mean_over_ranks(centred.square().mean(axes))
        with torch.no_grad():
            count = torch.distributed.get_world_size() * input.numel() // input.shape[1]
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        scaled = centred * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            scaled = scaled * self.weight.view(shape) + self.bias.view(shape)
        out: Tensor = scaled.to(input.dtype)
        return out


def exclude_from_reduction(model: nn.Module, names: Sequence[str]) -> None:
    """Make DistributedDataParallel leave parameters alone that get no gradient; it would wait for theirs forever.

    `find_unused_parameters` looks for them in the outputs of the forward pass, at every step, and takes what only a
    method's loss uses for one of them.
    """
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, list(names))


def synchronise_norms(model: nn.Module, device: str) -> None:
    """Replace every batch norm by one over all ranks, under the same names and with the same weights."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
                setattr(module, name, _synchronised(child, device))


def _synchronised(norm: _BatchNorm, device: str) -> nn.Module:
    if device != "cpu":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(norm)
        return converted
    ours = RankNorm(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    ours.load_state_dict(norm.state_dict())
    return ours
