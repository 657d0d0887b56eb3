"""`hierbench verify`: reasons for rejection, beyond the cases of `test_tamperings.py`."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from hierbench.config.recipe import image_dataset
from hierbench.runs.compact import COMPACT_FILE, write_compact, write_targets
from hierbench.runs.findings import CAVEAT, TARGETS_ALONE
from hierbench.runs.further_metrics import values_content
from hierbench.runs.record_reader import read_record, read_records
from hierbench.runs.requests import record_request
from hierbench.runs.run_archive import opened
from hierbench.runs.store import Run, Store
from hierbench.sharing.verification.cross_checks import shipped_targets
from hierbench.sharing.verification.published_answers import NODES_CLAIMED
from hierbench.sharing.verification.verification import verify
from hierbench.studies.retraining import compare_runs
from tests.support.publications import loose
from tests.support.run_files import digest_of, metrics_of, predictions_of, spec_of
from tests.support.tamperings import Folder, edit, predict, reseal, respecify

SHIPPED = Path(__file__).resolve().parents[2] / "leaderboard/published/grocery-finetuned"
RECORDED = ("metrics.json", "predictions.npz", "history.csv", "environment.json")


@pytest.fixture(scope="module")
def made(cli, trained, tmp_path_factory):
    """A folder with runs of three methods and three seeds, and their published table."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(trained, folder / "runs")
    cli(folder, "publish", "--dataset", "shapes", "--output", "published").ok()
    loose(folder / "published")
    return folder


class Tampered(Folder):
    """A copy of runs or of published records, and what verification says of it."""

    def report(self):
        (report,) = verify([self.path], self.data_dir)
        return report

    def of(self, run, report=None):
        return next(checked for checked in (report or self.report()).runs if checked.id == run.folder.name)

    def rejected(self, run, *parts):
        """The finding of a run, after checking that it is rejected, and why."""
        checked = self.of(run)
        assert checked.state == "rejected", checked
        assert all(any(part in reason for reason in checked.findings) for part in parts), checked.findings
        return checked


@pytest.fixture
def runs(made, data_dir, shapes, tmp_path):
    return Tampered(shutil.copytree(made / "runs", tmp_path / "runs"), shapes.hierarchy("height"), data_dir)


@pytest.fixture
def published(made, tmp_path):
    """Published records as they were before they had compact predictions, where the data is not prepared."""
    shutil.copytree(
        made / "published", tmp_path / "published", ignore=shutil.ignore_patterns(COMPACT_FILE, "targets.npy")
    )
    return Tampered(tmp_path / "published/shapes", data_dir=tmp_path / "no-data")


@pytest.fixture(params=["runs", "published"])
def either(request):
    return request.getfixturevalue(request.param)


def test_honest_runs_are_recomputed_and_honest_records_claimed(cli, runs, published):
    for tampered, verdict in ((runs, "recomputed"), (published, "claimed")):
        before = {path: path.stat().st_mtime_ns for path in tampered.path.parent.rglob("*")}
        report = tampered.report()
        assert [run.state for run in report.runs] == [verdict] * 9
        assert not any(run.findings or run.notes for run in report.runs)
        assert not any(row.reasons or row.notes for row in report.rows)
        (table,) = report.tables
        # Of one whose predictions are not here, its table and pages say more than follows from what is.
        less = ["it says more of ", "shapes.md has the ", "shapes.tex has the "] if verdict == "claimed" else []
        assert not table.reasons and [re.match(".*? (more of|has the) ", note)[0] for note in table.notes] == less
        assert len(report.tables) == 1 and len(report.rows) == 3
        command = ("verify", ".", "--data-dir", tampered.data_dir)
        done = cli(tampered.path, *command).ok()
        assert f"9 runs: 9 {verdict}" in done.out and CAVEAT in done.out
        content = json.loads(cli(tampered.path, *command, "--json").ok().out)
        assert content["rejected"] == 0 and content["folders"][0]["counts"][verdict] == 9
        assert {path: path.stat().st_mtime_ns for path in tampered.path.parent.rglob("*")} == before


def test_published_tables_agree_with_their_records(tmp_path):
    """All of them are verified where their site is built, as CI does."""
    folders = [SHIPPED, *(SHIPPED.parent / name for name in ("leaves", "eth80-lite2"))]
    reports = {report.folder.name: report for report in verify(folders, tmp_path)}
    assert reports[SHIPPED.name].counts()["recomputed"] == 30
    for name, report in reports.items():
        num = len(list(opened(SHIPPED.parent / name).glob("*/spec.json")))
        assert not report.num_rejected and report.counts()["recomputed"] == num
        answers = (SHIPPED.parent / f"{name}-answers.json").exists()
        notes_of_answers = [[NODES_CLAIMED]] if answers else []
        assert [(table.state, table.notes) for table in report.tables] == [(None, n) for n in ([], *notes_of_answers)]
        notes = [note for run in report.runs for note in run.notes if not note.startswith("other code: ")]
        assert len(notes) == num  # its tree is found, and values are checked
        digest_ships = any(dataset == image_dataset(name) for dataset, _, _ in shipped_targets())
        assert {note.kind for note in notes} == {"targets ship" if digest_ships else "targets unknown"}


