"""Which class a column or a number means: named, in a stated order, or the leaf that is that number."""

import json

import numpy as np
import pandas as pd
import pytest

import hierbench
from hierbench import Hierarchy, evaluate
from hierbench.utils.errors import UserError

# The rows of this tree are not in alphabetical order: owls first, then geese.
TREE = Hierarchy.from_paths(
    {name: (group, name) for group, name in [("owl", "barn"), ("owl", "snowy"), ("goose", "bean")]}
)
NUMBERS = Hierarchy.from_edges([("r", "a"), ("r", "b"), *(("ab"[n > 5], str(n)) for n in range(1, 12))])
NUMBERED = Hierarchy.from_paths({str(n): ("ab"[n > 5], str(n)) for n in range(1, 12)})
RNG = np.random.default_rng(0)
SCORES, TARGETS = RNG.normal(size=(60, 3)), RNG.integers(3, size=60)
ALPHABETICAL = sorted(TREE.classes)
MOVED = [TREE.classes.index(name) for name in ALPHABETICAL]  # the tree's class of each alphabetical number
OPTIONS = {"resamples": 0}
EXPECTED = evaluate(SCORES, TARGETS, TREE)["mistake_severity"]


def save(folder, **arrays):
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def test_columns_without_names_are_asked_for_where_orders_differ(tmp_path):
    with pytest.raises(
        UserError, match=r"nothing names the classes.*'barn', 'snowy', 'bean'.*'barn', 'bean', 'snowy'.*--order"
    ):
        hierbench.score(save(tmp_path, scores=SCORES, targets=TARGETS), tree=TREE, **OPTIONS)
    assert hierbench.score(SCORES, TARGETS, TREE, order="tree", **OPTIONS)["mistake_severity"] == EXPECTED
    alphabetical_targets = np.argsort(MOVED)[TARGETS]
    report = hierbench.score(SCORES[:, MOVED], alphabetical_targets, TREE, order="alphabetical", **OPTIONS)
    assert report["mistake_severity"] == EXPECTED and "columns in alphabetical order" in str(report)


@pytest.mark.parametrize("key", ["names", "classes", "class_names"])
def test_named_columns_are_aligned(tmp_path, key):
    names = np.array(TREE.classes)[TARGETS]
    file = save(tmp_path, scores=SCORES[:, MOVED], targets=names, **{key: np.array(ALPHABETICAL)})
    report = hierbench.score(file, tree=TREE, **OPTIONS)
    assert report["mistake_severity"] == EXPECTED and "columns by name" in str(report)


def test_the_first_and_last_column_are_named(cifar100):
    report = hierbench.score(np.eye(100), np.arange(100), cifar100, **OPTIONS)
    assert (
        "Scores are probabilities, columns in the order of the tree: column 0 is 'apple', column 99 is 'worm'."
        in str(report)
    )


def test_numbers_are_the_leaves_of_these_names():
    """As integers and as text, and in the order of numbers: 1, 2, ..., 11, not 1, 10, 11, 2."""
    assert NUMBERS.classes == NUMBERED.classes == tuple(map(str, range(1, 12)))
    targets = RNG.integers(1, 12, size=80)
    scores = RNG.normal(size=(80, 11))
    expected = evaluate(scores, targets - 1, NUMBERED)
    for values in (targets, targets.astype(str), targets.astype(float), [str(target) for target in targets]):
        report = hierbench.score(scores, values, NUMBERED, **OPTIONS)
        assert {name: report[name] for name in ("top1", "mistake_severity")} == {
            name: expected[name] for name in ("top1", "mistake_severity")
        }
    assert hierbench.score(scores, targets - 1, NUMBERED, order="tree", **OPTIONS)["top1"] == expected["top1"]
    with pytest.raises(
        UserError, match=r"0 in row \d+ is not a class of the tree, whose classes are the numbers 1 to 11"
    ):
        hierbench.score(scores, targets - 1, NUMBERED, **OPTIONS)


FILES = [
    ("a.csv", lambda names: "id,predicted\n" + "".join(f"{row},{name}\n" for row, name in enumerate(names))),
    ("a.csv", lambda names: "id,Category\n" + "".join(f"{row},{name}\n" for row, name in enumerate(names))),
    ("a.json", lambda names: json.dumps({f"{row}.jpg": name for row, name in enumerate(names)})),
    ("a.json", lambda names: json.dumps([[{"label": name, "score": 0.9}] for name in names])),
    ("a.json", lambda names: json.dumps([{"label": name, "score": 0.9} for name in names])),
]


@pytest.mark.parametrize(("name", "write"), FILES)
def test_submissions_and_pipelines_are_read(tmp_path, name, write):
    predicted = np.array(TREE.classes)[SCORES.argmax(axis=1)]
    (tmp_path / name).write_text(write(predicted.tolist()))
    (tmp_path / "t.txt").write_text("\n".join(np.array(TREE.classes)[TARGETS]))
    report = hierbench.score(tmp_path / name, tmp_path / "t.txt", TREE, **OPTIONS)
    assert report["mistake_severity"] == EXPECTED
    assert "Left out, for fewer classes than they rank: HierDist@5" in str(report)


@pytest.mark.parametrize(
    ("row", "message"),
    [([np.inf, 0, 0], r"row 3 has \+inf"), ([-np.inf] * 3, "nothing but -inf"), ([0.5, 0.25, 0.25], "1 of 60 rows")],
)
def test_rows_without_a_meaning_are_refused(row, message):
    scores = SCORES.copy()
    scores[3] = row
    with pytest.raises(UserError, match=message):
        hierbench.score(scores, TARGETS, TREE, order="tree", **OPTIONS)


def test_the_user_says_what_scores_are():
    probabilities = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
    mixed = np.concatenate([probabilities[:30], SCORES[30:]])
    options = OPTIONS | {"order": "tree", "metrics": "ece"}
    of_logits = hierbench.score(SCORES, TARGETS, TREE, **options)["ece"]
    assert hierbench.score(probabilities, TARGETS, TREE, **options)["ece"] == pytest.approx(of_logits, abs=1e-9)
    assert hierbench.score(probabilities.round(4), TARGETS, TREE, **options)["ece"] == pytest.approx(
        of_logits, abs=0.02
    )
    for kind in ("logits", "probabilities"):
        assert f"Scores are {kind}" in str(hierbench.score(mixed.clip(0.01), TARGETS, TREE, scores_are=kind, **options))


@pytest.mark.parametrize("name", ["rank", "distance", "val_loss", "cosine-dist", "energies", "Errors"])
@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_values_that_are_better_where_smaller_are_no_scores(tmp_path, name, kind):
    tree = hierbench.Hierarchy.from_paths({"a": ("x", "a"), "b": ("x", "b"), "c": ("y", "c")})
    scores = np.random.default_rng(0).normal(size=(6, 3))
    file = tmp_path / f"mine.{kind}"
    if kind == "npz":
        np.savez(file, **{name: scores, "targets": np.arange(6) % 3})
    else:
        frame = pd.DataFrame(scores, columns=[f"{name}_{i}" for i in range(3)])
        frame.assign(target=np.arange(6) % 3).to_csv(file, index=False)
    if name == "energies":  # an irregular plural is no name that is known
        assert hierbench.score(file, tree=tree, resamples=0)["top1"] >= 0.0
        return
    with pytest.raises(ValueError, match="better where smaller"):
        hierbench.score(file, tree=tree, resamples=0)
