"""The numbers of a report against plain NumPy and SciPy, on files of every form; its rule, JSON and sentences."""

import json
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, softmax

import hierbench
from hierbench import Hierarchy
from hierbench.answers import load_rule
from hierbench.answers.decision_rule import answer
from hierbench.answers.deployed_rule import node_names
from hierbench.hierarchy.nodes import Nodes
from hierbench.studies.report.resampling import Resampling, mean_of, ratio_of
from hierbench.utils.errors import UserError

RAGGED = {
    "wren": ("animal", "bird", "wren"),
    "owl": ("animal", "bird", "owl"),
    "cod": ("animal", "cod"),
    "oak": ("plant", "tree", "oak"),
    "elm": ("plant", "tree", "elm"),
    "fern": ("plant", "fern"),
}


def deep(num):
    return {f"s{i:05}": (f"o{i // 60}", f"f{i // 12}", f"g{i // 3}", f"s{i:05}") for i in range(num)}


def drawn(tree, num, seed, skill=0.9):
    """Logits [N, K] float32 that fall with the distance from a random target, and the targets."""
    generator = np.random.default_rng(seed)
    targets = generator.integers(tree.num_classes, size=num)
    logits = generator.gumbel(size=(num, tree.num_classes)) - skill * tree.distances[targets]
    return logits.astype(np.float32), targets


# Name of a file: tree, images, and what is done to the logits. 0 images of classes: labels alone, or the best ones.
FILES = {
    "ragged": (RAGGED, 300, lambda z: z),
    "depth": (RAGGED, 300, lambda z: z),
    "two classes": ({"a": ("a",), "b": ("b",)}, 80, lambda z: z),
    "probabilities": (deep(120), 400, lambda z: softmax(z.astype(np.float64), axis=1)),
    "half precision": (deep(120), 400, lambda z: z.astype(np.float16)),
    "masked": (RAGGED, 120, lambda z: np.where(np.arange(6) == 2, -np.inf, z)),
    "many classes": (deep(1000), 300, lambda z: z),
    "one right": (RAGGED, 60, lambda z: z),
    "the best three": (deep(120), 200, lambda z: np.argsort(-z, axis=1, kind="stable")[:, :3]),
    "labels alone": (RAGGED, 100, lambda z: z.argmax(axis=1)[:, None]),
}


@pytest.fixture(params=FILES)
def case(request, tmp_path):
    paths, num, change = FILES[request.param]
    tree = Hierarchy.from_paths(paths, "depth" if request.param == "depth" else "height")
    logits, targets = drawn(tree, num, 3)
    if request.param == "one right":
        logits[np.arange(num), targets] += 50.0
    values = change(logits)
    ranks = request.param in ("the best three", "labels alone")
    file = tmp_path / "test.npz"
    name = "predictions" if ranks and values.shape[1] == 1 else "classes" if ranks else "scores"
    np.savez(file, **{name: values[:, 0] if name == "predictions" else values}, targets=targets)
    ranked = values if ranks else np.argsort(-np.asarray(values, dtype=np.float64), axis=1, kind="stable")
    return file, tree, targets, ranked, None if ranks else np.asarray(values, dtype=np.float64)


def distances(tree, targets, classes):
    return tree.distances[targets[:, None], classes].astype(float)


def expected_summary(tree, targets, ranked):
    gaps = distances(tree, targets, ranked)
    wrong = ranked[:, 0] != targets
    values = {"top1": 100 * (1 - wrong.mean()), "hierdist@1": gaps[:, 0].mean()}
    if wrong.any():
        values["mistake_severity"] = gaps[wrong, 0].mean()
    if ranked.shape[1] >= 5:
        values["hierdist@5"] = gaps[:, :5].mean()
    return values


def ece(confidence, right):
    place = np.minimum(np.maximum(np.ceil(np.round(confidence * 15, 12)) - 1, 0), 14)
    return 100 * sum(
        abs(right[place == b].mean() - confidence[place == b].mean()) * (place == b).mean() for b in np.unique(place)
    )


