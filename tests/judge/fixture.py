"""Makes what the commands are tried on, in the current folder: python fixture.py TESTS, the tests' folder of a tree.

Runs of `shapes` with invented predictions, in which methods differ and seeds vary: the comparison, one of other
settings before it, one of the other protocol. Runs of CIFAR-100, to stand beside the paper's; one of them is damaged.
Predictions to score, a method that fails in training, and images of a user.
"""

import importlib.util
import itertools
import json
import sys
from pathlib import Path

import numpy as np

from hierbench import Hierarchy
from hierbench.config.spec import Spec
from hierbench.data.datasets import shapes
from hierbench.data.prepare import prepare
from hierbench.data.prepared import find
from hierbench.runs.store import Store

TESTS = Path(sys.argv[1])
LEVELS = "cross_entropy_1 cross_entropy_2 cross_entropy_3"
ROWS = {  # the loss terms of a method
    "ce": "cross_entropy",
    "flamingo": LEVELS,
    "barz_denzler": "cosine cross_entropy",
    "etf": "dot_regression",
    "hiercos": "kl levels",
    "hxe": "hxe",
    "soft_labels": "divergence",
    "haframe": "cosine cross_entropy",
    "hafeature": "cross_entropy dissimilarity jsd weights",
    "conditional_softmax": "cross_entropy",
    "descendant_softmax": "descendant",
    "multilevel_ce": LEVELS,
}
BUGGY = '''"""Cross-entropy that fails."""
from hierbench.methods.ce import CrossEntropy


class Buggy(CrossEntropy):
    name = title = source = "buggy"

    def loss(self, outputs, targets):
        if len(targets) > 100:
            raise RuntimeError("as asked")
        return super().loss(outputs, targets)
'''


def load(name):
    """Import a file of the tests."""
    file = next(file for file in (TESTS / f"support/{name}.py", TESTS / f"{name}.py") if file.is_file())
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scores_of(prepared, row, kind, seed, group=0):
    """Return scores [N, K] of the test images: rows differ in skill, and in how near mistakes are."""
    targets = np.array(prepared.arrays("test")[1])
    tree = prepared.hierarchy("height")
    near = 1.0 - np.asarray(tree.distances)[targets] / tree.height
    noise = np.random.default_rng([row, len(kind), seed, group]).normal(size=near.shape)
    skill = 1.2 + 0.12 * (row % 5) + 0.1 * len(kind)
    exact = skill * (np.arange(near.shape[1]) == targets[:, None])
    return (noise + exact + (0.2 + 0.15 * (row // 5)) * near).astype(np.float32), targets


def main():
    """Make all of it."""
    shapes.PER_CLASS = {"train": 5, "val": 2, "test": 5}
    prepare("shapes", Path("data"))
    prepared, runs = find("shapes", Path("data")), load("mistake_runs")
    groups = (
        (["ce", "flamingo"], ["type-I"], 2, ["train.epochs=2"], {}),
        (["ce", "haframe"], ["type-I", "type-II"], 3, ["train.epochs=1"], {"protocol": "authors"}),
        ([*ROWS], ["type-I", "type-II"], 3, ["train.epochs=1"], {}),
    )
    for group, (names, kinds, seeds, overrides, options) in enumerate(groups):
        for seed, row, kind in itertools.product(range(seeds), names, kinds):
            if (row, kind) == ("haframe", "type-I"):
                continue
            scores, targets = scores_of(prepared, [*ROWS].index(row), kind, seed, group)
            id_ = runs.store_run(Store(Path("runs")), prepared, row, kind, scores, targets, seed, overrides, **options)
            history = Path("runs", id_, "history.csv")
            header, *lines = history.read_text().splitlines()
            terms = ROWS[row].split()
            header = header.replace("train_cross_entropy", ",".join(f"train_{term}" for term in terms))
            lines = [line.replace(",1.0,1.0,", f",{'1.0,' * (len(terms) + 1)}") for line in lines]
            history.write_text("\n".join([header, *lines, ""]))
            runs.seal(Store(Path("runs")).run(id_))
    scored, out = Path("scored"), Path("out")
    scored.mkdir()
    out.mkdir()
    for seed in range(2):
        scores, targets = scores_of(prepared, 7, "scored", seed)
        np.savez(scored / f"resnet-{seed}.npz", scores=scores, targets=targets)
    Path("buggy.py").write_text(BUGGY)

    tree, base = Hierarchy.load("cifar100"), json.loads(Path(f"runs/{id_}/spec.json").read_text())
    base["dataset"] |= {"name": "cifar100", "digest": "d" * 64, "hierarchy": tree.digest()}
    base["train"]["epochs"] = 2
    data = {"digest": "d" * 64, "remark": "not the whole dataset", "splits": {"train": 1, "val": 48, "test": 100}}
    method = {"version": "1", "code": "c" * 64, "params": {}}
    specs = [
        Spec.model_validate(base | {"method": method | {"name": name}, "type": kind, "seed": seed})
        for name, kind, seed in itertools.product(("ce", "flamingo", "mine"), ("type-I", "type-II"), range(3))
    ]
    load("many_runs").write(Path("cifar"), specs, tree, np.arange(100), data)
    load("miniatures").birds(Path("birds"))
    damaged = next(path for path in sorted(Path("cifar").glob("*/metrics.json")) if '"mine"' in path.read_text())
    damaged.write_text(json.dumps(json.loads(damaged.read_text()) | {"title": "other"}))


main()
