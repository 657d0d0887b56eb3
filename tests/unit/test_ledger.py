import csv
import io
import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from hierbench.hierarchy.readers import shipped_paths
from hierbench.hierarchy.tree import Hierarchy
from hierbench.leaderboard.board import Board, board_from_paper, paper_datasets
from hierbench.leaderboard.ledger import (
    Difference,
    as_csv,
    as_json,
    build_ledger,
    known_differences,
    latex,
    ledger_from_runs,
    markdown,
)
from hierbench.leaderboard.statistics import METRICS, Cell, Row
from hierbench.runs.integrity import fingerprints
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError


def row(kind, method, mean=2.0, ci95=0.1, n=5, title=None, metrics=METRICS):
    return Row(kind, method, title or method, n, 5, {metric: Cell(mean, ci95) for metric in metrics})


@pytest.fixture
def ledger():
    """Runs that lack most methods and one metric, have one of their own and two variants of another."""
    rows = [
        row("type-I", "ce", 77.0, 0.3866),
        row("type-I", "mine", title="mine_1 | 100%"),
        row("type-II", "ce", None, None, n=0),
        row("type-II", "haframe", 77.9, 0.1, title="HAFrame (alpha=0.4, gamma=2.0)", metrics=METRICS[:-1]),
        row("type-II", "haframe", 77.0, None, n=1, title="HAFrame (alpha=0.0, gamma=2.0)"),
    ]
    return build_ledger(Board("cifar100", "paper", "height", rows, "wrn10-1, 1 epochs"), board_from_paper("cifar100"))


def line(ledger, kind, title, metric="top1"):
    (found,) = [x for x in ledger.lines if (x.type, x.title, x.metric) == (kind, title, metric)]
    return found


def test_gap_and_overlap_by_hand(ledger):
    found = line(ledger, "type-I", "ce")
    assert found.published == Cell(77.65, 0.2635)
    assert found.gap == pytest.approx(-0.65) and found.overlap  # 0.2635 + 0.3866 = 0.6501
    found.ours.ci95 = 0.3864
    assert found.overlap is False
    found.ours.ci95 = 0.3865  # they touch: 0.65, which is a little less in binary
    assert 0.2635 + 0.3865 < abs(77.0 - 77.65) and found.overlap
    full = line(ledger, "type-II", "HAFrame (alpha=0.4, gamma=2.0)")
    assert full.gap == pytest.approx(0.19) and full.overlap


def test_what_is_missing_has_no_gap(ledger):
    own = line(ledger, "type-I", "mine_1 | 100%")
    assert own.published is None and own.gap is None and own.overlap is None and own.differences == ()
    printed = line(ledger, "type-I", "Flamingo")
    assert printed.ours is None and printed.row is None and printed.gap is None
    unfinished = line(ledger, "type-II", "ce")
    assert unfinished.published == Cell(76.45, 0.2207) and unfinished.gap is None
    one_run = line(ledger, "type-II", "HAFrame (alpha=0.0, gamma=2.0)")
    assert one_run.gap == pytest.approx(-0.71) and one_run.overlap is None
    missing = line(ledger, "type-II", "HAFrame (alpha=0.4, gamma=2.0)", "hierdist@20")
    assert missing.published is not None and missing.ours is None and missing.gap is None


def test_every_row_of_both_boards_is_there_once(ledger):
    rows = [(x.type, x.method, x.title) for x in ledger.lines if x.metric == "top1"]
    assert [kind for kind, _, _ in rows] == ["type-I"] * 5 + ["type-II"] * 6
    assert len(set(rows)) == 11
    assert {(kind, method) for kind, method, _ in rows} == {
        (x.type, x.method) for x in board_from_paper("cifar100").rows
    } | {("type-I", "mine")}


