"""Batch norms and the method's batch over all ranks, so that their number does not change results.

Shapes: B batch of one rank, C channels, D features.
"""

from collections.abc import Sequence

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather, all_reduce
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from hierbench.models.features import at_least_float32


def _mean_over_ranks(tensor: Tensor) -> Tensor:
    total: Tensor = all_reduce(tensor)
    return total / torch.distributed.get_world_size()


def gather_rows(rows: Tensor) -> Tensor:
    """Return the rows [W B, D] of all W ranks, in their order.

    All ranks compute the same loss of them. Its gradients are summed over ranks on the way back, and the mean over
    ranks that DDP takes of every gradient cancels the factor W.
    """
    return torch.cat(all_gather(rows))


class RankNorm(_BatchNorm):
    """Batch norm over the examples of all ranks, which must have the same number.

    This one is for CPU processes; DistributedDataParallel accepts PyTorch's SyncBatchNorm only on accelerators.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected [B, C, ...], got {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        """Map [B, C, ...] to the same shape."""
        if not self.training:
            return super().forward(input)
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None and self.momentum is not None
        values = at_least_float32(input)
        axes = [axis for axis in range(input.ndim) if axis != 1]
        shape = [1, -1, *[1] * (input.ndim - 2)]
        # Two passes over the data, because a difference of large sums would lose precision.
        mean = _mean_over_ranks(values.mean(axes))
        centred = values - mean.view(shape)
        variance = _mean_over_ranks(centred.square().mean(axes))
        with torch.no_grad():
            count = torch.distributed.get_world_size() * input.numel() // input.shape[1]
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        scaled = centred * (variance + self.eps).rsqrt().view(shape)
        scaled = scaled * self.weight.view(shape) + self.bias.view(shape)
        out: Tensor = scaled.to(input.dtype)
        return out


def exclude_from_reduction(model: nn.Module, names: Sequence[str]) -> None:
    """Make DistributedDataParallel ignore parameters that get no gradient; it would wait for one forever.

    `find_unused_parameters` does not help: it searches the outputs of the forward pass, at every step, and mistakes
    parameters that only a method's loss uses for unused ones.
    """
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, list(names))


def synchronise_norms(model: nn.Module, device: str) -> None:
    """Replace every batch norm by one over all ranks with the same name and weights."""
    if device != "cpu":
        nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return
    for module in list(model.modules()):
        for name, norm in list(module.named_children()):
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                ours = RankNorm(norm.num_features, norm.eps, norm.momentum)
                ours.load_state_dict(norm.state_dict())
                setattr(module, name, ours)
