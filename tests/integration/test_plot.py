"""`hierbench plot` on runs of a real command."""

import shutil
import time

import pytest

from tests.short import SMALL

FAST = ["--seeds", "1", *SMALL]


@pytest.fixture(scope="module")
def folder(cli, tmp_path_factory, data_dir):
    """A folder with finished runs of three methods on type II."""
    folder = tmp_path_factory.mktemp("plot")
    shutil.copytree(data_dir, folder / "data")
    chosen = ("--methods", "ce,crm,haframe", "--types", "type-II")
    cli(folder, "run", "--dataset", "shapes", *chosen, *FAST).ok()
    return folder


@pytest.mark.parametrize(
    ("arguments", "name", "labels"),
    [
        (["similarity"], "similarity-shapes", ["linear", "48 classes, height 3"]),
        (["similarity", "--protocol", "authors"], "similarity-shapes-authors", ["linear"]),
        (["frame"], "frame-shapes", ["solid circle", "4 of 48 classes"]),
        (["severity"], "severity-shapes", ["cross-entropy", "CRM", "HAFrame", "height of the lowest common ancestor"]),
        (["tradeoff"], "tradeoff-shapes", ["cross-entropy, type-II", "CRM, type-II", "HAFrame, type-II"]),
        (["curves"], "curves-shapes", ["type-II: validation accuracy", "HAFrame", "epoch"]),
        (
            ["confusion", "--method", "haframe", "--seed", "0"],
            "confusion-shapes",
            ["hollow star-8", "HAFrame, type-II"],
        ),
    ],
)
def test_every_kind(cli, folder, arguments, name, labels):
    code, out, err = cli(folder, "plot", *arguments, "--dataset", "shapes")
    assert code == 0 and not err, err
    assert out.endswith(f"wrote runs/plots/{name}.svg\n")
    content = (folder / f"runs/plots/{name}.svg").read_text(encoding="utf-8")
    for label in labels:
        assert label in content, label  # text is drawn as outlines, with the words in a comment


def test_the_leaderboard_is_as_it_was(cli, folder):
    """The folder with the plots is none of a run."""
    assert cli(folder, "plot", "curves", "--dataset", "shapes")[0] == 0
    code, out, _ = cli(folder, "leaderboard", "--dataset", "shapes")
    assert code == 0 and out.count("| type-II ") == 3


def test_published_numbers_and_every_tree_need_no_runs(cli, tmp_path):
    code, out, err = cli(tmp_path, "plot", "tradeoff", "--dataset", "fgvc", "--numbers", "paper")
    assert code == 0 and out == "wrote runs/plots/tradeoff-fgvc-published.svg\n", err
    code, out, err = cli(tmp_path, "plot", "similarity", "--dataset", "all", "--output", "all.pdf")
    assert code == 0 and "not shown: inat19, tieredimagenet-h," in out, err
    assert (tmp_path / "all.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["severty", "--dataset", "shapes"], "unknown plot 'severty'; did you mean 'severity'?"),
        (["severity"], "Missing option '--dataset'"),
        (["severity", "--dataset", "all"], "--dataset all is for similarity"),
        (["severity", "--dataset", "shape"], "did you mean 'shapes'"),
        (["similarity", "--dataset", "inat19"], "hierbench data prepare inat19"),
        (["curves", "--dataset", "fgvc"], "no runs of fgvc"),
        (["curves", "--dataset", "shapes", "--protocol", "authors"], "no runs of shapes under protocol authors"),
        (["curves", "--dataset", "shapes", "--numbers", "paper"], "--numbers paper is for tradeoff"),
        (["tradeoff", "--dataset", "shapes", "--numbers", "paper"], "unknown table"),
        (
            ["tradeoff", "--dataset", "fgvc", "--numbers", "paper", "--protocol", "paper"],
            "a protocol can be chosen for runs alone",
        ),
        (["curves", "--dataset", "shapes", "--seed", "1"], "--seed is for confusion"),
        (["confusion", "--dataset", "shapes"], "shapes matches 3 runs: ce type-II seed 0 ("),
        (
            ["confusion", "--dataset", "shapes", "--method", "hafram"],
            "there are ce:type-II:0, crm:type-II:0, haf",
        ),
        (["confusion", "--dataset", "shapes", "--run", "x"], "no run in runs has an id that begins with 'x'"),
        (["confusion", "--dataset", "shapes", "--run", "x", "--seed", "1"], "leave out --seed"),
        (["curves", "--dataset", "shapes", "--output", "a.jpg"], "the suffix must be one of .svg, .pdf, .png"),
        (["curves", "--dataset", "shapes", "--output", "nowhere/a.svg"], "there is no folder nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(cli, folder, arguments, part):
    before = sorted(folder.rglob("*"))
    assert cli(folder, "plot", *arguments).one_line(part)
    assert sorted(folder.rglob("*")) == before


def test_predictions_that_are_gone_or_damaged(cli, folder):
    code, out, _ = cli(folder, "plot", "confusion", "--dataset", "shapes", "--method", "crm", "--output", "c.svg")
    assert code == 0
    run = out.split()[1]
    path = folder / "runs" / run / "predictions.npz"
    content = path.read_bytes()
    asked = ("plot", "confusion", "--dataset", "shapes", "--run", run[:8])
    try:
        path.write_bytes(b"nothing")
        done = cli(folder, *asked)
        assert done.one_line("is rejected") and "is damaged (predictions.npz)" in done.err
        path.unlink()
        cli(folder, *asked).one_line("has no predictions.npz")
    finally:
        path.write_bytes(content)


def test_plots_of_runs_without_torch(cli, folder):
    code = (
        "import sys\nfrom hierbench.cli.main import main\n"
        "assert 'matplotlib' not in sys.modules\n"
        "for kind in ('severity', 'tradeoff', 'curves', 'confusion'):\n"
        "    chosen = ['--method', 'ce'] if kind == 'confusion' else []\n"
        "    sys.argv = ['hierbench', 'plot', kind, '--dataset', 'shapes', *chosen]\n"
        "    try:\n        main()\n    except SystemExit as end:\n        assert end.code == 0, end.code\n"
        "assert not {'torch', 'mlflow', 'matplotlib.pyplot'} & set(sys.modules)\n"
    )
    time.sleep(0.6)  # findings of files that have just changed are not kept
    cli(folder, "plot", "severity", "--dataset", "shapes").ok()  # verifies the runs
    cli.real(folder, python=("-c", code)).ok()
