"""The page of `hierbench mistakes`: the mistakes of two runs, as one self-contained HTML file."""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from PIL import Image

from hierbench.config.recipe import dataset_title
from hierbench.data.image import Images
from hierbench.figures.mistakes.pair import Pair, Side
from hierbench.figures.plots.figure_data import COVERAGES, Floats
from hierbench.hierarchy.label_tree import IntArray
from hierbench.leaderboard.columns import PAPER_COLUMNS
from hierbench.leaderboard.selection import parameters
from hierbench.leaderboard.table import Number
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_text

THUMBNAIL = 160  # pixels of the longer side at most
LOSSLESS = 32  # images up to this side are stored as they are: lossy compression shows on them
MEASURES = {"height": "LCA height", "depth": "distance"}
EXPLAINED = {
    "height": "The height of a prediction is that of its lowest common ancestor (LCA) with the target: the edges from "
    "there down to the deepest class.",
    "depth": "The distance of a prediction is the height of the tree, {height}, minus the depth of its lowest common "
    "ancestor (LCA) with the target.",
}
PLOT = SimpleNamespace(left=46.0, top=8.0, width=254.0, height=150.0)  # the operating curves' room, in SVG units
EXTREMES = " 0 is right, {height} means that they share only the root."


def render(pair: Pair, chosen: IntArray, names: Mapping[str, str] | None = None, title: str = "") -> str:
    """Return the page of a pair with the chosen of its N examples.

    `names`, as `read_names` returns them, follow the tree's; `title` is the dataset's, by default its recipe's.
    """
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["csp_hash"] = csp_hash
    template = (resources.files("hierbench.figures.mistakes") / "page.html.j2").read_text(encoding="utf-8")
    spec = pair.sides[0].spec
    counts = pair.counts()
    ticks = risk_ticks(pair.sides)
    by_level = np.stack([side.levels for side in pair.sides]).transpose(2, 0, 1)  # [L, A and B, first class and lifted]
    text = environment.from_string(template).render(
        title=title or dataset_title(spec.dataset.name),
        spec=spec,
        remarks=[note for note in (pair.prepared.meta["remark"], pair.prepared.meta.get("notice", "")) if note],
        sides=pair.sides,
        settings=[settings(side) for side in pair.sides],
        metrics=[
            (
                column.title,
                "up" if column.higher else "down",
                [str(Number(side.metrics[column.name])) for side in pair.sides],
            )
            for column in PAPER_COLUMNS
            if column.name in pair.sides[0].metrics  # as far as the number of classes allows
        ],
        measure=MEASURES[spec.dataset.distance],
        explained=(EXPLAINED[spec.dataset.distance] + EXTREMES).format(height=pair.hierarchy.height),
        levels=list(zip(pair.hierarchy.level_sizes, by_level.tolist(), strict=True)),
        plot=PLOT,
        ticks=ticks,
        curves=[curve_points(side.risk, ticks[-1]) for side in pair.sides],
        per_height=list(enumerate(zip(counts.sum(axis=1).tolist(), counts.sum(axis=0).tolist(), strict=True))),
        num_examples=len(pair.targets),
        choice=describe_choice(pair, chosen),
        data=page_data(pair, chosen, names or {}),
    )
    return text.encode(errors="replace").decode()  # half a surrogate pair cannot be encoded


def csp_hash(text: str) -> str:
    """Return the source expression with which a Content-Security-Policy allows exactly this script or style."""
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def read_names(path: Path, pair: Pair) -> dict[str, str]:
    """Read words for the tree's nodes from lines of a node's name, a tab or a blank, and the words.

    ImageNet's words.txt and LOC_synset_mapping.txt are such files. Lines of unknown nodes are skipped; a file without
    a known one is a UserError.
    """
    nodes = {node for path in pair.prepared.meta["paths"] for node in path}
    try:
        lines = read_text(path, follow=True).splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"--names {path}: {error.strerror if isinstance(error, OSError) else error}") from None
    pairs = (line.partition("\t" if "\t" in line else " ") for line in lines)
    names = {name: words.strip() for name, _, words in pairs if name in nodes and words.strip()}
    if not names:
        raise UserError(f"--names {path} names no class and no other node of {pair.sides[0].spec.dataset.name}")
    return names


