"""Which rules a table has: their texts, how parameters are fitted on validation, and the curve of a rule."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierbench.answers import known_rules
from hierbench.answers.choices import (
    DEFAULT_RULES,
    area_under,
    choices_of,
    fit_choice,
    parse_choices,
    rule_curve,
    shares,
    split_rules,
)
from hierbench.answers.decision_rule import checked_chunks
from hierbench.answers.rules.rank_thresholds import NEVER, precise_thresholds
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.nodes import Nodes
from hierbench.utils.errors import UserError

TREE = Hierarchy.from_paths(
    {path[-1]: path for path in (("A", "B", "a"), ("A", "B", "b"), ("A", "c"), ("D", "d"), ("E", "e"), ("E", "f"))}
)
FIRST_CLASS = Nodes(TREE).num_inner


def drawn(seed, num=400):
    """Chunks of probabilities of targets that are right more often the surer they are, and the targets' nodes."""
    generator = np.random.default_rng(seed)
    probabilities = generator.dirichlet(np.full(6, 0.4), size=num)
    targets = np.array([generator.choice(6, p=row) for row in probabilities])
    return list(checked_chunks(torch.from_numpy(probabilities), TREE)), FIRST_CLASS + torch.from_numpy(targets)


def test_default_rules_are_known_and_differ():
    choices = parse_choices(DEFAULT_RULES)
    labels = [choice.label for choice in choices]
    assert len(set(labels)) == len(labels) and {choice.rule.name for choice in choices} == set(known_rules())
    assert {"climbing@0.9", "climbing@0.95", "crm:temperature=1", "least_cost:cost=hf:root=true"} <= set(labels)
    titles = {choice.label: choice.title for choice in choices}
    assert titles["climbing@0.9"] == "Climbing (90 %)" and titles["crm:temperature=1"] == "CRM (uncalibrated)"
    assert next(choice for choice in choices if choice.label == "darts@0.95").curve == "darts"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("climb", "unknown rule 'climb'.*climbing"),
        ("climbing:limit=3", "unknown parameter of climbing 'limit'"),
        ("climbing:0.8", "a parameter is NAME=VALUE, as in climbing:threshold=0.8"),
        ("majority:temperature=0", "a temperature is a number above 0"),
        ("majority:temperature=hot", "a temperature is a number above 0"),
        ("./none.py", "none.py is not a Python file"),
        ("majority@0.9", "majority has no parameter to fit, so it takes no @0.9"),
        ("climbing@darts", "darts is no rule with given parameters"),
        ("climbing@0", "an accuracy is between 0 and 1, got 0"),
    ],
)
def test_a_choice_that_is_none(text, message):
    with pytest.raises(UserError, match=message):
        parse_choices([text])


def test_lists_in_a_text_of_rules():
    rules = split_rules("majority,rank_thresholds:thresholds=[0.8,0.6]:within_lineage=true,./a.py")
    assert rules == ["majority", "rank_thresholds:thresholds=[0.8,0.6]:within_lineage=true", "./a.py"]
    (choice,) = parse_choices(rules[1:2])
    assert choice.parameters == {"thresholds": [0.8, 0.6], "within_lineage": True} and choice.accuracy is None


def test_labels_name_their_choices():
    choices = parse_choices([*DEFAULT_RULES, "climbing:threshold=0.5"])
    assert choices_of([choice.label for choice in choices] + ["mine@0.9"]) == choices


def test_accuracies_are_shares():
    with pytest.raises(UserError, match="an accuracy is between 0 and 1, got 90"):
        parse_choices(["climbing"], [90.0])


@pytest.mark.parametrize("name", ["confidence_threshold", "information_threshold", "darts", "climbing", "jumping"])
@given(seed=st.integers(0, 2**31), accuracy=st.sampled_from([0.8, 0.9, 0.95]))
def test_a_fitted_parameter_reaches_its_accuracy(name, seed, accuracy):
    """And a slightly more specific one does not, unless the most specific one suffices."""
    chunks, targets = drawn(seed)
    (choice,) = parse_choices([name], [accuracy])
    parameters = fit_choice(choice, chunks, targets, TREE)
    value = parameters[choice.rule.fitted]
    assert shares(choice.rule, parameters, chunks, targets, TREE)[0] >= accuracy
    specific, cautious = choice.rule.span(TREE, accuracy)
    if value != specific:
        parameters[choice.rule.fitted] = value + (specific - cautious) * 1e-6
        assert shares(choice.rule, parameters, chunks, targets, TREE)[0] < accuracy


@given(seed=st.integers(0, 2**31), precision=st.sampled_from([0.5, 0.8, 0.95]))
def test_thresholds_of_ranks_reach_their_precision(seed, precision):
    """Each is the smallest sum, of the examples that no finer rank answers, above which enough answers are right."""
    chunks, targets = drawn(seed, 60)
    thresholds = precise_thresholds(chunks, targets, TREE, precision)
    (_, chunk) = chunks[0]
    left = np.ones(60, dtype=bool)
    above = {node: {node, *ancestors(node)} for node in range(Nodes(TREE).num_nodes)}
    for level, threshold in zip((2, 1, 0), thresholds, strict=True):
        sums = chunk.by_level.probability[:, level].numpy()
        right = [
            int(node) in above[int(target)] for node, target in zip(chunk.by_level.node[:, level], targets, strict=True)
        ]

        def precision_above(bound, sums=sums, right=right, left=left):
            answered = left & (sums > bound)
            return np.mean(np.array(right)[answered]) if answered.any() else None

        candidates = [0.0, *sums[left]]
        reached = [
            bound for bound in candidates if (share := precision_above(bound)) is not None and share >= precision
        ]
        assert threshold == (min(reached) if reached else NEVER)
        left &= sums <= threshold


def ancestors(node):
    parent = Nodes(TREE).parent
    while node:
        node = int(parent[node])
        yield node


def test_a_curve_begins_at_the_root_and_ends_at_the_best_class():
    chunks, targets = drawn(0)
    for choice in parse_choices(["darts", "climbing", "jumping"], [0.9]):
        points = rule_curve(choice, chunks, targets, TREE)
        assert points[0] == (0.0, 1.0) and points[-1][0] == 1.0
        best = chunks[0][1].classes.argmax(dim=1) + FIRST_CLASS
        assert points[-1][1] == pytest.approx(float((best == targets).double().mean()))
        assert points[-1][1] <= area_under(points) <= 1.0


def test_the_area_under_a_curve_counts_what_is_reached_further_on():
    assert area_under([(0.0, 1.0), (0.5, 0.6), (0.8, 0.9), (1.0, 0.5)]) == pytest.approx(0.8 * 0.9 + 0.2 * 0.5)


def test_a_rule_is_fitted_to_the_share_that_another_rule_reaches():
    chunks, targets = drawn(3)
    (rollup,) = parse_choices(["speciesnet_rollup"])
    (choice,) = parse_choices(["confidence_threshold@speciesnet_rollup"])
    share, _ = shares(rollup.rule, rollup.parameters, chunks, targets, TREE)
    correct, _ = shares(choice.rule, fit_choice(choice, chunks, targets, TREE), chunks, targets, TREE)
    specific = {"threshold": fit_choice(choice, chunks, targets, TREE)["threshold"] - 1e-6}
    assert correct >= share > shares(choice.rule, specific, chunks, targets, TREE)[0]
    assert choice.title == f"Threshold (as often right as {rollup.title})"
    assert choices_of([choice.label]) == [choice] and choices_of(["climbing@0.8"]) == parse_choices(["climbing"], [0.8])