def test_accuracy_and_levels(case):
    file, tree, targets, ranked, values = case
    report = hierbench.report(file, tree=tree, order="tree", resamples=100)
    content = report.content()
    found = {name: value["value"] for name, value in content["summary"].items() if value["value"] is not None}
    assert found == pytest.approx(expected_summary(tree, targets, ranked), rel=1e-9)
    for value in content["summary"].values():
        assert value["low"] is None or value["low"] <= value["high"]

    commonest = [c for c, _ in sorted(Counter(targets.tolist()).items(), key=lambda item: (-item[1], item[0]))]
    order = [*commonest, *(c for c in range(tree.num_classes) if c not in commonest)][:5]
    nearest = np.array([np.lexsort((np.arange(tree.num_classes), tree.distances[c]))[:5] for c in ranked[:, 0]])
    for name, classes in (("commonest", np.tile(order, (len(targets), 1))), ("nearest", nearest)):
        found = {metric: each["value"] for metric, each in content["references"][name].items()}
        values_of = {metric: value for metric, value in found.items() if value is not None}
        assert values_of == pytest.approx(expected_summary(tree, targets, classes), rel=1e-9), name

    wrong = ranked[:, 0] != targets
    for number, level in enumerate(content["levels"]):
        nodes = tree.level_targets[:, number]
        right = nodes[ranked[:, 0]] == nodes[targets]
        assert level["accuracy"] == pytest.approx(100 * right.mean())
        by_node = [right[nodes[targets] == node].mean() for node in np.unique(nodes[targets])]
        assert level["macro_accuracy"] == pytest.approx(100 * np.mean(by_node))
        expected = 100 * (right & wrong).sum() / wrong.sum() if wrong.any() else None
        assert level["mistakes_within"] == (expected if expected is None else pytest.approx(expected))
        if values is None:
            assert level["ece"] is None and "scores of all classes" in content["absent"]["rules"]
            continue
        logs = values if (values < 0).any() or values.max() > 1 else np.log(values)
        sums = np.zeros((len(targets), tree.level_sizes[number]))
        np.add.at(sums.T, nodes, softmax(logs, axis=1).T)
        assert level["ece"] == pytest.approx(ece(sums.max(axis=1), sums.argmax(axis=1) == nodes[targets]), abs=1e-4)


def test_mistakes(case):
    file, tree, targets, ranked, _ = case
    content = hierbench.report(
        file, tree=tree, order="tree", resamples=0, train_counts={c: 10 * i for i, c in enumerate(tree.classes)}
    ).content()
    pairs = Counter((t, p) for t, p in zip(targets.tolist(), ranked[:, 0].tolist(), strict=True) if t != p)
    costs = sorted((n * int(tree.distances[pair]) for pair, n in pairs.items()), reverse=True)[:20]
    assert [each["n"] * each["distance"] for each in content["confusions"]] == costs
    paths = {
        c: [names[i] for names, i in zip(tree.level_names, row, strict=True)]
        for c, row in zip(tree.classes, tree.level_targets, strict=True)
    }
    for each in content["confusions"]:
        assert each["n"] == pairs[tree.classes.index(each["target"]), tree.classes.index(each["predicted"])]
        shared = [a for a, b in zip(paths[each["target"]], paths[each["predicted"]], strict=True) if a == b]
        assert each["node"] == (shared[-1] if shared else "the root")
    gaps = distances(tree, targets, ranked)[:, 0]
    for branch in content["branches"]:
        below = np.isin(
            targets, [i for i, c in enumerate(tree.classes) if paths[c][branch["level"] - 1] == branch["name"]]
        )
        assert (branch["n"], branch["distance"]) == (below.sum(), gaps[below].sum())
    few = content["frequencies"][0]
    rows = targets < 2  # 0 and 10 training images
    assert few["n"] == rows.sum() and few["num_classes"] == 2
    if rows.any():
        assert few["accuracy"] == pytest.approx(100 * (gaps[rows] == 0).mean())


