"""Mistakes in what is measured: one line that names the argument. The wording is pinned here."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from hierbench import Hierarchy, evaluate, metrics
from hierbench.hierarchy.class_names import class_indices
from hierbench.metrics import Evidence, Tally, compute_metrics, find_metric, known_metrics, mistakes_by_distance
from hierbench.metrics import functions as f
from hierbench.metrics.classes import HierarchicalMetric
from tests.support.messages import check_message
from tests.support.trees import THINGS as TREE

CLASSES = list(TREE.classes)
SHAPES = Hierarchy.load("shapes")
PAIR = Hierarchy.from_paths({"a": ("a",), "b": ("b",)})
ROW = [0.5, 0.1, 0.2, 0.3, 0.4]
TENSOR = torch.tensor([ROW])
TRUTHS = TENSOR > 0.2
NAN = torch.full((2, 5), math.nan)
NOT_REAL, NOT_INTEGERS = "^scores must be real numbers", "targets must be integers from 0 to 4"
NEITHER = "neither whole numbers nor names but "


def frame(columns):
    return pd.DataFrame([[1.0] * len(columns)], columns=columns)


def measured(**changes):
    """All metrics of two examples, but for the changes."""
    inputs = {"scores": torch.eye(5)[:2], "targets": torch.tensor([0, 1]), "probabilities": torch.eye(5)[:2]}
    inputs |= {"level_predictions": torch.tensor(TREE.level_targets[:2])}
    return compute_metrics(known_metrics(TREE), Evidence(hierarchy=TREE, **(inputs | changes)))


def tallied(scores, targets, read):
    tally = Tally(TREE)
    tally.add(scores, targets)
    tally.add(torch.eye(5), torch.arange(5))
    return read(tally)


MISTAKES = [
    # Functions
    ("y_score: column 'lino' is not a class of the tree; did you mean 'lion'",
     lambda: f.hops_score([0], frame(["cat", "lino", "dog", "car", "bus"]), TREE)),
    ("y_score: class 'bus' has no column", lambda: f.hops_score([0], frame(CLASSES[:4]), TREE)),
    ("y_score: class 'cat' has two columns", lambda: f.hops_score([0], frame([*CLASSES, "cat"]), TREE)),
    ("no examples", lambda: f.hf1_score([], [], TREE)),
    ("y_true has 2 examples, y_pred 1", lambda: f.hf1_score([0, 1], [0], TREE)),
    ("y_pred must have one class per example", lambda: f.top1_score([0], [[0.1, 0.9]], TREE)),
    ("y_true: 'lino' in row 1 is not a class of the tree; did you mean 'lion'",
     lambda: f.hf1_score(["cat", "lino"], ["cat", "lion"], TREE)),
    ("y_pred: 5 in row 0 is out of range", lambda: f.mistake_severity([0], [5], TREE)),
    ("average must be", lambda: f.hf1_score([0], [0], TREE, average="weighted")),
    ("the tree has 5 classes", lambda: f.hierdist_at_k_loss([0], [[1, 2, 3, 4, 5]], TREE, k=6)),
    ("the tree has levels 1 to 3", lambda: f.level_accuracy_score([0], [0], TREE, level=4)),
    ("y_score must be", lambda: f.hops_score([0], [[1.0, 2.0]], TREE)),
    ("y_score 2", lambda: f.hops_score([0], [[1.0] * 5] * 2, TREE)),
    ("a score is NaN", lambda: f.hierdist_at_k_loss([0], [[math.nan] * 5], TREE, k=1)),
    ("labels must name each", lambda: f.hops_score([0], [[1.0] * 5], TREE, labels=["cat"] * 5)),
    ("rule must be", lambda: f.haurc_loss([0], [[1.0] * 5], TREE, rule="other")),
    ("y_levels must be integers", lambda: f.tree_inconsistency_loss([0], [["animal"] * 3], TREE)),
    ("not a node of its level", lambda: f.full_path_accuracy_score([0], [[7, 0, 0]], TREE)),
    # evaluate
    *((message, lambda s=scores, t=targets: evaluate(s, t, TREE)) for scores, targets, message in [
        (torch.zeros(0, 5), torch.zeros(0, dtype=torch.long), "no examples"),
        (torch.zeros(2, 4), [0, 0], "must be [N, 5]"),
        (torch.zeros(2, 5), [0, 0, 0], "must be [N, 5]"),
        (torch.tensor([[0, math.nan, 0, 0, 0.0]]), [0], "NaN"),
        (TRUTHS, [0], f"{NOT_REAL}, got bool"),
        ([[True, False, True, False, True]], [0], f"{NOT_REAL}, got bool"),
        (TENSOR + 0j, [0], f"{NOT_REAL}, got complex64"),
        (np.array([ROW], dtype=object), [0], f"{NOT_REAL} [N, K], got an array of dtype object"),
        (np.array([ROW]).astype(str), [0], f"{NOT_REAL} [N, K], got an array of dtype <U"),
        ([["a", "b", "c", "d", "e"]], [0], f"{NOT_REAL} [N, K], got list"),
        ([[0.5, None, 0.2, 0.3, 0.4]], [0], f"{NOT_REAL} [N, K], got list"),
        (None, [0], f"{NOT_REAL} [N, K], got NoneType"),
        (TENSOR.to_sparse(), [0], f"{NOT_REAL}, got float32 in the layout sparse_coo"),
        *((torch.zeros(1, 5), targets, NOT_INTEGERS) for targets in ([5], [-1], [0.0], [1j], [True])),
        *((torch.zeros(1, 5), targets, "targets must be integers [N], got ") for targets in
          (np.array(["a"]), np.array([0], dtype=object), [None])),
    ]),
    ("k must be a whole number", lambda: evaluate(torch.eye(5), torch.arange(5), TREE, (0,))),
    (f"{NOT_REAL}, got bool", lambda: metrics.top_classes(TRUTHS, 2)),
    (f"{NOT_REAL}, got bool", lambda: mistakes_by_distance(TRUTHS, [0], TREE)),
    (f"{NOT_REAL}, got bool", lambda: Tally(TREE).add(TRUTHS, torch.tensor([0]))),
    (f"{NOT_REAL}, got bool", lambda: HierarchicalMetric(TREE, "top1").update(TRUTHS, torch.tensor([0]), TRUTHS)),
    # A tally asks its device when it is read
    ("no examples", lambda: Tally(TREE).metrics()),
    *((message, lambda s=scores, t=targets, r=read: tallied(s, torch.tensor(t), r))
      for scores, targets, message in [(NAN, [0, 0], "NaN"), (torch.zeros(2, 5), [0, 7], NOT_INTEGERS)]
      for read in (Tally.metrics, Tally.mistakes_by_distance)),
    # Evidence
    (NOT_INTEGERS, lambda: measured(targets=torch.tensor([0, 5]))),
    (NOT_INTEGERS, lambda: measured(targets=torch.tensor([-1, 0]))),
    ("NaN", lambda: measured(scores=NAN)),
    ("between 0 and 1", lambda: measured(probabilities=NAN)),
    ("between 0 and 1", lambda: measured(probabilities=torch.full((2, 5), -0.1))),
    ("probabilities must be real numbers", lambda: measured(probabilities=torch.ones(2, 4))),
    ("level predictions must be integers", lambda: measured(level_predictions=torch.zeros(2, 2, dtype=torch.int64))),
    ("not a node of its level", lambda: measured(level_predictions=torch.full((2, 3), 5))),
    ("no examples", lambda: measured(
        scores=torch.ones(0, 5), targets=torch.ones(0).long(), probabilities=torch.ones(0, 5), level_predictions=None
    )),
    # The class of torchmetrics
    ("fpa needs level_predictions", lambda: HierarchicalMetric(TREE, "fpa").update(torch.eye(5), torch.arange(5))),
]  # fmt: skip
UNKNOWN = [
    # Names and indices of classes
    *((message, lambda v=values: class_indices(v, SHAPES, "labels")) for values, message in [
        (np.array(["2020-01-01"], dtype="datetime64[D]"), f"2020-01-01 is not a class index: {NEITHER}datetime64"),
        (np.array([1], dtype="timedelta64[s]"), f"{NEITHER}timedelta64"),
        (np.array([1 + 2j]), f"{NEITHER}complex128"),
        (np.array([True]), "True is not a class index"),
        (np.array([], dtype=bool), f"{NEITHER}bool"),
        ([float("inf")], "inf is not a class index"),
        ([1.0, float("nan")], "nan is not a class index"),
        ([1e300], "1e+300 in row 0 is out of range"),
        (np.array([2**64 - 1], dtype=np.uint64), "18446744073709551615 in row 0 is out of range"),
        ([10**30], "is out of range"),
        ([None], "is not a class of the tree"),
    ]),
    # Names of metrics
    *((message, lambda n=name, t=tree: find_metric(n, t)) for name, tree, message in [
        ("hopz", None, "unknown metric 'hopz'; did you mean 'hops'?"),
        ("hierdist", None, "'hierdist' needs a number of classes, such as 'hierdist@5'"),
        ("hierdist@0", None, "'hierdist@0' needs a number of classes"),
        ("level_accuracy@fine", None,
         "'level_accuracy@fine' needs a level, 1 the coarsest, such as 'level_accuracy@1'"),
        ("top1@5", None, "unknown metric 'top1@5'; did you mean 'top1'?"),
        ("hops@\u0665", None, "needs a number of classes"),
        ("ECE", None, "did you mean 'ece'?"),
        ("level_accuracy@2", PAIR, "'level_accuracy@2' here: the tree has levels 1 to 1"),
        ("hierdist@3", PAIR, "'hierdist@3' here: the tree has 2 classes"),
    ]),
    ("unknown metric 'hop'; did you mean 'hops'", lambda: HierarchicalMetric(TREE, "hop")),
    ("the tree has 5 classes", lambda: HierarchicalMetric(TREE, "hierdist@6")),
]  # fmt: skip


@pytest.mark.parametrize(("message", "call"), MISTAKES)
def test_a_mistake_is_a_value_error_that_names_it(message, call):
    check_message(message, call, kind=ValueError)


@pytest.mark.parametrize(("message", "call"), UNKNOWN)
def test_an_unknown_class_or_metric_is_a_user_s_mistake(message, call):
    check_message(message, call)