EVERYWHERE = {4, 5, 38}  # under the protocol paper
EXPECTED = {  # (dataset, protocol): rows of all cells, then of some
    ("fgvc", "paper"): (EVERYWHERE | {22}, {"type-I": {11}, "type-II": {18}}, {"hafeature": {29, 30, 33}}),
    ("fgvc", "authors"): (set(), {}, {"hafeature": {29, 33}}),
    ("cifar100", "paper"): (EVERYWHERE | {23, 34}, {"type-I": {12}}, {"hafeature": {29}}),
    ("cifar100", "authors"): (set(), {}, {"hafeature": {29}, "flamingo type-I": {25}}),
    ("inat19", "paper"): (EVERYWHERE, {"type-I": {11}}, {"hafeature": {29, 30}}),
    ("inat19", "authors"): (set(), {}, {"hafeature": {29}}),
    ("tieredimagenet-h", "paper"): (EVERYWHERE, {"type-I": {11}}, {"hafeature": {3, 29, 30}, "flamingo": {3}}),
    ("tieredimagenet-h", "authors"): (set(), {}, {"hafeature": {3, 29}, "flamingo": {3}}),
}


@pytest.mark.parametrize(("dataset", "protocol"), EXPECTED)
def test_which_differences_touch_which_cell(dataset, protocol):
    published = board_from_paper(dataset)
    ledger = build_ledger(Board(dataset, protocol, published.distance, published.rows), published)
    everywhere, by_type, by_method = EXPECTED[dataset, protocol]
    by_method = by_method | {"haframe": {8, 9} if protocol == "paper" else {9}}
    assert len(ledger.lines) == 45
    for x in ledger.lines:
        parts = (by_type.get(x.type, set()), by_method.get(x.method, set()))
        expected = everywhere.union(*parts, by_method.get(f"{x.method} {x.type}", set()))
        assert x.differences == tuple(sorted(expected)), (x.type, x.method)
    assert [entry.row for entry in ledger.differences] == sorted({n for x in ledger.lines for n in x.differences})


def test_what_touches_ce_touches_crm():
    difference = Difference(row=1, summary="", methods=("ce",), metrics=("top1",))
    place = ("fgvc", "type-I")
    assert difference.touches(*place, "crm", "top1", "paper") and difference.touches(*place, "ce", "top1", "authors")
    assert not difference.touches(*place, "crm", "hierdist@1", "paper")
    assert not difference.touches(*place, "flamingo", "top1", "paper")
    assert not Difference(row=1, summary="", methods=("crm",)).touches(*place, "ce", "top1", "paper")


def test_the_differences_name_what_exists():
    known = known_differences()
    assert len({entry.row for entry in known}) == len(known) >= 14
    methods = {x.method for dataset in paper_datasets() for x in board_from_paper(dataset).rows}
    for entry in known:
        assert set(entry.datasets) <= set(paper_datasets()), entry
        assert set(entry.methods) <= methods and set(entry.metrics) <= set(METRICS), entry
        assert entry.summary and "\n" not in entry.summary and not entry.summary.endswith(".")


def test_markdown(ledger):
    lines = markdown(ledger).splitlines()
    table = [[cell.strip() for cell in x.replace("\\|", "/").split("|")[1:-1]] for x in lines if x.startswith("| ")]
    assert {len(cells) for cells in table} == {9} and len(table) == 1 + 11 * 5
    assert table[1] == [
        "type-I", "ce", "Top-1 accuracy ↑", "77.65 +/- 0.2635", "77.00 +/- 0.3866",
        "-0.65", "yes", "5", "4, 5, 12, 23, 34, 38",
    ]  # fmt: skip
    assert table[2][:3] == ["", "", "Mistake severity ↓"]
    (own,) = [cells for cells in table if cells[1] == "mine_1 / 100%"]
    assert own[3:] == ["-", "2.00 +/- 0.1000", "-", "-", "5", "-"]
    (missing,) = [cells for cells in table if cells[:2] == ["type-II", "HAFeature"]]
    assert missing[4:] == ["-", "-", "-", "-", "4, 5, 23, 29, 34, 38"]
    (one_run,) = [cells for cells in table if cells[1].startswith("HAFrame (alpha=0.0")]
    assert one_run[4:8] == ["77.00 +/- -", "-0.71", "-", "1 of 5"]
    below = "\n".join(lines)
    assert "Settings: wrn10-1, 1 epochs." in below
    assert [int(x[2:].split(":")[0]) for x in lines if x.startswith("- ")] == [4, 5, 8, 9, 12, 23, 29, 34, 38]


def test_another_distance_is_said():
    published = board_from_paper("tieredimagenet-h")
    ledger = build_ledger(Board("tieredimagenet-h", "authors", "height", published.rows), published)
    assert "distance height (published: depth)" in markdown(ledger)


