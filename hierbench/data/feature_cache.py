"""Cached features of frozen backbones: their keys and their files.

A cache is a folder `<prepared dataset>/features/<key>/` with `<split>-features.npy` ([V, N, C] float32: V views of N
images, C channels; one view in validation and test) and `meta.json`. The folder gets its name when all is on the disk.
`hierbench.training.feature_extraction` makes it.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hierbench.config.sections import Augment, FeatureType, Model
from hierbench.config.spec import Spec, json_digest
from hierbench.data.prepared import Prepared, Progress, check_once
from hierbench.utils.arrays import map_array
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest, read_json_object, refuse_links

# Raise it when features are computed otherwise, and CODE_VERSION of specs where that is more than rounding. 2: a CPU
# computes a few images at a time.
FEATURES_VERSION = 2
BACKBONE_SEED = 0  # of a backbone that is drawn at random: one for all jobs, so that they share its features
CACHE_FILE = re.compile(r"meta\.json|checked\.json|(train|val|test)-((rows|features)\.npy|done)|\..*\.tmp")


@dataclass(frozen=True)
class CacheRequest:
    """Everything that features depend on; `key` names their cache.

    Attributes:
        prepared: the dataset.
        model: the recipe's section, of which only the keys of the backbone count.
        augment: the recipe's section: normalisation, and the crop for more than two views.
        weights: SHA-256 of the backbone's weights, None for random ones.
        pool: "max" for type I where the recipe pools so, else "average".
    """

    prepared: Prepared
    model: Model
    augment: Augment
    weights: str | None
    pool: Literal["average", "max"]

    @classmethod
    def by(
        cls, prepared: Prepared, model: Model, augment: Augment, weights: str | None, feature_type: FeatureType
    ) -> "CacheRequest":
        """Return the request for the features that jobs of a type train on."""
        return cls(prepared, model, augment, weights, model.type_i_pool if feature_type == "type-I" else "average")

    @classmethod
    def by_spec(cls, prepared: Prepared, spec: Spec) -> "CacheRequest":
        """Return the request for the features that a job trains on."""
        return cls.by(prepared, spec.model, spec.augment, spec.weights, spec.type)

    def content(self) -> dict[str, Any]:
        """Return it as JSON types."""
        model = self.model
        augment = self.augment
        crop = augment.model_dump(mode="json", exclude={"mean", "std"}) if model.views > 2 else None
        return {
            "version": FEATURES_VERSION,
            "dataset": self.prepared.digest,
            "backbone": model.backbone,
            "wrn_group_input": model.wrn_group_input,
            "tokens": model.tokens,
            "weights": self.weights or f"random, seed {BACKBONE_SEED}",
            "input_size": list(model.input_size or self.prepared.meta["image_size"]),
            "mean": augment.mean and list(augment.mean),
            "std": augment.std and list(augment.std),
            "pool": self.pool,
            "views": model.views,
            "crop": crop,
            "precision": "float32",
        }

    @property
    def key(self) -> str:
        """The name of the cache."""
        return json_digest(self.content())[:32]

    @property
    def folder(self) -> Path:
        """The cache's folder, which may not exist; for given features the dataset's folder."""
        if self.model.given_features:
            return self.prepared.folder
        return refuse_links(self.prepared.folder, "features", self.key)

    def views(self, split: str) -> int:
        """Return V of a split."""
        return self.model.views if split == "train" else 1

    def num_rows(self) -> int:
        """Return the number of vectors of all splits."""
        return sum(self.views(split) * self.prepared.size(split) for split in self.prepared.splits)


@dataclass(frozen=True)
class Features:
    """A complete cache."""

    folder: Path
    meta: dict[str, Any]

    @property
    def num_channels(self) -> int:
        """C."""
        return int(self.meta["channels"])

    @property
    def scale(self) -> list[float] | None:
        """[C], value = number x scale; None where the numbers are the values."""
        return self.meta.get("scale")

    def array(self, split: str) -> NDArray[Any]:
        """Return the memory-mapped features [V, N, C] of a split; cached features are float32."""
        return map_array(self.folder / f"{split}-features.npy")


def find_features(request: CacheRequest) -> Features | None:
    """Return a cache, or None if it does not exist; given features are the dataset's own.

    Raises:
        UserError: it is damaged; the sizes of its files are compared here, their contents by `check_features`.
    """
    folder = request.folder
    vectors = request.prepared.vectors
    if vectors is not None:
        return Features(folder, {"channels": vectors["num_channels"], "scale": vectors["scale"]})
    if not folder.exists():
        return None
    features = Features(folder, {})
    try:
        features = Features(folder, read_json_object(folder / "meta.json"))
        if features.meta["content"] != request.content():
            raise ValueError("meta.json belongs to other features")
        for split in request.prepared.splits:
            path = folder / f"{split}-features.npy"
            size = features.meta["files"][split]["bytes"]
            actual_size = path.stat().st_size
            if actual_size != size:
                raise ValueError(f"{path.name} has {actual_size:,} bytes instead of {size:,}")
            shape = (request.views(split), request.prepared.size(split), features.num_channels)
            array = features.array(split)
            if array.shape != shape or array.dtype != np.float32:
                raise ValueError(f"{path.name} holds {array.shape} {array.dtype} instead of {shape} float32")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise _damage_error(folder, error) from None
    return features


def check_features(features: Features, progress: Progress = lambda share: None) -> None:
    """Compare a cache with its digests, unless that was done for its files as they are now.

    Given features are checked with their dataset.

    Raises:
        UserError: its files were changed.
    """
    if "files" not in features.meta:
        return
    paths = {split: features.folder / f"{split}-features.npy" for split in features.meta["files"]}

    def compare() -> None:
        for done, (split, path) in enumerate(paths.items(), 1):
            if file_digest(path) != features.meta["files"][split]["sha256"]:
                raise _damage_error(features.folder, ValueError(f"{path.name} was changed"))
            progress(done / len(paths))

    check_once(features.folder, ["meta.json", *(path.name for path in paths.values())], compare)


def _damage_error(folder: Path, error: Exception) -> UserError:
    reason = f"{Path(error.filename).name} is missing" if isinstance(error, FileNotFoundError) else error
    return UserError(
        f"the cached features in {folder} are damaged ({reason}); remove the folder and run the command again"
    )
