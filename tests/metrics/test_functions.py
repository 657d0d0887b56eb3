"""The functions in the way of scikit-learn: against references by hand, and against the registry for every metric."""

import doctest
import inspect
import math

import numpy as np
import pandas as pd
import pytest
import torch

from hierbench import Hierarchy, metrics
from hierbench.hierarchy.class_names import class_indices
from hierbench.metrics import Evidence, compute_metrics, functions, known_metrics
from hierbench.metrics.calibration import as_probabilities
from hierbench.metrics.level_metrics import lifted_predictions
from tests.support.trees import THINGS as TREE

CLASSES = list(TREE.classes)
# {name in tables: (function, its options, what it takes)}; those in per cent are fractions here.
FUNCTIONS = {
    "top1": ("top1_score", {}, "classes"),
    "mistake_severity": ("mistake_severity", {}, "classes"),
    "hierdist@1": ("hierarchical_distance", {}, "classes"),
    "hierdist@k": ("hierdist_at_k_loss", {"k": 3}, "scores"),
    "min_distance@k": ("min_distance_at_k_loss", {"k": 3}, "scores"),
    "level_accuracy@l": ("level_accuracy_score", {"level": 2}, "classes"),
    "level_accuracy_lifted@l": ("lifted_level_accuracy_score", {"level": 2}, "scores"),
    "fpa": ("full_path_accuracy_score", {}, "levels"),
    "tice": ("tree_inconsistency_loss", {}, "levels"),
    **{
        f"{short}_{average}": (long, {"average": average}, "classes")
        for short, long in (
            ("hp", "hierarchical_precision_score"),
            ("hr", "hierarchical_recall_score"),
            ("hf", "hf1_score"),
        )
        for average in ("micro", "macro")
    },
    "information_severity": ("information_severity", {}, "classes"),
    "hops@k": ("hops_score", {"k": 3}, "scores"),
    "hops": ("hops_score", {}, "scores"),
    "ece": ("expected_calibration_error", {}, "scores"),
    "mce": ("maximum_calibration_error", {}, "scores"),
    "haurc_climbing": ("haurc_loss", {"rule": "climbing"}, "scores"),
    "haurc_selective": ("haurc_loss", {"rule": "selective"}, "scores"),
}


def family(name):
    base, at, _ = name.partition("@")
    return f"{base}@{'l' if base.startswith('level') else 'k'}" if at else name


def public_functions():
    names = {name for name in metrics.__all__ if name.endswith(("_score", "_loss", "_error", "severity", "distance"))}
    return names - {"mistakes_by_distance"}


