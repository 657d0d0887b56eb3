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

from hierbench.models.classifier import Classifier
from hierbench.models.feature_extractors import at_least_float32


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

    PyTorch's SyncBatchNorm is for accelerators alone, and waits for the device in every norm.
    """

    def __init__(self, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        """Take over the parameters and buffers of a norm, and the activation of timm's `BatchNormAct2d`."""
        super().__init__(norm.num_features, norm.eps, norm.momentum, device=norm.weight.device)
        self.load_state_dict(norm.state_dict())
        self.train(norm.training)
        self.after = [module for name in ("drop", "act") if (module := getattr(norm, name, None)) is not None]

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected [B, C, ...], got {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        """Map [B, C, ...] to the same shape."""
        out = self._normalise(input) if self.training else super().forward(input)
        for module in self.after:
            out = module(out)
        return out

    def _normalise(self, input: Tensor) -> Tensor:
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


def synchronise_norms(model: Classifier) -> None:
    """Replace every batch norm before the method by one over all ranks with the same name and weights.

    The method sees the examples of all ranks as it is, so its norms would count them once per rank.
    """
    for module in [*model.backbone.modules(), *model.features.modules()]:
        for name, norm in list(module.named_children()):
            if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
                setattr(module, name, RankNorm(norm))
