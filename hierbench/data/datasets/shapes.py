"""`shapes`: generated 32x32 colour images of 48 classes, for a comparison that needs no download.

The tree has height 3: four outline families, three shapes each, four fills each, so that classes that are close in the
tree look alike. A shape is its radius as a function of the angle, a fill a texture in the shape's own coordinates;
position, scale, rotation, colours, clutter and noise are random.

Each picture is a mixture: up to 59% of its outline are another shape's, in three of five cases one of the same family,
and up to 59% of its fill another fill's. In 28% of the pictures the other one prevails in at least one of the two, so
a perfect classifier reaches about 72%, and a small network gets close to it within minutes.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hierbench.data.image import Images
from hierbench.data.source import ROWS_PER_PIECE, Labels, Piece, Source, SourceRequest, shipped_paths

# In float64, so that no processor's last bit of a sine changes a pixel, and with it the digest and every run's id.
Floats = NDArray[np.float64]
Radius = Callable[[Any], Any]  # of angles

SHAPES_SIZE = 32
SHAPES_SEED = 20231002
LARGEST_SHARE = 0.59  # of another class in a picture's outline, and in its fill
SAME_FAMILY = 0.6  # probability that the other outline is of the same family
PER_CLASS = {"train": 100, "val": 20, "test": 40}


def _regular(corners: int) -> Radius:
    """Return the radius of a regular polygon with the given number of corners."""
    sector = 2.0 * np.pi / corners
    return lambda angle: np.cos(sector / 2.0) / np.cos(angle % sector - sector / 2.0)


def _star(points: int) -> Radius:
    """Return the radius of a star: straight lines between radius 1 and 0.42."""
    half = np.pi / points
    inner = 0.42

    def radius(angle: Any) -> Any:
        turn = np.abs((angle + half) % (2.0 * half) - half)  # angle from the nearest point
        return inner * np.sin(half) / (np.sin(half - turn) * inner + np.sin(turn))

    return radius


def _flower(petals: int) -> Radius:
    """Return the radius of a flower with round petals."""
    return lambda angle: 0.68 + 0.32 * np.cos(petals * angle)


FAMILIES: dict[str, dict[str, Radius]] = {
    "round": {
        "circle": lambda angle: np.full_like(angle, 0.85),
        "ellipse": lambda angle: 0.62 / np.sqrt(1.0 - 0.55 * np.cos(angle) ** 2),
        "egg": lambda angle: 0.76 * (1.0 + 0.25 * np.cos(angle)),
    },
    "polygon": {"triangle": _regular(3), "square": _regular(4), "pentagon": _regular(5)},
    "star": {"star-6": _star(6), "star-7": _star(7), "star-8": _star(8)},
    "flower": {"flower-3": _flower(3), "flower-4": _flower(4), "flower-5": _flower(5)},
}

# A fill maps (u, v) in the shape's frame and the depth below the outline to the weight of the second colour.
FILLS: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "solid": lambda u, v, depth: np.zeros_like(u),
    "striped": lambda u, v, depth: 0.5 + 0.5 * np.tanh(4.0 * np.sin(9.0 * u)),
    "checked": lambda u, v, depth: 0.5 + 0.5 * np.tanh(6.0 * np.sin(7.0 * u) * np.sin(7.0 * v)),
    "hollow": lambda u, v, depth: 0.5 + 0.5 * np.tanh(12.0 * (depth - 0.2)),
}


def class_paths() -> dict[str, tuple[str, ...]]:
    """Return {class: (family, shape, class)} for the 48 classes, in target order."""
    return {
        f"{fill} {shape}": (family, shape, f"{fill} {shape}")
        for family, shapes in FAMILIES.items()
        for shape in shapes
        for fill in FILLS
    }


def draw(labels: Labels, rng: np.random.Generator) -> Images:
    """Draw one image per label [n], an index into `class_paths`: uint8 [n, 3, 32, 32]."""
    num = len(labels)

    def uniform(low: float, high: float, *shape: int) -> Floats:
        return rng.uniform(low, high, (num, *shape))

    grid = ((np.arange(SHAPES_SIZE) + 0.5) / (SHAPES_SIZE / 2) - 1.0)[None]
    x = grid[:, None, :] - uniform(-0.08, 0.08, 1, 1)
    y = grid[:, :, None] - uniform(-0.08, 0.08, 1, 1)
    turn = uniform(-0.15, 0.15, 1, 1)
    scale = uniform(0.8, 0.95, 1, 1)
    u = (np.cos(turn) * x + np.sin(turn) * y) / scale
    v = (np.cos(turn) * y - np.sin(turn) * x) / scale
    distance = np.hypot(u, v)
    angle = np.arctan2(v, u)

    shapes, fills = np.divmod(labels, len(FILLS))
    outlines = [radius for family in FAMILIES.values() for radius in family.values()]
    share = uniform(0.0, LARGEST_SHARE, 1, 1)
    radius = (1.0 - share) * _apply_each(outlines, shapes, angle) + share * _apply_each(
        outlines, _other_shapes(shapes, rng), angle
    )
    inward = radius - distance
    other_fills = (fills + rng.integers(1, len(FILLS), num)) % len(FILLS)
    share = uniform(0.0, LARGEST_SHARE, 1, 1)
    textures = list(FILLS.values())
    weight = (1.0 - share) * _apply_each(textures, fills, u, v, inward) + share * _apply_each(
        textures, other_fills, u, v, inward
    )
    inside = 0.5 + 0.5 * np.tanh(inward * scale * (SHAPES_SIZE / 2))

    # Light shapes on dark ground, the second colour of a fill dark again: colours vary, the contrast's sign does not.
    slope = uniform(-0.5, 0.5, 1, 1) * grid[:, None, :] + uniform(-0.5, 0.5, 1, 1) * grid[:, :, None]
    background = uniform(0.0, 0.4, 3, 1, 1) + slope[:, None] * uniform(0.0, 0.4, 3, 1, 1)
    for _ in range(2):  # clutter: discs anywhere, behind the shape
        away = np.hypot(grid[:, None, :] - uniform(-1, 1, 1, 1), grid[:, :, None] - uniform(-1, 1, 1, 1))
        disc = 0.5 + 0.5 * np.tanh((uniform(0.1, 0.35, 1, 1) - away) * (SHAPES_SIZE / 4))
        background += disc[:, None] * (uniform(0.0, 0.6, 3, 1, 1) - background) * 0.6
    light = uniform(0.6, 1.0, 3, 1, 1)
    dark = light - uniform(0.4, 0.6, 1, 1, 1)
    image = background + inside[:, None] * (light + weight[:, None] * (dark - light) - background)
    image += rng.standard_normal(image.shape, dtype=np.float32) * uniform(0.02, 0.06, 1, 1, 1)
    return np.asarray(np.clip(image, 0.0, 1.0) * 255.0 + 0.5, dtype=np.uint8)


def _apply_each(functions: Sequence[Callable[..., Floats]], which: Labels, *arguments: Floats) -> Floats:
    """Apply to each picture's [H, W] of the arguments [n, H, W] the function that `which` [n] names."""
    values = np.empty_like(arguments[0])
    for number, function in enumerate(functions):
        mine = which == number
        values[mine] = function(*(argument[mine] for argument in arguments))
    return values