def test_json_and_csv_hold_the_same_numbers(ledger):
    content = json.loads(as_json(ledger))
    assert {key: content[key] for key in content if key != "rows"} == {
        "schema": 1, "dataset": "cifar100", "protocol": "paper", "distance": "height"
    }  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(as_csv(ledger))))
    assert len(rows) == len(content["rows"]) == len(ledger.lines)
    for text, entry in zip(rows, content["rows"], strict=True):
        for key in ("published", "published_ci95", "ours", "ours_ci95", "gap", "n", "planned"):
            assert (None if text[key] == "" else float(text[key])) == entry[key]
        assert {"": None, "0": False, "1": True}[text["overlap"]] is entry["overlap"]
        assert text["differences"] == ", ".join(map(str, entry["differences"]))
    first = content["rows"][0]
    assert first["published"] == 77.65 and first["ours"] == 77.0 and first["overlap"] is True
    assert first["differences"] == [4, 5, 12, 23, 34, 38] and (first["n"], first["planned"]) == (5, 5)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex: install texlive-latex-extra")
def test_latex_compiles(tmp_path, ledger):
    text = latex(ledger)
    assert r"\multirow{5}{*}{Type-I}" in text and r"mine\_1 \textbar{} 100\%" in text
    assert "77.65 +/- 0.2635 & 77.00 +/- 0.3866 & -0.65 & yes & 5 & 4, 5, 12, 23, 34, 38" in text
    (tmp_path / "table.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_a_dataset_without_a_published_table(tmp_path):
    with pytest.raises(UserError, match=r"the paper has no table of shapes .* cifar100, fgvc"):
        ledger_from_runs("shapes", Store(tmp_path))


@pytest.mark.parametrize("protocol", [None, "authors"])
def test_without_runs_the_published_column_is_printed(cli, tmp_path, protocol):
    ledger = ledger_from_runs("fgvc", Store(tmp_path), protocol)
    printed = [cell for row in board_from_paper("fgvc").rows for cell in row.metrics.values()]
    assert [line.published for line in ledger.lines] == printed and not any(line.ours for line in ledger.lines)
    assert ledger.protocol == (protocol or "paper")
    option = [] if protocol is None else ["--protocol", protocol]
    arguments = ["leaderboard", "--dataset", "fgvc", "--source", "both", "--runs", str(tmp_path / "runs"), *option]
    code, out, err = cli(tmp_path, *arguments)
    assert code == 0 and "| type-I  | cross-entropy | Top-1 accuracy ↑   | 79.18 +/- 0.5511 | -" in out
    assert err.startswith("note: no runs of fgvc") and "run: hierbench run --methods paper --dataset fgvc" in err


def test_publishing_a_ledger_is_a_mistake(cli, tmp_path):
    arguments = ["leaderboard", "--dataset", "fgvc", "--source", "both", "--publish", str(tmp_path / "here")]
    assert cli(tmp_path, *arguments).one_line("--publish is for runs")
    assert not list(tmp_path.iterdir())


def test_the_command_imports_no_torch(tmp_path, tamperings):
    """On records of a dataset of the paper, as another machine may have made them, that were verified before."""
    from hierbench.config.recipe import load_recipe
    from hierbench.config.spec import DatasetSpec, MethodSpec, Spec, TrainSpec

    tree, results = Hierarchy.from_paths(shipped_paths("cifar100")), []
    recipe = load_recipe("cifar100", ["train.precision=bfloat16"])  # what "auto" was on that machine
    for seed in range(2):
        spec = Spec(
            dataset=DatasetSpec(name="cifar100", digest="d", hierarchy=tree.digest(), distance="height"),
            method=MethodSpec(name="ce", version="1", code="c", params={}),
            type="type-I",
            model=recipe.model,
            train=TrainSpec(**recipe.train.model_dump(exclude={"lr"}), lr=recipe.train.lr.type_i),
            augment=recipe.augment,
            seed=seed,
        )
        run = Store(tmp_path / "runs").run(spec.id)
        run.plan(spec.content())
        scores = np.random.default_rng(seed).normal(size=(200, 100))
        test, mistakes = tamperings.metrics_of(scores, np.arange(200) % 100, tree)
        results.append(test)
        metrics = {"title": "cross-entropy", "test": test, "val": test, "best_epoch": 1}
        metrics["mistakes_by_distance"] = mistakes
        (run.folder / "metrics.json").write_text(json.dumps(metrics))
        run.write_history([{"epoch": 1 + at, **{f"val_{name}": test[name] for name in test}} for at in range(100)])
        data = {"digest": "d", "splits": {}, "remark": "not the whole dataset"}
        run.write_record("environment.json", {"device": "cpu", "data": data})
        predictions = {"predictions.npz": {"sha256": f"{seed:064}", "size": 1, "mtime_ns": 1}}
        run.set_status("done", files=fingerprints(run.folder) | predictions)
    time.sleep(0.6)  # what was just written is not kept as verified
    code = (
        "import sys\n"
        "sys.argv = ['hierbench', 'leaderboard', '--dataset', 'cifar100', '--source', 'both', *sys.argv[1:]]\n"
        "from hierbench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "assert ('torch' in sys.modules) == {} and 'mlflow' not in sys.modules\n"
    )
    for first in (True, False):  # the second table reads what the first has verified
        command = [sys.executable, "-c", code.replace("{}", str(first)), "--format", "json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [x["ours"] for x in rows if (x["type"], x["method"]) == ("type-I", "ce")] == [
        pytest.approx(sum(result[name] for result in results) / 2) for name in METRICS
    ]
    assert rows[1]["gap"] == pytest.approx(rows[1]["ours"] - 2.34)


def test_a_switch_set_by_itself_changes_what_touches(tmp_path, shapes):
    """The recorded setting counts, not what the protocol is called."""
    from hierbench.api.registry import find_method
    from hierbench.config.recipe import load_recipe
    from hierbench.leaderboard.board import board_from_runs
    from hierbench.leaderboard.ledger import known_differences
    from hierbench.planning.plan import make_spec
    from hierbench.runs.store import Store

    rows = {entry.row: entry for entry in known_differences()}

    def touched(dataset, method, kind, protocol, overrides=()):
        recipe = load_recipe(dataset, ["train.precision=float32", *overrides], protocol)
        spec = make_spec(recipe, shapes, find_method(method), kind, 0)
        return {row for row, entry in rows.items() if entry.touches(dataset, kind, method, "top1", protocol, spec)}

    assert touched("fgvc", "ce", "type-I", "paper") == {4, 5, 11, 22}
    assert touched("fgvc", "ce", "type-I", "paper", ["model.type_i_pool=max", "evaluation.ddof=0"]) == {5, 22}
    assert touched("fgvc", "ce", "type-II", "paper") == {4, 5, 18, 22}
    assert touched("fgvc", "ce", "type-II", "authors") == set()
    assert touched("fgvc", "ce", "type-II", "authors", ["train.lr.type-II.transform=0.01"]) == {18}
    assert touched("fgvc", "hafeature", "type-I", "authors") == {29, 33}
    assert touched("fgvc", "hafeature", "type-I", "paper") == {4, 5, 11, 22, 29, 30, 33}
    assert touched("cifar100", "haframe", "type-II", "paper") == {4, 5, 8, 9, 23, 34}
    assert touched("cifar100", "ce", "type-I", "paper", ["model.type_i_units=0"]) == {4, 5, 23, 34}
    assert touched("cifar100", "ce", "type-II", "paper", ["model.wrn_group_input=raw"]) == {4, 5, 23}
    assert touched("inat19", "ce", "type-II", "authors", ["train.precision=bfloat16"]) == {38}
    assert touched("cifar100", "flamingo", "type-I", "authors") == {25}
    assert touched("tieredimagenet-h", "flamingo", "type-II", "paper") == {3, 4, 5}
    assert touched("tieredimagenet-h", "ce", "type-II", "paper", ["distance=height"]) == {1, 4, 5}
    assert touched("inat19", "hafeature", "type-II", "paper") == {4, 5, 29, 30}

    recipe = load_recipe("shapes", ["evaluation.drop_last=true", "train.lr.type-I.backbone=0.5"])
    run = Store(tmp_path).run(make_spec(recipe, shapes, find_method("ce"), "type-I", 0).id)
    run.plan(make_spec(recipe, shapes, find_method("ce"), "type-I", 0).content())
    remark = board_from_runs("shapes", Store(tmp_path)).remark
    assert "evaluation.drop_last = True" in remark and "train.lr.type-I.backbone = 0.5" in remark
    assert "ddof" not in remark
