"""Answers of runs: computed once, kept beside a run, printed, drawn, published and verified."""

import json
import re
import shutil

import numpy as np
import pytest

import hierbench
from hierbench.answers.choices import DEFAULT_RULES, parse_choices
from hierbench.runs.answer_file import ANSWERS_FILE, read_answers, write_answers
from hierbench.runs.record_reader import read_records
from hierbench.sharing.verification.published_answers import NODES_CLAIMED
from hierbench.sharing.verification.verification import verify
from hierbench.utils.errors import UserError
from tests.support.publications import loose

SHORT = ("--set", "train.epochs=1", "--set", "train.batch_size=96", "--set", "model.backbone=wrn10-1-s4")
RULES = "argmax_leaf,crm:temperature=1,climbing"


@pytest.fixture(scope="module")
def answered(cli, data_dir, tmp_path_factory):
    """A folder with two runs each of ce, Hier-COS and CRM, and the output of `answers` with all rules."""
    folder = tmp_path_factory.mktemp("answered")
    shutil.copytree(data_dir, folder / "data")
    options = ("--dataset", "shapes", "--types", "type-II", "--seeds", "2", "--jobs", "1", "--mlflow", "off")
    cli(folder, "run", "--methods", "ce,hiercos,crm", *options, *SHORT).ok()
    done = cli(folder, "answers", "--dataset", "shapes", "--json").ok()
    return folder, done


def trained_in(folder):
    return [run for run in read_records(folder / "runs") if not run.bases]


def test_each_row_has_each_rule(answered):
    """But for uncalibrated scores that are lengths; a row that re-ranks is left out with a line."""
    _, done = answered
    rows = json.loads(done.out)["rows"]
    labels = [choice.label for choice in parse_choices(DEFAULT_RULES)]
    assert [row["rule"] for row in rows if row["method"] == "ce"] == labels
    assert [row["rule"] for row in rows if row["method"] == "hiercos"] == [
        label for label in labels if label != "crm:temperature=1"
    ]
    assert "CRM type-II is left out: it re-ranks what others predict" in done.err
    assert all((row["area"] is None) == ("@" not in row["rule"]) for row in rows)


def test_answers_are_those_of_the_runs(answered):
    folder, done = answered
    rows = json.loads(done.out)["rows"]
    best = next(row for row in rows if row["rule"] == "argmax_leaf" and row["method"] == "ce")
    row = hierbench.board("shapes", folder / "runs", data_dir=folder / "data")["ce", "type-II"]
    assert best["correct"] == pytest.approx(row.metrics["top1"].mean) and best["coverage"] == 100.0
    assert best["correct ci95"] == pytest.approx(row.metrics["top1"].ci95)


def test_kept_answers_are_read_and_others_added(answered, cli):
    folder, done = answered
    times = {run.id: (run.folder / ANSWERS_FILE).stat().st_mtime_ns for run in trained_in(folder)}
    assert len(times) == 4
    assert cli(folder, "answers", "--dataset", "shapes", "--json").ok().out == done.out
    assert times == {run.id: (run.folder / ANSWERS_FILE).stat().st_mtime_ns for run in trained_in(folder)}
    run = trained_in(folder)[0]
    before = read_answers(run.folder)
    cli(folder, "answers", "--dataset", "shapes", "--rules", "climbing:threshold=0.5").ok()
    after = read_answers(run.folder)
    assert [*after.nodes] == [*before.nodes, "climbing:threshold=0.5"]
    assert after.record.parameters["climbing:threshold=0.5"] == {"threshold": 0.5}
    write_answers(run.folder, before)


