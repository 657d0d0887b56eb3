"""A user's dataset: from its recipe, images or features, and tree to a source; whether prepared data is current."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from hierbench.config.recipe import AnyRecipe, Recipe, recipe_names
from hierbench.config.sections import Expected
from hierbench.config.spec import json_digest
from hierbench.data.image import (
    LARGEST_IMAGE,
    Images,
    UnreadableImageError,
    center_crop,
    decode,
    decode_file,
    exif_orientation,
    turned,
)
from hierbench.data.prepared import Prepared
from hierbench.data.source import Piece, Source
from hierbench.data.user.division import Divided, divide, imbalance
from hierbench.data.user.listing import list_images
from hierbench.data.user.photographs import GoneError, Listing, Photograph
from hierbench.data.user.user_tree import check_classes, read_users_tree, tree_text
from hierbench.data.user.vectors import class_names, has_class_names, read_vectors, vectors_source
from hierbench.data.writer import ABOVE, SPLITS
from hierbench.hierarchy.class_names import NumberOrder, inner_numbers
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.node_paths import in_order_of_numbers
from hierbench.hierarchy.readers import Paths
from hierbench.hierarchy.tree_options import DEFAULT_OPTIONS
from hierbench.utils.errors import UserError
from hierbench.utils.files import parse_json_object, read_text
from hierbench.utils.text import counted

if TYPE_CHECKING:
    from torch import Tensor

Announce = Callable[[str], None]


def open_source(recipe: Recipe) -> Source:
    """Read the listing and the tree of a user's dataset, and divide its images; features are divided already.

    Raises:
        UserError: images and tree do not fit, or there is a mistake in either.
    """
    section = recipe.user_source
    if section.features:
        return _open_features(recipe, Path(section.features), section.tree)
    size = recipe.image_size
    reading = read_users_tree(section.tree, section.tree_options)
    listing = list_images(section)
    paths = reading.paths
    above, node_of = _above_classes(listing, paths)
    photographs = [image for image in listing.photographs if image.label not in node_of]
    is_complete = paths.keys() <= set(listing.labels)  # else a folder may have the name of a node by mistake
    check_classes(set(listing.labels) - (node_of.keys() if is_complete else set()), paths, section.tree)
    divided, remarks = divide(photographs, list(paths), section.splits)
    index = {label: i for i, label in enumerate(paths)} | node_of
    trained = _trained_above(above, divided) if section.labels_above else []
    names = {image.name for image in trained}
    kept_apart = [image for image in above if image.name not in names]
    divided["train"] += trained
    divided |= {ABOVE: kept_apart} if kept_apart else {}
    labels = {
        split: np.array([index[image.label] for image in images], dtype=np.int64) for split, images in divided.items()
    }
    labels["train"][len(labels["train"]) - len(trained) :] += len(paths)
    crop = partial(center_crop, size=size) if section.resize == "center-crop" else None
    upright = Upright() if section.exif_orientation else None

    def pieces() -> Iterator[Piece]:
        for split, images in divided.items():
            for row, image in enumerate(images):
                if listing.read is not None:
                    yield Piece(split, row, partial(_decode_read, listing.read, image, size, crop, upright))
                else:
                    path = listing.root / image.name
                    yield Piece(split, row, partial(decode_file, path, size, crop, LARGEST_IMAGE, upright))

    counts = {label: 0 for label in paths}
    for image in photographs:
        counts[image.label] += 1
    lines = [*listing.remarks, *reading.about, *reading.advice(section.tree), imbalance(counts)]
    if trained:
        lines.append(f"{counted(len(trained), 'training image', ('is', 'are'))} labelled with a node above the classes")
    if kept_apart:
        lines.append(
            f"{counted(len(kept_apart), 'image', ('is', 'are'))} labelled with a node above the classes: not trained "
            "on, and counted in metrics of nodes alone, by hierbench answers"
        )
    lines += [line for line in [_difference(recipe, paths, labels)] if line]
    state = source_state(recipe, listing)
    return Source(
        paths,
        labels,
        size,
        pieces,
        remarks=remarks,
        identity=json_digest(state),
        ids={split: [image.name for image in images] for split, images in divided.items()},
        state=state,
        messages=lines,
        late_remarks=upright.remarks if upright else list,
        skip_broken=section.skip_broken,
    )


def _above_classes(listing: Listing, paths: Paths) -> tuple[list[Photograph], dict[str, int]]:
    """Return the images whose label is a node above the classes, by name, and {label: number of the node}.

    Raises:
        UserError: such a label stands for several nodes.
    """
    numbers = inner_numbers(Hierarchy.from_paths(paths))
    above = [image for image in listing.photographs if image.label in numbers and image.label not in paths]
    for image in above:
        if len(numbers[image.label]) > 1:
            raise UserError(f"{image.name}: its label {image.label!r} stands for several nodes of the tree")
    return sorted(above, key=lambda image: image.name), {image.label: numbers[image.label][0] for image in above}


def _trained_above(above: list[Photograph], divided: Divided) -> list[Photograph]:
    """Return the images labelled above the classes that are trained on: none of a group that is evaluated."""
    evaluated = {image.group for split in ("val", "test") for image in divided[split] if image.group}
    return [image for image in above if image.split in ("", "train") and image.group not in evaluated]


class Upright:
    """Turns photographs upright by their EXIF orientation, and counts them; called from any thread."""

    def __init__(self) -> None:
        self.num_turned = 0
        self.lock = Lock()

    def __call__(self, content: bytes, pixels: "Tensor") -> "Tensor":
        """Return pixels [3, H, W] of an image's file as its camera was held."""
        orientation = exif_orientation(content)
        if orientation == 1:
            return pixels
        with self.lock:
            self.num_turned += 1
        return turned(pixels, orientation)

    def remarks(self) -> list[str]:
        """Return a line on how many were turned, if any."""
        line = f"{counted(self.num_turned, 'image', ('was', 'were'))} turned upright by the EXIF orientation"
        return [line] * bool(self.num_turned)


