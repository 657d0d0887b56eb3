"""`hierbench plot` on runs of a real command."""

import pytest

from hierbench.leaderboard.pictures import style


@pytest.fixture(autouse=True)
def _few_pixels(monkeypatch):
    monkeypatch.setitem(style.STYLE, "savefig.dpi", 50)


@pytest.mark.parametrize(
    ("arguments", "name", "labels"),
    [
        (["severity"], "severity-shapes", ["cross-entropy", "CRM", "Flamingo", "height of the lowest common ancestor"]),
        (["tradeoff"], "tradeoff-shapes", ["open type-I", "CRM", "Flamingo"]),
        (["curves"], "curves-shapes", ["type-I: validation accuracy", "Flamingo", "epoch"]),
    ],
)
def test_every_kind(cli, trained_folder, arguments, name, labels):
    done = cli(trained_folder, "plot", *arguments, "--dataset", "shapes").ok()
    assert not done.err and done.out.endswith(f"wrote runs/plots/{name}.svg\n")
    content = (trained_folder / f"runs/plots/{name}.svg").read_text(encoding="utf-8")
    for label in labels:
        assert label in content, label  # text is drawn as outlines, with the words in a comment


def test_plots_of_runs_without_torch(without_torch, trained_folder):
    for kind in ("severity", "curves", "tradeoff"):
        where = ("--runs", trained_folder / "runs", "--data-dir", trained_folder / "data")
        assert "wrote " in without_torch("plot", kind, "--dataset", "shapes", *where).out
