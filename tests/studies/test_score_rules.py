"""`score` with rules and with the definitions of others, and targets above the classes."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import hierbench
from hierbench import Hierarchy, evaluate
from hierbench.answers import node_metrics
from hierbench.answers.definitions import DEFINITIONS
from hierbench.hierarchy.nodes import Nodes
from hierbench.utils.errors import UserError

T = Hierarchy.from_paths({name: (name[0].upper(), name) for name in ("a1", "a2", "b1", "b2")})
PROBABILITIES = np.array([[0.4, 0.1, 0.3, 0.2], [0.4, 0.05, 0.3, 0.25], [0.6, 0.2, 0.15, 0.05]])
OPTIONS = {"resamples": 0, "scores_are": "probabilities"}


def values_of(report):
    """{(source, number): value} of a report of definitions."""
    return {(source, definition.title): value for source, definition, value in report.results[0].defined}


def test_all_definitions_on_one_example():
    """The worked examples of hiercls' curve, and values by hand: the best classes are a1 for a1, a1 and a2."""
    values = values_of(hierbench.score(PROBABILITIES, ["a1", "a1", "a2"], T, definitions="all", **OPTIONS))
    assert values == {
        ("hiclass", "hP"): pytest.approx(5 / 6),
        ("hiclass", "hR"): pytest.approx(5 / 6),
        ("hiclass", "hF"): pytest.approx(5 / 6),
        ("hiclass", "hF, macro"): pytest.approx(5 / 6),
        ("hierulz", "hF"): pytest.approx((1 + 1 + 2 / 3) / 3),
        ("hierulz", "Mistake severity"): pytest.approx(2 / 3),
        ("hiercls", "Exact"): pytest.approx(2 / 3),
        ("hiercls", "Depth F1"): pytest.approx(5 / 6),
        ("hiercls", "Info recall"): pytest.approx(5 / 6),
        ("hiercls", "Info F1"): pytest.approx(5 / 6),
        ("hiercls", "AC (info)"): pytest.approx(0.6111, abs=1e-4),
        ("mbm", "HierDist@1"): pytest.approx(1 / 3),
        ("mbm", "HierDist@1, mistakes"): pytest.approx(1.0),
        ("crm", "Mistake severity"): pytest.approx(1.0),
        ("bioclip2", "nLCA"): pytest.approx((1 + 0 + 0.5) / 3),
    }


def drawn(tree, num=60):
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.full(tree.num_classes, 0.5), size=num)
    return probabilities, generator.integers(tree.num_classes, size=num)


def test_identities_of_definitions():
    """Those that the table states; and a tree in which one name stands twice parts hiclass from the rest."""
    tree = Hierarchy.from_paths(
        {f"{order}{genus}{number}": (order, f"{order}{genus}", f"{order}{genus}{number}")
         for order in "ab" for genus in "xy" for number in range(3)}
    )  # fmt: skip
    probabilities, targets = drawn(tree)
    values = values_of(
        hierbench.score(
            probabilities,
            targets,
            tree,
            definitions=["hiclass", "hiercls", "hierulz", "mbm", "crm"],
            order="tree",
            **OPTIONS,
        )
    )
    error = 1.0 - values["hiercls", "Exact"]
    assert values["hiclass", "hF, macro"] == pytest.approx(values["hiercls", "Depth F1"])
    assert values["hierulz", "hF"] > values["hiercls", "Depth F1"]
    assert values["mbm", "HierDist@1, mistakes"] == pytest.approx(values["crm", "Mistake severity"])
    assert values["mbm", "HierDist@1"] == pytest.approx(values["crm", "Mistake severity"] * error)
    assert values["hierulz", "Mistake severity"] == pytest.approx(2 * values["mbm", "HierDist@1"])
    by_hand = evaluate(torch.from_numpy(probabilities), torch.from_numpy(targets), tree, ks=(1, 5))
    assert values["mbm", "HierDist@5"] == pytest.approx(by_hand["hierdist@5"])
    twice = Hierarchy.from_paths({path[-1]: path for path in (("A", "same", "a"), ("B", "same", "b"))})
    found = values_of(hierbench.score(np.array([[0.2, 0.8]]), ["a"], twice, definitions="hiclass,hiercls", **OPTIONS))
    assert found["hiclass", "hF, macro"] == pytest.approx(1 / 3) and found["hiercls", "Depth F1"] == 0.0


def test_h_precision_of_the_best_ranking_is_one():
    (metric,) = (metric for metric in DEFINITIONS["mbm"] if metric.title == "h-precision@5")
    assert metric.compute_from((torch.tensor([[0, 1, 2, 3]]),), torch.tensor([0]), T) == 1.0


def test_rules_count_targets_above_the_classes():
    """Node metrics are over all images, metrics of classes over those that are labelled with a class."""
    names = ["a1", "a1", "a2", "B", "A"]
    probabilities = np.concatenate([PROBABILITIES, [[0.1, 0.1, 0.5, 0.3]] * 2])
    report = hierbench.score(probabilities, names, T, rules="argmax_leaf,majority", **OPTIONS)
    nodes = {"B": 2, "A": 1} | {name: Nodes(T).num_inner + place for place, name in enumerate(T.classes)}
    best = [nodes[T.classes[row]] for row in probabilities.argmax(axis=1)]
    assert report.results[0].nodes["argmax_leaf"] == pytest.approx(
        node_metrics(best, [nodes[name] for name in names], T)
    )
    assert report["top1"] == pytest.approx(200 / 3)
    assert "5 images. 2 of them are labelled with a node above the classes" in str(report)
    plain = str(hierbench.score(probabilities, names, T, **OPTIONS))
    assert "3 images" in plain and "2 more images are labelled with a node above the classes" in plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": "climbing"}, "nothing here fits climbing: give its parameter, as in climbing:threshold=0.8"),
        ({"definitions": "paper"}, "unknown source of definitions 'paper'"),
        ({"targets": ["A", "B", "A"]}, "no target is a class"),
        ({"targets": ["A", "C", "a1"]}, "'C' in row 1 is not a class"),
    ],
)
def test_what_cannot_be_scored(options, message):
    with pytest.raises(UserError, match=message):
        hierbench.score(PROBABILITIES, options.pop("targets", ["a1", "a1", "a2"]), T, **options, **OPTIONS)


def test_a_target_that_stands_for_two_nodes():
    tree = Hierarchy.from_paths({path[-1]: path for path in (("A", "same", "a"), ("B", "same", "b"))})
    with pytest.raises(UserError, match="'same' in row 0 stands for several nodes of the tree"):
        hierbench.score(np.array([[0.5, 0.5]]), ["same"], tree, **OPTIONS)


def test_the_command(cli, tmp_path):
    frame = pd.DataFrame(PROBABILITIES, columns=T.classes)
    frame.insert(0, "target", ["a1", "B", "a2"])
    frame.to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "tree.csv").write_text("genus,species\n" + "".join(f"{name[0].upper()},{name}\n" for name in T.classes))
    options = ("score", "p.csv", "--tree", "tree.csv")
    rows = json.loads(cli(tmp_path, *options, "--rules", "majority,climbing:threshold=0.7", "--json").ok().out)["rows"]
    assert [row["rule"] for row in rows] == ["majority", "climbing:threshold=0.7"]
    rows = json.loads(cli(tmp_path, *options, "--as", "crm,bioclip2", "--json").ok().out)["rows"]
    assert [row["source"] for row in rows] == ["crm", "bioclip2"]
    refused = cli(tmp_path, *options, "--as", "crm", "--rules", "majority")
    assert refused.code == 2 and "give either --rules or --as" in refused.err
