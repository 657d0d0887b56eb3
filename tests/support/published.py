"""The published pipeline's networks, losses and loop, written plainly from docs/protocols.md; nothing of hierbench.

Modules are registered in the order of hierbench's, so that parameters can be copied one by one.
Shapes: B batch, D features, K classes, L levels.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import resnet50


class WideBlock(nn.Module):
    """The first block of each group changes the number of channels; group 1's alone does so on a normalised input."""

    def __init__(self, group, inputs, outputs, stride, momentum):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs, momentum=momentum)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs, momentum=momentum)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.widens, self.group = inputs != outputs, group
        if self.widens:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        normalised = F.leaky_relu(self.norm1(x), 0.1)  # in groups 2 and 3 the first block throws it away
        if not self.widens:
            start, kept = normalised, x
        else:
            start = normalised if self.group == 1 else x
            kept = self.shortcut(start)
        return kept + self.conv2(F.leaky_relu(self.norm2(self.conv1(start)), 0.1))


def wide_resnet(depth, width, momentum):
    layers, channels = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)], 16
    for group, outputs in enumerate((16 * width, 32 * width, 64 * width), 1):
        for block in range((depth - 4) // 6):
            layers.append(WideBlock(group, channels, outputs, 2 if block == 0 and group > 1 else 1, momentum))
            channels = outputs
    return nn.Sequential(*layers, nn.BatchNorm2d(channels, momentum=momentum), nn.LeakyReLU(0.1)), channels


def residual_network():
    return nn.Sequential(*list(resnet50(weights=None).children())[:-2]), 2048


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        half = [nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.PReLU(width)]
        other = [nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.PReLU(width)]
        self.path = nn.Sequential(*half, *other)

    def forward(self, x):
        return self.path(x) + x


class Network(nn.Module):
    """Backbone, feature extractor and linear heads, with their learning rates in `rates`."""

    def __init__(self, backbone, channels, kind, dataset, num_classes, heads, momentum):
        super().__init__()
        self.backbone, self.kind, self.dataset = backbone, kind, dataset
        if kind == "type-II":
            self.reduce = nn.Conv2d(channels, num_classes, 1, bias=False)
            norm = nn.BatchNorm1d(num_classes, momentum=momentum)
            self.transform = nn.Sequential(norm, Residual(num_classes), Residual(num_classes))
        elif dataset == "fgvc":
            self.transform = nn.Sequential(
                nn.BatchNorm1d(channels), nn.Linear(channels, 600), nn.BatchNorm1d(600), nn.ELU()
            )
        else:
            self.transform = nn.Sequential()
        self.heads = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in heads)

    def forward(self, x):
        x = self.backbone(x)
        if self.kind == "type-II":
            x = self.reduce(x).mean(dim=(2, 3))
        elif self.dataset == "fgvc":
            x = x.amax(dim=(2, 3))
        else:
            x = x.mean(dim=(2, 3))
        return self.transform(x)

    def rates(self):
        """Parameters with their initial learning rate."""
        slow = [*self.backbone.parameters()] + ([*self.reduce.parameters()] if self.kind == "type-II" else [])
        transform = 0.1 if self.dataset == "fgvc" else 0.01
        groups = [(slow, 0.01), ([*self.transform.parameters()], transform), ([*self.heads.parameters()], 0.1)]
        return [{"params": parameters, "lr": rate} for parameters, rate in groups if parameters]


def cross_entropy_loss(network, features, y):
    return F.cross_entropy(network.heads[0](features), y)


def flamingo_loss(network, features, y, level_targets, split):
    total, start = 0.0, 0
    for level, head in enumerate(network.heads):
        of_level, finer = features[:, start : start + split[level]], features[:, start + split[level] :]
        total = total + F.cross_entropy(head(torch.cat([of_level, finer.detach()], dim=1)), level_targets[y, level])
        start += split[level]
    return total


def divergence(log_mean, p):
    return F.kl_div(log_mean, p, reduction="none").sum(dim=1)


def hafeature_loss(network, features, y, level_targets, parents, order, dissimilar):
    """Cross-entropy of the finest level, JSD, weights and dissimilarity; `dissimilar` are levels, 1 = coarsest."""
    weights = [F.normalize(head.weight, dim=1) for head in network.heads]
    logits = [features @ w.T + head.bias for w, head in zip(weights, network.heads, strict=True)]
    probs = [F.softmax(values, dim=1) for values in logits]
    loss = F.cross_entropy(logits[-1], y)
    for level in range(len(weights) - 1):
        coarse, fine = probs[level], probs[level + 1]
        families = [torch.nonzero(parents[level] == node)[:, 0] for node in range(coarse.shape[1])]
        summed = torch.stack([fine[:, children].sum(dim=1) for children in families], dim=1)
        log_mean = (0.5 * (coarse + summed)).clamp(1e-7, 1).log()
        loss = loss + 0.5 * (divergence(log_mean, summed) + divergence(log_mean, coarse)).mean()
        sums = F.normalize(torch.stack([weights[level + 1][children].sum(dim=0) for children in families]), dim=1)
        loss = loss - F.cosine_similarity(weights[level], sums, dim=1).mean()
        if level + 1 not in dissimilar:
            continue
        targets = level_targets[y, level]
        pairs = [(a, b) for a, b in pairwise(order.tolist()) if targets[a] != targets[b]]
        if pairs:
            p, q = (coarse[list(side)] for side in zip(*pairs, strict=True))
            log_mean = (0.5 * (p + q)).clamp(1e-7, 1).log()
            for side in (p, q):
                loss = loss + 0.5 * F.relu(3.0 - divergence(log_mean, side)).mean()
    return loss


def haframe_loss(features, y, frame, similarity, alpha):
    cosines = F.cosine_similarity(features[:, None, :], frame[None, :, :], dim=2)
    cosine_loss = (cosines - similarity[y]).square().sum() / len(y)
    return (1.0 - alpha) * F.cross_entropy(features @ frame.T, y) + alpha * cosine_loss


def trajectory(network, batches, loss_of):
    """Train one epoch per batch; return the losses. `loss_of` maps features, targets and the epoch to the loss."""
    optimizer = torch.optim.SGD(network.rates(), momentum=0.9, weight_decay=5e-4)
    initial = [group["lr"] for group in optimizer.param_groups]
    losses = []
    network.train()
    for epoch, (images, targets) in enumerate(batches):
        for group, rate in zip(optimizer.param_groups, initial, strict=True):
            group["lr"] = rate * 0.5 * (1.0 + math.cos(math.pi * epoch / len(batches)))
        loss = loss_of(network(images), targets, epoch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