def test_requests_that_cannot_be_read_cost_a_note_and_not_the_table(tmp_path):
    """They alone say how long hyperparameters were searched for, which is a claim."""
    name = "cifar100-small"
    for path in SHIPPED.parent.glob(f"{name}*"):
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / path.name)
    loose(tmp_path)
    (tmp_path / name / "requests.jsonl").unlink()
    (tmp_path / name / "requests.jsonl").mkdir()
    (report,) = verify([tmp_path / name], tmp_path)
    assert report.num_rejected == 0 and "not a regular file; it is ignored" in report.notes[0]
    assert report.tables[0].state is None


def test_the_best_seed_copied_over_all_in_another_file_that_ranks_alike(runs, shapes):
    best, copies = runs.run("flamingo", 0), [runs.run("flamingo", 1), runs.run("flamingo", 2)]
    scores, targets = predictions_of(best)
    for copy in copies:
        for name in RECORDED:
            shutil.copy(best.folder / name, copy.folder / name)
        predict(copy, scores * spec_of(copy)["seed"] * 1.01, targets, shapes.hierarchy("height"))
        reseal(copy)
    for run in copies:
        runs.rejected(run, "it has the same ranked classes as seed 0")
    runs.rejected(best, "it has the same ranked classes as seed 1")


def test_missing_seeds_of_rows_are_named(runs):
    shutil.rmtree(runs.run("flamingo", 1).folder)
    shutil.rmtree(runs.run("crm", 2).folder)
    report = runs.report()
    rows = {row.label: (row.reasons, row.notes) for row in report.rows}
    assert rows["shapes flamingo type-I"] == (["seed 1 of 0..2 is missing"], [])
    assert rows["shapes crm type-I"] == ([], ["seed 2 of 0..2 is missing, which other rows have"])
    assert rows["shapes ce type-I"] == ([], []) and "whose record is not here" in report.tables[0].reasons[0]
    reseal(respecify(runs.run("flamingo", 0), seed=40))
    reasons = next(row.reasons for row in runs.report().rows if "flamingo" in row.label)
    assert reasons == ["seeds 0, 1, 3, 4, 5, 6, 7, 8, 9, 10, ... of 0..40 are missing"]


def test_a_row_that_requests_call_an_ablation_is_compared_with_all_others(runs):
    variant = respecify(runs.run("flamingo", 0), method__code="0" * 64).folder.name
    record_request(runs.path, "ablation", "shapes", {}, [variant])
    notes = {tuple(row.runs): row.notes for row in runs.report().rows}
    assert notes[variant,] == ["seeds 1, 2 of 0..2 are missing, which other rows have"]


def test_a_part_of_the_test_split_is_said(runs, shapes, tmp_path):
    run = runs.run("flamingo", 1)
    edit(run, "environment.json", data__remark="")
    reseal(run)
    runs.data_dir = tmp_path / "no-data"
    runs.rejected(run, "does not say that its test images are not the whole test split")


WORDS = " has the numbers that the records give; its words were not checked"
AGAIN = "it cannot be made again from its records: "
EDITS = (
    (".json", '"title": "Flamingo"', '"title": "Better"', "the row Better type-I: title is 'Better', the records "),
    (".json", r'"rows": \[.*?(\{\s*"type": "type-I",\s*"method": "crm")', r'"rows": [\1', "the row cross-entropy "),
    (".json", '"distance": "height"', '"distance": "depth"', "distance is 'depth', the records give 'height'"),
    (".json", r'"runs": \[', '"runs": 5, "x": [', f"{AGAIN}its rows do not name their runs"),
    (".json", '"shapes"', '"/etc/x.toml"', f"{AGAIN}shapes.json: dataset: '/etc/x.toml' is the name of a file"),
    (".json", '"top1"', '"top2"', f"{AGAIN}unknown metric 'top2'"),
    (".md", r"\d\.\d\d \+/- ", "9.99 +/- ", "shapes.md: "),
    (".csv", r",\d\d\.\d+", ",99.5", "shapes.csv: "),
    (".tex", r"\d\.\d\d \$", "9.99 $", "shapes.tex: "),
    (".md", "Evidence: ", "Evidence: 99.2 by an independent laboratory, ", "shapes.md: "),
    (".md", r"$", "\n<!-- 99.2 -->\n", "shapes.md: "),
    (".md", r"$", "\n| Other table | 99.2 |\n", "shapes.md: "),
    (".md", "half-width", "deviation", f"shapes.md{WORDS}"),
    (".csv", ",recomputed", ",retrained", f"shapes.csv{WORDS}"),
    (".tex", "not the whole dataset", "the whole dataset", f"shapes.tex{WORDS}"),
    (".md", ".+", "", "shapes.md is missing"),
    (".csv", ".+", "", ""),
)


