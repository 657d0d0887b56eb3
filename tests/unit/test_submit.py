"""Submissions: a card that says whose results these are, and what they took."""

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from hierbench.config.overrides import toml_text
from hierbench.runs.store import Run, Store
from hierbench.sharing import pictures
from hierbench.sharing.card import read_card, read_statement
from hierbench.sharing.intake import read_submission
from hierbench.sharing.verification.verify import verify
from hierbench.utils.errors import UserError

SAID = {"title": "Baselines", "authors": ["A. Author"], "licence": "CC-BY-4.0"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Pictures take most of the time; they are drawn in test_publish.py."""
    monkeypatch.setattr(pictures, "draw", lambda *_: [])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"licence": "Apache 2"}, "must be an SPDX identifier, as MIT or CC-BY-4.0"),
        ({"links": ['https://x.org/"><script>']}, "must begin with http"),
        ({"title": "two\nlines"}, "one line of printable text"),
        ({"authors": []}, "at least 1"),
        ({"autors": ["x"]}, "did you mean 'authors'"),
        ({"replaces": [{"dataset": "shapes", "row": "ce", "why": "x"}]}, "row"),
    ],
)
def test_a_statement_is_checked(change, problem, tmp_path):
    lines = [f"{name} = {toml_text(value)}\n" for name, value in (SAID | change).items()]
    (tmp_path / "card.toml").write_text("".join(lines))
    with pytest.raises(UserError) as error:
        read_statement(tmp_path / "card.toml")
    assert problem in str(error.value) and "\n" not in str(error.value)


def test_the_command_line(cli, trained, data_dir, tmp_path):
    method = tmp_path / "mine.py"
    where = (trained, "--dataset", "shapes", "--data-dir", data_dir, "--output", "out")
    cli(tmp_path, "submit", *where, "--author", "A").one_line("Missing option '--title'")
    said = ("--author", "A", "--author", 'Bé "B"', "--title", "t", "--license", "MIT", "--link", "https://x.org/a?b#c")
    cli(tmp_path, "submit", *where, *said, "--methods", "flamengo").one_line("did you mean 'flamingo'")
    cli(tmp_path, "submit", *where, *said, "--card", "x.toml").one_line("leave out --author")
    assert not (tmp_path / "out").exists() and not method.exists()
    done = cli(tmp_path, "submit", *where, *said, "--methods", "flamingo").ok()
    assert "shapes: 1 rows; 3 runs" in done.out
    cli(tmp_path, "submit", *where, *said).one_line("exists; move it away")
    card = tomllib.loads((tmp_path / "out/card.toml").read_text())
    assert card["authors"] == ["A", 'Bé "B"'] and card["links"] == ["https://x.org/a?b#c"]
    (tmp_path / "card.toml").write_text('title = "t"\nauthors = ["A"]\nlicence = "MIT"\n[[replaces]]\n')
    again = ("submit", "out", "--dataset", "shapes", "--output", "copy", "--card", "card.toml")  # of published records
    cli(tmp_path, *again).one_line("key replaces.0.dataset is missing")
    (tmp_path / "card.toml").write_text('title = "t"\nauthors = ["A"]\nlicence = "MIT"\n')
    cli(tmp_path, *again).ok()
    assert (tmp_path / "copy/shapes.json").read_bytes() == (tmp_path / "out/shapes.json").read_bytes()


def test_a_file_and_scored_predictions_are_submitted_too(cli, trained, data_dir, tmp_path, shapes):
    _, targets = shapes.arrays("test")
    scores = np.random.default_rng(0).normal(size=(len(targets), 48))
    np.savez(tmp_path / "five.npz", indices=np.argsort(-scores, axis=1)[:, :5], targets=targets)
    where = ("--dataset", "shapes", "--data-dir", data_dir)
    cli(tmp_path, "score", "five.npz", *where, "--runs", "runs", "--resamples", "0").ok()
    source = next(run for run in Store(trained).runs() if run.spec()["method"]["name"] == "ce")
    run = Run(shutil.copytree(source.folder, tmp_path / "runs" / source.folder.name))
    (run.folder / "ce.py").write_bytes(Path(__import__("hierbench.methods.ce", fromlist=["x"]).__file__).read_bytes())
    said = ("--author", "A", "--title", "t", "--licence", "MIT")
    cli(tmp_path, "submit", "runs", *where, *said, "--output", "out").ok()
    found = read_submission(tmp_path / "out")
    assert not found.problems and f"shapes/{run.folder.name}/ce.py" in found.files
    (report,) = verify([tmp_path / "out"], tmp_path / "none")
    assert report.counts()["recomputed"] == 2 and report.num_rejected == 0
    assert read_card(tmp_path / "out").methods == ("ce", "five")
