"""`hierbench plot` on runs of a real command."""

import shutil

import pytest

from hierbench.figures.plots import style


@pytest.fixture(autouse=True)
def _few_pixels(monkeypatch):
    monkeypatch.setitem(style.STYLE, "savefig.dpi", 50)


@pytest.mark.parametrize(
    ("arguments", "name", "labels"),
    [
        (["severity"], "severity-shapes", ["cross-entropy", "CRM", "Flamingo", "height of the lowest common ancestor"]),
        (["tradeoff"], "tradeoff-shapes", ["open type-I", "CRM", "Flamingo"]),
        (["operating"], "operating-shapes", ["CRM", "Flamingo"]),
        (["levels"], "levels-shapes", ["CRM", "Flamingo", "12 nodes"]),
        (["curves"], "curves-shapes", ["type-I: validation accuracy", "Flamingo", "epoch"]),
        (["confusion", "--row", "flamingo", "--seed", "0"], "confusion-shapes", ["star-8", "Flamingo, type-I"]),
    ],
)
def test_every_kind(cli, trained_folder, arguments, name, labels):
    done = cli(trained_folder, "plot", *arguments, "--dataset", "shapes").ok()
    assert not done.err and done.out.endswith(f"wrote runs/plots/{name}.svg\n")
    content = (trained_folder / f"runs/plots/{name}.svg").read_text(encoding="utf-8")
    for label in labels:
        assert label in content, label  # text is drawn as outlines, with the words in a comment


def test_predictions_that_are_gone(cli, trained_folder, tmp_path):
    shutil.copytree(trained_folder / "runs", tmp_path / "runs")
    command = ("plot", "confusion", "--dataset", "shapes", "--data-dir", trained_folder / "data")
    run = cli(tmp_path, *command, "--row", "crm", "--seed", "0").ok().out.split()[1]
    (tmp_path / "runs" / run / "predictions.npz").unlink()
    cli(tmp_path, *command, "--row", "crm", "--seed", "0").one_line("has no predictions.npz")


def test_plots_of_runs_without_torch(without_torch, trained_folder):
    for kind in (["severity"], ["curves"], ["confusion", "--row", "ce"]):
        where = ("--runs", trained_folder / "runs", "--data-dir", trained_folder / "data")
        assert "wrote " in without_torch("plot", *kind, "--dataset", "shapes", *where).out
