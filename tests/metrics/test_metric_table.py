"""The metrics of the registry against the published code's values, and against plain loops on ragged trees."""

import math
import pickle
from dataclasses import replace
from itertools import pairwise

import matplotlib.pyplot
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hierbench import Hierarchy, evaluate
from hierbench.leaderboard.columns import requested_columns
from hierbench.metrics import (
    PAPER,
    Evidence,
    calibration,
    compute_metrics,
    find_metric,
    functions,
    hops,
    known_metrics,
    level_metrics,
    metric_table,
    ranked_classes,
    selective,
)
from hierbench.metrics import paths as path_metrics
from hierbench.metrics.classes import HierarchicalMetric
from hierbench.metrics.metric_table import FUNCTIONS, METRIC_SPECS
from hierbench.utils.errors import UserError

PAIR = Hierarchy.from_paths({"a": ("a",), "b": ("b",)})
PATHS = {"t": ("p", "q", "t"), "u": ("p", "q", "u"), "v": ("p", "v"), "w": ("s", "s", "w"), "x": ("x",)}
RAGGED = Hierarchy.from_paths(PATHS)  # the second "s" is the only child of the first


@st.composite
def cases(draw):
    """A ragged tree with single-child chains and its paths, scores with ties, targets, exact probabilities, levels."""
    paths = {}
    for i in range(draw(st.integers(2, 9))):
        prefix = draw(st.lists(st.sampled_from("ab"), max_size=3))
        paths[f"class {i}"] = (*("/".join(prefix[: k + 1]) for k in range(len(prefix))), f"class {i}")
    tree = Hierarchy.from_paths(paths, draw(st.sampled_from(["height", "depth"])))
    num, rng = draw(st.integers(1, 12)), np.random.default_rng(draw(st.integers(0, 2**31)))
    # Multiples of 1/64 add up without rounding, so that ties and thresholds are met exactly.
    probabilities = np.stack([_parts(rng, tree.num_classes) for _ in range(num)])
    scores = rng.integers(0, 4, size=(num, tree.num_classes)).astype(float)
    targets = rng.integers(tree.num_classes, size=num)
    predictions = np.stack([rng.integers(size, size=num) for size in tree.level_sizes], axis=1)
    follow = rng.random(num) < 0.5  # half of the level predictions are paths
    predictions[follow] = tree.level_targets[rng.integers(tree.num_classes, size=num)][follow]
    return (
        tree,
        list(paths.values()),
        Evidence(*map(torch.tensor, (scores, targets)), tree, *map(torch.tensor, (probabilities, predictions))),
    )


def _parts(rng, size):
    return np.bincount(rng.integers(size, size=64), minlength=size) / 64.0


def prefixes(path):
    """The nodes of a path, each as the names down to it; without the root."""
    return [path[: i + 1] for i in range(len(path))]


