"""`hierbench compare OLD NEW`: two boards made of published records that were changed in one way each."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from hierbench.config.options import Place
from hierbench.config.spec import Spec
from hierbench.experiments.checking import open_folder
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.boards import differences_of
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.paired import difference, holm
from hierbench.leaderboard.tables.boards import boards_table
from hierbench.runs.store import Run, Store
from hierbench.utils.errors import UserError

NAME = "tiny-imagenet-frozen"
_spec = importlib.util.spec_from_file_location("mistake_runs", Path(__file__).parents[1] / "mistake_runs.py")
mistake_runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(mistake_runs)


def compared(*folders):
    """Compare the records of two folders as they are: nothing follows from predictions in these copies."""
    return differences_of(*((Board.of(NAME, Store(folder)), Store(folder), folder) for folder in folders))


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
        mistake_runs.seal(Run(path))
        path.rename(path.with_name(Spec.model_validate(spec).id))


def shifted(by, **more):
    def change(spec, metrics, environment):
        metrics["test"]["top1"] += by + 0.01 * spec["seed"]

    return change


def test_equal_boards(old, new):
    found = compared(old, new)
    assert found.same and not found.worse and found.new.dataset == NAME
    assert render(boards_table(found)) == f"{NAME}, protocol paper: no difference in 3 rows of 15 runs.\n"


def test_a_row_that_got_worse_is_tested_by_seed(old, new):
    edit(new, shifted(-1.0))
    edit(new, shifted(0.3), "hxe")
    found = compared(old, new)
    assert [changed.row.method for changed in found.changed] == ["ce", "hxe"] and not found.added + found.removed
    values = [
        [dict(enumerate(row.metrics["top1"].values)) for row in (changed.row, changed.old)] for changed in found.changed
    ]
    gaps = [difference(*pair) for pair in values]
    adjusted = holm([gap.p for gap in gaps] + [1.0] * 8)  # the other four metrics stayed as they were
    for changed, expected, p in zip(found.changed, gaps, adjusted, strict=False):
        gap = changed.differences["top1"]
        assert (gap.mean, gap.n, gap.test, gap.effect) == (expected.mean, 5, "paired", expected.effect)
        assert gap.p_holm == pytest.approx(p) and gap.significant
        assert changed.differences["hierdist@1"].p == 1.0 and changed.specs == ()
    (worse,) = found.worse  # the other got better
    assert worse.row.method == "ce" and worse.reasons[0].startswith("Top-1 accuracy -0.98 +/- 0.02 (p ")
    text = render(boards_table(found))
    assert text.startswith(f"{NAME}, protocol paper: 2 rows changed, 1 row worse, 1 unchanged.\n\n| Model")
    assert "**-0.98 +/- 0.02** (d -62.0)" in text and "- Worse: cross-entropy type-I: Top-1" in text
    assert "correction over all 10 differences" in text


def test_rows_that_came_and_went_and_lost_seeds(old, new):
    edit(new, lambda spec, metrics, environment: False, "hxe")
    edit(new, lambda spec, metrics, environment: spec["seed"] not in (1, 4))
    found = compared(old, new)
    assert [row.method for row in found.removed] == ["hxe"] and found.added == ()
    assert {worse.row.method: worse.reasons for worse in found.worse} == {
        "ce": ("lost seeds 1, 4",),
        "hxe": ("removed",),
    }
    (changed,) = found.changed
    assert changed.row.seeds == (0, 2, 3) and changed.differences["top1"].n == 3
    back = compared(new, old)
    assert [row.method for row in back.added] == ["hxe"] and not back.worse
    assert "- Seeds: cross-entropy type-I: 0, 2, 3 -> 0-4" in render(boards_table(back))
    content = json.loads(render(boards_table(found), "json"))
    assert [row["method"] for row in content["worse"]] == ["ce", "hxe"]
    assert content["removed"][0]["seeds"] == content["changed"][0]["old seeds"] == [0, 1, 2, 3, 4]
    assert content["changed"][0]["metrics"]["top1"]["significant"] is False


def test_rows_without_shared_seeds_are_tested_by_welch(old, new):
    edit(new, lambda spec, metrics, environment: spec.update(seed=spec["seed"] + 10))
    found = compared(old, new)
    gap = found.changed[0].differences["hierdist@1"]
    assert (gap.test, gap.n, gap.mean) == ("welch", 5, 0.0) and "5 (Welch)" in render(boards_table(found))
    assert found.worse[0].reasons == ("lost seeds 0-4",)


def test_changed_specs_are_named_key_by_key(old, new):
    def change(spec, metrics, environment):
        spec["method"].update(params={"beta": 4.0, "gamma": "<b>|"}, code="f" * 64)
        spec["train"]["lr"]["backbone"] = 0.5
        environment.update(torch="3.0 | `x`", device="cuda")

    edit(new, change, "soft_labels")
    edit(new, lambda spec, metrics, environment: environment.update(torch="3.0"))
    found = compared(old, new)
    specs = {changed.row.method: {one.key: (one.old, one.new) for one in changed.specs} for changed in found.changed}
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
            mistake_runs.seal(Run(twin))
    found = compared(old, both)
    assert [row.title for row in found.added] == [next(row.title for row in found.new.rows if "beta=99" in row.title)]
    assert not found.changed and not found.removed
    edit(both, lambda spec, metrics, environment: spec["method"]["params"]["beta"] == 99.0, "soft_labels")
    other = compared(old, both)  # one row on either side: its hyperparameters changed
    assert [change.key for change in other.changed[0].specs] == ["method.params.beta"] and not other.added


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


def test_what_is_no_board(tmp_path, old, new):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / NAME).symlink_to(old)
    shutil.copytree(old, new.parent / "other")
    for path, dataset, said in (
        (tmp_path / "no-such", None, r"no-such: no such folder of records"),
        (tmp_path / "x.json", None, r"x\.json has no folder"),
        (tmp_path / "empty", None, "empty has no records of runs"),
        (new.parent, None, f"has tables of other, {NAME}; choose one with --dataset"),
        (new.parent, "shapes", "none of shapes"),
        (tmp_path / "link", None, "link has no records of runs"),
    ):
        with pytest.raises(UserError, match=said):
            open_folder(path, Place(data_dir=tmp_path), dataset)
    for path, dataset in ((old, None), (old.with_suffix(".json"), None), (new.parent, NAME)):  # each of its names
        assert len(open_folder(path, Place(data_dir=tmp_path), dataset).board.rows) == 3


def test_the_command(cli, tmp_path, old, new):
    edit(new, lambda spec, metrics, environment: False, "hxe")
    assert "no difference in 3 rows of 15 runs" in cli(tmp_path, "compare", old, old).ok().out
    found = json.loads(cli(tmp_path, "compare", old, new.parent, "--dataset", NAME, "--format", "json").ok().out)
    assert [row["method"] for row in found["worse"]] == ["hxe"]
    cli(tmp_path, "compare", old, new, "--runs", old).one_line("--runs is for rows of one table")
    cli(tmp_path, "compare", old, new, "--metrics", "+ece").one_line("--metrics is for rows of one table")
    cli(tmp_path, "compare", old, "./nothing").one_line("no such folder of records")
    edit(new, shifted(42.0), "ce")
    done = cli(tmp_path, "compare", old, new, "--format", "json").ok()
    assert done.err.count(" (ce type-I seed ") == 5 and "is rejected and not counted: " in done.err
    (row,) = (row for row in json.loads(done.out)["worse"] if row["method"] == "ce")
    assert "lost seeds" in str(row)
