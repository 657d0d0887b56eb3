"""Photos: features of 18,000 photographs of CIFAR-100 that come with hierbench (`tests/tools/make_photos.py`)."""

from importlib import resources
from pathlib import Path

from hierbench.data.source import Source, SourceRequest, shipped_paths
from hierbench.data.user.vectors import class_names, read_vectors, vectors_source


def open_source(request: SourceRequest) -> Source:
    """Return the features; the request is for datasets that are read from files of the user's."""
    place = Path(str(resources.files("hierbench.benchmarks"))) / "features" / "photos.npz"
    arrays = read_vectors(place)
    leaves = shipped_paths("cifar100")
    return vectors_source(arrays, place, {name: leaves[name] for name in class_names(arrays, list(leaves), place)})
