"""Writing a user's dataset as a recipe that runs as it is: sizes and levels found, mean and deviation measured."""

import json
import os
import shlex
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray

from hierbench.config.overrides import toml_text
from hierbench.config.recipe import parse_recipe, recipe_names
from hierbench.config.recipe_source import check_name
from hierbench.config.sections import Expected
from hierbench.data.duplicates import describe_duplicates, digest_of_pixels
from hierbench.data.image import UnreadableImageError
from hierbench.data.missing_images import MAX_NAMED_IMAGES, MAX_NAMES, unreadable_images
from hierbench.data.source import Source
from hierbench.data.user.listing import guess_splits
from hierbench.data.user.user_dataset import dataset_sizes, open_source
from hierbench.hierarchy.tree_options import DEFAULT_OPTIONS, TreeOptions
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_text
from hierbench.utils.processes import num_cores
from hierbench.utils.text import counted, one_line

Channels = NDArray[np.float64]
MEASURED = 2000  # training images, evenly chosen, that mean and deviation come from
IMAGES_AT_ONCE = 1024  # images that are handed to the threads at once
SMALL_BACKBONE = "wrn10-1-s4"  # from random weights: a table in minutes on two cores, without a download
SHUFFLED_NUMBERS = 1 << 29  # of the training features, a gibibyte in half precision: more are shuffled in blocks
SHARES = "{val = 0.1, test = 0.2, seed = 0}"


@dataclass(frozen=True)
class TemplateRequest:
    """The request of `hierbench data new`; paths are as the user gave them."""

    name: str
    images: str  # "" with features
    tree: str
    output: Path
    backbone: str = SMALL_BACKBONE
    resize: str = "stretch"
    size: tuple[int, int] | None = (64, 64)  # (H, W) of the stored images
    features: str = ""
    options: TreeOptions = DEFAULT_OPTIONS
    order: str = ""
    skip_broken: bool = False
    group: str = ""

    @property
    def frozen(self) -> bool:
        """Whether the backbone is a library's, which is used as it was published; or there are features."""
        return ":" in self.backbone or bool(self.features)

    @property
    def tree_keys(self) -> dict[str, str | bool]:
        """The options of the tree that are not the default."""
        return {key: value for key, value in vars(self.options).items() if value != getattr(DEFAULT_OPTIONS, key)}

    def command(self, name: str, backbone: str) -> str:
        """Return the command that writes the same dataset with another name and backbone."""
        parts = ["hierbench", "data", "new", name, "--images", self.images, "--tree", self.tree]
        parts += [part for key, value in self.tree_keys.items() for part in (f"--{key}", str(value)) if part != "True"]
        parts += ["--skip-broken"] * self.skip_broken + (["--group", self.group] if self.group else [])
        parts += ["--resize", self.resize] * (self.resize != "stretch") + ["--backbone", backbone]
        return one_line(shlex.join(parts))


