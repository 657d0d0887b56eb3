"""`hierbench.run`, `board`, `score` and their results; docs/python.md runs as one script."""

import re
import runpy
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

import hierbench
from hierbench.config.overrides import format_override
from hierbench.python.running import flatten_settings
from hierbench.utils.errors import UserError

PAGE = Path(__file__).resolve().parents[2] / "docs/python.md"


@pytest.fixture(scope="module")
def light():
    """Trains in this process, without MLflow."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("execution.execution", "studies.comparison"):
            patch.setattr(f"hierbench.{module}.default_uri", lambda runs: "off")
        patch.setattr("hierbench.execution.resources.num_cores", lambda: 1)
        yield


@pytest.fixture(scope="module")
def page(light, data_dir, tmp_path_factory):
    """All blocks of the page, run as a script in a separate folder; their files and output."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "data").symlink_to(data_dir)
    script = folder / "page.py"
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    script.write_text("\n".join(blocks), encoding="utf-8")
    out, err, threads, state = StringIO(), StringIO(), torch.get_num_threads(), torch.random.get_rng_state()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        names = runpy.run_path(str(script), run_name="__main__")
    assert torch.get_num_threads() == threads and torch.equal(torch.random.get_rng_state(), state)
    return names, folder, out.getvalue(), err.getvalue()


def test_every_block_of_the_page_runs_and_prints_its_output(page):
    names, folder, out, err = page
    assert [row.method for row in names["board"]] == ["ce", "smoothed"] and len(names["board"]) == 2
    assert "Label smoothing" in out and "HAFrame" in out and "hF micro" in out
    assert "3 to train" not in err and "4 jobs, 2 to train, 0 to re-rank, 2 cached" in err  # ce was trained above
    assert (folder / "tradeoff.svg").read_text().startswith("<?xml")
    (kept,) = folder.glob("runs/.methods/*/smoothed.py")
    copies = {path.read_text() for path in folder.glob("runs/*/smoothed.py")}
    assert copies == {kept.read_text()} and "label_smoothing" in kept.read_text()
    run = names["board"]["smoothed"].runs[0]
    assert '"amount": 0.2' in (folder / "runs" / run / "spec.json").read_text()


def test_a_class_is_the_same_method_as_its_file(page, light, monkeypatch):
    names, folder, _, _ = page
    monkeypatch.chdir(folder)
    (kept,) = folder.glob("runs/.methods/*/smoothed.py")
    settings = names["options"]["set"] | {"methods.smoothed.amount": 0.2}
    again = hierbench.run(kept, "shapes", seeds=2, types=["type-I"], set=settings)
    assert again["smoothed"].runs == names["board"]["smoothed"].runs
    tree = hierbench.Hierarchy.from_paths({"a": ("x", "a"), "b": ("y", "b")})
    smoothed = names["Smoothed"](tree, 4, names["Smoothed"].Params(amount=0.2))
    main = ModuleType("__main__")
    vars(main).update(names)
    monkeypatch.setitem(sys.modules, "__main__", main)
    same = hierbench.run([smoothed], "shapes", **names["options"])  # class and hyperparameters, whatever its tree
    assert same["smoothed"].runs == names["board"]["smoothed"].runs


def test_settings_may_be_nested_and_of_numpy(page, light, monkeypatch):
    names, folder, _, _ = page
    monkeypatch.chdir(folder)
    cached = names["board"]["ce"].runs
    for settings in ({"train.epochs": np.int64(1)}, {"train": {"epochs": 1}}, {"train": {"epochs": torch.tensor(1)}}):
        assert hierbench.run("ce", "shapes", **names["options"] | {"set": settings})["ce"].runs == cached
    rates = {"backbone": 0.1, "transform": np.float32(0.5), "classifier": 0.1}
    nested = {
        "train": {"lr": {"type-I": rates}},
        "augment.mean": np.array([0.5, 0.25, 0.5]),
        "tune": {"runs": 1, "grid": {"ce": {"lr.classifier": (0.5, 1)}}},
        "methods": {"mine": {"weights": {"a b": 1}, "lr": {"own": 1}}},
    }
    assert [format_override(key, value) for key, value in flatten_settings(nested)] == [
        "train.lr.type-I.backbone=0.1",
        "train.lr.type-I.transform=0.5",
        "train.lr.type-I.classifier=0.1",
        "augment.mean=[0.5, 0.25, 0.5]",
        "tune.runs=1",
        'tune.grid={ "ce" = { "lr.classifier" = [0.5, 1] } }',
        'methods.mine.weights={ "a b" = 1 }',
        "methods.mine.lr.own=1",
    ]