@pytest.mark.parametrize(
    ("arguments", "heading", "lines"),
    [
        ([], "At 95 %", 2),
        (["--full"], "Area", 47),
        (["--rules", RULES, "--at", "0.8"], "Area", 5),
        (["--show", "temperature"], "At bound", 2),
        (["--show", "levels"], "ECE fitted", 6),
        (["--show", "sets"], "Least", 12),
        (["--show", "tree"], "Gain, confusions", 2),
        (["--show", "tree", "--trees", "other.csv"], "Gain, other", 2),
    ],
)
def test_every_table_in_every_format(answered, cli, arguments, heading, lines):
    folder, _ = answered
    tree = hierbench.Hierarchy.load("shapes")
    (folder / "other.csv").write_text("group,class\n" + "".join(f"{name[0]},{name}\n" for name in tree.classes))
    for format in ("markdown", "csv", "json", "latex", "html", "terminal"):
        out = cli(folder, "answers", "--dataset", "shapes", *arguments, "--format", format).ok().out
        assert "cross-entropy" in out
        if format == "markdown":
            table = [line for line in out.splitlines() if line.startswith("|")]
            assert heading in table[0] and len(table) == 2 + lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rules", "climb"], "unknown rule 'climb'"),
        (["--rules", "least_cost:cost=foo"], 'rule least_cost: ValueError: cost must be "edges"'),
        (["--rules", "rank_thresholds:thresholds=[]"], "rule rank_thresholds: ValueError: give at least one threshold"),
        (["--rules", "climbing:threshold=abc"], "rule climbing: TypeError"),
        (["--rules", "rank_thresholds:ranks=[9]:thresholds=0.5"], "ranks must be levels of the tree"),
        (["--at", "90%"], "--at 90%: give shares separated by commas, as in 0.9,0.95"),
        (["--trees", "shapes"], "--trees is for --show tree"),
        (["--show", "tree", "--trees", "cifar100"], "--trees cifar100: it has other classes"),
    ],
)
def test_mistakes_of_users(answered, cli, arguments, message):
    cli(answered[0], "answers", "--dataset", "shapes", *arguments).one_line(message)


def test_from_python(answered):
    folder, done = answered
    board = hierbench.board("shapes", folder / "runs")
    answers = hierbench.answer_board(board, data_dir=folder / "data")
    frame = answers.frame()
    assert frame["correct"].tolist() == [row["correct"] for row in json.loads(done.out)["rows"]]
    assert "Climbing (90 %)" in str(answers) and "<table" in answers._repr_html_()
    assert [*answers.frame("temperature")["title"]] == ["cross-entropy", "Hier-COS"]
    assert answers.tree_test().rows
    with pytest.raises(UserError, match="unknown show 'all'"):
        answers.table("all")


def test_a_disk_that_takes_no_answers_shows_the_table(answered, capsys, monkeypatch):
    def full(folder, answers):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("hierbench.studies.computed_answers.write_answers", full)
    board = hierbench.board("shapes", answered[0] / "runs")
    answers = hierbench.answer_board(board, rules=["climbing:threshold=0.7"], data_dir=answered[0] / "data")
    assert len(answers.frame()) == 2 and "are not kept: Read-only file system" in capsys.readouterr().err


def test_the_picture(answered, cli):
    done = cli(answered[0], "plot", "answers", "--dataset", "shapes", "--output", "answers.svg").ok()
    assert "Hier-COS" in (answered[0] / "answers.svg").read_text() and "CRM type-II is left out" in done.out


def test_a_run_without_checkpoint_has_no_answers(answered, cli, tmp_path):
    shutil.copytree(answered[0] / "runs", tmp_path / "runs")
    for file in (*tmp_path.glob("runs/*/checkpoint.pt"), *tmp_path.glob(f"runs/*/{ANSWERS_FILE}")):
        file.unlink()
    done = cli(tmp_path, "answers", "--dataset", "shapes", "--data-dir", answered[0] / "data")
    assert "no row of shapes has answers" in done.one_line("validation scores of", "train it again")


def change_nodes(answers):
    nodes = {label: values.copy() for label, values in answers.nodes.items()}
    nodes["majority"][:40] = nodes["argmax_leaf"][:40] - 1
    return {"nodes": nodes}


def change_leaves(answers):
    return {"nodes": {**answers.nodes, "argmax_leaf": np.roll(answers.nodes["argmax_leaf"], 1)}}


def change_numbers(answers):
    return {"nodes": {**answers.nodes, "majority": answers.nodes["majority"] + 1000}}


def change_predictions(answers):
    return {"record": answers.record.model_copy(update={"predictions": "0" * 64})}