def test_rules_are_fitted_on_validation_and_measured_on_test(tmp_path):
    tree = Hierarchy.from_paths(deep(60))
    (test, targets), (held, held_targets) = drawn(tree, 500, 1), drawn(tree, 400, 2)
    report = hierbench.report(test, targets, tree, order="tree", validation=(held, held_targets), resamples=100)
    content = report.content()
    temperature = content["rules"][0]["temperature"]
    nodes = Nodes(tree)
    true = nodes.num_inner + targets

    def ancestors(node):
        return {node} | (set() if node == 0 else ancestors(int(nodes.parent[node])))

    logs = log_softmax(test.astype(np.float64), axis=1)
    for rule in content["rules"]:
        answers = answer(rule["rule"], softmax(logs / rule["temperature"], axis=1), tree, **rule["parameters"])
        sets = [(ancestors(int(a)) - {0}, ancestors(int(t)) - {0}) for a, t in zip(answers, true, strict=True)]
        right = [a <= t for a, t in sets]
        assert rule["correct"] == pytest.approx(100 * np.mean(right))
        information = [np.log2(60 / int(nodes.num_leaves[a])) for a in answers]
        assert rule["information"] == pytest.approx(np.mean(information))
        assert rule["hf"] == pytest.approx(100 * np.mean([2 * len(a & t) / (len(a) + len(t)) for a, t in sets]))
        assert rule["edges"] == pytest.approx(np.mean([len(a ^ t) for a, t in sets]))
        assert rule["root"] == pytest.approx(100 * np.mean(answers == 0))
    assert {rule["temperature"] for rule in content["rules"]} == {temperature, 1.0}
    goals = [each["goal"] for each in content["recommended"]]
    assert goals == ["information", "nearest", "ranks"]
    best, nearest, ranks = content["recommended"]
    fitted = {label: metrics for label, metrics in report.first.answers[0].for_use.fitted.metrics.items()}
    enough = {label: m["information"] for label, m in fitted.items() if m["correct"] >= 0.9}
    assert best["fitted"]["information"] == max(enough.values())
    assert nearest["fitted"]["edges"] == min(m["edges"] for m in fitted.values())
    assert (ranks["rule"], ranks["at"]) == ("rank_thresholds", 0.9)
    for each in content["recommended"]:
        assert each["correct"]["low"] <= each["correct"]["value"] <= each["correct"]["high"]
    lac = content["sets"][0]
    seen = report.first.answers[0].for_use.untouched
    held_p = softmax(log_softmax(held.astype(np.float64), axis=1) / temperature, axis=1)
    falling = np.sort(1 - held_p[seen, held_targets[seen]])
    bound = falling[int(np.ceil((len(seen) + 1) * 0.9)) - 1]
    members = 1 - softmax(logs / temperature, axis=1) <= bound + 1e-12
    assert lac["size"] == pytest.approx(members.sum(axis=1).mean())
    assert lac["coverage"] == pytest.approx(members[np.arange(500), targets].mean())
    assert lac["needed"] == 1 + max(n for n in range(1, 3000) if not within_two_points(n))


def within_two_points(num):
    place = int(np.ceil((num + 1) * 0.9 - 1e-12))
    if place > num:
        return False
    low, high = stats.beta(place, num + 1 - place).ppf([0.025, 0.975])
    return low >= 0.88 and high <= 0.92


def test_without_validation_no_image_is_answered_by_a_rule_that_saw_it():
    tree = Hierarchy.from_paths(deep(60))
    scores, targets = drawn(tree, 300, 5)
    groups = np.arange(300) // 4
    report = hierbench.report(scores, targets, tree, order="tree", groups=groups, resamples=100)
    (answers,) = report.first.answers
    assert answers.halves and "one half of the file" in str(report)
    for fitted, rows in answers.fitted:
        assert not set(groups[fitted.rows]) & set(groups[rows])
    assert sorted(np.concatenate([rows for _, rows in answers.fitted])) == list(range(300))


def test_thresholds_that_say_nothing_are_not_recommended():
    tree = Hierarchy.from_paths(deep(60))
    scores = np.random.default_rng(0).normal(size=(400, 60))
    text = str(hierbench.report(scores, np.arange(400) % 60, tree, order="tree", resamples=0))
    assert "For thresholds by rank: none; no rank is right for 90% of the images at any threshold" in text