def test_a_frame_of_one_seed_has_columns_of_numbers(page, light, monkeypatch):
    names, folder, _, _ = page
    monkeypatch.chdir(folder)
    table = hierbench.run("ce", "shapes", **names["options"] | {"seeds": 1}).frame()
    assert table["top1 ci95"].isna().all() and table["top1 ci95"].dtype == table["top1"].dtype == float


@pytest.fixture(scope="module")
def board(trained, data_dir):
    return hierbench.board("shapes", runs=trained, data_dir=data_dir, metrics=["+hf_micro"])


def test_a_board_is_the_table_of_the_command(board, trained, data_dir, cli, tmp_path):
    for name in ("markdown", "csv", "json", "latex"):
        options = ("--dataset", "shapes", "--runs", trained, "--data-dir", data_dir, "--metrics", "+hf_micro")
        assert cli(tmp_path, "leaderboard", *options, "--format", name).ok().out == board.render(name)
    assert (
        str(board) == board.render()
        and board.render("html").count("<table") == board._repr_html_().count("<table") == 1
    )
    assert repr(board) == "<Board shapes, protocol paper: 3 rows, 9 of 9 runs>"
    assert [row.method for row in board] == ["ce", "crm", "flamingo"] and len(board) == 3
    assert board["crm", "type-I"] is board["crm"]
    with pytest.raises(UserError, match="unknown row"):
        board["cr"]
    for wrong in (0, ("crm", 1), ("crm", "type-I", "top1")):
        with pytest.raises(UserError, match=r"a row is board\[METHOD\]"):
            board[wrong]
    with pytest.raises(UserError, match="unknown format"):
        board.render("excel")


def test_frames_have_the_numbers_of_the_rows(board):
    table, values = board.frame(), board.frame(by="seed")
    assert list(table.method) == ["ce", "crm", "flamingo"] and list(table.n) == [3, 3, 3]
    means = values[values.metric == "hf_micro"].groupby("method").value.mean()
    assert np.allclose(means.loc[table.method], table.hf_micro)
    assert set(values.seed) == {0, 1, 2} and len(values) == 3 * 3 * 6
    with pytest.raises(UserError, match="unknown frame"):
        board.frame(by="run")


def test_comparisons_are_those_of_the_command(board, trained, data_dir, cli, tmp_path):
    options = ("--dataset", "shapes", "--runs", trained, "--data-dir", data_dir, "--metrics", "+hf_micro")
    every = board.compare("ce")
    assert cli(tmp_path, "compare", "ce", *options).ok().out == str(every)
    assert len(every) == 2 and list(every.frame().reference) == ["ce:type-I"] * 12
    single = board.compare("ce", "crm")
    paired = board.frame(by="seed").pivot(index=["metric", "seed"], columns="method", values="value")
    gap = (paired.crm - paired.ce).loc["hierdist@5"]
    assert single["hierdist@5"].mean == pytest.approx(gap.mean()) and single["hierdist@5"].test == "paired"
    assert repr(single) == "<Differences shapes: crm:type-I minus ce>" and "minus" in single._repr_html_()
    assert next(iter(single)).row is board["crm"]
    with pytest.raises(UserError, match="2 comparisons"):
        every["top1"]
    with pytest.raises(UserError, match="unknown metric"):
        single["ece"]
    with pytest.raises(UserError, match="unknown row"):
        board.compare("ce", "haframe")