def page_data(pair: Pair, chosen: IntArray, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the page's data as JSON types; "counts" are [H + 1][H + 1] over all N, rows A, columns B."""
    images, _ = pair.prepared.arrays("test")
    return {
        "tree": page_tree(pair.prepared.meta["paths"], names),
        "height": pair.hierarchy.height,
        "measure": MEASURES[pair.hierarchy.distance],
        "counts": pair.counts().tolist(),
        "examples": [
            {
                "row": int(pair.rows[n]),
                "target": int(pair.targets[n]),
                "predicted": pair.predicted[:, n].tolist(),
                "heights": pair.heights[:, n].tolist(),
                "confidence": [round(value, 4) if math.isfinite(value) else None for value in pair.confidence[:, n]],
                "between": int(pair.between[n]),
                "image": thumbnail(images[pair.rows[n]]),
            }
            for n in chosen
        ],
    }


def page_tree(paths: Sequence[Sequence[str]], names: Mapping[str, str]) -> dict[str, list[Any]]:
    """Return the "names" of the tree's nodes and the indices of their "parents", -1 below the root.

    The K classes come first, in target order, then the inner nodes; `paths` are (coarsest, ..., class) per class.
    """
    index = {tuple(path): position for position, path in enumerate(paths)}
    for path in paths:
        for depth in range(1, len(path)):
            index.setdefault(tuple(path[:depth]), len(index))
    shown = [f"{node[-1]} {names[node[-1]]}" if node[-1] in names else node[-1] for node in index]
    return {"names": shown, "parents": [index.get(node[:-1], -1) for node in index]}


def thumbnail(image: Images) -> str:
    """Return an image [3, H, W] uint8 as a data URL, scaled down to `THUMBNAIL` pixels."""
    picture = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
    small = max(picture.size) <= LOSSLESS
    picture.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "WEBP", lossless=small, quality=80, method=4)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


def settings(side: Side) -> dict[str, str]:
    """Return the settings of a run, as the page shows them."""
    spec = side.spec
    train = side.spec.train
    weights = "" if spec.model.weights == "none" else f" from {spec.model.weights}"
    content = {
        "Method": f"{side.title} ({spec.method.name}, version {spec.method.version})",
        "Type": spec.type,
        "Seed": str(spec.seed),
        "Hyperparameters": parameters(spec) or "none",
        "Backbone": f"{spec.model.backbone}{weights}",
        "Training": f"{train.length}, batch {train.batch_size}, {train.precision}, momentum {train.momentum:g}, "
        f"weight decay {train.weight_decay:g}",
        "Learning rates": ", ".join(f"{name} {rate:g}" for name, rate in train.lr.model_dump().items()),
        "Run": side.id[:12],
    }
    again = {"Re-ranks run" + "s" * (len(spec.bases) > 1): ", ".join(base[:12] for base in spec.bases)}
    return content | (again if spec.bases else {})


def curve_points(risk: Floats, most: float) -> str:
    """Return the points of an operating curve in the drawing's units, for an SVG polyline."""
    xs = PLOT.left + PLOT.width * COVERAGES
    ys = PLOT.top + PLOT.height * (1.0 - risk / most)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs.tolist(), ys.tolist(), strict=True))


def risk_ticks(sides: Sequence[Side]) -> list[float]:
    """Return rising marks of the axis of risk, from 0 to at least the largest risk of the two."""
    largest = max(float(side.risk.max()) for side in sides)
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if step * 5 >= largest or step == 0.25)
    return [step * i for i in range(max(1, math.ceil(largest / step - 1e-9)) + 1)]


def describe_choice(pair: Pair, chosen: IntArray) -> str:
    """Return a sentence on the choice of mistakes in the page."""
    wrong = pair.heights > 0
    total = int(wrong.any(axis=0).sum())
    both = int(wrong.all(axis=0).sum())
    if len(chosen) == total:
        return f"All {total:,} test images that A or B gets wrong, {both:,} wrong in both."
    missing = [
        f"{name} at {height}"
        for name, heights in zip("AB", pair.heights, strict=True)
        for height in np.setdiff1d(heights, np.append(heights[chosen], 0))
    ]
    rest = f"none of {', '.join(missing)}" if missing else "some of each height per run"
    return (
        f"{len(chosen):,} of the {total:,} test images that A or B gets wrong ({both:,} wrong in both): "
        f"the largest disagreements, and {rest}."
    )