def test_without_rules_the_other_parts_are_the_same(tmp_path):
    tree = Hierarchy.from_paths(deep(60))
    scores, targets = drawn(tree, 300, 5)
    full, part = (hierbench.report(scores, targets, tree, order="tree", **rules) for rules in ({}, {"rules": []}))
    assert part.content()["rules"] == part.content()["recommended"] == part.content()["sets"] == []
    for name in ("summary", "references", "levels", "confusions", "branches"):
        assert part.content()[name] == full.content()[name]
    assert "nothing is fitted: no rules are asked for." in str(part)
    part.write(tmp_path / "page.html")
    assert "Nothing is fitted: no rules are asked for." in (tmp_path / "page.html").read_text()
    with pytest.raises(UserError, match="no rule was fitted"):
        part.rule_for("information")


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_a_rule_is_a_file_that_a_product_applies(kind, tmp_path):
    tree = Hierarchy.from_edges(
        [("r", "b"), ("r", "a"), ("b", "x"), ("b", "y"), ("a", "z"), ("a", "w")], ["w", "x", "y", "z"]
    )
    scores, targets = drawn(tree, 200, 7)
    values = scores if kind == "logits" else softmax(scores.astype(np.float64), axis=1)
    report = hierbench.report(values, targets, tree, order="tree", resamples=0)
    for goal in ("information", "nearest", "ranks"):
        rule = report.rule_for(goal)
        rule.write(tmp_path / "rule.json")
        loaded = load_rule(tmp_path / "rule.json")
        probabilities = softmax(
            (values if kind == "logits" else np.log(values)).astype(np.float64) / rule.temperature, axis=1
        )
        expected = answer(rule.rule, probabilities, tree, **rule.parameters)
        assert loaded(values).tolist() == expected.tolist()
        assert loaded(values[0]) == expected[0]
        assert loaded.names(expected[:3]) == [node_names(tree)[node] for node in expected[:3]]
    assert report.rule.content() == report.rule_for("information").content()
    with pytest.raises(ValueError, match=r"must be \[4\]"):
        loaded(values[:, :3])
    with pytest.raises(ValueError, match="NaN"):
        loaded(np.full(4, np.nan))
    content = json.loads((tmp_path / "rule.json").read_text())
    for change in ({"rule": "./mine.py"}, {"schema": 2}, {"names": []}, {"temperature": -1}, {"parents": [1] * 7}):
        (tmp_path / "other.json").write_text(json.dumps(content | change))
        with pytest.raises(UserError, match=r"other\.json"):
            load_rule(tmp_path / "other.json")


def test_against_another_model_by_ids(tmp_path):
    tree = Hierarchy.from_paths(RAGGED)
    scores, targets = drawn(tree, 400, 1, 0.5)
    better = scores + 1.5 * (np.arange(6) == targets[:, None])
    order = np.random.default_rng(0).permutation(400)
    ids = np.array([f"i{n}" for n in range(400)])
    np.savez(tmp_path / "a.npz", scores=scores, targets=targets, ids=ids)
    np.savez(tmp_path / "b.npz", scores=better[order], targets=targets[order], ids=ids[order])
    report = hierbench.report(tmp_path / "a.npz", tree=tree, order="tree", against=tmp_path / "b.npz")
    a, b = scores.argmax(1), better.argmax(1)
    right_a, right_b = a == targets, b == targets
    by_name = {each["metric"]: each for each in report.content()["against"]}
    top1 = by_name["top1"]
    assert top1["value"] == pytest.approx(100 * (right_b.mean() - right_a.mean()))
    discordant = (right_a != right_b).sum()
    mcnemar = stats.binomtest(int((right_b & ~right_a).sum()), int(discordant)).pvalue
    assert top1["p"] == pytest.approx(mcnemar, abs=0.01)
    gaps = tree.distances[targets, b].astype(float) - tree.distances[targets, a]
    flipped = stats.permutation_test(
        (tree.distances[targets, b].astype(float), tree.distances[targets, a].astype(float)),
        lambda x, y, axis: (x - y).mean(axis=axis),
        permutation_type="samples",
        n_resamples=2000,
        rng=np.random.default_rng(0),
    ).pvalue
    assert by_name["hierdist@1"]["value"] == pytest.approx(gaps.mean())
    assert by_name["hierdist@1"]["p"] == pytest.approx(flipped, abs=0.02)
    assert by_name["mistake_severity"]["p"] is None
    tested = sorted(each["p"] for each in by_name.values() if each["p"] is not None)
    assert top1["corrected"] <= 1.0 and top1["corrected"] >= top1["p"]
    assert min(each["corrected"] for each in by_name.values() if each["p"] is not None) == min(
        1.0, tested[0] * len(tested)
    )
    fields = report.four_fields
    nearer = ~right_a & ~right_b & (gaps < 0)
    assert (fields.both, fields.only_second, fields.second_nearer) == (
        (right_a & right_b).sum(),
        (right_b & ~right_a).sum(),
        nearer.sum(),
    )
    assert "B is right more often" in str(report)
    equal = hierbench.report(scores, targets, tree, order="tree", against=scores.copy(), resamples=100)
    assert all(each.verdict == "open" and each.p in (None, 1.0) for each in equal.changes)
    with pytest.raises(UserError, match="targets differ"):
        hierbench.report(scores, targets, tree, order="tree", against=scores).first and hierbench.report(
            tmp_path / "a.npz", tree=tree, order="tree", against=_shifted(tmp_path, better, targets)
        )