def loops(paths, evidence):
    """Every metric, example by example."""
    tree, num_classes = evidence.hierarchy, len(paths)
    scores, targets, probabilities = (x.tolist() for x in (evidence.scores, evidence.targets, evidence.probabilities))
    ranked = [sorted(range(num_classes), key=lambda c, row=row: (-row[c], c)) for row in scores]
    top = [order[0] for order in ranked]
    rows = list(zip(top, targets, strict=True))
    values = {name: value for name, value in evaluate(evidence.scores, targets, tree, (1, 2, 5)).items()}
    depth = max(map(len, paths))
    for k in (1, 2, 5):
        if k <= num_classes:
            best = [min(tree.distances[y, c] for c in order[:k]) for order, y in zip(ranked, targets, strict=True)]
            values[f"min_distance@{k}"] = np.mean(best)
            values[f"hops@{k}"] = 100 * np.mean(
                [hops_of(tree.distances[y], o, k) for o, y in zip(ranked, targets, strict=True)]
            )
    values["hops"] = 100 * np.mean(
        [hops_of(tree.distances[y], o, num_classes) for o, y in zip(ranked, targets, strict=True)]
    )

    at_level = [[(prefixes(path) + [path] * depth)[level] for level in range(depth)] for path in paths]
    lifted = [[lifted_at(at_level, tree.level_targets, level, p) for level in range(depth)] for p in probabilities]
    for level in range(depth):
        values[f"level_accuracy@{level + 1}"] = 100 * np.mean(
            [at_level[c][level] == at_level[y][level] for c, y in rows]
        )
        right = [tree.level_targets[y, level] == lift[level] for lift, y in zip(lifted, targets, strict=True)]
        values[f"level_accuracy_lifted@{level + 1}"] = 100 * np.mean(right)

    sets = [(set(prefixes(paths[c])), set(prefixes(paths[y]))) for c, y in rows]
    both, ours, true = (np.array(x) for x in zip(*[(len(a & b), len(a), len(b)) for a, b in sets], strict=True))
    precision, recall = both.sum() / ours.sum(), both.sum() / true.sum()
    values |= {"hp_micro": 100 * precision, "hr_micro": 100 * recall}
    values["hf_micro"] = 200 * precision * recall / (precision + recall) if both.any() else 0.0
    values |= {"hp_macro": 100 * np.mean(both / ours), "hr_macro": 100 * np.mean(both / true)}
    values["hf_macro"] = 100 * np.mean(2 * both / (ours + true))
    bits = [math.log2(below_lca(paths, c, y)) for c, y in rows if c != y]
    values["information_severity"] = np.mean(bits) if bits else math.nan

    nodes_of_classes = {tuple(row) for row in tree.level_targets.tolist()}
    chains = [list(pairwise(row)) for row in evidence.level_predictions.tolist()]
    legal = [{(a[level], a[level + 1]) for a in nodes_of_classes} for level in range(depth - 1)]
    broken = [any(pair not in legal[level] for level, pair in enumerate(chain)) for chain in chains]
    values["tice"] = 100 * np.mean(broken)
    is_right = [
        row == tree.level_targets[y].tolist()
        for row, y in zip(evidence.level_predictions.tolist(), targets, strict=True)
    ]
    values["fpa"] = 100 * np.mean(is_right)

    confidence = [p[c] for p, c in zip(probabilities, top, strict=True)]
    gaps = []
    for b in range(15):
        inside = [i for i, p in enumerate(confidence) if b / 15 < p <= (b + 1) / 15 or (b == 0 and p == 0)]
        if inside:
            gap = abs(np.mean([rows[i][0] == rows[i][1] for i in inside]) - np.mean([confidence[i] for i in inside]))
            gaps.append((len(inside), gap))
    values |= {"ece": 100 * sum(n * gap for n, gap in gaps) / len(rows), "mce": 100 * max(gap for _, gap in gaps)}
    for rule in ("climbing", "selective"):
        points = sorted(points_of(paths, rows, probabilities, rule), key=lambda point: (point[1], point[0]))
        values[f"haurc_{rule}"] = sum((b[1] - a[1]) * (a[0] + b[0]) / 2 for a, b in pairwise(points))
    return values


def lifted_at(at_level, level_targets, level, p):
    sums = {}
    for c, nodes in enumerate(at_level):
        index = level_targets[c, level]
        sums[index] = sums.get(index, 0.0) + p[c]
        assert at_level[level_targets[:, level].tolist().index(index)][level] == nodes[level]
    return min(sums, key=lambda index: (-sums[index], index))


def below(paths, node):
    return [c for c, path in enumerate(paths) if path[: len(node)] == node]


def below_lca(paths, c, y):
    shared = [a for a, b in zip(prefixes(paths[c]), prefixes(paths[y]), strict=False) if a == b]
    return len(below(paths, shared[-1] if shared else ()))


def hops_of(distances, order, k):
    occurring = sorted(set(distances.tolist()))
    rank = [occurring.index(d) for d in distances.tolist()]
    ideal = sorted(rank)
    weights = []
    for a in range(len(occurring)):
        size = ideal.count(a)
        high, low = 2.0**-a, 2.0 ** -(a + 1) if a + 1 < len(occurring) else 0.0
        weights += [high + (low - high) * i / size for i in range(size)]
    off = sum(w * abs(r - rank[c]) for w, r, c in zip(weights[:k], ideal[:k], order[:k], strict=True))
    worst = sum(w * abs(r - s) for w, r, s in zip(weights[:k], ideal[:k], ideal[:k][::-1], strict=True))
    if not worst:
        return 0.0 if off else 1.0
    return min(max(1 - off / worst, 0.0), 1.0)


def climb_of(paths, c, p, rule):
    """The nodes from a class to the root with their probabilities."""
    nodes = [*reversed(prefixes(paths[c])), ()]
    steps = [(node, sum(p[i] for i in below(paths, node)) if node else 1.0) for node in nodes]
    return steps if rule == "climbing" else [steps[0], steps[-1]]


def points_of(paths, rows, probabilities, rule, thetas=None):
    climbs = [climb_of(paths, c, p, rule) for (c, _), p in zip(rows, probabilities, strict=True)]
    if thetas is None:
        thetas = [0.0, *sorted({p for climb in climbs for _, p in climb}), math.inf]
    points = []
    for theta in thetas:
        wrong, coverage = 0, 0.0
        for climb, (_, y) in zip(climbs, rows, strict=True):
            node = next((node for node, p in climb if p >= theta), ())
            wrong += node not in [*prefixes(paths[y]), ()]
            coverage += 1 - math.log2(len(below(paths, node))) / math.log2(len(paths))
        points.append((wrong / len(rows), coverage / len(rows)))
    return points