def _other_shapes(shapes: Labels, rng: np.random.Generator) -> Labels:
    """Return another shape for each: with probability `SAME_FAMILY` of the same family, else any."""
    num = len(shapes)
    total = sum(map(len, FAMILIES.values()))
    family_size = len(FAMILIES["round"])
    first = shapes - shapes % family_size
    relative = first + (shapes - first + rng.integers(1, family_size, num)) % family_size
    anyone = (shapes + rng.integers(1, total, num)) % total
    return np.where(rng.random(num) < SAME_FAMILY, relative, anyone)


def open_source(request: SourceRequest) -> Source:
    """Return the generated dataset; the request is for datasets that are read from files."""
    paths = shipped_paths("shapes")
    labels = {name: np.tile(np.arange(len(paths)), per_class) for name, per_class in PER_CLASS.items()}

    def pieces() -> Iterator[Piece]:
        for number, (split, rows) in enumerate(labels.items()):
            rng = np.random.default_rng([SHAPES_SEED, number])
            for start in range(0, len(rows), ROWS_PER_PIECE):
                yield Piece(split, start, partial(np.asarray, draw(rows[start : start + ROWS_PER_PIECE], rng)))

    return Source(paths, labels, (SHAPES_SIZE, SHAPES_SIZE), pieces, checksums={"seed": str(SHAPES_SEED)})
