"""Draws the pictures of docs/metrics.md: `uv run python docs/pictures/metrics.py` writes them beside this file.

The five images of the page are `EVIDENCE`; every number in a picture is computed from it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hierbench import Hierarchy
from hierbench.leaderboard.pictures import style
from hierbench.metrics import Evidence, level_metrics, paths, selective

TREE = Hierarchy.from_paths(
    {
        "cat": ("animal", "feline", "cat"),
        "lion": ("animal", "feline", "lion"),
        "dog": ("animal", "dog"),
        "car": ("vehicle", "car"),
        "bus": ("vehicle", "bus"),
    }
)
CLASSES = list(TREE.classes)
TARGETS = ("cat", "lion", "cat", "dog", "lion")
PROBABILITIES = torch.tensor(
    [
        [0.40, 0.10, 0.20, 0.20, 0.10],
        [0.42, 0.30, 0.18, 0.05, 0.05],
        [0.15, 0.20, 0.20, 0.30, 0.15],
        [0.10, 0.05, 0.70, 0.10, 0.05],
        [0.15, 0.25, 0.35, 0.15, 0.10],
    ],
    dtype=torch.float64,
)
_TARGETS = torch.tensor([CLASSES.index(name) for name in TARGETS])
EVIDENCE = Evidence(PROBABILITIES, _TARGETS, TREE, PROBABILITIES, level_metrics.lifted_predictions(PROBABILITIES, TREE))

# Where the nodes stand, and what is above each.
PLACES = {
    "root": (2.3, 3.0),
    "animal": (1.1, 2.0),
    "vehicle": (3.5, 2.0),
    "feline": (0.5, 1.0),
    "dog": (2.0, 1.0),
    "car": (3.0, 1.0),
    "bus": (4.0, 1.0),
    "cat": (0.0, 0.0),
    "lion": (1.0, 0.0),
}
ABOVE = {"animal": "root", "vehicle": "root", "feline": "animal", "dog": "animal", "car": "vehicle", "bus": "vehicle"}
ABOVE |= {"cat": "feline", "lion": "feline"}


class Mark(NamedTuple):
    """How a node is drawn: the colour of its frame, its filling, and the style of the line to its parent."""

    colour: str = style.GREY
    fill: str = "white"
    width: float = 0.8
    dashes: str = "-"


PLAIN = Mark()
TARGET = Mark(style.BLUE, "#dcecf7", 1.8)
PREDICTED = Mark(style.VERMILION, "#fbe6d8", 1.8, (0, (2, 1)))
BOTH = Mark(style.BLACK, "#e6e6e6", 1.8)


def chain(name: str) -> list[str]:
    """Return a node and those above it, without the root."""
    names = []
    while name != "root":
        names.append(name)
        name = ABOVE[name]
    return names


def below(name: str) -> list[int]:
    """Return the classes at or below a node."""
    return [i for i, leaf in enumerate(CLASSES) if name == "root" or name in chain(leaf)]


def draw_tree(axes: Axes, marks: Mapping[str, Mark], notes: Mapping[str, str], title: str) -> None:
    """Draw the tree with some nodes marked, the line between two of them too, and a note under some."""
    for name, above in ABOVE.items():
        mark = marks.get(name, PLAIN) if above in marks else PLAIN
        (x, y), (x_above, y_above) = PLACES[name], PLACES[above]
        axes.plot([x, x_above], [y, y_above], color=mark.colour, linewidth=mark.width, linestyle=mark.dashes, zorder=1)
    for name, (x, y) in PLACES.items():
        mark = marks.get(name, PLAIN)
        box = {"boxstyle": "round,pad=0.3", "edgecolor": mark.colour, "facecolor": mark.fill, "linewidth": mark.width}
        axes.text(x, y, name, ha="center", va="center", bbox=box | {"linestyle": mark.dashes}, zorder=3)
        if name in notes:
            behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
            axes.text(x, y - 0.28, notes[name], ha="center", va="top", fontsize=style.SMALL_TYPE, bbox=behind, zorder=2)
    axes.set_title(title, loc="left")
    axes.set_xlim(-0.6, 4.5)
    axes.set_ylim(-0.85 if notes else -0.35, 3.3)
    style.bare(axes)


def level_nodes(image: int) -> list[str]:
    """Return the names of the predictions per level of an image."""
    names = []
    for level, index in enumerate(EVIDENCE.lifted[image].tolist()):
        leaf = CLASSES[TREE.level_targets[:, level].tolist().index(index)]
        names.append(chain(leaf)[::-1][min(level, len(chain(leaf)) - 1)])
    return names


def distances() -> Figure:
    """Draw the ranking of image 5 and the distance of each class from its target."""
    figure = style.new_figure(4.6, 2.9)
    target, order = int(_TARGETS[4]), PROBABILITIES[4].sort(descending=True, stable=True).indices.tolist()
    notes = {name: f"rank {order.index(i) + 1}\nD = {TREE.distances[target, i]}" for i, name in enumerate(CLASSES)}
    marks = {CLASSES[target]: TARGET, CLASSES[order[0]]: PREDICTED}
    draw_tree(figure.subplots(), marks, notes, "image 5: target lion (blue), ranked first dog (orange, dashed)")
    return figure


def by_level() -> Figure:
    """Draw the summed probabilities of image 1 and image 3, with the largest of each level marked."""
    figure = style.new_figure(style.TWO_COLUMNS, 2.9)
    for axes, image in zip(figure.subplots(1, 2), (0, 2), strict=True):
        chosen = level_nodes(image)
        notes = {name: f"{float(PROBABILITIES[image, below(name)].sum()):.2f}" for name in PLACES}
        is_path = chosen == chain(chosen[-1])[::-1]
        title = f"image {image + 1}: {', '.join(chosen)}: {'one path' if is_path else 'not one path'}"
        draw_tree(axes, dict.fromkeys(chosen, PREDICTED) | {"root": PLAIN}, notes, title)
    return figure


def two_paths() -> Figure:
    """Draw the two paths of image 5."""
    figure = style.new_figure(4.6, 2.5)
    predicted, target = chain(CLASSES[int(EVIDENCE.top[4])]), chain(TARGETS[4])
    marks = dict.fromkeys(predicted, PREDICTED) | dict.fromkeys(target, TARGET)
    marks |= dict.fromkeys(set(predicted) & set(target), BOTH) | {"root": PLAIN}
    title = f"image 5: {len(set(predicted) & set(target))} node shared, {len(predicted)} predicted, {len(target)} true"
    leaves = int(paths.leaves_below_lca(EVIDENCE.top, _TARGETS, TREE)[4])
    draw_tree(figure.subplots(), marks, {}, title)
    x, y = PLACES["animal"]
    text = f"LCA: {leaves} classes below,\nlog2 {leaves} = {np.log2(leaves):.2f} bits"
    figure.axes[0].text(x - 0.5, y + 0.1, text, ha="right", va="bottom", fontsize=style.SMALL_TYPE)
    figure.axes[0].set_xlim(-1.2, 4.5)
    return figure


def ranks() -> Figure:
    """Draw the ideal ranks of image 3, those of its ranking and of the reversed ideal, and the weights."""
    target, order = int(_TARGETS[2]), PROBABILITIES[2].sort(descending=True, stable=True).indices.tolist()
    _, rank = np.unique(TREE.distances[target], return_inverse=True)
    ideal, actual = np.sort(rank), rank[order]
    figure = style.new_figure(4.6, 2.7)
    axes = figure.subplots()
    places = np.arange(1, len(order) + 1)
    axes.step(places, ideal[::-1], where="mid", color=style.GREY, linestyle=(0, (1, 1)), label="ideal, reversed")
    axes.vlines(places, ideal, actual, color=style.VERMILION, linewidth=4, alpha=0.35)
    axes.plot(places, ideal, "o", color=style.BLUE, markersize=7, label="ideal r*")
    axes.plot(places, actual, "D", color=style.VERMILION, markersize=5, label="image 3, r")
    labels = [f"{place}\n{CLASSES[c]}\nw = {w:.3g}" for place, c, w in zip(places, order, weights(ideal), strict=True)]
    axes.set_xticks(places, labels)
    axes.set_yticks(range(int(rank.max()) + 1))
    axes.set_ylabel("rank of the distance")
    axes.set_title("image 3: target cat", loc="left")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def weights(ideal: Iterable[int]) -> list[float]:
    """Return the weights of the places with these ideal ranks, all K of them, in ascending order."""
    ranked, steps = list(ideal), []
    for rank in range(ranked[-1] + 1):
        size, high = ranked.count(rank), 2.0**-rank
        low = 0.0 if rank == ranked[-1] else high / 2
        steps += [high + (low - high) * i / size for i in range(size)]
    return steps


def bins() -> Figure:
    """Draw accuracy over confidence of the five images."""
    figure = style.new_figure(4.6, 2.7)
    axes = figure.subplots()
    confidence = PROBABILITIES.gather(1, EVIDENCE.top[:, None])[:, 0].numpy()
    right = (EVIDENCE.top == _TARGETS).numpy()
    edges = np.arange(16) / 15
    for b in range(15):
        inside = (confidence > edges[b]) & (confidence <= edges[b + 1])
        if inside.any():
            mean, share = confidence[inside].mean(), right[inside].mean()
            axes.axvspan(edges[b], edges[b + 1], facecolor="#eeeeee", edgecolor="white", zorder=0)
            axes.plot([mean, mean], [mean, share], color=style.VERMILION, linewidth=4, alpha=0.35)
            axes.plot(mean, share, "D", color=style.VERMILION)
            images = ", ".join(str(i + 1) for i in np.flatnonzero(inside))
            place = (0, 7) if share < 0.9 else (0, -13)
            axes.annotate(images, (mean, share), place, textcoords="offset points", ha="center")
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle=(0, (4, 2)), linewidth=0.8)
    axes.set_xticks(edges, [f"{b}/15" if b % 3 == 0 else "" for b in range(16)])
    axes.set_xlabel("confidence: probability of the top-ranked class")
    axes.set_ylabel("accuracy")
    axes.set_ylim(-0.05, 1.05)
    axes.set_title("numbers: the images in a bin; bars: its gap", loc="left")
    return figure


def climbing() -> Figure:
    """Draw the climb of image 3 at the threshold 0.4, and both rules' operating curves."""
    figure = style.new_figure(style.TWO_COLUMNS, 2.9)
    left, right = figure.subplots(1, 2, width_ratios=[1.1, 1.0])
    top = CLASSES[int(EVIDENCE.top[2])]
    steps = [*chain(top), "root"]
    values = [float(PROBABILITIES[2, below(name)].sum()) for name in steps]
    stop = steps[next(i for i, value in enumerate(values) if value >= 0.4)]
    notes = {name: f"{value:.2f}" for name, value in zip(steps, values, strict=True)}
    marks = {name: PREDICTED for name in steps[: steps.index(stop)]} | {stop: BOTH}
    draw_tree(left, marks, notes, f"image 3, theta = 0.4: climbs to {stop}")
    looks = {"climbing": (style.BLUE, "-", "o"), "selective": (style.VERMILION, (0, (4, 2)), "s")}
    for rule, (colour, dashes, marker) in looks.items():
        curve = selective.operating_curve(EVIDENCE.top, _TARGETS, EVIDENCE.climb, TREE, rule)
        area = selective.area_under(curve)
        right.fill_between(curve.coverage, curve.risk, color=colour, alpha=0.08, linewidth=0)
        label = f"{rule}: hAURC {area:.4f}"
        right.plot(curve.coverage, curve.risk, color=colour, linestyle=dashes, marker=marker, label=label)
    right.set_xlabel("coverage")
    right.set_ylabel("risk")
    right.legend(loc="upper left")
    right.set_ylim(-0.02, 0.85)
    right.set_title("all five images", loc="left")
    return figure


PICTURES = {
    "metrics-distance": distances,
    "metrics-levels": by_level,
    "metrics-paths": two_paths,
    "metrics-hops": ranks,
    "metrics-calibration": bins,
    "metrics-selective": climbing,
}


def write(folder: Path) -> None:
    """Write all pictures, `NAME.svg` each; the same bytes every time with one version of matplotlib."""
    with style.house_style():
        for name, draw in PICTURES.items():
            style.write_figure(draw(), folder / f"{name}.svg")


if __name__ == "__main__":
    write(Path(__file__).parent)