@given(cases())
def test_equal_to_loops_on_ragged_trees(case):
    tree, paths, evidence = case
    expected = loops(paths, evidence)
    assert expected.keys() >= set(known_metrics(tree)) - {"hierdist@20"}
    values = compute_metrics(list(expected), evidence)
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, rel=1e-12, abs=1e-10, nan_ok=True), name
        assert find_metric(name).compute(evidence) == pytest.approx(values[name], rel=0, abs=0, nan_ok=True), name


@given(cases(), st.lists(st.integers(-1, 70).map(lambda i: i / 64), min_size=1, max_size=6))
def test_curves_at_chosen_thresholds(case, thetas):
    tree, paths, evidence = case
    rows = list(zip(evidence.top.tolist(), evidence.targets.tolist(), strict=True))
    for rule in ("climbing", "selective"):
        thresholds = torch.tensor(sorted(thetas), dtype=torch.float64)
        curve = selective.operating_curve(evidence.top, evidence.targets, evidence.climb, tree, rule, thresholds)
        expected = points_of(paths, rows, evidence.probabilities.tolist(), rule, sorted(thetas))
        assert curve.theta.tolist() == sorted(thetas)
        for risk, coverage, point in zip(curve.risk.tolist(), curve.coverage.tolist(), expected, strict=True):
            assert (risk, coverage) == pytest.approx(point, abs=1e-12)


@pytest.fixture(scope="module")
def oracle(shared):
    files = ("metrics", "extra-metrics", "extra-tree")
    return {key: value for file in files for key, value in np.load(shared / f"oracles/{file}-cifar100.npz").items()}


@pytest.fixture(scope="module")
def evidence(oracle, cifar100):
    logits, targets = torch.from_numpy(oracle["logits"]), torch.from_numpy(oracle["targets"])
    return Evidence(
        logits,
        targets,
        cifar100,
        logits.softmax(1),
        torch.from_numpy(_levels_of(oracle["head_predictions"], oracle, cifar100)),
    )


def _levels_of(nodes, oracle, tree):
    """Their nodes [N, L] as indices within our levels."""
    index = {}
    for level in range(tree.num_levels):
        index |= {
            (level, node): i
            for node, i in zip(oracle["levels_coarse_to_fine"][:, level], tree.level_targets[:, level], strict=True)
        }
    return np.array([[index[level, node] for level, node in enumerate(row)] for row in nodes])