def _shifted(folder, scores, targets):
    np.savez(folder / "c.npz", scores=scores, targets=np.roll(targets, 1))
    return folder / "c.npz"


def test_several_seeds_are_drawn_too():
    tree = Hierarchy.from_paths(RAGGED)
    targets = np.random.default_rng(0).integers(6, size=300)
    noise = [np.random.default_rng(seed).gumbel(size=(300, 6)) for seed in (1, 2, 3)]
    seeds = [each + 1.5 * (np.arange(6) == targets[:, None]) for each in noise]
    report = hierbench.report(seeds, targets, tree, order="tree")
    mean = np.mean([100 * (scores.argmax(1) == targets).mean() for scores in seeds])
    assert report.estimates["top1"].value == pytest.approx(mean)
    single = hierbench.report(seeds[0], targets, tree, order="tree")
    assert report.content()["seeds"] == 3
    width = [each.estimates["top1"].high - each.estimates["top1"].low for each in (report, single)]
    assert 0.3 * width[1] < width[0] < 1.3 * width[1]


def test_intervals_cover_and_tests_keep_their_level():
    """400 draws here; 10,000 give what docs/report.md says."""
    generator = np.random.default_rng(0)
    inside = rejected = 0
    rounds = 400
    for _ in range(rounds):
        first, second = (
            (generator.random(200) < generator.normal(0.7, 0.1, 200)).astype(float),
            generator.random(200) < 0.7,
        )
        resampling = Resampling(np.arange(200), 200, int(generator.integers(2**31)))
        drawn_means = resampling.draws({"x": mean_of("x", [first])})["x"]
        low, high = resampling.interval(drawn_means)
        inside += low <= 0.7 <= high
        rejected += resampling.flip_p(second - first) < 0.05
    assert 0.9 <= inside / rounds <= 0.985
    assert rejected / rounds <= 0.085


def test_groups_widen_intervals():
    values = np.repeat(np.random.default_rng(0).random(50) < 0.5, 10).astype(float)
    grouped, single = (Resampling(units, 500) for units in (np.repeat(np.arange(50), 10), np.arange(500)))
    widths = []
    for resampling in (grouped, single):
        low, high = resampling.interval(resampling.draws({"x": mean_of("x", [values])})["x"])
        widths.append(high - low)
    assert widths[0] > 2 * widths[1]
    alone = Resampling(np.zeros(5, dtype=np.int64))
    assert alone.draws({"x": ratio_of("x", [np.ones(5)], [np.ones(5)], "higher")}) == {}


def test_what_is_printed_and_written(tmp_path):
    tree = Hierarchy.from_paths(RAGGED)
    scores, targets = drawn(tree, 200, 1)
    report = hierbench.report(
        scores, targets, tree, order="tree", against=scores + 0.5 * (np.arange(6) == targets[:, None])
    )
    lines = str(report).splitlines()
    assert len(lines) <= 15 and lines[-1].endswith(".")
    assert report.frame("confusions").shape[1] == 5 and len(report.frame("classes")) == 6
    assert report.figure("mistakes")._repr_svg_().startswith("<svg") and "<title>" in str(report.figure("against"))
    report.write(tmp_path / "page.html")
    report.write(tmp_path / "page.json")
    assert json.loads((tmp_path / "page.json").read_text())["schema"] == 1
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page and "http" not in page.replace("http://www.w3.org/2000/svg", "").replace(
        "http-equiv", ""
    )
    for wrong in ("parts", "summery"):
        with pytest.raises(UserError, match="unknown part"):
            report.frame(wrong)
