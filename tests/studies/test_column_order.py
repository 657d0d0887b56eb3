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
        UserError, match=r"nothing names the classes.*'barn', 'snowy', 'bean'.*'barn', 'bean', 'snowy'.*order=\"tree\""
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
    assert "Left out, as they need the scores of all classes, or more ranked ones: HierDist@5" in str(report)


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


@pytest.mark.parametrize("name", ["rank", "distance", "val_loss", "cosine-dist", "energies", "Errors", "mystery"])
@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_values_by_other_names_are_no_scores(tmp_path, name, kind):
    scores = np.random.default_rng(0).normal(size=(6, 3))
    file = tmp_path / f"mine.{kind}"
    if kind == "npz":
        np.savez(file, **{name: scores, "targets": np.arange(6) % 3})
    else:
        frame = pd.DataFrame(scores, columns=[f"{name}_{i}" for i in range(3)])
        frame.assign(target=np.arange(6) % 3).to_csv(file, index=False)
    message = "not understood; to leave.* out.*, ignore=" if name in ("energies", "mystery") else "where smaller"
    with pytest.raises(ValueError, match=message):
        hierbench.score(file, tree=TREE, resamples=0)


# Rows of a table with the classes barn, snowy (owls) and bean (a goose), options, and top-1 or a part of the error.
HALF = "a,0.6,0.3,0.1,barn\nb,0.5,0.4,0.1,bean\n"
READ = {
    "prob_ant": ("id,prob_barn,prob_snowy,prob_bean,target\n" + HALF, {}, 50.0),
    "P(ant)": ("id,P(barn),P(snowy),P(bean),target\n" + HALF, {}, 50.0),
    "ant_prob": ("id,barn_prob,snowy_prob,bean_prob,target\n" + HALF, {}, 50.0),
    "in another order": ("id,prob_snowy,prob_barn,prob_bean,target\n" + HALF, {}, 0.0),
    "decimal commas": ("id;barn;snowy;bean;target\n" + HALF.replace(",", ";").replace(".", ","), {}, 50.0),
    "tabs": (("id,barn,snowy,bean,target\n" + HALF).replace(",", "\t"), {}, 50.0),
    "image,label,prediction": ("image,label,prediction\na,barn,barn\nb,bean,snowy\n", {}, 50.0),
    "top1..": ("image,target,top1,top2\na,barn,barn,bean\nb,bean,snowy,bean\n", {}, 50.0),
    "an extra column": ("id,barn,snowy,bean,target,site\n" + HALF.replace("\n", ",3\n"), {}, 'ignore="site"'),
    "which is ignored": ("id,barn,snowy,bean,target,site\n" + HALF.replace("\n", ",3\n"), {"ignore": ["site"]}, 50.0),
    "no such column": ("id,barn,snowy,bean,target\n" + HALF, {"ignore": ["sight"]}, "has no column 'sight'"),
    "no target": ("id,barn,snowy,bean,target\n" + HALF + "c,0.2,0.2,0.6,\n", {}, "1 rows have no target"),
    "which is left out": (
        "id,barn,snowy,bean,target\n" + HALF + "c,0.2,0.2,0.6,\n",
        {"skip_unlabelled": True},
        50.0,
    ),
    "answers and scores": (
        "id,barn,snowy,bean,target,pred\na,0.6,0.3,0.1,barn,barn\nb,0.5,0.4,0.1,bean,barn\n",
        {},
        50.0,
    ),
    "which disagree": (
        "id,barn,snowy,bean,target,pred\na,0.6,0.3,0.1,barn,barn\nb,0.5,0.4,0.1,bean,bean\n",
        {},
        "1 of 2",
    ),
    "by answers": (
        "id,barn,snowy,bean,target,pred\na,0.6,0.3,0.1,barn,barn\nb,0.5,0.4,0.1,bean,bean\n",
        {"use": "answers"},
        100.0,
    ),
    "by scores": (
        "id,barn,snowy,bean,target,pred\na,0.6,0.3,0.1,barn,barn\nb,0.5,0.4,0.1,bean,bean\n",
        {"use": "scores"},
        50.0,
    ),
    "rising scores": (
        "target,top1,top2,prob1,prob2\nbarn,barn,bean,0.3,0.6\nbean,snowy,bean,0.6,0.3\n",
        {},
        "rise with the rank in 1 of 2 rows, first in row 0",
    ),
    "JSON of arrays": ('{"targets": ["barn", "bean"], "scores": [[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]]}', {}, 50.0),
    "JSON of other lengths": (
        '{"targets": ["barn"], "scores": [[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]]}',
        {},
        "1 to 2 entries",
    ),
    "too many columns": (",".join(map(str, range(3000))) + "\n", {}, "3,000 columns, too many for 3 classes"),
}


@pytest.mark.parametrize("case", READ)
def test_a_form_is_read_or_refused(tmp_path, case):
    text, options, expected = READ[case]
    file = tmp_path / f"a.{'json' if text.startswith('{') else 'csv'}"
    file.write_text(text)
    options = {"order": "tree", "resamples": 0, **options}
    if isinstance(expected, str):
        with pytest.raises(UserError, match=expected):
            hierbench.score(file, tree=TREE, **options)
    else:
        assert hierbench.score(file, tree=TREE, **options)["top1"] == expected


def test_a_label_of_several_words_is_a_target(tmp_path):
    """As it is with one word: a cell is a list only in brackets."""
    tree = Hierarchy.from_paths({name: (name[0], name) for name in ("snowy owl", "barn owl", "mute swan")})
    rows = "".join(f"{p},snowy owl\n" for p in ("0.6,0.3,0.1", "0.3,0.6,0.1"))
    (tmp_path / "a.csv").write_text("P(snowy owl),P(barn owl),P(mute swan),label\n" + rows)
    assert hierbench.score(tmp_path / "a.csv", tree=tree, resamples=0)["top1"] == 50.0
    (tmp_path / "b.csv").write_text("image,label,prediction\n1,snowy owl,snowy owl\n2,snowy owl,mute swan\n")
    assert hierbench.score(tmp_path / "b.csv", tree=tree, resamples=0)["top1"] == 50.0


@pytest.mark.parametrize(
    "text",
    ["target,prediction\nbarn,owl\nbean,snowy\n", "target,group,species\nbarn,owl,\nbean,owl,snowy\n"],
)
def test_answers_above_the_classes_have_the_metrics_of_nodes(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    report = hierbench.score(tmp_path / "a.csv", tree=TREE)
    nodes = report.results[0].nodes["answers"]
    assert nodes["correct"] == 0.5 and "Some answers are nodes above the classes" in str(report)


def test_a_parquet_file_that_repeats_one_value_is_not_unpacked(tmp_path, monkeypatch):
    pd.DataFrame({"target": np.zeros(5000, dtype=int), "pred": 0}).to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr("hierbench.studies.scoring.table_formats.MAX_VALUES", 9999)
    with pytest.raises(ValueError, match="10,000 values, more than 9,999"):
        hierbench.score(tmp_path / "a.parquet", tree=TREE)
