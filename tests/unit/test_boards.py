"""`hierbench compare OLD NEW`: two boards made of published records that were changed in one way each."""

import csv
import importlib.util
import io
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from hierbench.config.spec import Spec
from hierbench.leaderboard.boards import compare_boards
from hierbench.leaderboard.boards_tables import FORMATS
from hierbench.leaderboard.paired import difference, holm
from hierbench.runs.store import Run
from hierbench.utils.errors import UserError

PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published/tiny-imagenet-frozen"
NAME = PUBLISHED.name
_spec = importlib.util.spec_from_file_location("mistake_runs", Path(__file__).parents[1] / "mistake_runs.py")
mistake_runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(mistake_runs)


def specs_in(folder):
    return {path.parent: json.loads(path.read_text()) for path in sorted(folder.glob("*/spec.json"))}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Type-I runs of three methods, five seeds each."""
    folder = tmp_path_factory.mktemp("old") / NAME
    for path, spec in specs_in(PUBLISHED).items():
        if spec["type"] == "type-I" and spec["method"]["name"] in ("ce", "soft_labels", "hxe"):
            shutil.copytree(path, folder / path.name)
    shutil.copy(PUBLISHED / "targets.npy", folder)
    return folder


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


def test_equal_boards(old, new, tmp_path):
    found = compare_boards(old, new)
    assert found.same and not found.worse and found.new.dataset == NAME
    text = FORMATS["markdown"](found)
    assert text == f"{NAME}, protocol paper: no difference in 3 rows of 15 runs.\n"
    assert FORMATS["csv"](found).splitlines() == [
        "type,method,title,change,metric,old,new,difference,ci95,effect,n,test,p,p_holm,significant"
    ]
    # The same board by each of its names.
    (new.parent / f"{NAME}.json").write_text("{}")  # is not read
    for path in (new.parent / f"{NAME}.json", new.parent):
        assert compare_boards(old, path).same and compare_boards(path, old, NAME).same


def test_a_row_that_got_worse_is_tested_by_seed(old, new):
    edit(new, shifted(-1.0))
    edit(new, shifted(0.3), "hxe")
    found = compare_boards(old, new)
    assert [changed.row.method for changed in found.changed] == ["ce", "hxe"] and not found.added + found.removed
    before, after = ({row.method: row for row in board.rows} for board in (found.old, found.new))
    values = {
        name: [dict(enumerate(of[name].metrics["top1"].values)) for of in (after, before)] for name in ("ce", "hxe")
    }
    gaps = {name: difference(*pair) for name, pair in values.items()}
    adjusted = holm([gap.p for gap in gaps.values()] + [1.0] * 8)  # the other four metrics stayed as they were
    for changed, p in zip(found.changed, adjusted, strict=False):
        gap, expected = changed.differences["top1"], gaps[changed.row.method]
        assert (gap.mean, gap.n, gap.test, gap.effect) == (expected.mean, 5, "paired", expected.effect)
        assert gap.p_holm == pytest.approx(p) and gap.significant
        assert changed.differences["hierdist@1"].p == 1.0 and changed.specs == ()
    (worse,) = found.worse  # the other got better
    assert worse.row.method == "ce" and worse.reasons[0].startswith("Top-1 accuracy -0.98 +/- 0.02 (p ")
    text = FORMATS["markdown"](found)
    assert text.startswith(f"{NAME}, protocol paper: 2 rows changed, 1 row worse, 1 unchanged.\n\n| Model")
    assert "**-0.98 +/- 0.02 (d -62.0)**" in text and "- Worse: cross-entropy type-I: Top-1" in text
    assert "correction over all 10 differences" in text


def test_rows_that_came_and_went_and_lost_seeds(old, new):
    edit(new, lambda spec, metrics, environment: False, "hxe")
    edit(new, lambda spec, metrics, environment: spec["seed"] not in (1, 4))
    found = compare_boards(old, new)
    assert [row.method for row in found.removed] == ["hxe"] and found.added == ()
    assert {worse.row.method: worse.reasons for worse in found.worse} == {
        "ce": ("lost seeds 1, 4",),
        "hxe": ("removed",),
    }
    (changed,) = found.changed
    assert changed.row.seeds == [0, 2, 3] and changed.differences["top1"].n == 3
    back = compare_boards(new, old)
    assert [row.method for row in back.added] == ["hxe"] and not back.worse
    assert "- Seeds: cross-entropy type-I: 0, 2, 3 -> 0-4" in FORMATS["markdown"](back)


def test_rows_without_shared_seeds_are_tested_by_welch(old, new):
    edit(new, lambda spec, metrics, environment: spec.update(seed=spec["seed"] + 10))
    found = compare_boards(old, new)
    gap = found.changed[0].differences["hierdist@1"]
    assert (gap.test, gap.n, gap.mean) == ("welch", 5, 0.0) and "5 (Welch)" in FORMATS["markdown"](found)
    assert found.worse[0].reasons == ("lost seeds 0-4",)


def test_changed_specs_are_named_key_by_key(old, new):
    def change(spec, metrics, environment):
        spec["method"]["params"] = {"beta": 4.0, "gamma": "<b>|"}
        spec["method"]["code"] = "f" * 64
        spec["train"]["lr"]["backbone"] = 0.5
        environment.update(torch="3.0 | `x`", device="cuda")

    def other_machine(spec, metrics, environment):
        environment.update(torch="3.0")

    edit(new, change, "soft_labels")
    edit(new, other_machine)
    found = compare_boards(old, new)
    specs = {changed.row.method: {one.key: (one.old, one.new) for one in changed.specs} for changed in found.changed}
    assert (
        specs["soft_labels"].items()
        >= {
            "method.params.gamma": ("none", "<b>|"),
            "train.lr.backbone": (specs["soft_labels"]["train.lr.backbone"][0], "0.5"),
            "environment.torch": ("2.15.0", "3.0 | `x`"),
            "environment.device": ("cpu", "cuda"),
        }.items()
    )
    assert specs["soft_labels"]["method.code"][1] == "f" * 12 and len(specs["soft_labels"]["method.code"][0]) == 12
    assert specs["ce"] == {"environment.torch": ("2.15.0", "3.0")}
    assert all(not changed.differences or changed.row.method == "soft_labels" for changed in found.changed)
    text = FORMATS["markdown"](found)
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
    found = compare_boards(old, both)
    assert [row.title for row in found.added] == [next(row.title for row in found.new.rows if "beta=99" in row.title)]
    assert not found.changed and not found.removed
    edit(both, lambda spec, metrics, environment: spec["method"]["params"]["beta"] == 99.0, "soft_labels")
    other = compare_boards(old, both)  # one row on either side: its hyperparameters changed
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
    with pytest.raises(UserError, match=r"no-such: no such folder of records"):
        compare_boards(old, tmp_path / "no-such")
    with pytest.raises(UserError, match=r"x\.json has no folder"):
        compare_boards(old, tmp_path / "x.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty has no records of runs"):
        compare_boards(tmp_path / "empty", old)
    shutil.copytree(old, new.parent / "other")
    with pytest.raises(UserError, match=f"has tables of other, {NAME}; choose one with --dataset"):
        compare_boards(old, new.parent)
    assert compare_boards(old, new.parent, NAME).same
    with pytest.raises(UserError, match="none of shapes"):
        compare_boards(new.parent, old, "shapes")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / NAME).symlink_to(old)
    with pytest.raises(UserError, match="link has no records of runs"):
        compare_boards(old, tmp_path / "link")


@pytest.fixture
def changed(old, new):
    edit(new, shifted(-1.0))
    edit(new, lambda spec, metrics, environment: False, "hxe")

    def hostile(spec, metrics, environment):
        metrics["title"] = r"\input{x} <script> | & ↑ {"
        environment["torch"] = r"\end{document} <img>"

    edit(new, hostile, "soft_labels")
    return compare_boards(old, new)


def test_csv_json_and_html(changed):
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"](changed))))
    assert {line["change"] for line in lines} == {"removed", "changed"} and len(lines) == 15
    (top1,) = (line for line in lines if line["method"] == "ce" and line["metric"] == "top1")
    assert float(top1["new"]) - float(top1["old"]) == pytest.approx(float(top1["difference"])) == pytest.approx(-0.98)
    content = json.loads(FORMATS["json"](changed))
    assert [row["method"] for row in content["worse"]] == ["ce", "hxe"] and content["removed"][0]["seeds"] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert content["changed"][0]["metrics"]["top1"]["significant"] is True
    text = FORMATS["html"](changed)
    assert "<script>" not in text and "<img>" not in text and "<b>-0.98 +/- 0.02" in text
    assert text.count("<tr>") == 1 + 2


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex: install texlive-latex-extra")
def test_latex_compiles(tmp_path, changed):
    (tmp_path / "table.tex").write_text(FORMATS["latex"](changed), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]
    assert r"\textbf{-0.98" in (tmp_path / "table.tex").read_text()


def test_the_command(cli, tmp_path, old, new):
    edit(new, lambda spec, metrics, environment: False, "hxe")
    same = cli(tmp_path, "compare", old, old).ok()
    assert same.out == f"{NAME}, protocol paper: no difference in 3 rows of 15 runs.\n"
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