@pytest.mark.parametrize(("suffix", "old", "new", "finding"), EDITS)
def test_an_edited_table_is_rejected_and_an_edited_page_named(made, tmp_path, suffix, old, new, finding):
    folder = shutil.copytree(made / "published", tmp_path / "published")
    page = folder / f"shapes{suffix}"
    text, number = re.subn(old, new, page.read_text(), count=1, flags=re.DOTALL)
    page.write_text(text) if text else page.unlink()
    (report,) = verify([folder / "shapes"], tmp_path / "no-data")
    (table,) = report.tables
    is_rejected = suffix == ".json" or finding.endswith(f"{suffix}: ")  # a number
    lines, none = (table.reasons, table.notes) if is_rejected else (table.notes, table.reasons)
    assert number == 1 and not none and [line[: len(finding)] for line in lines] == [finding] * bool(finding), table


def test_a_base_of_another_seed(runs):
    other = runs.run("ce", 1)
    moved = respecify(runs.run("crm", 2), base=other.folder.name)
    reseal(moved)
    runs.rejected(moved, f"its base {other.folder.name[:12]} is of other data, settings, type or seed")


def test_scored_ranks_are_recomputed_and_their_digest_compared(runs, shapes, cli, tmp_path):
    _, targets = shapes.arrays("test")
    ranked = np.random.default_rng(0).permuted(np.tile(np.arange(48), (len(targets), 1)), axis=1)[:, :5]
    np.savez(tmp_path / "five.npz", indices=ranked, targets=targets)
    options = ("--dataset", "shapes", "--runs", runs.path, "--data-dir", runs.data_dir, "--resamples", "0")
    cli(tmp_path, "score", "five.npz", "--order", "tree", *options).ok()
    (run,) = (run for run in Store(runs.path).runs() if spec_of(run).get("kind") == "scored")
    assert runs.of(run).state == "recomputed"
    copy = Run(shutil.copytree(run.folder, run.folder.with_name("f" * 64)))
    runs.rejected(copy, "its folder is not named after its spec")
    np.savez(run.folder / "predictions.npz", classes=ranked[:, ::-1], targets=targets)
    reseal(run)
    runs.rejected(run, "its predictions are not those whose digest is in spec.json", "by its predictions")


def test_nothing_is_followed_out_of_the_folder(published, made, data_dir, tmp_path):
    run = published.run("ce", 0)
    scores, targets = predictions_of(Run(made / "runs" / run.folder.name))
    write_compact(run.folder, scores, targets, digest_of(run, "predictions.npz"))
    write_targets(tmp_path, targets)
    (published.path / "targets.npy").symlink_to(tmp_path / "targets.npy")
    published.rejected(run, "is a symbolic link")
    (published.path / ("e" * 64)).symlink_to(made / "runs" / run.folder.name)
    linked = next(checked for checked in published.report().runs if checked.id == "e" * 64)
    assert linked.findings == ("its folder is a symbolic link, which is not followed",)


def test_a_kept_metric_that_does_not_follow(runs):
    run, records = runs.run("ce", 0), read_records(runs.path)
    content = values_content(records[run.folder.name], records, {"hf_macro": 1.0})
    (run.folder / "further-metrics.json").write_text(json.dumps(content))
    report = runs.report()  # no table here shows it
    assert not report.num_rejected and report.notes[0].startswith("Not computed again: ")
    (report,) = verify([runs.path], runs.data_dir, all_metrics=True)
    assert runs.of(run, report).findings[0].startswith("hf_macro is ") and not report.notes


def test_a_published_table_with_more_columns_is_compared_too(made, data_dir, tmp_path, cli):
    options = ("--dataset", "shapes", "--runs", made / "runs", "--data-dir", data_dir)
    cli(tmp_path, "publish", *options, "--metrics", "+ece", "--output", "published").ok()
    published = Tampered(tmp_path / "published/shapes", data_dir=tmp_path / "no-data")
    assert not published.report().num_rejected
    table = tmp_path / "published/shapes.json"
    content = json.loads(table.read_text())
    content["rows"][0]["metrics"]["ece"]["values"][0] /= 2
    table.write_text(json.dumps(content))
    assert "metrics ece values is " in published.report().tables[0].reasons[0]


