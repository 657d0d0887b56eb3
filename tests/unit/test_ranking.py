"""Rows that lack seeds of a table: shown in every format, and neither marked nor grouped."""

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierbench.experiments.verification.checked import checked_board, checked_runs
from hierbench.leaderboard.board import Board, board_from_paper, board_from_runs
from hierbench.leaderboard.columns import PAPER
from hierbench.leaderboard.ranking import mark, rank, table_seeds
from hierbench.leaderboard.render import as_csv, as_json, html, html_page, latex, markdown
from hierbench.leaderboard.statistics import METRICS, Row, summarise
from hierbench.leaderboard.ties import tied_rows
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError

PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published/tiny-imagenet-frozen"
HOSTILE = r"\input{x} <script>alert(1)</script> | $x^2$ & {"


def row_of(method, values, seeds=None, title=None, planned=3):
    cells = {name: summarise([50.0 + value for value in values]) for name in METRICS}
    cells["mistake_severity"] = summarise(values)
    seeds = list(range(len(values)) if seeds is None else seeds)
    return Row("type-I", method, title or method, len(values), planned, cells, ["id"] * planned, seeds=seeds)


def board_of(rows, planned=3):
    return Board("shapes", "paper", "height", rows, seeds=rank(rows, planned))


@pytest.fixture
def board():
    """Rows of which some lack seeds: with the best numbers, with a hostile title, without any run."""
    rows = [
        row_of("lucky", [1.0, 1.1], title=HOSTILE),
        row_of("whole", [2.0, 2.1, 2.2]),
        row_of("near", [2.0, 2.1, 2.3]),
        row_of("chosen", [0.5, 0.6, 0.7], [0, 1, 5]),
        row_of("more", [2.04, 2.1, 2.2, 2.3], planned=4),
        row_of("far", [9.0, 9.1, 9.2001]),
        row_of("none", []),
    ]
    return board_of(rows)


def test_seeds_of_a_table():
    assert table_seeds([range(5), range(3), range(20)], planned=5) == (0, 1, 2, 3, 4)
    assert table_seeds([range(3), range(2)], planned=5) == (0, 1, 2)  # none has all that are planned
    assert table_seeds([[0, 1, 3], [0, 1, 2], [0, 1, 3]], planned=5) == (0, 1, 3)
    assert table_seeds([[0, 1, 3], [0, 1, 2]], planned=5) == (0, 1, 2)
    assert table_seeds([[7, 8, 9], [0]], planned=3) == (0,)
    assert table_seeds([[], []], planned=3) == table_seeds([], planned=3) == ()


@given(st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=8), st.integers(0, 6))
def test_a_row_is_ranked_exactly_if_it_has_all_seeds_of_the_table(held, planned):
    rows = [row_of(f"m{n}", [2.0 + 0.1 * seed for seed in sorted(of)], sorted(of)) for n, of in enumerate(held)]
    seeds = rank(rows, planned)
    assert set(seeds) <= set(range(planned))
    for row in rows:
        assert row.lacking == [seed for seed in seeds if seed not in row.seeds]
        assert not (row.lacking and (row.competitive or any(c.best or c.groups for c in row.metrics.values())))
    complete = [row for row in rows if not row.lacking]
    assert complete and max(len(set(row.seeds) & set(range(planned))) for row in rows) == len(seeds)
    more = [[*row.metrics["mistake_severity"].values, 2.0] for row in rows]
    beyond = [row_of(row.method, values, [*row.seeds, 11]) for row, values in zip(rows, more, strict=True)]
    assert rank(beyond, planned) == seeds and [row.lacking for row in beyond] == [row.lacking for row in rows]


def test_rows_that_lack_seeds_take_no_marks(board):
    assert board.seeds == (0, 1, 2)
    assert [row.lacking for row in board.rows] == [[2], [], [], [2], [], [], [0, 1, 2]]
    assert [row.method for row in board.rows if row.competitive] == ["whole", "near"]
    assert [row.method for row in board.rows if row.metrics["mistake_severity"].best] == ["whole"]
    for metric, near, far in (("mistake_severity", "a", "b"), ("top1", "b", "a")):  # `far` is better in all others
        groups = {row.method: "".join(row.metrics[metric].groups) for row in board.rows}
        assert groups == {"lucky": "", "whole": near, "near": near, "chosen": "", "more": near, "far": far, "none": ""}
    mark(board.rows[:2], PAPER, (0, 1))  # marks of before are removed
    assert not board.rows[0].competitive and board.rows[1].metrics["top1"].best


