"""A tree from left to right, its nodes named; of a large one the coarsest levels that fit on a page."""

from matplotlib.figure import Figure

from hierbench.figures.plots.style import GREY, TINY_TYPE, Drawing, bare, house_style, new_figure, readable
from hierbench.figures.plots.tree_drawing import as_polyline
from hierbench.hierarchy.node_paths import number_nodes
from hierbench.hierarchy.readers import Paths

NAME_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}  # over the lines
MOST_TIPS = 120  # lines of names on a page
TIP_HEIGHT = 0.105
LETTER_WIDTH = 0.052
LEVEL_GAP = 0.25  # the lines between two levels


def plot_tree(paths: Paths) -> Drawing:
    """Draw the tree of {class: (coarsest, ..., class)}; a node that is cut off says how many classes it has."""
    numbers = number_nodes(paths.values())
    names = [""] * len(numbers.names)
    num_classes = [0] * len(numbers.names)
    children = {0: dict[int, None]()}
    for path, chain in zip(paths.values(), numbers.chains, strict=True):
        for above, node, name in zip((0, *chain), chain, path, strict=False):
            children.setdefault(above, {})[node] = None
            names[node] = readable(name)
            num_classes[node] += 1
    height = max(map(len, numbers.chains))
    tips_at = [len({chain[min(depth, len(chain)) - 1] for chain in numbers.chains}) for depth in range(1, height + 1)]
    depth_shown = max([depth for depth, num in enumerate(tips_at, 1) if num <= MOST_TIPS] or [1])
    levels: list[list[int]] = [[0]]
    for _ in range(depth_shown):
        levels.append([child for node in levels[-1] for child in children.get(node, ())][:MOST_TIPS])
    with house_style():
        figure = _draw(levels, children, names, num_classes)
    remarks = list[str]()
    if depth_shown < height or tips_at[0] > MOST_TIPS:
        remarks.append(f"the picture shows {depth_shown} of {height} levels, and at most {MOST_TIPS} nodes of each")
    return Drawing(figure, remarks)


def _draw(
    levels: list[list[int]], children: dict[int, dict[int, None]], names: list[str], num_classes: list[int]
) -> Figure:
    shown = {node for level in levels for node in level}
    y = dict[int, float]()
    tips = list[int]()
    for node in _preorder(levels, children, shown):
        if not shown & children.get(node, {}).keys():
            y[node] = float(len(tips))
            tips.append(node)
    labels = {
        node: names[node] + f" ({num_classes[node]:,} classes)" * (node in tips and node in children) for node in shown
    }
    left_edge = dict[int, float]()
    right = 0.0  # inches, of each level
    for depth, level in enumerate(levels[1:], 1):
        left_edge[depth] = right + LEVEL_GAP
        right = left_edge[depth] + LETTER_WIDTH * max(len(labels[node]) for node in level)
    lines = []
    for depth in range(len(levels) - 1, -1, -1):
        for node in levels[depth]:
            below = [y[child] for child in children.get(node, ()) if child in shown]
            if below:
                y[node] = (below[0] + below[-1]) / 2
                corner = left_edge[depth + 1] - LEVEL_GAP / 2
                end = left_edge.get(depth, 0.0) + LETTER_WIDTH * len(labels[node]) if depth else 0.0
                lines += [((end, y[node]), (corner, y[node])), ((corner, below[0]), (corner, below[-1]))]
                lines += [((corner, place), (left_edge[depth + 1] - LETTER_WIDTH / 2, place)) for place in below]
    figure = new_figure(right + 0.3, TIP_HEIGHT * len(tips) + 0.3)
    axes = figure.add_subplot()
    axes.plot(*as_polyline(lines), color=GREY, linewidth=0.5)
    for depth, level in enumerate(levels[1:], 1):
        for node in level:
            axes.text(left_edge[depth], y[node], labels[node], va="center", fontsize=TINY_TYPE, bbox=NAME_BOX)
    axes.set(xlim=(0, right), ylim=(len(tips) - 0.5, -0.5))
    bare(axes)
    return figure


def _preorder(levels: list[list[int]], children: dict[int, dict[int, None]], shown: set[int]) -> list[int]:
    order = list[int]()
    stack = [0]
    while stack:
        node = stack.pop()
        order.append(node)
        stack += [child for child in reversed(children.get(node, {})) if child in shown]
    return order