def _open_features(recipe: Recipe, place: Path, tree: str) -> Source:
    """Return features and their tree as a source; see `open_source`."""
    section = recipe.user_source
    reading = read_users_tree(tree, section.tree_options)
    arrays = read_vectors(place)
    paths = reading.paths
    names = class_names(arrays, list(paths), place)
    check_classes(names, paths, tree, "features")
    paths = {name: paths[name] for name in names}
    state = source_state(recipe)
    order: NumberOrder = "tree" if "classes" in arrays else section.order or "unknown"
    about_source: dict[str, Any] = {"identity": json_digest(state), "state": state}
    source = vectors_source(arrays, place, paths, order, labels_above=section.labels_above, **about_source)
    classes = source.paths
    num = np.bincount(np.concatenate([source.labels[split] for split in SPLITS]))[: len(classes)]
    source.messages.extend([*reading.about, *reading.advice(section.tree)])
    source.messages.append(imbalance(dict(zip(classes, num.tolist(), strict=True)), "rows"))
    source.messages.extend(line for line in [_difference(recipe, paths, source.labels)] if line)
    return source


def _decode_read(
    read: Callable[[Photograph], bytes],
    image: Photograph,
    size: tuple[int, int],
    crop: Callable[[Any], Any] | None,
    upright: Upright | None,
) -> Images:
    """Read and decode an image that is no file."""
    try:
        content = read(image)
    except (OSError, UnreadableImageError) as error:
        raise UnreadableImageError(f"image {image.name} cannot be read ({error})") from None
    return decode(content, image.name, size, crop, upright)


def dataset_sizes(paths: Paths, labels: dict[str, Any], image_size: tuple[int, int] | None) -> Expected:
    """Return a dataset's image size, levels and images per split."""
    tree = Hierarchy.from_paths(paths)
    splits = {split: len(labels[split]) for split in SPLITS}
    return Expected(image_size=image_size, height=tree.height, level_sizes=tree.level_sizes, **splits)


def with_sizes(recipe: AnyRecipe, prepared: Prepared | None) -> AnyRecipe:
    """Return a user's recipe with all sizes in [expected] as they are; any other recipe as it is."""
    if recipe.source is None:
        return recipe
    if prepared is None:
        source = open_source(recipe)
        sizes = dataset_sizes(source.paths, source.labels, source.image_size)
    else:
        paths = {path[-1]: tuple(path) for path in prepared.meta["paths"]}
        labels = {split: range(prepared.size(split)) for split in SPLITS}
        sizes = dataset_sizes(paths, labels, recipe.expected.image_size)
    return recipe.model_copy(update={"expected": sizes})