def test_equal_to_the_published_code(oracle, evidence):
    fractions = {name: oracle[name].item() for name in (*path_metrics.SCORES, "fpa", "tice")}
    fractions |= {"hops@5": oracle["hops5"].mean(), "hops@20": oracle["hops20"].mean(), "hops": oracle["hops"].mean()}
    for kind in ("top1", "lifted"):
        name = "level_accuracy" if kind == "top1" else "level_accuracy_lifted"
        fractions |= {f"{name}@{i + 1}": value for i, value in enumerate(oracle[f"level_accuracy_{kind}"])}
    expected = {name: 100 * value for name, value in fractions.items()}
    expected |= {
        f"{name}@{k}": oracle[f"{name}_at{k}"].mean() for name in ("hierdist", "min_distance") for k in (1, 5, 20)
    }
    expected["information_severity"] = oracle["info_severity"].item()
    expected["haurc_climbing"] = oracle["haurc_climbing_exact"].item()
    values = compute_metrics(known_metrics(evidence.hierarchy), evidence)
    assert values.keys() - expected.keys() == {"top1", "mistake_severity", "ece", "mce", "haurc_selective"}
    assert {name: values[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert [values[name] for name in PAPER] == pytest.approx(oracle["base"].tolist(), rel=1e-12)
    # Theirs are sums in float32, and thresholds of four decimals.
    assert (values["ece"], values["mce"]) == pytest.approx((100 * oracle["ece15"], 100 * oracle["mce15"]), rel=3e-7)
    assert values["haurc_selective"] == pytest.approx(oracle["haurc_selective"].item(), rel=1e-4)


def test_values_of_examples_are_those_of_the_published_code(oracle, evidence):
    tree, y = evidence.hierarchy, evidence.targets
    for key, k in (("hops", None), ("hops20", 20), ("hops5", 5)):
        np.testing.assert_allclose(hops.hops_scores(evidence.scores, y, tree, k), oracle[key], rtol=0, atol=1e-12)
    leaves = path_metrics.leaves_below_lca(evidence.top, y, tree)
    np.testing.assert_allclose(leaves.double().log2(), oracle["log2_leaves_of_lca"], rtol=1e-15)
    for predictions, consistent, broken in (
        (level_metrics.levels_from_paths(evidence.top, tree), oracle["fpa_of_top1"], 0),
        (evidence.lifted, oracle["fpa_lifted"], oracle["tice_lifted"]),
    ):
        values = compute_metrics(["fpa", "tice"], replace(evidence, level_predictions=predictions))
        assert values == pytest.approx({"fpa": 100 * consistent, "tice": 100 * broken})
    heads = level_metrics.level_counts(evidence.level_predictions, y, tree)[:, 2:].double().mean(dim=0)
    assert heads.tolist() == pytest.approx(oracle["level_accuracy_heads"].tolist())


def test_selective_prediction_is_that_of_the_published_code(oracle, evidence):
    arguments = (evidence.top, evidence.targets, evidence.climb, evidence.hierarchy)
    for rule in ("climbing", "selective"):
        curve = selective.operating_curve(*arguments, rule, torch.from_numpy(oracle["theta"]))
        np.testing.assert_allclose(curve.risk, oracle[f"risk_{rule}"], atol=1e-12)
        np.testing.assert_allclose(curve.coverage, oracle[f"coverage_{rule}"], atol=1e-12)
        assert selective.area_under(curve) == pytest.approx(oracle[f"haurc_{rule}"].item(), rel=1e-12)
    spots = selective.operating_curve(*arguments, thresholds=torch.from_numpy(oracle["spot_theta"]))
    np.testing.assert_allclose(spots.risk, oracle["spot_risk"], atol=1e-12)
    np.testing.assert_allclose(spots.coverage, oracle["spot_coverage"], atol=1e-12)


@pytest.mark.parametrize("tree", [PAIR, RAGGED])
def test_without_mistakes(tree):
    scores = torch.eye(tree.num_classes, dtype=torch.float64)
    targets = torch.arange(tree.num_classes)
    right = Evidence(scores, targets, tree, scores, torch.tensor(tree.level_targets))
    values = compute_metrics(known_metrics(tree), right)
    undefined = {"mistake_severity", "information_severity"}
    assert {name for name, value in values.items() if math.isnan(value)} == undefined
    for name in values.keys() - undefined:
        metric = find_metric(name)
        if not name.startswith("hierdist@") or name == "hierdist@1":
            assert values[name] == (0.0 if metric.better == "lower" else 100.0), name
    curve = selective.operating_curve(right.top, targets, right.climb, tree)
    assert curve.coverage[0] == 1 and curve.coverage[-1] == 0 and not curve.risk.any()  # though p = 1 throughout


def test_what_a_tree_or_a_method_does_not_have_is_nan():
    evidence = Evidence(torch.eye(2), torch.tensor([0, 0]), PAIR, torch.eye(2, dtype=torch.float64))
    names = ["hierdist@3", "min_distance@3", "hops@3", "level_accuracy@2", "level_accuracy_lifted@2", "fpa", "tice"]
    assert all(math.isnan(value) for value in compute_metrics(names, evidence).values())


@given(cases(), st.lists(st.integers(1, 5), min_size=1, max_size=12))
@settings(max_examples=15)
def test_the_class_does_not_depend_on_batching(case, sizes):
    """Every metric, also after pickling, in batches of any size: that of all examples at once."""
    tree, _, evidence = case
    cuts = [0, *(cut for cut in np.cumsum(sizes).tolist() if cut < len(evidence.targets)), len(evidence.targets)]
    for name, expected in compute_metrics(known_metrics(tree), evidence).items():
        metric = pickle.loads(pickle.dumps(HierarchicalMetric(tree, name)))
        for start, stop in pairwise(cuts):
            part, levels_of_part = slice(start, stop), evidence.level_predictions
            levels_of_part = None if levels_of_part is None else levels_of_part[start:stop]
            metric.update(evidence.scores[part], evidence.targets[part], evidence.probabilities[part], levels_of_part)
        expected /= 100.0 if find_metric(name).unit == "%" else 1.0
        assert metric.compute().item() == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True), name
        assert metric.higher_is_better == (find_metric(name).better == "higher")


def test_the_class_equals_the_function_and_plots():
    scores, targets = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 5
    metric = HierarchicalMetric(RAGGED, "hf_macro")
    metric.update(scores, targets)
    assert metric.compute().item() == pytest.approx(
        functions.hf1_score(targets, scores.argmax(1), RAGGED, average="macro")
    )
    figure, axes = metric.plot()
    assert len(axes.lines) == 1
    matplotlib.pyplot.close(figure)


@pytest.mark.parametrize("function", ["lifted_predictions", "climb", "hops"])
def test_pieces_of_a_large_table_are_one(monkeypatch, function):
    """With room for two rows at a time, the result is the same up to rounding."""
    scores = torch.randn(33, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    probabilities, targets = scores.softmax(1), torch.arange(33) % 5

    def result():
        if function == "lifted_predictions":
            return level_metrics.lifted_predictions(probabilities, RAGGED)
        if function == "climb":
            return selective.climb_probabilities(scores.argmax(1), probabilities, RAGGED)
        return hops.hops_scores(scores, targets, RAGGED)

    at_once = result()
    monkeypatch.setattr(ranked_classes, "NUMBERS_AT_A_TIME", 50)
    assert ranked_classes.rows_at_a_time(20) == 2
    torch.testing.assert_close(result(), at_once, rtol=1e-12, atol=0)


def test_bins_are_closed_at_their_upper_end():
    probabilities = torch.tensor([[1.0, 0.0], [0.2, 0.8], [1 / 15, 14 / 15], [0.0, 1.0]], dtype=torch.float64)
    counts = calibration.bin_counts(torch.tensor([0, 0, 0, 0]), probabilities, torch.tensor([0, 1, 0, 1]))
    assert counts[:, : calibration.BINS].argmax(dim=1).tolist() == [14, 2, 0, 0]


def test_a_list_of_metrics_is_a_collection(cifar100):
    from copy import deepcopy

    from torchmetrics import MetricCollection

    from hierbench.metrics.classes import HierarchicalMetric

    names = ("top1", "hierdist@5", "ece")
    collection = MetricCollection([HierarchicalMetric(cifar100, name) for name in names])
    scores, targets = torch.randn(40, 100, generator=torch.Generator().manual_seed(0)), torch.arange(40)
    collection.update(scores, targets)
    probabilities = MetricCollection([HierarchicalMetric(cifar100, "ece")])
    probabilities.update(scores.double().softmax(dim=1), targets)
    values = collection.compute()
    assert list(values) == sorted(names, key=list(values).index) and set(values) == set(names)
    assert float(values["ece"]) == pytest.approx(float(probabilities.compute()["ece"]), abs=1e-9)
    assert deepcopy(collection).compute() == values == pickle.loads(pickle.dumps(collection)).compute()


def test_a_function_s_docstring_has_the_formula_of_the_table():
    docs = " ".join(" ".join(getattr(functions, name).__doc__.split()) for name in FUNCTIONS)
    specs = [info for info in METRIC_SPECS if info.formula != "hops@K"]  # which says that all classes are ranked
    assert [info.name for info in specs if info.formula not in docs] == []


METRIC_FILE = """
from hierbench.metrics import Metric
metric = Metric({name!r}, "Mine", "higher", "%", "mean [c_1 = y]", "here",
    lambda evidence, _: (evidence.top,), lambda top, targets, tree: {contributions})
"""


@pytest.mark.parametrize(
    ("name", "contributions", "message"),
    [
        ("mine", "(top == targets)[:, None]", None),
        ("top1", "(top == targets)[:, None]", "'top1' must be a new name"),
        ("no name", "(top == targets)[:, None]", "must be a new name"),
        ("mine", "top[:, None] / 0 + nothing", "metric mine fails: NameError"),
        ("mine", "(top == targets)[:, None] * len(top)", "the same in two parts"),
        ("mine", "1 +", r"cannot be imported: SyntaxError"),
        ("mine", "top == targets", r"contributions must be \[N, S\], a row for each image, got \(24,\)"),
    ],
)
def test_a_metric_in_a_file(tmp_path, monkeypatch, name, contributions, message):
    monkeypatch.setattr(metric_table, "user_metrics", {})
    file = tmp_path / "mine.py"
    file.write_text(METRIC_FILE.format(name=name, contributions=contributions))
    if message:
        with pytest.raises(UserError, match=message):
            find_metric(str(file))
        return
    tree = Hierarchy.load("cifar100")
    scores = torch.randn(50, 100, generator=torch.Generator().manual_seed(0))
    evidence = Evidence(scores, torch.arange(50), tree, scores.double().softmax(dim=1))
    values = compute_metrics([find_metric(str(file)).name, "top1"], evidence)
    assert values["mine"] == values["top1"] and requested_columns(f"+{file}")[-1].title == "Mine"
