"""A method's numbers move only with its `version`, which stands for its code in the ids of runs.

Each method takes three steps of SGD in float64 on a small ragged tree; a post-hoc method re-ranks. The loss terms and
the scores are compared with those recorded for its version. `python -m tests.golden.test_methods` records them where
the version is new, and never changes those of a recorded one.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hierbench import Hierarchy
from hierbench.api.method import PostHoc, base_names
from hierbench.api.registry import find_all, find_method

FILE = Path(__file__).with_name("methods.json")
PATHS = {path[-1]: tuple(path) for path in ("pta", "ptb", "puc", "qd", "qve", "qvf", "qvwg", "rxyh")}
TREES = {
    "ragged": Hierarchy.from_paths(PATHS),
    "even": Hierarchy.from_paths({c: (c[0], c) for c in ("a1", "a2", "b1")}),
}
NUM_EXAMPLES = 12
METHODS = [method for method in [*find_all(), find_method("_coarse_ce")] if method.source is None]
# HAFrame's frame comes from float32 normal numbers, which differ by 2e-6 between instruction sets.
TOLERANCE = dict.fromkeys(("haframe", "haframe_paper", "haframe_frame"), 1e-4)


def trained_values(cls, tree, features, targets):
    """Loss terms of each step and the scores of the last."""
    torch.manual_seed(0)
    method = cls(tree, tree.num_classes)
    features = torch.nn.Parameter(features)  # as of a backbone: some methods have no parameters
    optimizer = torch.optim.SGD([features, *method.parameters()], lr=0.1, momentum=0.9)
    values = []
    for _ in range(3):
        terms = method.loss(method(features), targets)
        values += [value.item() for value in terms.values()]
        optimizer.zero_grad()
        sum(terms.values()).backward()
        optimizer.step()
    outputs = method.eval()(features)
    for scores in (method.scores(outputs), *(method.level_scores(outputs) or ())):
        values += scores.ravel().tolist()
    return values


def reranked_values(cls, tree, random):
    """Scores from random probabilities of each base; a method that needs validation is fitted on the same ones."""
    bases = len(base_names(cls))
    probabilities = [torch.from_numpy(random.dirichlet(np.ones(tree.num_classes), NUM_EXAMPLES)) for _ in range(bases)]
    return cls(tree).rescore(*probabilities).ravel().tolist()


def method_values(cls):
    """Return {tree: values}, in float64."""
    values = {}
    torch.set_default_dtype(torch.float64)
    try:
        for name, tree in TREES.items():
            random = np.random.default_rng(0)
            features = torch.from_numpy(random.normal(size=(NUM_EXAMPLES, tree.num_classes)))
            targets = torch.from_numpy(random.integers(tree.num_classes, size=NUM_EXAMPLES))
            is_posthoc = issubclass(cls, PostHoc)
            values[name] = (
                reranked_values(cls, tree, random) if is_posthoc else trained_values(cls, tree, features, targets)
            )
    finally:
        torch.set_default_dtype(torch.float32)
    return values


def rounded(values):
    """The same with ten digits, which are enough."""
    return {tree: [float(f"{value:.10g}") for value in numbers] for tree, numbers in values.items()}


def read_golden():
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_numbers_move_only_with_the_version(method):
    golden = read_golden().get(method.name, {})
    version = method.cls.version
    assert version in golden, f"record the numbers of {method.name} {version}: python -m tests.golden.test_methods"
    tolerance = TOLERANCE.get(method.name, 1e-7)
    computed = method_values(method.cls)
    for tree, expected in golden[version].items():
        moved = f"the numbers of {method.name} have moved: raise its version, or undo the change"
        assert computed[tree] == pytest.approx(expected, rel=tolerance, abs=tolerance), moved


if __name__ == "__main__":
    golden = read_golden()
    for method in METHODS:
        golden.setdefault(method.name, {}).setdefault(method.cls.version, rounded(method_values(method.cls)))
    FILE.write_text(json.dumps(golden, indent=None).replace("}}, ", "}},\n") + "\n", encoding="utf-8")
