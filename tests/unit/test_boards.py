"""`hierbench compare OLD NEW`: two boards made of published records that were changed in one way each."""

import json
import shutil
from pathlib import Path

import pytest

from hierbench.config.spec import Spec
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.boards import differences_of
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.paired import difference, holm
from hierbench.leaderboard.tables.boards import boards_table
from hierbench.records.reading import read_records
from hierbench.runs.store import Run
from tests.mistake_runs import seal

NAME = "tiny-imagenet-frozen"


def compared(*folders):
    """Compare the records of two folders as they are: nothing follows from predictions in these copies."""
    return differences_of(*((Board.of(NAME, read_records(folder)), folder) for folder in folders))


def specs_in(folder):
    return {path.parent: json.loads(path.read_text()) for path in sorted(folder.glob("*/spec.json"))}


@pytest.fixture(scope="module")
def old(copied, tmp_path_factory):
    """Type-I runs of three methods, five seeds each."""
    folder = tmp_path_factory.mktemp("old") / NAME
    methods = ("ce", "soft_labels", "hxe")
    return copied(folder, lambda spec: spec["type"] == "type-I" and spec["method"]["name"] in methods)


@pytest.fixture
def new(old, tmp_path):
    return Path(shutil.copytree(old, tmp_path / "new" / NAME))


def edit(folder, change, method="ce"):
    """Apply `change(spec, metrics, environment)` to the runs of a method and seal them; None removes a run."""
    for path, spec in specs_in(folder).items():
        if method not in (None, spec["method"]["name"]):
            continue
        contents = [spec, *(json.loads((path / f"{name}.json").read_text()) for name in ("metrics", "environment"))]
        if change(*contents) is False:
            shutil.rmtree(path)
            continue
        for name, content in zip(("spec", "metrics", "environment"), contents, strict=True):
            (path / f"{name}.json").write_text(json.dumps(content))
        seal(Run(path))
        path.rename(path.with_name(Spec.model_validate(spec).id))


def shifted(by):
    def change(spec, metrics, environment):
        metrics["test"]["top1"] += by + 0.01 * spec["seed"]

    return change


def test_a_row_that_got_worse_is_tested_by_seed(old, new):
    edit(new, shifted(-1.0))
    edit(new, shifted(0.3), "hxe")
    found = compared(old, new)
    assert [changed.row.method for changed in found.changed] == ["ce", "hxe"] and not found.added + found.removed
    pairs = [(changed.row, changed.reference) for changed in found.changed]
    gaps = [difference(*(dict(enumerate(row.metrics["top1"].values)) for row in pair)) for pair in pairs]
    adjusted = holm([gap.p for gap in gaps] + [1.0] * 8)  # the other four metrics stayed as they were
    for changed, expected, p in zip(found.changed, gaps, adjusted, strict=False):
        gap = changed.differences["top1"]
        assert (gap.mean, gap.n, gap.test, gap.effect) == (expected.mean, 5, "paired", expected.effect)
        assert gap.p_holm == pytest.approx(p) and gap.significant
        assert changed.differences["hierdist@1"].p == 1.0 and changed.changes == ()
    (worse,) = found.worse  # the other got better
    assert worse[0].method == "ce" and worse[1][0].startswith("Top-1 accuracy -0.98 +/- 0.02 (p ")
    text = render(boards_table(found))
    assert text.startswith(f"{NAME}, protocol paper: 2 rows changed, 1 row worse, 1 unchanged.\n\n| Model")
    assert "**-0.98 +/- 0.02** (d -62.0)" in text and "- Worse: cross-entropy type-I: Top-1" in text
    assert "correction over all 10 differences" in text


def test_rows_that_came_and_went_and_lost_seeds(old, new):
    edit(new, lambda spec, metrics, environment: False, "hxe")
    edit(new, lambda spec, metrics, environment: spec["seed"] not in (1, 4))
    edit(new, lambda spec, metrics, environment: spec.update(seed=spec["seed"] + 10), "soft_labels")
    found = compared(old, new)
    assert [row.method for row in found.removed] == ["hxe"] and found.added == ()
    assert {row.method: reasons for row, reasons in found.worse} == {
        "ce": ("lost seeds 1, 4",),
        "soft_labels": ("lost seeds 0-4",),
        "hxe": ("removed",),
    }
    changed, moved = found.changed
    assert changed.row.seeds == (0, 2, 3) and changed.differences["top1"].n == 3
    assert (moved.differences["top1"].test, moved.differences["top1"].n) == ("welch", 5)
    back = compared(new, old)
    assert [row.method for row in back.added] == ["hxe"]
    text = render(boards_table(back))
    assert "- Seeds: cross-entropy type-I: 0, 2, 3 -> 0-4" in text and "5 (Welch)" in text
    content = json.loads(render(boards_table(found), "json"))
    assert [row["method"] for row in content["worse"]] == ["ce", "soft_labels", "hxe"]
    assert content["removed"][0]["seeds"] == content["changed"][0]["old seeds"] == [0, 1, 2, 3, 4]
    assert content["changed"][0]["metrics"]["top1"]["significant"] is False