def write_recipe(
    request: TemplateRequest, progress: Callable[[float], None], announce: Callable[[str], None]
) -> Expected:
    """Write the file of a user's dataset, and return its sizes.

    Args:
        request: the dataset to describe, and the file to write.
        progress: called with the share of the images that are read.
        announce: called with notes on the images.

    Raises:
        UserError: the file is there already; an image is unreadable; or images, tree and name do not fit, see
            `open_source`.
    """
    check_name(request.name, recipe_names(), "hierbench data new")
    if request.output.exists():
        raise UserError(f"{request.output} is there already; remove it, or give another name with --output")
    if not request.output.absolute().parent.is_dir():
        raise UserError(f"--output {request.output}: no such folder")
    if request.features:
        return _write_features(request, announce)
    splits = guess_splits(Path(request.images))
    section = {"images": request.images, "tree": request.tree, "resize": request.resize}
    section["splits"] = SHARES if splits is None else json.dumps(splits)
    text = _text(request, section, Expected(image_size=request.size), None)
    recipe = parse_recipe(tomllib.loads(text), str(request.output))
    source = open_source(recipe.model_copy(update={"source": recipe.user_source.below(Path().absolute())}))
    for line in [*source.messages, *source.remarks]:
        announce(line)
    measured, broken, digests = measure(source, progress)
    labels = source.labels
    if broken:
        names = [piece_name(source, piece) for piece in broken]
        if not request.skip_broken:
            raise BrokenImagesError(unreadable_images(list(broken.values()), MAX_NAMES), names)
        announce(f"{counted(len(broken), 'image')} that cannot be read left out: {', '.join(names[:MAX_NAMED_IMAGES])}")
        labels = {s: np.delete(rows, [row for split, row in broken if split == s]) for s, rows in labels.items()}
        if len(np.unique(labels["train"])) < len(source.paths):
            raise UserError("a class has no training image left without the images that cannot be read")
    for line in [*source.late_remarks(), *describe_duplicates(digests, source.labels, source.ids)]:
        announce(line)
    sizes = dataset_sizes(source.paths, labels, request.size)
    folder = request.output.absolute().parent
    written = section | {key: _relative(section[key], folder) for key in ("images", "tree")}
    write_text(request.output, _text(request, written, sizes, measured))
    return sizes


def _write_features(request: TemplateRequest, announce: Callable[[str], None]) -> Expected:
    """Write the file of a dataset of features, after reading them once: a value that is not finite is an error."""
    section = {"features": request.features, "tree": request.tree}
    folder = request.output.absolute().parent
    draft = replace(request, backbone="features-1")
    recipe = parse_recipe(tomllib.loads(_text(draft, section, Expected(), None)), str(request.output))
    section_above = recipe.user_source.below(Path().absolute()).model_copy(update={"labels_above": True})
    source = open_source(recipe.model_copy(update={"source": section_above}))
    for line in [*source.messages, *source.remarks]:
        announce(line)
    num_above = int((source.labels["train"] >= len(source.paths)).sum())
    if num_above:
        announce(f"{counted(num_above, 'training row', ('is', 'are'))} labelled above the classes: labels_above = true")
    for piece in source.pieces():
        piece.load()
    vectors = source.vectors
    sizes = dataset_sizes(source.paths, source.labels, None)
    if vectors is None:
        raise UserError(f"{request.features} has no features")
    written = {key: _relative(path, folder) for key, path in section.items()}
    written |= {"labels_above": "true"} if num_above else {}
    text = _text(replace(request, backbone=f"features-{vectors.num_channels}"), written, sizes, None, vectors.views)
    write_text(request.output, text)
    return sizes


class BrokenImagesError(UserError):
    """Images cannot be read; `names` are their files."""

    def __init__(self, message: str, names: list[str]) -> None:
        super().__init__(message)
        self.names = names


def piece_name(source: Source, piece: tuple[str, int]) -> str:
    """Return the file of an image, given its split and row."""
    return source.ids[piece[0]][piece[1]]