def change_parameters(answers):
    parameters = {**answers.record.parameters, "climbing@0.9": {"threshold": "high"}}
    return {"record": answers.record.model_copy(update={"parameters": parameters})}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_nodes, "majority answers other nodes for .* of its test images"),
        (change_leaves, "the answers of argmax_leaf are not the best classes of its predictions"),
        (change_numbers, "the answers of majority are no nodes of its test images"),
        (change_predictions, "its answers are damaged, or of other predictions"),
        (change_parameters, "climbing@0.9 cannot be answered again"),
    ],
)
def test_verify_answers_again(answered, tmp_path, change, message):
    """From the scores of all classes, with the recorded parameters; a file of rules is not run."""
    shutil.copytree(answered[0] / "runs", tmp_path / "runs")
    (report,) = verify([tmp_path / "runs"], answered[0] / "data")
    assert report.num_rejected == 0 and len(report.tables) == 2
    run = trained_in(tmp_path)[0]
    answers = read_answers(run.folder)
    write_answers(run.folder, type(answers)(**{**vars(answers), **change(answers)}))
    (report,) = verify([tmp_path / "runs"], answered[0] / "data")
    _, finding = report.tables
    assert finding.rejected and re.search(message, finding.why())


@pytest.fixture(scope="module")
def published(answered, cli):
    folder, _ = answered
    done = cli(folder, "publish", "--dataset", "shapes", "--output", "boards").ok()
    assert "answers: CRM type-II is left out" in done.said
    return loose(folder / "boards")


def test_a_publication_has_answers(published):
    names = {"shapes-answers.md", "shapes-answers.json", "shapes-answers.svg"}
    assert names <= {path.name for path in published.iterdir()}
    page = (published / "shapes-answers.md").read_text()
    assert page.startswith("# Shapes (generated): answers") and "## Mistakes and the tree" in page
    assert "answers under decision rules](shapes-answers.md)" in (published / "shapes.md").read_text()
    assert len(list(published.glob(f"shapes/*/{ANSWERS_FILE}"))) == 4


def test_published_answers_are_verified_without_scores(published, tmp_path):
    shutil.copytree(published, tmp_path / "boards")
    (report,) = verify([tmp_path / "boards"], tmp_path / "no-data")
    assert report.num_rejected == 0 and [finding.notes for finding in report.tables] == [[], [NODES_CLAIMED]]
    table = tmp_path / "boards/shapes-answers.json"
    content = json.loads(table.read_text())
    content["rows"][3]["coverage"] += 1.0
    table.write_text(json.dumps(content))
    (report,) = verify([tmp_path / "boards"], tmp_path / "no-data")
    assert [finding.why() for finding in report.tables if finding.rejected] == [
        f"the row {content['rows'][3]['rule']} {content['rows'][3]['title']} type-II: coverage is "
        f"{content['rows'][3]['coverage']!r}, the answers give {content['rows'][3]['coverage'] - 1.0!r}"
    ]


def test_another_page_is_noted_and_a_table_is_that_of_all_rules(published, tmp_path):
    shutil.copytree(published, tmp_path / "boards")
    page = tmp_path / "boards/shapes-answers.md"
    page.write_text(page.read_text() + "more\n")
    (report,) = verify([tmp_path / "boards"], tmp_path / "no-data")
    assert any("is not what this version writes" in note for finding in report.tables for note in finding.notes)
    for file in (tmp_path / "boards/shapes").glob(f"*/{ANSWERS_FILE}"):
        file.unlink()
    (report,) = verify([tmp_path / "boards"], tmp_path / "no-data")
    assert [finding.why() for finding in report.tables if finding.rejected] == [
        "no row has answers of all its runs, or its tree is not here"
    ]


def test_the_site_has_a_page_of_answers(published, cli, tmp_path):
    cli(tmp_path, "site", "build", published, "--output", "site").ok()
    (page,) = (tmp_path / "site").rglob("answers.html")
    assert "Majority" in page.read_text()
    assert 'href="answers.html"' in (page.parent / "index.html").read_text()
