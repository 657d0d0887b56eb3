"""Sums of numbers that are given by their logarithms, and the shares of the summands, which are the gradients.

Shapes: B examples, N nodes with the root, I inner nodes, R rows that are added, S sums.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class ChildLogSums(torch.autograd.Function):
    """Log-sums [B, I] over the children of each inner node, of logs [B, N] and the parents [N] of the nodes."""

    @staticmethod
    def forward(ctx: Any, logs: Tensor, parent: Tensor, num_inner: int) -> Tensor:
        """Return the sums."""
        rows = logs.reshape(-1, len(parent)).t()[1:].clone(memory_format=torch.contiguous_format)
        ctx.parent = parent[1:]
        sums = rows.new_full((num_inner, rows.shape[1]), -torch.inf)
        add_log_sums(rows, ctx.parent, sums, None, rows)
        ctx.save_for_backward(rows)
        return sums.t().reshape(*logs.shape[:-1], num_inner).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the logs, by their shares."""
        (shares,) = ctx.saved_tensors
        grad = grads[0]
        width = 1 + len(shares)
        rows = grad.new_zeros(width, shares.shape[1])
        torch.mul(grad.reshape(shares.shape[1], -1).t().contiguous().index_select(0, ctx.parent), shares, out=rows[1:])
        return rows.t().reshape(*grad.shape[:-1], width), None, None


def add_log_sums(logs: Tensor, index: Tensor, sums: Tensor, node_shares: Tensor | None, shares: Tensor) -> None:
    """Add exp(logs) [R, B] by index [R] to exp(sums) [S, B], in logs; write the shares of old sums and of logs.

    Without `node_shares` the old sums are 0: log -inf.
    """
    # Shares come from differences to the largest, so that they keep their digits. `shares` may be `logs`.
    largest = sums.scatter_reduce(0, index[:, None].expand_as(logs), logs, "amax")
    largest.clamp_min_(torch.finfo(logs.dtype).min)  # -inf minus -inf would be NaN
    torch.sub(logs, largest.index_select(0, index), out=shares).exp_()
    if node_shares is None:
        total = torch.zeros_like(sums).index_add_(0, index, shares)
    else:
        torch.sub(sums, largest, out=node_shares).exp_()
        total = node_shares.index_add(0, index, shares)
    torch.add(largest, total.log(), out=sums)
    total.clamp_min_(1.0)  # it is at least 1, or 0 if all were -inf
    shares.div_(total.index_select(0, index))
    if node_shares is not None:
        node_shares.div_(total)
