"""Predictions made elsewhere: their metrics, their rows beside runs of the same data, and nothing else beside them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hierbench import Hierarchy
from hierbench.config.completion import method_folder
from hierbench.config.options import RunSelection
from hierbench.config.scored_spec import Scored
from hierbench.data.prepared import find
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import requested_columns
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.open_board import open_board
from hierbench.metrics import Evidence, compute_metrics, evaluate
from hierbench.runs.integrity import fingerprints
from hierbench.runs.record_reader import read_record, read_records
from hierbench.runs.store import Store
from hierbench.sharing.verification.verification import verify
from hierbench.studies.scoring.prediction_parts import ReadingOptions
from hierbench.studies.scoring.score_files import ScoreRequest, score_files
from hierbench.studies.scoring.score_report import report_table
from hierbench.utils.errors import UserError
from hierbench.utils.files import file_digest, read_json, write_json
from tests.support import made_runs
from tests.support.run_files import metrics_of, predictions_of, spec_of


@pytest.fixture
def place(tmp_path):
    """A folder with prepared `shapes` (6 classes, 240 test images), two runs of it, and their targets."""
    prepared = made_runs.prepare(tmp_path / "data", per_class=40)
    _, targets = prepared.arrays("test")
    store = Store(tmp_path / "runs")
    for seed in (0, 1):
        made_runs.store_run(store, prepared, "ce", "type-I", made_runs.random_scores(targets, 6, seed), targets, seed)
    return tmp_path


def score(place, *files, dataset="shapes", tree=None, targets=None, name=None, resamples=1000, order="tree", **more):
    """The report of files; with a tree nothing is recorded."""
    more = {"runs": place / "runs", "data_dir": place / "data", **more}
    targets = None if targets is None else place / targets
    dataset = None if tree is not None else dataset
    files = [place / file for file in files]
    return score_files(
        ScoreRequest(files, dataset, tree, targets, name, None, resamples, 0, reading=ReadingOptions(order), **more)
    )


def means(report):
    return {name: cell["mean"] for name, cell in json.loads(render(report_table(report), "json"))["metrics"].items()}


def fails(match, *arguments, **options):
    with pytest.raises(UserError, match=match):
        score(*arguments, **options)


def targets_of(place):
    return np.array(find("shapes", place / "data").arrays("test")[1])


def tree_of(place):
    return find("shapes", place / "data").hierarchy("height")


def save(place, name, seed, **more):
    targets = targets_of(place)
    scores = made_runs.random_scores(targets, 6, seed, skill=2.5)
    np.savez(place / name, predictions=scores, label_ids=targets, **more)
    return scores, targets


def board(place, runs="runs"):
    return open_board("shapes", RunSelection(place / runs, place / "data"))


@pytest.fixture
def scored(place):
    """A scored file beside the runs: its scores, its targets and its record."""
    scores, targets = save(place, "vit.npz", 5)
    (run_id,) = score(place, "vit.npz").runs
    return scores, targets, Store(place / "runs").run(run_id)


def test_a_report_has_the_metrics_of_the_file_with_intervals_over_images(place):
    scores, targets = save(place, "vit.npz", 5)
    content = json.loads(render(report_table(score(place, "vit.npz")), "json"))
    assert {name: cell["mean"] for name, cell in content["metrics"].items()} == evaluate(
        scores, targets, tree_of(place)
    )
    assert all(cell["low"] < cell["mean"] < cell["high"] for cell in content["metrics"].values())
    assert content["interval"]["over"] == "images"


def test_a_scored_row_changes_no_other(place):
    before = json.loads(board(place).render("json"))
    save(place, "vit.npz", 5)
    score(place, "vit.npz")
    after = json.loads(board(place).render("json"))
    assert {**after, "rows": after["rows"][:-1]} == before


def test_a_scored_row_is_marked_and_has_no_interval_over_seeds(place, scored):
    scores, targets, run = scored
    row = json.loads(board(place).render("json"))["rows"][-1]
    assert row["scored"] is True and (row["type"], row["method"], row["title"]) == ("scored", "vit", "vit (scored)")
    assert row["runs"] == [run.folder.name] and not row["competitive"]
    assert row["metrics"]["top1"]["mean"] == evaluate(scores, targets, tree_of(place))["top1"]
    assert row["metrics"]["top1"]["ci95"] is None


def test_every_format_shows_a_scored_row(place, scored):
    for form in ("markdown", "latex", "csv"):
        assert "vit (scored)" in board(place).render(form)
    shown = board(place).render()
    assert "bootstrap interval over the images" in shown and "predictions made elsewhere" in shown
    assert "two seeds say little" in shown


def test_a_record_keeps_the_predictions(place, scored):
    scores, targets, run = scored
    assert Scored.model_validate(spec_of(run)).id == run.folder.name and read_record(run.folder).done
    kept, kept_targets = predictions_of(run)
    assert (kept == scores).all() and (kept_targets == targets).all()
    assert not [path for path in (place / "runs").iterdir() if path.name.startswith(".scored")]


def test_a_file_scored_again_is_the_same_record(place, scored):
    run = scored[2]
    times = {path: path.stat().st_mtime_ns for path in run.folder.iterdir()}
    assert score(place, "vit.npz").runs == [run.folder.name]
    assert times == {path: path.stat().st_mtime_ns for path in run.folder.iterdir()}


def test_a_scored_record_is_recomputed_by_verification(place, scored):
    (report,) = verify([place / "runs"], place / "data")
    assert report.counts()["recomputed"] == 3 and report.num_rejected == 0


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """Labels alone of 300 examples of `shapes`, in three forms, and the metrics that they have."""
    folder = tmp_path_factory.mktemp("labels")
    tree = Hierarchy.load("shapes")
    targets, predicted = np.random.default_rng(0).integers(48, size=(2, 300))
    classes = np.array(tree.classes)
    np.savez(folder / "a.npz", predictions=predicted, targets=targets)
    np.savez(folder / "b.npz", predictions=classes[predicted], targets=classes[targets])
    np.save(folder / "c.npy", predicted)
    np.save(folder / "targets.npy", targets)
    scores = np.eye(48)[predicted]
    evidence = Evidence(torch.from_numpy(scores), torch.from_numpy(targets), tree, torch.from_numpy(scores))
    names = ["min_distance@1", "hf_macro", "level_accuracy@2"]
    return folder, evaluate(scores, targets, tree, ks=(1,)) | compute_metrics(names, evidence), names


@pytest.mark.parametrize(("file", "targets"), [("a.npz", None), ("b.npz", None), ("c.npy", "targets.npy")])
def test_labels_alone_have_the_metrics_of_one_class(labels, file, targets):
    folder, expected, names = labels
    columns = requested_columns("+" + ",+".join(names))
    assert means(score(folder, file, tree="shapes", targets=targets, columns=columns)) == expected


def test_one_prediction_in_two_files_is_no_second_seed(labels):
    fails("hold the same predictions", labels[0], "a.npz", "c.npy", tree="shapes", targets="targets.npy")


def test_other_commands_name_a_scored_row(cli, place, scored):
    shapes = ("--dataset", "shapes")
    message = "'vit' is a scored row; only rows of runs are compared"
    for words, error in (
        (("compare", "vit"), message),
        (("compare", "ce", "vit"), message),
        (("compare", "ce", "vitt"), "unknown row 'vitt'"),
    ):
        cli(place, *words, *shapes).one_line(error)


@pytest.mark.parametrize("name", ["vit", "vit (scored)", "vit:scored", "vit:top1"])
def test_a_scored_row_cannot_be_reproduced(cli, place, scored, name):
    cli(place, "reproduce", "runs", name).one_line("it cannot be trained")


def test_a_scored_row_with_a_methods_name_hides_no_run(cli, place):
    save(place, "ce.npz", 6)
    score(place, "ce.npz")
    assert "(scored)" not in cli(place, "plot", "tradeoff", "--dataset", "shapes").ok().out
    assert '"name": "ce"' in cli(place, "reproduce", "runs", "ce").ok().out  # the spec of a run, not the file


def test_a_damaged_record_is_left_out_and_can_be_scored_again(place, scored, capsys):
    (scored[2].folder / "metrics.json").write_text("{}")
    assert "vit" not in board(place).render() and "score the file again" in capsys.readouterr().err
    fails("is damaged.*remove it", place, "vit.npz")


def test_rows_of_one_title_have_the_names_of_their_methods(place):
    text = (method_folder() / "ce.py").read_text(encoding="utf-8")
    (place / "ce2.py").write_text(text.replace('name = "ce"', 'name = "ce2"'), encoding="utf-8")
    targets = targets_of(place)
    scores = made_runs.random_scores(targets, 6, 7)
    made_runs.store_run(
        Store(place / "runs"), find("shapes", place / "data"), str(place / "ce2.py"), "type-I", scores, targets
    )
    titles = {row.method: row.title for row in board(place).rows}
    assert titles == {"ce": "cross-entropy (ce)", "ce2": "cross-entropy (ce2)"}


@pytest.mark.parametrize("ends", [[0.0, 100.0], [None, None], ["<b>", 1.0], None])
def test_an_interval_that_the_predictions_do_not_give_is_rejected(place, scored, ends):
    run = scored[2]
    run.write_record("metrics.json", metrics_of(run) | {"intervals": {"top1": ends}})
    run.set_status("done", files=fingerprints(run.folder))
    (report,) = verify([place / "runs"], place / "data")
    assert report.rejected_ids == {run.folder.name}


@pytest.fixture
def seeds(place):
    """Three seeds of one network: their accuracies and the report."""
    top1 = [evaluate(*save(place, f"vit-{seed}.npz", seed), tree_of(place))["top1"] for seed in (1, 2, 3)]
    return top1, score(place, *(f"vit-{seed}.npz" for seed in (1, 2, 3)))


def test_seeds_make_a_row_with_a_t_interval(place, seeds):
    top1, _ = seeds
    row = board(place).rows[-1]
    half = 4.302652729696142 * np.std(top1, ddof=1) / np.sqrt(3)
    assert row.method == "vit" and row.n == row.planned == 3
    assert row.metrics["top1"].ci95 == pytest.approx(half)
    assert sorted(top1) == sorted(row.metrics["top1"].values)


def test_a_report_of_seeds_has_the_interval_of_its_row(place, seeds):
    content = json.loads(render(report_table(seeds[1]), "json"))
    cell = content["metrics"]["top1"]
    assert content["name"] == "vit" and content["interval"]["over"] == "seeds"
    assert (cell["high"] - cell["low"]) / 2 == pytest.approx(board(place).rows[-1].metrics["top1"].ci95)


def test_a_name_stands_for_one_set_of_seeds(place, seeds):
    save(place, "other.npz", 9)
    fails("'vit' already stands for", place, "other.npz", name="vit")
    fails("hold the same predictions", place, "vit-1.npz", "vit-1.npz")
    assert len(board(place)) == 2


@pytest.fixture
def two_files(place):
    for seed in (1, 2):
        save(place, f"vit-{seed}.npz", seed)
    return sorted((place / "runs").glob("*/"))


def test_files_of_one_command_are_recorded_together_or_not_at_all(place, two_files, monkeypatch):
    """An error while they are written leaves no record."""
    sealed = []

    def full(folder):
        sealed.append(folder)
        if len(sealed) == 2:
            raise OSError(28, "No space left on device")
        return fingerprints(folder)

    monkeypatch.setattr("hierbench.studies.scoring.score_records.fingerprints", full)
    with pytest.raises(OSError, match="No space left"):
        score(place, "vit-1.npz", "vit-2.npz")
    assert len(sealed) == 2 and sorted((place / "runs").glob("*/")) == two_files


def test_a_record_that_another_command_has_written_is_kept(place, two_files, monkeypatch):
    rename = Path.rename

    def overtaken(path, target):
        if path.parent.name.startswith(".scored."):  # another command has scored the file in the meantime
            shutil.copytree(path, target)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", overtaken)
    runs = score(place, "vit-1.npz", "vit-2.npz").runs
    assert len(runs) == 2 and all(record.done for record in read_records(place / "runs", runs))
    assert len(list((place / "runs").glob("*/"))) == len(two_files) + 2


@pytest.fixture
def other_data(place):
    """A file on fewer images of the same name, prepared elsewhere."""
    (place / "again").mkdir()
    targets = made_runs.prepare(place / "again/data", per_class=30).arrays("test")[1]
    np.savez(place / "small.npz", scores=made_runs.random_scores(targets, 6, 0), targets=targets)
    return place / "again/data"


def test_rows_of_other_data_are_left_out_with_a_remark(place, scored, other_data):
    score(place, "small.npz", data_dir=other_data)
    out = board(place).render()
    assert "vit (scored)" in out and "small (scored)" not in out and "1 scored predictions are not in this table" in out


def test_scored_rows_alone_are_a_board_of_their_own(place, other_data):
    score(place, "small.npz", data_dir=other_data, runs=place / "empty")
    alone = board(place, "empty")
    assert alone.protocol == "scored" and [row.method for row in alone.rows] == ["small"]


def test_runs_that_drop_a_batch_are_not_beside_all_images(place):
    prepared = find("shapes", place / "data")
    targets = prepared.arrays("test")[1]
    rows = np.sort(np.argsort(targets, kind="stable")[: -(240 % 100)])
    scores = made_runs.random_scores(targets[rows], 6, 1)
    drop_last = ["evaluation.drop_last=true"]
    authors = Store(place / "authors")
    made_runs.store_run(authors, prepared, "ce", "type-I", scores, targets[rows], overrides=drop_last)
    save(place, "vit.npz", 5)
    score(place, "vit.npz", runs=place / "authors")
    out = Board.of("shapes", read_records(place / "authors")).render()
    assert "vit" not in out and "last incomplete batch" in out


@pytest.fixture
def with_ids(place):
    """File names of the prepared data, as a dataset that has them is prepared."""
    folder = place / "data/prepared/shapes"
    names = [f"val/n{row % 7}/photo_{row:03}.JPEG" for row in range(240)]
    write_json(folder / "test-ids.json", names)
    meta = read_json(folder / "meta.json")
    write_json(folder / "meta.json", meta | {"ids": {"test": file_digest(folder / "test-ids.json")}})
    return names


def frame_in_another_order(place, names, shown="val/n{}/photo_{}.JPEG"):
    """A table with ids and scores, and these scores in the order of the images."""
    scores = made_runs.random_scores(targets_of(place), 6, 3)
    order = np.random.default_rng(0).permutation(240)
    ids = [shown.format(name.split("/")[1][1:], name[-8:-5]) for name in names]
    frame = pd.DataFrame(scores[order], columns=[f"prob_{k}" for k in range(6)])
    frame.insert(0, "filename", [ids[row] for row in order])
    return frame, scores


@pytest.mark.parametrize(
    "shown", ["val/n{}/photo_{}.JPEG", "photo_{1}.JPEG", "/data/val/n{}/photo_{}.JPEG", "photo_{1}"]
)
def test_rows_with_ids_are_put_in_order_and_need_no_targets(place, with_ids, shown):
    frame, scores = frame_in_another_order(place, with_ids, shown)
    frame.to_parquet(place / "timm.parquet")
    assert means(score(place, "timm.parquet")) == evaluate(scores, targets_of(place), tree_of(place))


@pytest.mark.parametrize(
    ("last", "message"), [("other.JPEG", "1 of 240 ids are missing: val/n"), (None, "1 ids are there twice")]
)
def test_ids_that_do_not_fit_are_named(place, with_ids, last, message):
    frame, _ = frame_in_another_order(place, with_ids)
    frame["filename"] = [*frame["filename"][:-1], last or frame["filename"][0]]
    frame.to_parquet(place / "odd.parquet")
    fails(message, place, "odd.parquet")
    assert len(board(place)) == 1


@pytest.fixture
def files(place):
    """Files of one prediction in many forms, of which some do not fit."""
    scores, targets = save(place, "vit.npz", 5)
    np.savez(place / "shuffled.npz", scores=scores[::-1], targets=targets[::-1])
    np.savez(place / "few.npz", scores=scores[:6], targets=targets[:6])
    np.savez(place / "named.npz", scores=scores, ids=np.array([f"{row}.jpg" for row in range(240)]))
    np.savez(place / "numbered.npz", scores=scores[::-1], ids=np.arange(240)[::-1])
    np.save(place / "alone.npy", scores)
    (place / "targets.txt").write_text("".join(f"{target}\n" for target in targets))
    (place / "wrong.txt").write_text("".join(f"{target}\n" for target in targets[::-1]))
    return place


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("shuffled.npz", {}, "targets are not those.*another order"),
        ("few.npz", {}, "6 predictions.*240 test images.*size of train"),
        ("named.npz", {}, "no file names to compare"),
        ("alone.npy", {"targets": "wrong.txt"}, "are not those"),
        ("vit.npz", {"targets": "wrong.txt", "tree": "shapes"}, "vit.npz"),
        ("alone.npy", {"dataset": None}, "give either a dataset.*or a tree"),
        ("alone.npy", {"data_dir": Path("none")}, "data prepare shapes"),
    ],
)
def test_targets_and_rows_are_checked(files, file, options, message):
    before = sorted((files / "runs").glob("*/"))
    fails(message, files, file, **options)
    assert before == sorted((files / "runs").glob("*/"))


def test_a_prediction_is_one_record_in_every_form(files):
    before = len(list((files / "runs").glob("*/")))
    shown = set()
    for names, targets in (("numbered.npz", None), ("alone.npy", "targets.txt"), ("vit.npz", None)):
        shown.add(render(report_table(score(files, names, targets=targets, name="same")), "csv"))
    in_order = report_table(score(files, "alone.npy", name="same"))
    shown.add(render(in_order, "csv"))
    assert "neither ids nor targets" in " ".join(in_order.notes)
    assert len(shown) == 1 and len(list((files / "runs").glob("*/"))) == before + 1


def random_file(folder):
    rng = np.random.default_rng(0)
    np.savez(folder / "a.npz", logits=rng.normal(size=(50, 100)), labels=rng.integers(100, size=50))


def test_a_tree_prints_metrics_and_records_nothing(cli, tmp_path):
    random_file(tmp_path)
    out = cli(tmp_path, "score", "a.npz", "--tree", "cifar100").ok().out
    assert "Mistake severity" in out and "bootstrap interval over images" in out
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_a_report_is_written_in_any_format_and_without_intervals(cli, tmp_path):
    random_file(tmp_path)
    (tmp_path / "tree.csv").write_text("group,class\n" + "".join(f"{n % 4},leaf {n}\n" for n in range(100)))
    words = ("score", "a.npz", "--tree", "tree.csv", "--order", "tree")
    cli(tmp_path, *words, "--output", "a.tex", "--format", "latex").ok()
    assert "begin{longtable}" in (tmp_path / "a.tex").read_text()
    assert cli(tmp_path, *words, "--resamples", "0").ok().out.count(" - ") >= 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tree": "cifar-100"}, "'cifar100'"),
        ({"tree": "none.csv"}, "tree none.csv: No such file"),
        ({"tree": "cifar100", "resamples": 99}, "must be 0, or from 100"),
        ({"tree": "fgvc", "targets": "none.txt"}, "none.txt"),
        ({"tree": "shapes"}, "50 x 100.*48"),
    ],
)
def test_mistakes_with_trees_are_one_line(tmp_path, options, message):
    random_file(tmp_path)
    fails(message, tmp_path, "a.npz", **options)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"rows": slice(None, None, -1)}, "a.npz and b.npz are not seeds of one model: 42 of 50 targets differ"),
        ({}, {"rows": slice(40)}, "50 and 40 examples"),
        ({"ids": 0}, {"ids": 1}, "1 of 50 ids are missing"),
    ],
)
def test_files_of_other_examples_are_not_seeds(tmp_path, first, second, message):
    scores = np.random.default_rng(0).normal(size=(50, 100))
    targets = np.arange(50) % 7
    for name, change in (("a.npz", first), ("b.npz", second)):
        rows = change.get("rows", slice(None))
        ids = {"ids": np.arange(50) + change["ids"]} if "ids" in change else {}
        np.savez(tmp_path / name, scores=scores[rows], targets=targets[rows], **ids)
    fails(message, tmp_path, "a.npz", "b.npz", tree="cifar100")


def test_seeds_with_ids_may_be_in_another_order(tmp_path):
    scores = np.random.default_rng(0).normal(size=(50, 100))
    targets = np.arange(50) % 7
    np.savez(tmp_path / "a.npz", scores=scores, targets=targets, ids=np.arange(50))
    np.savez(tmp_path / "b.npz", scores=scores[::-1], targets=targets[::-1], ids=np.arange(50)[::-1])
    assert len(score(tmp_path, "a.npz", "b.npz", tree="cifar100").results) == 2


def test_the_command_says_where_the_row_is(cli, place):
    save(place, "vit.npz", 5)
    words = ("score", "vit.npz", "--dataset", "shapes", "--order", "tree")
    done = cli(place, *words).ok()
    (run_id,) = json.loads(cli(place, *words, "--json").ok().out)["runs"]
    assert f"recorded in runs/{run_id[:12]}*/; the row is in" in done.err and "--runs" not in done.err
    named = cli(place, *words, "--runs", "my runs").ok()
    assert named.err.endswith("hierbench leaderboard --dataset shapes --runs 'my runs'\n")


def test_a_scored_row_is_published_beside_runs(cli, place, scored):
    words = ("publish", "--dataset", "shapes", "--output")
    assert "3 runs: 3 recomputed" in cli(place, *words, "published").ok().out
    cli(place, *words, "runs").one_line("is the runs folder")
