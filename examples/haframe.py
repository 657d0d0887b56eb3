"""HAFrame from the label tree to the severity of its mistakes, on generated data, in less than a minute on a CPU.

    uv run python examples/haframe.py

It follows Liang & Davis, "Inducing Neural Collapse to a Fixed Hierarchy-Aware Frame for Reducing Mistake Severity"
(ICCV 2023): the distances of the classes, the similarities that they are mapped to, a fixed classifier with these
cosines, its loss, a training beside cross-entropy, and the picture `haframe.svg`, in a temporary folder. All that it
imports is public.

Shapes: B batch, N examples, K classes, D features.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor, nn

from hierbench import Hierarchy, Method, evaluate
from hierbench.methods.ce import CrossEntropy
from hierbench.methods.haframe import HAFrame, hierarchy_aware_frame, minimum_similarity

GAMMA, ALPHA = 3.0, 0.4  # the paper's decay of the similarities, and weight of the cosine loss
BRANCHES, LEVELS = 3, 3  # K = 27 classes, as the leaves of a tree
TRAIN, TEST = 60, 200  # examples per class
DIMENSIONS, HIDDEN = 24, 96
EPOCHS, BATCH, RATE = 25, 128, 0.02
SEEDS = range(3)


def make_tree() -> Hierarchy:
    """Return a tree with three branches below each node: class "021" is the second below "02", below "0"."""
    names = [f"{number:03}" for number in range(1000) if all(int(digit) < BRANCHES for digit in f"{number:03}")]
    return Hierarchy.from_paths({name: [name[:1], name[:2], name] for name in names})


def make_data(tree: Hierarchy, per_class: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return points [N, DIMENSIONS] and classes [N]: classes that share more of their path lie closer together."""
    nodes = np.random.default_rng(0)  # the same world for all seeds
    place = {}
    for name in sorted({name[:end] for name in tree.classes for end in range(1, LEVELS + 1)}):
        parent = place.get(name[:-1], np.zeros(DIMENSIONS))
        place[name] = parent + nodes.normal(size=DIMENSIONS) * 0.55 ** len(name)
    centres = np.stack([place[name] for name in tree.classes])
    targets = np.repeat(np.arange(len(centres)), per_class)
    points = centres[targets] + 0.5 * np.random.default_rng(1 + seed).normal(size=(len(targets), DIMENSIONS))
    return torch.tensor(points, dtype=torch.float32), torch.tensor(targets)


def show_frame(tree: Hierarchy) -> tuple[np.ndarray, np.ndarray]:
    """Print equations 2 to 6 with numbers, and return the frame W [K, K] and the similarities S [K, K]."""
    distances = tree.distances  # [K, K], edges from a class up to the lowest common ancestor
    print(f"{tree.num_classes} classes; distances of class {tree.classes[0]}: {sorted(set(distances[0].tolist()))}")
    s_min = minimum_similarity(distances, GAMMA)
    print(f"smallest cosine for which S is positive definite: s_min = {s_min:.2f}")
    frame, similarity = hierarchy_aware_frame(distances, GAMMA)
    for distance in range(tree.height + 1):
        cosine = similarity[0][distances[0] == distance][0]
        print(f"  classes at distance {distance}: cosine {cosine:+.3f}")
    print(f"largest error of W W^T = S: {np.abs(frame @ frame.T - similarity).max():.1e}\n")
    return frame, similarity


class Model(nn.Module):
    """A network with a method on top: the layers give features [B, K], the method their logits, loss and scores."""

    def __init__(self, method: type[Method], tree: Hierarchy, params: dict[str, float]) -> None:
        super().__init__()
        num_classes = tree.num_classes  # a type-II model has as many features as classes
        self.layers = nn.Sequential(nn.Linear(DIMENSIONS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, num_classes))
        self.method = method(tree, num_classes, method.Params(**params))

    def forward(self, points: Tensor) -> Tensor:
        """Return what the method's loss and scores are computed from."""
        return self.method(self.layers(points))


def train(model: Model, points: Tensor, targets: Tensor, seed: int) -> None:
    """Train with SGD and a cosine schedule; the loss is the sum of the method's terms (equations 7 to 9)."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(points), generator=generator).split(BATCH):
            loss = sum(model.method.loss(model(points[rows]), targets[rows]).values())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


def compare(tree: Hierarchy) -> dict[str, list[dict[str, float]]]:
    """Return {method: metrics of each seed} on the test points."""
    test_points, test_targets = make_data(tree, TEST, seed=99)
    results: dict[str, list[dict[str, float]]] = {}
    for name, method, params in (
        ("cross-entropy", CrossEntropy, {}),
        ("HAFrame", HAFrame, {"gamma": GAMMA, "alpha": ALPHA}),
    ):
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = Model(method, tree, params)
            train(model, *make_data(tree, TRAIN, seed), seed)
            with torch.inference_mode():
                scores = model.method.scores(model(test_points))
            metrics = evaluate(scores, test_targets, tree)
            results.setdefault(name, []).append(metrics)
        means = {key: np.mean([metrics[key] for metrics in results[name]]) for key in metrics}
        print(
            f"{name:14} top-1 {means['top1']:.2f}%, mistake severity {means['mistake_severity']:.3f}, "
            f"HierDist@5 {means['hierdist@5']:.3f}  ({len(SEEDS)} seeds)"
        )
    return results


def draw(similarity: np.ndarray, results: dict[str, list[dict[str, float]]]) -> None:
    """Write haframe.svg: the similarities, and accuracy against mistake severity of each seed."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    image = left.imshow(similarity, cmap="viridis")
    left.set(title="S: the cosines of the fixed frame", xlabel="class", ylabel="class")
    figure.colorbar(image, ax=left, shrink=0.85)
    for (name, seeds), marker in zip(results.items(), "os", strict=True):
        severity, accuracy = ([metrics[key] for metrics in seeds] for key in ("mistake_severity", "top1"))
        right.plot(severity, accuracy, marker, label=name, markersize=7)
    right.set(title="Each seed", xlabel="mistake severity, edges (lower is better)", ylabel="top-1 accuracy, %")
    right.grid(alpha=0.3)
    right.legend()
    folder = Path(tempfile.gettempdir(), "hierbench-examples")
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / "haframe.svg")
    print(f"\nwrote haframe.svg in {folder}")


def main() -> None:
    """Tell the paper from the tree to the picture."""
    tree = make_tree()
    _, similarity = show_frame(tree)
    draw(similarity, compare(tree))


if __name__ == "__main__":
    main()