@pytest.mark.parametrize("kind", ["tradeoff", "severity", "curves"])
def test_pictures_are_figures_that_a_notebook_shows(board, kind, capsys):
    figure = board.plot(kind)
    assert isinstance(figure, Figure) and figure._repr_png_().startswith(b"\x89PNG")
    assert capsys.readouterr().out == ""
    with pytest.raises(UserError, match="unknown plot"):
        board.plot("frame")


def test_published_numbers_are_a_board_without_runs():
    paper = hierbench.board("cifar100", source="paper")
    assert "HAFrame" in str(paper) and isinstance(paper.plot("tradeoff"), Figure)
    columns = ["type", "method", "title", "metric", "seed", "value"]
    assert list(paper.frame("seed")) == columns and not len(paper.frame("seed"))
    for call in (lambda: paper.plot("curves"), lambda: paper.compare("ce")):
        with pytest.raises(UserError, match="published numbers have no"):
            call()
    with pytest.raises(UserError, match="as printed"):
        hierbench.board("cifar100", source="paper", metrics="ece")


def test_scores_are_reported_as_the_command_reports_them(cli, tmp_path, cifar100):
    generator = np.random.default_rng(0)
    scores, targets = generator.normal(size=(2, 60, 100)), generator.integers(100, size=60)
    np.savez(tmp_path / "one.npz", scores=scores[0], targets=targets)
    report = hierbench.score(scores[0], targets, cifar100, name="one", metrics="+hf_macro")
    options = ("--tree", "cifar100", "--metrics", "+hf_macro")
    printed = cli(tmp_path, "score", "one.npz", *options).ok().out
    assert printed.replace("cifar100", "a tree") == str(report)
    file = hierbench.score(tmp_path / "one.npz", tree="cifar100", metrics="+hf_macro")
    assert str(file) == printed and "<table" in report._repr_html_() and "<Report one on a tree" in repr(report)
    assert report["top1"] == hierbench.evaluate(scores[0], targets, cifar100)["top1"]
    assert list(report.frame().metric)[-1] == "hf_macro" and report.frame().low[0] <= report["top1"]
    names = [cifar100.classes[target] for target in targets]
    of_tensor = hierbench.score(torch.tensor(scores[0]).bfloat16(), pd.Series(names), cifar100, resamples=0)
    assert of_tensor["mistake_severity"] > 1.0
    assert of_tensor.frame().low.isna().all() and of_tensor.frame().low.dtype == float
    named = pd.DataFrame(scores[0], columns=cifar100.classes)[sorted(cifar100.classes, reverse=True)]
    for tree in (cifar100, "cifar100"):
        of_frame = hierbench.score(named, targets, tree, resamples=np.int64(0), seed=np.int64(1))
        assert of_frame["hierdist@5"] == report["hierdist@5"] and of_frame["top1"] == report["top1"]
    seeds = hierbench.score(list(scores), targets, cifar100)
    assert "t-interval over 2 seeds" in seeds.about_interval


def test_scores_of_a_dataset_become_a_row(trained, data_dir, tmp_path, shapes):
    shutil.copytree(trained, tmp_path / "runs")
    _, truth = shapes.arrays("test")
    size = len(shapes.meta["paths"])
    scores = np.eye(size)[truth] + np.random.default_rng(1).random((len(truth), size))
    where = {"runs": tmp_path / "runs", "data_dir": data_dir}
    report = hierbench.score([scores, scores**2], dataset="shapes", name="elsewhere", order="tree", **where)
    board = hierbench.board("shapes", **where)
    assert board["elsewhere"].scored and board["elsewhere"].runs == sorted(
        report.runs, key=board["elsewhere"].runs.index
    )
    assert board.compare("ce", "crm") and isinstance(board.plot("tradeoff"), Figure)  # of the rows that are runs
