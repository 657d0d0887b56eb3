"""`hierbench score`: rows of predictions made elsewhere beside runs of the same data, and nothing else beside them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hierbench import Hierarchy
from hierbench.config.completion import method_folder
from hierbench.config.scored_spec import Scored
from hierbench.data.prepared import find
from hierbench.metrics import Evidence, compute_metrics, evaluate
from hierbench.runs.integrity import fingerprints
from hierbench.runs.record_reader import read_record
from hierbench.runs.store import Store
from hierbench.studies.scoring.score_files import ScoreRequest, score_files
from tests.support import mistake_runs
from tests.support.run_files import metrics_of, predictions_of, spec_of


@pytest.fixture
def place(tmp_path):
    """A folder with prepared `shapes` (6 classes, 240 test images), two runs of it, and their targets."""
    prepared = mistake_runs.prepare(tmp_path / "data", per_class=40)
    _, targets = prepared.arrays("test")
    store = Store(tmp_path / "runs")
    for seed in (0, 1):
        mistake_runs.store_run(
            store, prepared, "ce", "type-I", mistake_runs.random_scores(targets, 6, seed), targets, seed
        )
    return tmp_path


def targets_of(place):
    return np.array(find("shapes", place / "data").arrays("test")[1])


def save(place, name, seed, **more):
    targets = targets_of(place)
    scores = mistake_runs.random_scores(targets, 6, seed, skill=2.5)
    np.savez(place / name, predictions=scores, label_ids=targets, **more)
    return scores, targets


def board(cli, place, *options):
    return json.loads(cli(place, "leaderboard", "--dataset", "shapes", "--format", "json", *options).ok().out)


def test_a_scored_file_is_a_marked_row_and_changes_no_other(cli, place):
    before = board(cli, place)
    scores, targets = save(place, "vit.npz", 5)
    done = cli(place, "score", "vit.npz", "--dataset", "shapes", "--order", "tree", "--json").ok()
    report = json.loads(done.out)
    tree = find("shapes", place / "data").hierarchy("height")
    expected = evaluate(scores, targets, tree)
    assert {name: cell["mean"] for name, cell in report["metrics"].items()} == expected
    assert all(cell["low"] < cell["mean"] < cell["high"] for cell in report["metrics"].values())
    assert report["interval"]["over"] == "images"

    after = board(cli, place)
    *rows, row = after["rows"]
    assert rows == before["rows"] and {**after, "rows": rows} == before
    assert row["scored"] is True and (row["type"], row["method"], row["title"]) == ("scored", "vit", "vit (scored)")
    assert not row["competitive"] and row["metrics"]["top1"]["mean"] == expected["top1"]
    assert row["metrics"]["top1"]["ci95"] is None and row["runs"] == report["runs"]
    for format_, shown in (("markdown", "vit (scored)"), ("latex", "vit (scored)"), ("csv", "vit (scored)")):
        assert shown in cli(place, "leaderboard", "--dataset", "shapes", "--format", format_).ok().out
    shown = cli(place, "leaderboard", "--dataset", "shapes").ok().out
    low, high = (report["metrics"]["top1"][end] for end in ("low", "high"))
    assert f"{expected['top1']:.2f} [{low:.2f}, {high:.2f}]" in shown and "bootstrap interval over the images" in shown
    assert "predictions made elsewhere" in shown and "two seeds say little" in shown

    store = Store(place / "runs")
    run = store.run(row["runs"][0])
    assert Scored.model_validate(spec_of(run)).id == run.folder.name and read_record(run.folder).done
    kept, kept_targets = predictions_of(run)
    assert (kept == scores).all() and (kept_targets == targets).all()
    assert not [path for path in (place / "runs").iterdir() if path.name.startswith(".scored")]
    times = {path: path.stat().st_mtime_ns for path in run.folder.iterdir()}
    again = cli(place, "score", "vit.npz", "--dataset", "shapes", "--order", "tree").ok()
    assert f"recorded in runs/{run.folder.name[:12]}*/; the row is in" in again.err and "--runs" not in again.err
    named = cli(place, "score", "vit.npz", "--dataset", "shapes", "--order", "tree", "--runs", "my runs").ok()
    assert named.err.endswith("hierbench leaderboard --dataset shapes --runs 'my runs'\n")
    cli(place, "publish", "--dataset", "shapes", "--output", "runs").one_line("is the runs folder")
    assert times == {path: path.stat().st_mtime_ns for path in run.folder.iterdir()}
    assert "3 runs: 3 recomputed" in cli(place, "publish", "--dataset", "shapes", "--output", "published").ok().out


def test_labels_alone(cli, tmp_path):
    """From npz, npy and csv alike, as indices or names."""
    tree = Hierarchy.load("shapes")
    rng = np.random.default_rng(0)
    targets, labels = rng.integers(48, size=(2, 300))
    scores = np.eye(48)[labels]
    classes = np.array(tree.classes)
    np.savez(tmp_path / "a.npz", predictions=labels, targets=targets)
    np.savez(tmp_path / "b.npz", predictions=classes[labels], targets=classes[targets])
    np.save(tmp_path / "c.npy", labels)
    np.save(tmp_path / "targets.npy", targets)
    expected = evaluate(scores, targets, tree, ks=(1,))
    evidence = Evidence(torch.from_numpy(scores), torch.from_numpy(targets), tree, torch.from_numpy(scores))
    names = ["min_distance@1", "hf_macro", "level_accuracy@2"]
    expected |= compute_metrics(names, evidence)
    metrics = ("--metrics", "+" + ",+".join(names), "--tree", "shapes", "--order", "tree", "--json")
    for words in (("a.npz",), ("b.npz",), ("c.npy", "--targets", "targets.npy")):
        shown = json.loads(cli(tmp_path, "score", *words, *metrics).ok().out)["metrics"]
        assert {name: cell["mean"] for name, cell in shown.items()} == expected
    same = ("score", "a.npz", "c.npy", "--targets", "targets.npy", "--tree", "shapes", "--order", "tree")
    cli(tmp_path, *same).one_line("hold the same predictions")


def test_other_commands_leave_scored_rows_out_with_a_note(cli, place):
    save(place, "vit.npz", 5)
    id_ = json.loads(cli(place, "score", "vit.npz", "--dataset", "shapes", "--order", "tree", "--json").ok().out)[
        "runs"
    ][0]
    cli(place, "mistakes", "--dataset", "shapes", "ce:type-I:0", id_[:12]).one_line("made elsewhere")
    cli(place, "plot", "confusion", "--dataset", "shapes", "--run", id_[:12]).one_line("made elsewhere")
    cli(place, "plot", "tradeoff", "--dataset", "shapes").ok()
    message = "'vit' is a scored row; only rows of runs are compared"
    for command in (["compare", "vit"], ["compare", "ce", "vit"]):
        cli(place, *command, "--dataset", "shapes").one_line(message)
    cli(place, "power", "ce", "vit", "--dataset", "shapes").one_line(message)
    cli(place, "compare", "ce", "vitt", "--dataset", "shapes").one_line("unknown row 'vitt'")
    for name in ("vit", "vit (scored)", "vit:scored", "vit:top1"):
        cli(place, "reproduce", "runs", name).one_line("it cannot be trained")
    save(place, "ce.npz", 6)
    cli(place, "score", "ce.npz", "--dataset", "shapes", "--order", "tree").ok()
    assert "(scored)" not in cli(place, "plot", "tradeoff", "--dataset", "shapes").ok().out
    assert '"name": "ce"' in cli(place, "reproduce", "runs", "ce").ok().out  # the spec of a run, not the file
    (place / "runs" / id_ / "metrics.json").write_text("{}")
    done = cli(place, "leaderboard", "--dataset", "shapes").ok()
    assert "vit" not in done.out and "score the file again" in done.err
    cli(place, "score", "vit.npz", "--dataset", "shapes", "--order", "tree").one_line("is damaged", "remove it")


def test_rows_of_one_title_have_the_names_of_their_methods(cli, place):
    text = (method_folder() / "ce.py").read_text(encoding="utf-8")
    (place / "ce2.py").write_text(text.replace('name = "ce"', 'name = "ce2"'), encoding="utf-8")
    targets = targets_of(place)
    scores = mistake_runs.random_scores(targets, 6, 7)
    mistake_runs.store_run(
        Store(place / "runs"), find("shapes", place / "data"), str(place / "ce2.py"), "type-I", scores, targets
    )
    titles = {row["method"]: row["title"] for row in board(cli, place)["rows"]}
    assert titles == {"ce": "cross-entropy (ce)", "ce2": "cross-entropy (ce2)"}


@pytest.mark.parametrize("ends", [[0.0, 100.0], [None, None], ["<b>", 1.0], None])
def test_an_interval_that_the_predictions_do_not_give_is_rejected(cli, place, ends):
    save(place, "vit.npz", 5)
    id_ = json.loads(cli(place, "score", "vit.npz", "--dataset", "shapes", "--order", "tree", "--json").ok().out)[
        "runs"
    ][0]
    run = Store(place / "runs").run(id_)
    run.write_record("metrics.json", metrics_of(run) | {"intervals": {"top1": ends}})
    run.set_status("done", files=fingerprints(run.folder))
    done = cli(place, "verify", "runs")
    assert done.code == 1 and f"rejected: vit scored ({id_[:12]}): " in done.out


def test_seeds_make_a_row_with_a_t_interval(cli, place):
    metrics = [evaluate(*save(place, f"vit-{seed}.npz", seed), tree_of(place)) for seed in (1, 2, 3)]
    files = [f"vit-{seed}.npz" for seed in (1, 2, 3)]
    report = json.loads(cli(place, "score", *files, "--dataset", "shapes", "--order", "tree", "--json").ok().out)
    row = board(cli, place)["rows"][-1]
    assert report["name"] == row["method"] == "vit" and row["n"] == row["planned"] == 3
    top1 = [values["top1"] for values in metrics]
    half = 4.302652729696142 * np.std(top1, ddof=1) / np.sqrt(3)
    assert row["metrics"]["top1"]["ci95"] == pytest.approx(half) and sorted(top1) == sorted(
        row["metrics"]["top1"]["values"]
    )
    cell = report["metrics"]["top1"]
    assert (cell["high"] - cell["low"]) / 2 == pytest.approx(half) and report["interval"]["over"] == "seeds"
    save(place, "other.npz", 9)
    cli(place, "score", "other.npz", "--name", "vit", "--dataset", "shapes", "--order", "tree").one_line(
        "'vit' already stands for"
    )
    cli(place, "score", files[0], files[0], "--dataset", "shapes", "--order", "tree").one_line(
        "hold the same predictions"
    )
    assert len(board(cli, place)["rows"]) == 2


def test_files_of_one_command_are_recorded_together_or_not_at_all(place, monkeypatch):
    """An error while they are written leaves no record; one that is there is kept."""
    for seed in (1, 2):
        save(place, f"vit-{seed}.npz", seed)
    request = ScoreRequest(
        [place / "vit-1.npz", place / "vit-2.npz"], "shapes", None, None, None, None, 0, 0, place / "runs",
        place / "data", order="tree",
    )  # fmt: skip
    before = sorted((place / "runs").glob("*/"))
    sealed, rename = [], Path.rename

    def full(folder):
        sealed.append(folder)
        if len(sealed) == 2:
            raise OSError(28, "No space left on device")
        return fingerprints(folder)

    with monkeypatch.context() as patch:
        patch.setattr("hierbench.studies.scoring.scores.fingerprints", full)
        with pytest.raises(OSError, match="No space left"):
            score_files(request)
    assert len(sealed) == 2 and sorted((place / "runs").glob("*/")) == before

    def overtaken(path, target):
        if path.parent.name.startswith(".scored."):  # another command has scored the file in the meantime
            shutil.copytree(path, target)
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", overtaken)
        report = score_files(request)
    store = Store(place / "runs")
    assert len(report.runs) == 2 and all(read_record(store.run(run_id).folder).done for run_id in report.runs)
    assert len(list((place / "runs").glob("*/"))) == len(before) + 2


def tree_of(place):
    return find("shapes", place / "data").hierarchy("height")


def test_rows_of_other_data_are_left_out_with_a_remark(cli, place):
    save(place, "vit.npz", 5)
    cli(place, "score", "vit.npz", "--dataset", "shapes", "--order", "tree").ok()
    (place / "again").mkdir()
    prepared = mistake_runs.prepare(place / "again/data", per_class=30)
    targets = prepared.arrays("test")[1]
    np.savez(place / "small.npz", scores=mistake_runs.random_scores(targets, 6, 0), targets=targets)
    cli(place, "score", "small.npz", "--dataset", "shapes", "--order", "tree", "--data-dir", "again/data").ok()
    out = cli(place, "leaderboard", "--dataset", "shapes").ok().out
    assert "vit (scored)" in out and "small (scored)" not in out and "1 scored predictions are not in this table" in out
    cli(
        place,
        "score",
        "small.npz",
        "--dataset",
        "shapes",
        "--order",
        "tree",
        "--runs",
        "empty",
        "--data-dir",
        "again/data",
    ).ok()
    alone = board(cli, place, "--runs", "empty")
    assert alone["protocol"] == "scored" and [row["method"] for row in alone["rows"]] == ["small"]


def test_runs_that_drop_a_batch_are_not_beside_all_images(cli, place):
    prepared = find("shapes", place / "data")
    targets = prepared.arrays("test")[1]
    rows = np.sort(np.argsort(targets, kind="stable")[: -(240 % 100)])
    scores = mistake_runs.random_scores(targets[rows], 6, 1)
    mistake_runs.store_run(
        Store(place / "authors"),
        prepared,
        "ce",
        "type-I",
        scores,
        targets[rows],
        overrides=["evaluation.drop_last=true"],
    )
    save(place, "vit.npz", 5)
    cli(place, "score", "vit.npz", "--dataset", "shapes", "--order", "tree", "--runs", "authors").ok()
    out = cli(place, "leaderboard", "--dataset", "shapes", "--runs", "authors").ok().out
    assert "vit" not in out and "last incomplete batch" in out


def with_ids(place):
    """Give the prepared data file names, as a dataset that has them is prepared."""
    from hierbench.utils.files import file_digest, read_json, write_json

    folder = place / "data/prepared/shapes"
    names = [f"val/n{row % 7}/photo_{row:03}.JPEG" for row in range(240)]
    write_json(folder / "test-ids.json", names)
    meta = read_json(folder / "meta.json")
    write_json(folder / "meta.json", meta | {"ids": {"test": file_digest(folder / "test-ids.json")}})
    return names


@pytest.mark.parametrize(
    "shown", ["val/n{}/photo_{}.JPEG", "photo_{1}.JPEG", "/data/val/n{}/photo_{}.JPEG", "photo_{1}"]
)
def test_rows_with_ids_are_put_in_order_and_need_no_targets(cli, place, shown):
    names = with_ids(place)
    targets = targets_of(place)
    scores = mistake_runs.random_scores(targets, 6, 3)
    order = np.random.default_rng(0).permutation(240)
    ids = [shown.format(name.split("/")[1][1:], name[-8:-5]) for name in names]
    frame = pd.DataFrame(scores[order], columns=[f"prob_{k}" for k in range(6)])
    frame.insert(0, "filename", [ids[row] for row in order])
    frame.to_parquet(place / "timm.parquet")
    report = json.loads(
        cli(place, "score", "timm.parquet", "--dataset", "shapes", "--order", "tree", "--json").ok().out
    )
    expected = evaluate(scores, targets, tree_of(place))
    assert {name: cell["mean"] for name, cell in report["metrics"].items()} == expected
    frame["filename"] = [*frame["filename"][:-1], "other.JPEG"]
    frame.to_parquet(place / "odd.parquet")
    cli(place, "score", "odd.parquet", "--dataset", "shapes", "--order", "tree").one_line(
        "1 of 240 ids are missing", "are missing: val/n"
    )
    frame["filename"] = [*frame["filename"][:-1], frame["filename"][0]]
    frame.to_parquet(place / "twice.parquet")
    cli(place, "score", "twice.parquet", "--dataset", "shapes", "--order", "tree").one_line("1 ids are there twice")
    assert len(board(cli, place)["rows"]) == 2


def test_targets_and_rows_are_checked(cli, place):
    scores, targets = save(place, "vit.npz", 5)
    before = sorted((place / "runs").glob("*/"))
    np.savez(place / "shuffled.npz", scores=scores[::-1], targets=targets[::-1])
    cli(place, "score", "shuffled.npz", "--dataset", "shapes", "--order", "tree").one_line(
        "targets are not those", "another order"
    )
    np.savez(place / "few.npz", scores=scores[:6], targets=targets[:6])
    cli(place, "score", "few.npz", "--dataset", "shapes", "--order", "tree").one_line(
        "6 predictions", "240 test images", "size of train"
    )
    np.savez(place / "named.npz", scores=scores, ids=np.array([f"{row}.jpg" for row in range(240)]))
    cli(place, "score", "named.npz", "--dataset", "shapes", "--order", "tree").one_line("no file names to compare")
    np.savez(place / "numbered.npz", scores=scores[::-1], ids=np.arange(240)[::-1])
    np.save(place / "alone.npy", scores)
    (place / "targets.txt").write_text("".join(f"{target}\n" for target in targets))
    (place / "wrong.txt").write_text("".join(f"{target}\n" for target in targets[::-1]))
    cli(place, "score", "alone.npy", "--dataset", "shapes", "--order", "tree", "--targets", "wrong.txt").one_line(
        "are not those"
    )
    cli(place, "score", "vit.npz", "--targets", "wrong.txt", "--tree", "shapes", "--order", "tree").one_line("vit.npz")
    cli(place, "score", "alone.npy").one_line("give either a dataset", "or a tree")
    cli(place, "score", "alone.npy", "--dataset", "shapes", "--order", "tree", "--tree", "shapes").one_line(
        "give either a dataset"
    )
    cli(place, "score", "alone.npy", "--dataset", "shapes", "--order", "tree", "--data-dir", "none").one_line(
        "data prepare shapes"
    )
    assert before == sorted((place / "runs").glob("*/"))
    outs = [
        cli(place, "score", *words, "--dataset", "shapes", "--order", "tree", "--name", "same", "--format", "csv").ok()
        for words in (["numbered.npz"], ["alone.npy"], ["alone.npy", "--targets", "targets.txt"], ["vit.npz"])
    ]
    assert len({done.out for done in outs}) == 1
    assert "neither ids nor targets" in outs[1].err and "note" not in outs[2].err
    assert len(list((place / "runs").glob("*/"))) == len(before) + 1


def test_a_tree_prints_metrics_and_records_nothing(cli, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", logits=rng.normal(size=(50, 100)), labels=rng.integers(100, size=50))
    out = cli(tmp_path, "score", "a.npz", "--tree", "cifar100").ok().out
    assert "Mistake severity" in out and "bootstrap interval over images" in out
    (tmp_path / "tree.csv").write_text("a,b\n" + "".join(f"{n % 4},leaf {n}\n" for n in range(100)))
    cli(
        tmp_path, "score", "a.npz", "--tree", "tree.csv", "--order", "tree", "--output", "a.tex", "--format", "latex"
    ).ok()
    assert "begin{longtable}" in (tmp_path / "a.tex").read_text()
    assert (
        cli(tmp_path, "score", "a.npz", "--tree", "tree.csv", "--order", "tree", "--resamples", "0")
        .ok()
        .out.count(" - ")
        >= 10
    )
    cli(tmp_path, "score", "a.npz", "--tree", "cifar-100").one_line("'cifar100'")
    cli(tmp_path, "score", "a.npz", "--tree", "none.csv").one_line("--tree none.csv: No such file")
    cli(tmp_path, "score", "a.npz", "--tree", "cifar100", "--resamples", "99").one_line("must be 0, or from 100")
    cli(tmp_path, "score", "a.npz", "--tree", "fgvc", "--targets", "none.txt").one_line("none.txt")
    cli(tmp_path, "score", "a.npz", "--tree", "shapes").one_line("50 x 100", "48")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "a.tex", "tree.csv"]


def test_files_of_other_examples_are_not_seeds(cli, tmp_path):
    rng = np.random.default_rng(0)
    targets, scores = np.arange(50) % 7, rng.normal(size=(50, 100))
    np.savez(tmp_path / "a.npz", scores=scores, targets=targets)
    np.savez(tmp_path / "b.npz", scores=scores[::-1], targets=targets[::-1])
    np.savez(tmp_path / "few.npz", scores=scores[:40], targets=targets[:40])
    num = int((targets != targets[::-1]).sum())
    message = f"a.npz and b.npz are not seeds of one model: {num} of 50 targets differ"
    cli(tmp_path, "score", "a.npz", "b.npz", "--tree", "cifar100").one_line(message)
    cli(tmp_path, "score", "a.npz", "few.npz", "--tree", "cifar100").one_line("a.npz", "few.npz", "50 and 40 examples")
    ids = np.arange(50)
    np.savez(tmp_path / "a.npz", scores=scores, targets=targets, ids=ids)
    np.savez(tmp_path / "b.npz", scores=scores[::-1], targets=targets[::-1], ids=ids[::-1])
    cli(tmp_path, "score", "a.npz", "b.npz", "--tree", "cifar100").ok()
    np.savez(tmp_path / "b.npz", scores=scores, targets=targets, ids=ids + 1)
    cli(tmp_path, "score", "a.npz", "b.npz", "--tree", "cifar100").one_line("1 of 50 ids are missing")
