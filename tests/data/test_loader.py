"""Batches of images: the same resident, streamed, divided between devices and augmented in parts."""

import numpy as np
import pytest
import torch

from hierbench.data.augment import PadAndCrop, RandomResizedCrop
from hierbench.data.loader import Split
from tests.support.jobs import plan_job

CPU = torch.device("cpu")


@pytest.mark.parametrize("crop", [PadAndCrop(4, "reflect", flip=True), RandomResizedCrop(flip=True)])
def test_parts_of_a_batch_are_augmented_as_the_whole(small_shapes, crop):
    images, rows = torch.from_numpy(np.array(small_shapes.arrays("train")[0])), torch.randperm(240)[:64]
    torch.manual_seed(3)
    batch = crop(images, rows)
    for first, last in ((0, 20), (20, 64)):
        torch.manual_seed(3)
        assert torch.equal(crop(images, rows[first:last], 64, first), batch[first:last])


@pytest.mark.parametrize("name", ["train", "val"])
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_the_feed_gives_the_same_batches_resident_and_streamed_and_divided(small_shapes, name, num_ranks):
    spec, order = plan_job(small_shapes).spec, torch.randperm(240)

    def batches(rank, num_ranks, resident):
        split = Split(small_shapes, name, spec, CPU, rank, num_ranks, resident)
        torch.manual_seed(0)
        fed = split.train_batches(order.split(24)) if name == "train" else split.eval_batches()
        return [(images.clone(), labels.clone()) for images, labels in fed]

    undivided = batches(0, 1, True)
    parts = [[batches(rank, num_ranks, resident) for rank in range(num_ranks)] for resident in (True, False)]
    for resident_part, streamed_part in zip(*parts, strict=True):
        for (images, labels), (same, same_labels) in zip(resident_part, streamed_part, strict=True):
            assert torch.equal(images, same) and torch.equal(labels, same_labels)
    if name == "val":
        shares = [images for part in parts[0] for images, _ in part]
        assert torch.equal(torch.cat(shares), torch.cat([images for images, _ in undivided]))
        return
    for (images, labels), *shares in zip(undivided, *parts[0], strict=True):
        assert torch.equal(images, torch.cat([share for share, _ in shares]))
        # Labels of the whole batch, for the method sees it whole.
        assert all(torch.equal(labels, same_labels) for _, same_labels in shares)
