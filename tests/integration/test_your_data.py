"""docs/your-data.md on generated images, and on other inputs that users may have."""

import json
import shutil

import numpy as np
import pytest

RUN = ["run", "--methods", "ce", "--types", "type-I", "--dataset", "./birds.toml", "--jobs", "1"]


@pytest.fixture(scope="module")
def walked(page):
    """The page's commands in their order, with one seed of one epoch: {command: output}."""
    folder, outputs = page("docs/your-data.md")
    commands = {line: done for line, done in outputs.items() if line.startswith("hierbench ")}
    return folder, {" ".join(line.split()[1:3]): done for line, done in commands.items()}


@pytest.fixture
def copy(walked, tmp_path):
    return shutil.copytree(walked[0], tmp_path / "copy")


def test_every_command_of_the_page_works(walked):
    folder, done = walked
    made = {path.name for path in folder.glob("runs/*") if path.is_file()} | {p.name for p in folder.glob("runs/*/*")}
    kinds = ("leaderboard-birds.md", "ablation-birds.md", "birds.toml")
    assert {*kinds, "tradeoff-birds.svg"} <= made
    board = json.loads((folder / "runs/leaderboard-birds.json").read_text())
    assert len(board["rows"]) == 9 and all(row["n"] == 1 for row in board["rows"])
    assert "not as in the recipe: method" not in board.get("remark", "") and "not the whole" not in str(board)
    assert "birds" in done["data list"].out and "(yours)" in done["data list"].out
    assert "CUB, 100 species  " in done["data list"].out  # of the recipe of the same name
    texts = [path for kind in ("*/*.json", "*.md", "*.json", "*.html") for path in folder.glob(f"runs/{kind}")]
    assert len(texts) > 20
    for path in texts:  # what is passed on has the name and the digests alone, no path
        text = path.read_text(encoding="utf-8")
        assert "birds.toml" not in text and "taxonomy" not in text and str(folder / "images") not in text, path


def test_the_same_pixels_are_prepared_again_and_never_trained(cli, copy):
    (copy / "images/wren/0.jpg").touch()
    again = cli(copy, *RUN).ok()
    assert again.err.count("have changed since it was prepared; preparing it again") == 1
    assert "0 to train" in again.err and "1 cached" in again.err
    assert "changed" not in cli(copy, *RUN).ok().err


def test_another_image_makes_a_new_dataset(cli, copy):
    shutil.copy(copy / "images/wren/1.jpg", copy / "images/wren/99.jpg")
    assert "1 to train" in cli(copy, *RUN).ok().err


def test_another_split_is_prepared_first(cli, copy):
    dry = cli(copy, *RUN, "--set", "source.splits.seed=1", "--dry-run").ok()
    assert "run: hierbench data prepare ./birds.toml" in dry.out


def test_without_images_what_was_prepared_is_used(cli, copy):
    (copy / "images").rename(copy / "moved")
    gone = cli(copy, *RUN).ok()
    assert "note: the images or the tree of birds are gone; using what was prepared" in gone.err
    cli(copy, *RUN, "--set", "source.splits.seed=1").one_line("no folder of images")


def test_scored_predictions_have_a_row_and_are_of_the_images_as_they_are(cli, copy):
    shutil.rmtree(copy / "runs")
    cli(copy, "data", "prepare", "./birds.toml").ok()
    targets = np.load(copy / "data/prepared/birds/test-labels.npy")
    np.savez(copy / "x.npz", scores=np.eye(6)[targets], targets=targets)
    score = ["score", "x.npz", "--dataset", "./birds.toml", "--order", "tree"]
    cli(copy, "leaderboard", "--dataset", "birds").one_line("unknown recipe 'birds'")
    cli(copy, *score).ok()
    cli(copy, *RUN, "--seeds", "1").ok()
    for dataset in ("./birds.toml", "birds"):
        board = json.loads(cli(copy, "leaderboard", "--dataset", dataset, "--format", "json").ok().out)
        assert board["dataset"] == "birds" and [row["method"] for row in board["rows"]] == ["ce", "x"]
    (copy / "images").rename(copy / "moved")
    assert "are gone; using what was prepared" in cli(copy, *score).ok().err
    (copy / "moved").rename(copy / "images")
    shutil.copy(copy / "images/wren/1.jpg", copy / "images/wren/99.jpg")
    cli(copy, *score).one_line("run: hierbench data prepare ./birds")


def test_a_cluster_s_jobs_need_neither_file_nor_images(cli, copy):
    plan = ["--jobs", "auto", "--plan-only", "--json", "--set", "train.sampling=balanced"]
    (job,) = json.loads(cli(copy, *RUN, *plan).ok().out)["jobs"]
    shutil.rmtree(copy / "images")
    (copy / "birds.toml").unlink()
    cli(copy, *job["command"][1:]).ok()
    spec = json.loads((copy / "runs" / job["id"] / "spec.json").read_text())
    assert spec["train"]["sampling"] == "balanced" and spec["dataset"]["name"] == "birds"
    assert "birds" in cli(copy, "leaderboard", "--dataset", "birds").ok().out


@pytest.fixture
def other_batch(cli, copy):
    """Published runs whose batch size is not that of the dataset's file."""
    shutil.rmtree(copy / "runs")
    short = ("--types", "type-I", "--seeds", "1", "--set", "train.batch_size=8", "--mlflow", "off")
    cli(copy, "run", "--methods", "ce,crm", "--dataset", "./birds.toml", *short).ok()
    assert cli(copy, "publish", "--dataset", "./birds.toml", "--output", "boards").ok().err == ""
    return copy


def test_a_table_says_what_is_not_as_in_the_file(cli, other_batch):
    assert "not as in the recipe: train.batch_size = 8" in (other_batch / "runs/leaderboard-birds.md").read_text()
    for dataset in ("birds", "./birds.toml"):
        assert cli(other_batch, "leaderboard", "--dataset", dataset).ok().err == ""


def test_with_the_file_a_page_equals_that_of_its_records(cli, other_batch):
    shown = cli(other_batch, "leaderboard", "--dataset", "./birds.toml", "--runs", "boards/birds").ok()
    assert "train.batch_size = 8" in shown.out and "birds.md is not what" not in shown.err


def test_without_the_file_a_note_says_that_a_page_differs(cli, other_batch):
    assert "birds.md has the numbers that the records give" in cli(other_batch, "verify", "boards").ok().out


def test_a_file_changed_after_the_table_is_the_recipe_that_counts(cli, other_batch):
    text = (other_batch / "birds.toml").read_text()
    (other_batch / "birds.toml").write_text(text.replace("batch_size = 32", "batch_size = 8"))
    shown = cli(other_batch, "leaderboard", "--dataset", "./birds.toml", "--runs", "boards/birds").ok()
    assert "not as in the recipe: train.batch_size" not in shown.out