def measure(
    source: Source, progress: Callable[[float], None]
) -> tuple[tuple[list[float], list[float]], dict[tuple[str, int], str], dict[str, list[bytes]]]:
    """Read every image, and return what their pixels are like, why some cannot be read, and which are equal.

    Returns:
        Mean and standard deviation per channel, of values from 0 to 1, over up to MEASURED images; {(split, row):
        reason} of images that cannot be read; and digests [N] of each split, of those a number of their own.
    """
    pieces = list(source.pieces())
    train = np.flatnonzero([piece.split == "train" for piece in pieces])
    chosen = set(train[np.linspace(0, len(train) - 1, MEASURED).astype(int)].tolist())

    digests = {split: [b""] * len(rows) for split, rows in source.labels.items()}

    def sums(number: int) -> tuple[Channels, Channels] | str | None:
        piece = pieces[number]
        digests[piece.split][piece.start] = number.to_bytes(8)
        try:
            image = piece.load()[0]
        except UnreadableImageError as error:
            return str(error)
        digests[piece.split][piece.start] = digest_of_pixels(image)
        if number not in chosen:
            return None
        pixels: Channels = image.reshape(3, -1).astype(np.float64) / 255
        return pixels.mean(axis=1), (pixels**2).mean(axis=1)

    first: Channels = np.zeros(3)
    second: Channels = np.zeros(3)
    unreadable: dict[tuple[str, int], str] = {}
    num_measured = 0
    with ThreadPoolExecutor(num_cores()) as pool:
        for start in range(0, len(pieces), IMAGES_AT_ONCE):  # a million waiting calls would take a gigabyte
            numbers = range(start, min(start + IMAGES_AT_ONCE, len(pieces)))
            for number, partial_sums in zip(numbers, pool.map(sums, numbers), strict=True):
                if isinstance(partial_sums, str):
                    unreadable[pieces[number].split, pieces[number].start] = partial_sums
                elif partial_sums is not None:
                    first = first + partial_sums[0]
                    second = second + partial_sums[1]
                    num_measured += 1
                progress((number + 1) / len(pieces))
    average = first / max(1, num_measured)
    deviation = np.sqrt(np.maximum(second / max(1, num_measured) - average**2, 1e-6))
    rounded = [[round(float(value), 3) for value in values] for values in (average, deviation)]
    return (rounded[0], rounded[1]), unreadable, digests


def _width(backbone: str) -> int:
    """Return D of a backbone of given features, "features-D"; 0 of others."""
    kind, _, width = backbone.rpartition("-")
    return int(width) if kind == "features" else 0


def _relative(path: str, folder: Path) -> str:
    """Return a path as it is written into the file: absolute paths as given, others relative to its folder."""
    if not Path(path).exists() or (os.path.isabs(path) and not Path(path).is_relative_to(folder)):
        return path  # of a shipped tree, the name
    return os.path.relpath(os.path.abspath(path), folder)


def _text(
    request: TemplateRequest,
    section: dict[str, str],
    sizes: Expected,
    measured: tuple[list[float], list[float]] | None,
    views: int = 1,
) -> str:
    """Return the recipe: `recipe.toml.j2`, filled in."""
    num = max(1, sizes.train)
    source: dict[str, str] = {key: toml_text(section[key]) for key in ("images", "features", "tree") if key in section}
    source |= {key: toml_text(value) for key, value in request.tree_keys.items()}
    source |= {key: section[key] for key in ("labels_above",) if key in section}
    if request.order:
        source["order"] = toml_text(request.order)
    if request.group:
        source["group"] = f"{toml_text(request.group)}  # on one side of every split"
    if request.skip_broken:
        source["skip_broken"] = "true  # images that cannot be read"
    if "splits" in section:
        source |= {"splits": section["splits"], "resize": toml_text(request.resize)}
    if request.frozen:
        kind = "features" if request.features else "frozen"
        other_command = request.command(f"{request.name}-small", SMALL_BACKBONE)
        epochs = min(30, max(8, round(60_000 / num)))
    else:
        kind = "trained"
        other_command = request.command(f"{request.name}-frozen", "timm:tf_efficientnet_lite0")
        epochs = min(30, max(10, round(30_000 / num)))
    mean, deviation = measured or ([0.5] * 3, [0.5] * 3)
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters["toml"] = toml_text
    template = resources.files("hierbench.data.user").joinpath("recipe.toml.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        name=request.name,
        file_name=request.output.name,
        source=source,
        sizes=sizes,
        kind=kind,
        other_command=other_command,
        backbone=request.backbone,
        views=views,
        epochs=epochs,
        batch_size=64 if request.frozen else 32,
        rate=0.01 if request.frozen else 0.03,
        sampling="blocks" if num * views * _width(request.backbone) > SHUFFLED_NUMBERS else "natural",
        mean=mean,
        deviation=deviation,
    )