def test_changed_specs_are_named_key_by_key(old, new):
    def change(spec, metrics, environment):
        spec["method"].update(params={"beta": 4.0, "gamma": "<b>|"}, code="f" * 64)
        spec["train"]["lr"]["backbone"] = 0.5
        environment.update(torch="3.0 | `x`", device="cuda")

    edit(new, change, "soft_labels")
    edit(new, lambda spec, metrics, environment: environment.update(torch="3.0"))
    found = compared(old, new)
    specs = {changed.row.method: {one.key: (one.old, one.new) for one in changed.changes} for changed in found.changed}
    soft = specs["soft_labels"]
    assert soft["method.params.gamma"] == ("none", "<b>|") and soft["environment.torch"] == ("2.15.0", "3.0 | `x`")
    assert soft["environment.device"] == ("cpu", "cuda") and soft["train.lr.backbone"][1] == "0.5"
    assert soft["method.code"][1] == "f" * 12 and len(soft["method.code"][0]) == 12
    assert specs["ce"] == {"environment.torch": ("2.15.0", "3.0")}
    assert all(not changed.differences or changed.row.method == "soft_labels" for changed in found.changed)
    text = render(boards_table(found))
    assert "- environment.torch: 2.15.0 -> 3.0 (cross-entropy type-I)" in text
    assert r"- method.params.gamma: none -> \<b>\| (soft labels type-I)" in text
    assert not found.worse and "soft labels" in text and "| cross-entropy |" not in text


def test_rows_of_several_hyperparameters_are_matched_by_them(old, new, tmp_path):
    both = tmp_path / "both" / NAME
    shutil.copytree(old, both)
    for path in specs_in(old):
        twin = both / path.name[::-1]
        if json.loads((path / "spec.json").read_text())["method"]["name"] == "soft_labels":
            shutil.copytree(path, twin)
            content = json.loads((twin / "spec.json").read_text())
            content["method"]["params"]["beta"] = 99.0
            (twin / "spec.json").write_text(json.dumps(content))
            seal(Run(twin))
            twin.rename(both / Spec.model_validate(content).id)
    found = compared(old, both)
    assert [row.title for row in found.added] == [next(row.title for row in found.new.rows if "beta=99" in row.title)]
    assert not found.changed and not found.removed
    edit(both, lambda spec, metrics, environment: spec["method"]["params"]["beta"] == 99.0, "soft_labels")
    other = compared(old, both)  # one row on either side: its hyperparameters changed
    assert [change.key for change in other.changed[0].changes] == ["method.params.beta"] and not other.added


REFUSED = {
    "tree (digest)": lambda spec: spec["dataset"].update(hierarchy="1" * 64),
    "distance": lambda spec: spec["dataset"].update(distance="depth"),
    "data and splits (digest)": lambda spec: spec["dataset"].update(digest="2" * 64),
    "protocol": lambda spec: spec.update(protocol="authors"),
    "test split (drop_last)": lambda spec: spec["evaluation"].update(drop_last=True),
    "dataset": lambda spec: spec["dataset"].update(name="shapes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_boards_of_another_comparison_are_refused(cli, tmp_path, old, new, what):
    edit(new, lambda spec, metrics, environment: REFUSED[what](spec), None)
    refused = cli(tmp_path, "compare", old, new)
    assert refused.code == 2 and refused.err.count("->") == 1  # below the notes on runs that do not count
    last = refused.err.splitlines()[-1]
    assert "cannot be compared" in last and f"they differ in: {what} " in last


def test_what_is_no_board(cli, tmp_path, old, new):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / NAME).symlink_to(old)
    shutil.copytree(old, new.parent / "other")
    for path, dataset, said in (
        ("./no-such", (), "no-such: no such folder of records"),
        ("./x.json", (), "x.json has no folder"),
        (tmp_path / "empty", (), "empty has no records of runs"),
        (new.parent, (), f"has tables of other, {NAME}; choose one with --dataset"),
        (new.parent, ("--dataset", "shapes"), "none of shapes"),
        (tmp_path / "link", (), "link has no records of runs"),
    ):
        cli(tmp_path, "compare", path, old, *dataset).one_line(said)


def test_the_command(cli, tmp_path, old, new):
    edit(new, lambda spec, metrics, environment: False, "hxe")
    same = cli(tmp_path, "compare", old, old.with_suffix(".json")).ok().out
    assert same == f"{NAME}, protocol paper: no difference in 3 rows of 15 runs.\n"
    found = json.loads(cli(tmp_path, "compare", old, new.parent, "--dataset", NAME, "--format", "json").ok().out)
    assert [row["method"] for row in found["worse"]] == ["hxe"]
    cli(tmp_path, "compare", old, new, "--runs", old).one_line("--runs is for rows of one table")
    cli(tmp_path, "compare", old, new, "--metrics", "+ece").one_line("--metrics is for rows of one table")
    edit(new, shifted(42.0), "ce")
    done = cli(tmp_path, "compare", old, new, "--format", "json").ok()
    assert [row["method"] for row in json.loads(done.out)["changed"]] == ["ce"]
    next(iter(new.glob("*/metrics.json"))).write_text("{")
    assert "is damaged (metrics.json) and not counted" in cli(tmp_path, "compare", old, new).ok().err