def test_tuning_budgets_and_unfinished_seeds_are_named(runs):
    for seeds, trials in (((0,), 6), ((1, 2), 9)):
        budget = {"ce:type-I": {"trials": trials, "runs": 3, "study": "x"}}
        record_request(runs.path, "tuning", "shapes", {}, [runs.run("ce", n).folder.name for n in seeds], budget)
    run = runs.run("flamingo", 2)
    for name in RECORDED:
        (run.folder / name).unlink()
    run.set_status("failed", error="out of memory")
    report = runs.report()
    checked = runs.of(run, report)
    assert (checked.state, checked.notes) == ("unfinished", ("failed: out of memory",))
    notes = {row.label: row.notes for row in report.rows}
    assert "seed 2 is not finished" in notes["shapes flamingo type-I"]
    assert "its runs have several tuning budgets: 6 x 3, 9 x 3" in notes["shapes ce type-I"]
    assert "tuning" not in "".join(notes["shapes crm type-I"])  # that it differs is said below the table, once


def test_compact_predictions_are_recomputed_where_the_targets_are_known(runs, published, made, data_dir):
    compared = published.run("ce", 0)
    for run in Store(runs.path).runs():
        scores, targets = predictions_of(run)
        digest = digest_of(run, "predictions.npz")
        write_compact(published.path / run.folder.name, scores, targets, digest)
    assert "no targets with its digest" in published.of(compared).notes[0]
    published.data_dir = data_dir
    assert published.report().counts()["recomputed"] == 9
    published.data_dir = made / "no-data"
    write_targets(published.path, targets)
    report = published.report()
    assert report.counts()["recomputed"] == 9
    notes = {run.label: run.notes for run in report.runs}
    assert notes["crm type-I seed 0"] == notes["ce type-I seed 0"] == (TARGETS_ALONE,)
    forged = metrics_of(compared)["test"]
    edit(compared, "metrics.json", test={**forged, "hierdist@20": forged["hierdist@20"] - 1 / (384 * 20)})
    reseal(compared)
    published.rejected(compared, "hierdist@20 is ")
    other = published.run("flamingo", 0)
    shutil.copy(compared.folder / COMPACT_FILE, other.folder / COMPACT_FILE)
    published.rejected(other, f"{COMPACT_FILE} was not made from the predictions.npz that status.json records")
    shutil.copy(published.path / compared.folder.name / COMPACT_FILE, runs.run("flamingo", 1).folder / COMPACT_FILE)
    runs.rejected(runs.run("flamingo", 1), f"{COMPACT_FILE} ranks other classes than predictions.npz")


def test_in_the_same_place_a_run_is_bitwise_the_same(runs, shapes, tmp_path):
    """What is within the tolerance of another machine is not, where the record names this processor."""
    run = runs.run("ce", 0)
    again = Run(shutil.copytree(run.folder, tmp_path / run.folder.name))
    scores, targets = predictions_of(again)
    scores[0] = np.roll(scores[0], 1)
    predict(again, scores, targets, shapes.hierarchy("height"))
    reseal(again)
    recorded = json.loads((run.folder / "environment.json").read_text())
    assert recorded["processor"] and recorded["device"] == "cpu"

    def compared(**environment):
        edit(run, "environment.json", **(recorded | environment))
        reseal(run)
        return compare_runs(read_record(run.folder), read_record(again.folder))

    assert compared().verdict == "differs" and compared().same
    for changed in (
        {"processor": "another"},
        {"threads": recorded["threads"] + 1},
        {"torch": "1.0"},
        {"features": {"device": "mps"}},
    ):
        assert compared(**changed).verdict == "close", changed
    assert not compared(processor="another").same


def test_another_processor_is_another_environment(runs):
    first = runs.run("flamingo", 0)
    edit(first, "environment.json", processor="another")
    reseal(first)
    notes = {row.label: row.notes for row in runs.report().rows}["shapes flamingo type-I"]
    assert notes[0].startswith("several environments: seed 1, 2 with processor ")
    assert any(note.startswith("another environment than most rows: ") and "another" in note for note in notes)


def test_a_table_with_many_differences_names_three(either, cli):
    content = json.loads(either.table.read_text())
    for row in content["rows"]:
        row["metrics"]["top1"]["mean"] = 99.2
    either.table.write_text(json.dumps(content | {"distance": "depth", "x": 1}))
    assert len(either.report().tables[0].reasons) == 5
    options = ("--data-dir", either.data_dir)
    output = cli(either.path, "verify", ".", *options).out
    (line,) = (line for line in output.splitlines() if "the records give" in line)
    assert line.endswith(" and 2 more") and line.count("; ") == 2, line


def test_a_page_without_values_is_compared_with_nothing(runs):
    (runs.path / "leaderboard-birds.md").write_text("| our method | 99.2 |\n")
    (birds_table,) = (table for table in runs.report().tables if table.label.endswith("birds"))
    assert birds_table.notes == ["leaderboard-birds.json is missing, and the .md was compared with nothing"]
