"""Decision rules: the worked examples, loops over all nodes, identities, and faults of other codes."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierbench import Hierarchy
from hierbench.answers import answer, known_rules
from hierbench.answers.decision_rule import check_rule, find_rule
from hierbench.utils.errors import UserError
from tests.answers import reference
from tests.answers.reference import PathTree
from tests.support.reference import ragged_trees

T = Hierarchy.from_paths({"a1": ("A", "a1"), "a2": ("A", "a2"), "b1": ("B", "b1"), "b2": ("B", "b2")})
R = Hierarchy.from_paths({"a": ("A", "B", "a"), "b": ("A", "B", "b"), "c": ("A", "c"), "d": ("d",)})
NODES_OF_T = {"r": 0, "A": 1, "B": 2, "a1": 3, "a2": 4, "b1": 5, "b2": 6}
NODES_OF_R = {"r": 0, "A": 1, "B": 2, "a": 3, "b": 4, "c": 5, "d": 6}
EXAMPLES = ([0.4, 0.1, 0.3, 0.2], [0.4, 0.05, 0.3, 0.25], [0.6, 0.2, 0.15, 0.05], [0.3, 0.25, 0.2, 0.25])
WORKED = [  # the answers to the four examples, the last on R
    ("argmax_leaf", {}, "a1 a1 a1 a"),
    ("top_down", {}, "a1 b1 a1 a"),
    ("majority", {}, "r B a1 B"),
    ("plurality", {}, "r B a1 a"),
    ("confidence_threshold", {"threshold": 0.5}, "A B a1 B"),
    ("confidence_threshold", {"threshold": 0.7}, "r r A A"),
    ("climbing", {"threshold": 0.5}, "A r a1 B"),
    ("climbing", {"threshold": 0.7}, "r r A A"),
    ("expected_information", {}, "a1 a1 a1 a"),
    ("darts", {"weight": 1.0}, "a1 a1 a1 B"),
    ("darts", {"weight": 4.0}, "r r r r"),  # A and r tie in the third
    ("crm", {}, "a1 a1 a1 a"),
    ("least_cost", {"cost": "edges"}, "r B a1 B"),  # A, B and r tie in the first
    ("least_cost", {"cost": "information"}, "r B a1 B"),
    ("least_cost", {"cost": "hf"}, "a1 a1 a1 a"),
    ("least_cost", {"cost": "hf", "root": True}, "a1 B a1 B"),
    ("least_cost", {"cost": "hf", "beta": 0.5}, "a1 B a1 B"),
    ("least_cost", {"cost": "hf", "beta": 0.5, "root": True}, "r r A A"),
    ("least_cost", {"cost": "hf", "beta": 2.0}, "a1 a1 a1 a"),
    ("least_cost", {"cost": "hf", "beta": 2.0, "root": True}, "a1 a1 a1 a"),
]


@pytest.mark.parametrize(("rule", "parameters", "expected"), WORKED)
def test_worked_examples(rule, parameters, expected):
    cases = (EXAMPLES[:3], T), (EXAMPLES[3:], R)
    answers = [answer(rule, np.array(rows), tree, **parameters) for rows, tree in cases]
    numbers = [NODES_OF_T[name] for name in expected.split()[:3]] + [NODES_OF_R[expected.split()[3]]]
    assert np.concatenate(answers).tolist() == numbers


@st.composite
def cases(draw):
    """A ragged tree with only children, and probabilities that are multiples of 1/64: sums and ties are exact."""
    tree = draw(ragged_trees())
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    num = tree.num_classes
    rows = [np.bincount(rng.choice(rng.integers(num, size=4), size=64), minlength=num) for _ in range(6)]
    rows += [rng.multinomial(64, rng.dirichlet(np.ones(num))) for _ in range(6)]
    return tree, np.stack(rows) / 64.0


PARAMETERS = {
    "confidence_threshold": [{"threshold": value} for value in (0.0, 0.25, 0.5, 0.75, 1.0)],
    "climbing": [{"threshold": value} for value in (0.0, 0.5, 0.75, 1.0)],
    "darts": [{"weight": value} for value in (0.0, 1.0, 7.0)],
    "information_threshold": [{"bits": value} for value in (0.0, 0.5, 1.0)],
    "least_cost": [
        *({"cost": cost} for cost in ("edges", "information")),
        *({"cost": "hf", "beta": beta, "root": root} for beta in (0.5, 1.0, 2.0) for root in (False, True)),
    ],
}
WITHOUT = ("top_down", "majority", "plurality", "expected_information", "crm")


@given(cases())
def test_equal_to_loops_over_all_nodes(case):
    tree, probabilities = case
    paths = PathTree(tree)
    for rule, choices in [*((name, [{}]) for name in WITHOUT), *PARAMETERS.items()]:
        for parameters in choices:
            nodes = answer(rule, probabilities, tree, **parameters)
            expected = [getattr(reference, rule)(paths, row, **parameters) for row in probabilities.tolist()]
            assert nodes.tolist() == expected, (rule, parameters)


@given(cases(), st.sampled_from([0.0, 0.5, 0.8, 1.0]))
def test_jumping_answers_a_best_node_of_the_finest_sufficient_level(case, threshold):
    tree, probabilities = case
    paths = PathTree(tree)
    nodes = answer("jumping", probabilities, tree, threshold=threshold)
    for node, row in zip(nodes.tolist(), probabilities, strict=True):
        expected = reference.jumping(paths, row.tolist(), threshold)
        assert node == expected if expected == 0 else node in expected


@given(cases(), st.integers(0, 2**31))
def test_least_cost_of_a_users_table(case, seed):
    tree, probabilities = case
    paths = PathTree(tree)
    cost = np.random.default_rng(seed).integers(0, 5, size=(len(paths.nodes), tree.num_classes)) / 1.0
    expected = [reference.least_cost(paths, row, cost) for row in probabilities.tolist()]
    assert answer("least_cost", probabilities, tree, cost=cost).tolist() == expected


@given(cases())
def test_identities(case):
    """Majority is the Bayes rule of the edges; hF1 with the root is Wu-Palmer with the root at depth 1."""
    tree, probabilities = case
    paths = PathTree(tree)
    assert answer("majority", probabilities, tree).tolist() == answer("least_cost", probabilities, tree).tolist()
    depth = {node: depth + 1 for node, depth in paths.depth.items()}
    similarity = [
        [2 * depth[paths.lca(n, leaf)] / (depth[n] + depth[leaf]) for leaf in paths.leaves] for n in paths.nodes
    ]
    by_table = answer("least_cost", probabilities, tree, cost=1.0 - np.array(similarity))
    assert answer("least_cost", probabilities, tree, cost="hf", root=True).tolist() == by_table.tolist()


@given(cases())
def test_a_class_above_one_half_is_what_crm_answers(case):
    tree, probabilities = case
    likely = probabilities[probabilities.max(axis=1) > 0.5]
    if len(likely):
        assert answer("crm", likely, tree).tolist() == answer("argmax_leaf", likely, tree).tolist()


def test_a_height_cost_over_all_nodes_never_abstains():
    paths = PathTree(R)
    height = [[paths.height[paths.lca(n, leaf)] for leaf in paths.leaves] for n in paths.nodes]
    drawn = np.random.default_rng(0).dirichlet(np.ones(4), size=200)
    nodes = answer("least_cost", drawn, R, cost=np.array(height))
    costs = drawn @ np.array(height).T
    leaves = costs[:, paths.leaves].min(axis=1)
    assert np.allclose(costs[np.arange(200), nodes], leaves)  # a class is as good as the answer


@pytest.mark.parametrize("rule", ["confidence_threshold", "climbing", "jumping"])
def test_only_the_root_suffices_and_is_answered(rule):
    """Not the class 0, as where products with information 0 are compared."""
    assert answer(rule, np.array(EXAMPLES[:1]), T, threshold=0.95).tolist() == [0]
    assert answer(rule, np.array(EXAMPLES[:1]), T, threshold=1.0).tolist() == [0]


def test_crm_looks_at_classes_alone():
    """A maximum over nodes would hold the root, be 1, and always leave the best class."""
    tree = Hierarchy.from_paths({name: (name[0], name) for name in ("a1", "b1", "b2", "b3")})
    assert (
        answer("crm", np.array([[0.34, 0.22, 0.22, 0.22]]), tree).tolist()
        != answer("argmax_leaf", np.array([[0.34, 0.22, 0.22, 0.22]]), tree).tolist()
    )


def test_shallow_nodes_of_a_ragged_tree_stay_candidates_for_hf():
    paths = PathTree(R)
    drawn = np.random.default_rng(1).dirichlet(np.ones(4), size=500)
    for beta in (0.5, 1.0):
        expected = [reference.least_cost(paths, row, "hf", beta, root=True) for row in drawn.tolist()]
        assert answer("least_cost", drawn, R, cost="hf", beta=beta, root=True).tolist() == expected


def test_an_only_childs_chain_has_one_answer():
    tree = Hierarchy.from_paths({"x": ("A", "B", "x"), "y": ("C", "y"), "z": ("C", "z")})
    sure = np.array([[share, (1 - share) / 2, (1 - share) / 2] for share in (0.7, 0.8, 0.9)])
    answers = {
        rule: set(answer(rule, sure, tree, **parameters).tolist())
        for rule, parameters in [
            *((rule, {}) for rule in ("majority", "plurality", "expected_information", "least_cost")),
            *((rule, {"threshold": 0.6}) for rule in ("confidence_threshold", "climbing", "jumping")),
            ("darts", {"weight": 0.1}),
        ]
    }
    assert all(len(nodes) == 1 for nodes in answers.values())
    shallow, class_itself = {1}, {4}
    assert answers["confidence_threshold"] == answers["expected_information"] == answers["darts"] == shallow
    assert answers["majority"] == answers["plurality"] == answers["climbing"] == answers["least_cost"] == class_itself


ROLL_UP = [
    ({"thresholds": 0.78}, "r r A"),
    ({"thresholds": (0.55, 0.5)}, "r B a1"),
    ({"thresholds": (0.55, 0.5), "within_lineage": True}, "r r a1"),
    ({"thresholds": 0.5, "max_classes": 2}, "a1 a1 a1"),  # .4 and .3 of .7
    ({"thresholds": 0.7, "min_ratio": 0.5}, "r r a1"),
    ({"thresholds": 0.7, "ranks": [1]}, "r r A"),
]


@pytest.mark.parametrize(("parameters", "expected"), ROLL_UP)
def test_rolling_up_by_ranks(parameters, expected):
    nodes = answer("rank_thresholds", np.array(EXAMPLES[:3]), T, **parameters).tolist()
    assert nodes == [NODES_OF_T[name] for name in expected.split()]


def test_rules_of_products():
    rows = np.array([[0.5, 0.4, 0.05, 0.05], [0.85, 0.05, 0.05, 0.05], [0.3, 0.25, 0.25, 0.2]])
    assert answer("inaturalist_rollup", rows, T).tolist() == [1, 1, 0]
    assert answer("speciesnet_rollup", rows, T).tolist() == [1, 3, 0]
    assert answer("antenna_rollup", rows, T).tolist() == [1, 3, 0]


def test_shipped_rules_keep_the_contract():
    for name in known_rules():
        rule = find_rule(name)
        assert rule.name == name and rule.title and rule.source
        check_rule(rule)


def test_tensors_stay_tensors_and_chunks_do_not_matter():
    drawn = torch.rand(500, 4).softmax(1)
    nodes = answer("majority", drawn, T)
    assert isinstance(nodes, torch.Tensor) and nodes.dtype == torch.int64
    assert nodes.tolist() == [int(answer("majority", row[None], T)[0]) for row in drawn]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("majorty", EXAMPLES[:1], T), "did you mean 'majority'"),
        (("majority", [[1.0, 2.0, 3.0, 4.0]], T), "row 0"),
        (("majority", [[0.5, 0.5]], T), r"\[N, 4\]"),
        (("climbing", EXAMPLES[:1], T), "threshold=VALUE"),
    ],
)
def test_mistakes_are_named(arguments, message):
    rule, probabilities, tree = arguments
    with pytest.raises(ValueError, match=message):
        answer(rule, np.array(probabilities), tree)


def test_an_unknown_parameter_is_named():
    with pytest.raises(UserError, match="parameter of majority"):
        answer("majority", np.array(EXAMPLES[:1]), T, threshold=0.5)
    with pytest.raises(ValueError, match="cost must be"):
        answer("least_cost", np.array(EXAMPLES[:1]), T, cost="edge")
    with pytest.raises(ValueError, match="at most 2"):
        answer("information_threshold", np.array(EXAMPLES[:1]), T, bits=3.0)


USERS_RULE = '''
from hierbench.answers import rule


@rule("Half sure", "ours")
def half_sure(chunk, share=0.5):
    """Answer the class above a share, else the root."""
    sure = chunk.classes.amax(dim=1) > share
    return (chunk.tables.nodes.num_inner + chunk.top).where(sure, 0)
'''


def test_a_users_rule_is_one_file(tmp_path):
    file = tmp_path / "half_sure.py"
    file.write_text(USERS_RULE)
    assert answer(str(file), np.array(EXAMPLES[:3]), T).tolist() == [0, 0, 3]
    file.write_text(USERS_RULE.replace(".where(sure, 0)", ".where(sure, 99)"))
    with pytest.raises(UserError, match="no nodes of the tree"):
        answer(str(file), np.array(EXAMPLES[:3]), T)
    file.write_text("half = 1 / 0")
    with pytest.raises(UserError, match=r"cannot be imported: .*line 1"):
        answer(str(file), np.array(EXAMPLES[:3]), T)


def test_the_tree_of_the_examples_is_numbered_as_the_tests_say():
    assert PathTree(T).leaves == [3, 4, 5, 6] and PathTree(R).leaves == [3, 4, 5, 6]
    information = [math.log2(4 / len(below)) for below in PathTree(R).below.values()]
    assert information == pytest.approx([0.0, 0.4150, 1.0, 2.0, 2.0, 2.0, 2.0], abs=1e-4)
    assert len(list(itertools.chain(*PathTree(T).children.values()))) == 6