def source_state(recipe: Recipe, listing: Listing | None = None) -> dict[str, str]:
    """Return digests of the inputs of the prepared arrays: the section, and the tree and images it names.

    Images, and files of features, stand for themselves by name, size and time; their folder may move. "content" is ""
    where images or tree are gone.

    Raises:
        UserError: there is a mistake in the listing.
    """
    section = recipe.user_source
    options = section.tree_options
    reading = {name: value for name, value in vars(options).items() if value or name not in ("fill", "fix", "accept")}
    settings_given = [] if options == DEFAULT_OPTIONS else [reading]  # those that are not asked for are not recorded
    settings_given += [{"order": section.order}] if section.order else []
    settings_given += [{"labels_above": True}] * section.labels_above
    if section.features:
        state = {
            "asked": json_digest([Path(section.features).name, Path(section.tree).name, *settings_given]),
            "content": "",
        }
        with suppress(OSError, GoneError):
            place = Path(section.features)
            files = sorted(place.glob("*.npy")) if place.is_dir() else [place]
            rows = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
            state["content"] = json_digest([rows, tree_text(section.tree)])
        return state
    settings_given += [{"exif_orientation": False}] * (not section.exif_orientation)
    settings_given += [{"skip_broken": True}] * section.skip_broken
    settings_given += [{"group": section.group}] if section.group else []
    settings = [Path(section.images).name, Path(section.tree).name, section.splits.model_dump(), section.resize]
    state = {"asked": json_digest([*settings, recipe.expected.image_size, *settings_given]), "content": ""}
    try:
        listing = list_images(section) if listing is None else listing
        listed = [
            (photograph.name, photograph.label, photograph.split, photograph.size, photograph.time)
            + ((photograph.group,) if photograph.group else ())
            for photograph in listing.photographs
        ]
        return state | {"content": json_digest([listed, tree_text(section.tree)])}
    except GoneError:
        return state


def if_current(recipe: Recipe, prepared: Prepared | None, announce: Announce) -> Prepared | None:
    """Return a user's prepared dataset if it fits the file; None, with the reason, if it has to be prepared again.

    If images or tree are gone, the prepared data is used, and a line is printed.

    Raises:
        UserError: a mistake in the listing; or images or tree are gone, and the prepared form is of another section.
    """
    if prepared is None:
        return None
    name = recipe.data.dataset
    state = source_state(recipe)
    recorded = prepared.meta.get("source")
    classes = [path[-1] for path in prepared.meta["paths"]]
    features = recipe.source.features if recipe.source else ""
    is_moved = in_order_of_numbers(classes) != classes and bool(state["content"])
    if is_moved and not (features and has_class_names(Path(features))):
        announce(f"{name}: its classes are whole numbers, which are in their order now (1, 2, 10); preparing it again")
        return None
    if state == recorded:
        return prepared
    if state["content"]:
        inputs = "features or tree" if recipe.model.given_features else "images, tree or splits"
        announce(f"{name}: its {inputs} have changed since it was prepared; preparing it again")
        return None
    if not isinstance(recorded, dict) or recorded.get("asked") != state["asked"]:
        open_source(recipe)  # names the missing part
        raise UserError(f"{name} was prepared from something else; remove {prepared.folder}")
    announce(f"note: the images or the tree of {name} are gone; using what was prepared, {prepared.digest[:12]}")
    return prepared


def _difference(recipe: Recipe, paths: Paths, labels: dict[str, Any]) -> str:
    """Return where the sizes in the file are not those found, "" if they all are."""
    sizes = dataset_sizes(paths, labels, recipe.expected.image_size)
    expected = recipe.expected
    odd = [
        f"{key} {getattr(sizes, key)} instead of {getattr(expected, key)}"
        for key in Expected.model_fields
        if not (recipe.source and recipe.source.skip_broken and key in SPLITS)
        and key in expected.model_fields_set
        and getattr(sizes, key) != getattr(expected, key)
    ]
    return f"[expected] in the file differs from the data: {', '.join(odd)}" if odd else ""


def prepared_names(data_dir: Path) -> list[str]:
    """Return the names of the users' datasets that are prepared in a folder."""
    files = sorted((data_dir / "prepared").glob("[!.]*/meta.json"))
    return [file.parent.name for file in files if file.parent.name not in recipe_names() and _is_users(file)]


def _is_users(meta: Path) -> bool:
    try:
        return "source" in parse_json_object(read_text(meta, follow=True))
    except (OSError, ValueError):
        return False