def test_two_seeds_do_not_take_the_marks_of_three(tmp_path):
    """A copy of published runs: a method that keeps its two best seeds of five has the smallest severity."""
    specs = {path.parent.name: json.loads(path.read_text()) for path in PUBLISHED.glob("*/spec.json")}
    for run_id, spec in specs.items():
        name, seed = spec["method"]["name"], spec["seed"]
        if spec["type"] == "type-I" and (
            name in ("ce", "soft_labels", "hxe") or (name == "hiercos" and seed in (1, 3))
        ):
            shutil.copytree(PUBLISHED / run_id, tmp_path / run_id)
    found = board_from_runs("tiny-imagenet-frozen", Store(tmp_path))
    rows = {row.method: row for row in found.rows}
    assert found.seeds == (0, 1, 2, 3, 4) and rows["hiercos"].lacking == [0, 2, 4] and rows["hiercos"].n == 2
    assert rows["hiercos"].planned == 2  # its missing seeds are unknown to its own records
    least = min(rows.values(), key=lambda row: row.metrics["mistake_severity"].mean)
    assert least.method == "hiercos" and not least.competitive
    assert {row.method for row in found.rows if row.competitive} == {"ce", "soft_labels", "hxe"}
    # In the table of one command, the seeds are those that it planned.
    of_command = board_from_runs("tiny-imagenet-frozen", Store(tmp_path), rows["hiercos"].runs)
    assert of_command.seeds == (1,) and of_command.rows[0].competitive
    rejected = board_from_runs("tiny-imagenet-frozen", Store(tmp_path), rejected=rows["ce"].runs[:1])
    (ce,) = (row for row in rejected.rows if row.method == "ce")
    assert (ce.n, ce.planned, ce.seeds, ce.lacking, ce.competitive) == (4, 5, [1, 2, 3, 4], [0], False)


def test_markdown_names_what_they_lack(board):
    text = markdown(board)
    assert "whole \\*" not in text and "| whole *" in text
    assert text.count("not ranked") == 3 and "(lacks seeds 0-2; not ranked)" in text
    assert "{ (lacks seed 2; not ranked) |" in text and "<script>" not in text.replace(r"\<script>", "")
    assert text.count("Letters: rows that share none in a column differ") == 1
    assert "over all 30 comparisons of the table" in text  # four ranked rows, five columns
    assert len(board.rows) == sum(line.startswith("| type-I") for line in text.splitlines())


def test_csv_and_json_have_them(board):
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(as_csv(board)))}
    assert [rows[name]["lacking"] for name in ("lucky", "whole", "none")] == ["2", "", "0 1 2"]
    assert rows["whole"]["mistake_severity groups"] == "a" and rows["lucky"]["top1 groups"] == ""
    content = json.loads(as_json(board))
    of = {row["method"]: row for row in content["rows"]}
    assert content["seeds"] == [0, 1, 2] and of["none"]["lacking"] == [0, 1, 2] and "lacking" not in of["whole"]
    assert of["whole"]["metrics"]["top1"]["groups"] == ["b"] and "groups" not in of["lucky"]["metrics"]["top1"]
    assert "lacking" not in as_csv(board_from_paper("fgvc")) and "groups" not in as_csv(board_from_paper("fgvc"))