def test_every_metric_of_the_registry_has_a_function():
    assert {family(name) for name in known_metrics()} == {name for name in FUNCTIONS if name != "hierdist@1"}
    named = {function for function, _, _ in FUNCTIONS.values()}
    assert public_functions() == named


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_gives_the_value_of_the_registry(name):
    function, options, takes = FUNCTIONS[name]
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn((40, 5), generator=generator)
    targets = torch.randint(5, (40,), generator=generator)
    levels = lifted_predictions(as_probabilities(scores), TREE)
    evidence = Evidence(scores, targets, TREE, as_probabilities(scores), levels)
    parameter = options.get("k", options.get("level"))
    full_name = f"{name.partition('@')[0]}@{parameter}" if parameter else name
    expected = compute_metrics([full_name], evidence)[full_name]
    taken = {"classes": scores.argmax(dim=1), "scores": scores, "levels": levels}[takes]
    unit = metrics.find_metric(full_name).unit
    value = getattr(metrics, function)(targets, taken, TREE, **options)
    assert type(value) is float and value * (100.0 if unit == "%" else 1.0) == pytest.approx(expected, rel=1e-12)
    assert value > 0.0 and math.isfinite(value)
    arrays = getattr(metrics, function)(targets.numpy(), taken.numpy().tolist(), TREE, **options)
    assert arrays == pytest.approx(value, rel=1e-6)
    names = getattr(metrics, function)([CLASSES[i] for i in targets], taken, TREE, **options)
    assert names == value


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("form", [read_only, list, lambda a: (pd.Series if a.ndim == 1 else pd.DataFrame)(a)])
def test_read_only_arrays_lists_and_frames_are_taken_without_a_warning(form):
    generator = np.random.default_rng(0)
    targets, scores = generator.integers(5, size=20), generator.normal(size=(20, 5))
    taken = {"classes": scores.argmax(axis=1), "scores": scores, "levels": TREE.level_targets[scores.argmax(axis=1)]}
    calls = [
        *((getattr(metrics, name), (targets, taken[takes]), options) for name, options, takes in FUNCTIONS.values()),
        (metrics.evaluate, (scores, targets), {}),
        (metrics.mistakes_by_distance, (scores, targets), {}),
        (lambda arguments, _: metrics.top_classes(arguments, 2).tolist(), (scores,), {}),
    ]
    torch.set_warn_always(True)  # else PyTorch warns of read-only arrays once per process
    try:
        for call, arguments, options in calls:
            assert call(*map(form, map(np.copy, arguments)), TREE, **options) == call(*arguments, TREE, **options)
    finally:
        torch.set_warn_always(False)


def test_the_columns_of_a_data_frame_are_those_that_it_names():
    scores = np.random.default_rng(0).random((9, 5))
    expected = metrics.hierdist_at_k_loss([0, 1, 2] * 3, scores, TREE, k=2)
    for labels in (sorted(CLASSES), [4, 2, 0, 1, 3], ["4", "2", "0", "1", "3"]):
        order = class_indices(labels, TREE, "labels")
        frame = pd.DataFrame(scores[:, order], columns=labels)
        assert metrics.hierdist_at_k_loss([0, 1, 2] * 3, frame, TREE, k=2) == expected
        assert metrics.hierdist_at_k_loss([0, 1, 2] * 3, frame, TREE, k=2, labels=labels) == expected
        assert metrics.hierdist_at_k_loss([0, 1, 2] * 3, scores[:, order], TREE, k=2, labels=labels) == expected
        assert metrics.evaluate(frame, [0, 1, 2] * 3, TREE, ks=(2,))["hierdist@2"] == expected
    assert metrics.hierdist_at_k_loss([0, 1, 2] * 3, pd.DataFrame(scores), TREE, k=2) == expected  # without names
    with pytest.raises(ValueError, match="which are no classes of the tree"):
        metrics.hierdist_at_k_loss([0, 1, 2] * 3, pd.DataFrame(scores, columns=range(1, 6)), TREE, k=2)


def test_whole_numbers_are_names_of_numbered_classes_in_columns_of_any_type():
    tree = Hierarchy.from_paths({"2": ("a", "2"), "1": ("a", "1"), "0": ("b", "0")})
    for values in (
        pd.Series([0, 1, 2], dtype=object),
        pd.Series([0, 1, 2], dtype="Int64"),
        [np.int8(0), 1, np.uint64(2)],
    ):
        assert class_indices(values, tree, "y").tolist() == [2, 1, 0]
        assert class_indices(values, tree, "y", "tree").tolist() == [0, 1, 2]
    assert class_indices(pd.Series(["0", "1", "2"]), tree, "y").tolist() == [2, 1, 0]
    assert class_indices(np.array([["0"], [2]], dtype=object), tree, "y").tolist() == [[2], [0]]  # no column of numbers


def test_every_example_in_a_docstring_runs():
    failed, tried = doctest.testmod(functions)
    assert not failed and tried >= len(public_functions())
    for function, _, _ in FUNCTIONS.values():
        text = inspect.getdoc(getattr(metrics, function))
        assert "Example:" in text and ("Source" in text or "source" in text or function == "top1_score")