def test_html_is_grey(board):
    root = ElementTree.fromstring(html(board))
    grey = [row[1].text for row in root.find("tbody") if row.get("style", "").startswith("color:")]
    assert len(grey) == 3 and any(text.startswith(HOSTILE) for text in grey)
    assert {element.tag for element in root.iter()} <= {
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "b", "sup"),
    }
    assert {letters.text for letters in root.iter("sup")} <= {"a", "b"} and "Letters: " in root.find("caption").text
    page = html_page(board)
    assert page.startswith("<!DOCTYPE html>") and html(board) in page and "<script" not in page


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex: install texlive-latex-extra")
def test_latex_is_grey_and_compiles(tmp_path, board):
    text = latex(board)
    (line,) = (line for line in text.splitlines() if "lacks seeds 0-2" in line)
    assert line.startswith(r" & \color{gray}none (lacks seeds 0-2; not ranked)")
    assert r"\textsuperscript{a}" in text and r"\input{" not in text and text.count(r"\color{gray}") == 3 * 6
    (tmp_path / "table.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_table_of_one_seed_has_no_letters():
    single = board_of([row_of("a", [2.0], planned=1), row_of("b", [2.1], planned=1)], planned=1)
    assert single.seeds == (0,) and "Letters" not in markdown(single) and single.rows[0].competitive
    assert not any(cell.groups for row in single.rows for cell in row.metrics.values())


def test_rows_that_are_not_of_runs():
    """Beside runs they are not marked and lack nothing; alone, scored rows are marked as ever."""
    scored = row_of("mine", [0.1])
    scored.scored = True
    rows = [row_of("ce", [2.0, 2.1, 2.2]), scored]
    assert rank(rows, 3) == (0, 1, 2) and not scored.lacking and not scored.competitive and rows[0].competitive
    assert rank([scored], 3) == () and scored.competitive
    paper = board_from_paper("cifar100")
    assert paper.seeds == () and not any(row.lacking for row in paper.rows) and "Letters" not in markdown(paper)


def test_without_a_recipe_most_rows_decide():
    rows = [row_of("a", [2.0, 2.1]), row_of("b", [2.0, 2.1]), row_of("c", [2.0] * 9)]
    rows[0].planned, rows[1].planned, rows[2].planned = 2, 2, 9
    assert rank(rows) == (0, 1) and not any(row.lacking for row in rows)


def test_a_table_of_fewer_seeds_than_the_recipe_plans_says_so(tmp_path):
    for path in PUBLISHED.glob("*/spec.json"):
        spec = json.loads(path.read_text())
        if spec["type"] == "type-I" and spec["method"]["name"] in ("ce", "hxe") and spec["seed"] < 4:
            shutil.copytree(path.parent, tmp_path / path.parent.name)
    store, said = Store(tmp_path), "the recipe plans 5 seeds"
    found = board_from_runs("tiny-imagenet-frozen", store)
    assert found.seeds == (0, 1, 2, 3) and said in found.remark.split("; ") and said in markdown(found)
    of_command = board_from_runs("tiny-imagenet-frozen", store, found.rows[0].runs)
    assert "the recipe plans" not in of_command.remark  # a command says itself how many
    assert "the recipe plans" not in board_from_runs("tiny-imagenet-frozen", Store(PUBLISHED)).remark


def test_rows_rejected_for_a_gap_or_only_claimed_are_not_ranked_and_do_not_set_the_seeds_of_others(tmp_path):
    """Seeds 0, 1, 3 and 4 of a row, and five of one without predictions, are no reason to exclude rows with 0 to 2."""
    shutil.copy(PUBLISHED / "targets.npy", tmp_path)
    for path in PUBLISHED.glob("*/spec.json"):
        spec = json.loads(path.read_text())
        name, seed = spec["method"]["name"], spec["seed"]
        kept = {"ce": (0, 1, 3, 4), "hxe": (0, 1, 2), "barz_denzler": (0, 1, 2), "soft_labels": range(5)}.get(name, ())
        if spec["type"] == "type-I" and seed in kept:
            ignored = shutil.ignore_patterns("predictions-compact.npz" if name == "soft_labels" else "")
            shutil.copytree(path.parent, tmp_path / path.parent.name, ignore=ignored)
    found, report = checked_board("tiny-imagenet-frozen", Store(tmp_path), tmp_path / "no-data")
    rows = {row.method: row for row in found.rows}
    assert [row.label for row in report.rows if row.rejected] == ["tiny-imagenet-frozen ce type-I"]
    assert found.seeds == (0, 1, 2) and rows["ce"].verdict == "rejected"
    assert not rows["hxe"].lacking and not rows["barz_denzler"].lacking and rows["hxe"].metrics["top1"].groups
    assert rows["soft_labels"].verdict == "claimed" and rows["soft_labels"].n == 5 and not rows["soft_labels"].lacking
    for row in (rows["ce"], rows["soft_labels"]):
        assert not row.competitive and not any(cell.groups or cell.best for cell in row.metrics.values())
    with pytest.raises(UserError, match="soft labels is only claimed"):
        tied_rows(found, PAPER[0], ["soft_labels", "hxe"])
    counted, _ = checked_runs("tiny-imagenet-frozen", Store(tmp_path), tmp_path / "no-data")  # as other commands see it
    again = board_from_runs("tiny-imagenet-frozen", counted).rows
    assert {row.verdict for row in again if row.method == "soft_labels"} == {"claimed"} and not again[0].verdict
    assert any(rows[name].competitive for name in ("hxe", "barz_denzler"))
    assert found.remark.split("; ").count("the recipe plans 5 seeds") == 1
