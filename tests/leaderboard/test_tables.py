"""Every table in every format: it parses, shows each cell, escapes the data, and has the numbers of the records."""

import csv
import io
import json
import math
import re
import shutil
from dataclasses import FrozenInstanceError, replace
from html import escape
from xml.etree import ElementTree

import pytest

from hierbench.leaderboard.ablation_table import ablation_from_paper, ablation_table, with_best_means
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column, find_column
from hierbench.leaderboard.differences import compare_rows
from hierbench.leaderboard.formats import TABLE_FORMATS, html, render, terminal
from hierbench.leaderboard.formats.latex import latex_escaped
from hierbench.leaderboard.ledger import build_ledger, ledger_table
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, Summary
from hierbench.leaderboard.table import CHECK, COMPARISON_ARROWS, CROSS, Flag, Interval, Line, Number, Table, Text
from hierbench.leaderboard.tables.board_table import BOLD, STAR, board_table
from hierbench.leaderboard.tables.differences_table import differences_table
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from hierbench.studies.scoring.score_report import Report, report_table
from hierbench.studies.scoring.scores import Result
from hierbench.utils.errors import UserError
from tests.support.pages import typeset

NAME = "grocery-finetuned"
HOSTILE = r"\input{x} <script>alert(1)</script> | $x^2$ & {~_#%} é"
FORMULA = "=1+1|x"
SHOWN = ("markdown", "terminal", "html", "latex")  # cells as they are printed
NO_PDFLATEX = "no pdflatex: install texlive-latex-extra, as CI does"
TABLES = (
    *("board", "paper", "differences"),
    *("ledger", "ablation", "printed ablation", "report", "cells"),
)
CELLS = Table(
    title=HOSTILE,
    columns=["Model", "Name", "Top-1 ↑", "Gap", "Kept", "E_C|<b>t"],
    rows=[
        Line(
            [Text("a"), Text("x", small=HOSTILE, star=True), Interval(2.0, 0.1, strong=True, versus="better"),
             Number(-0.5, "+.1f"), CHECK, Flag("no")]
        ),
        Line([Text("a"), Text(FORMULA, link="x.html"), Interval(-2.04, None, 3), Number(None), CROSS, Flag("")]),
        Line([Text("b"), Text("-0.5"), Interval(None, None), Number(math.nan), CROSS, Flag(HOSTILE)], "lacking"),
        Line([Text(HOSTILE), Text("@z"), Interval(0.5, 0.25, 1, ci_digits=4, signed=True, small="d +0.5"),
              Number(1e-5, ".0e"), CHECK, Flag("yes")], "printed"),
    ],
    notes=[f"First: {HOSTILE}.", "Second."], items=[HOSTILE], above=[HOSTILE], star="starred", bold="emboldened",
    arrows="worse than x", merged=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def store(copied, tmp_path_factory):
    """Published runs of three methods, of one without its last seed."""

    def takes(spec):
        name = spec["method"]["name"]
        return spec["type"] == "type-II" and (name in ("ce", "hafeature") or (name == "flamingo" and spec["seed"] < 4))

    return Store(copied(tmp_path_factory.mktemp("runs"), takes))


@pytest.fixture(scope="module")
def board(store):
    """A board with a row that lacks a seed, a tuned one, and names made to harm."""
    plain = Board.of(NAME, read_records(store.root))
    titles = {"hafeature": HOSTILE, "flamingo": FORMULA}
    rows = [replace(row, title=titles.get(row.method, row.title)) for row in plain.rows]
    rows[0] = replace(rows[0], tuning={"trials": "<b>4", "runs": 2, "study": "<u>"})
    return replace(plain, rows=tuple(rows), remarks=(HOSTILE,))


@pytest.fixture(scope="module")
def tables(board, store):
    """Every table, by its name in TABLES."""
    rows = [
        Row("type-I", "ce", FORMULA, 5, 5, dict.fromkeys(PAPER_METRICS, Summary(2.0, 0.1))),
        Row("type-II", "ce", HOSTILE, 3, 5, dict.fromkeys(PAPER_METRICS, Summary(1.0, 0.1)), lacking=(3, 4)),
        Row("type-II", "haframe", "-x", 5, 5, dict.fromkeys(PAPER_METRICS, Summary(None, None))),
        Row("type-II", "haframe", "b", 5, 5, dict.fromkeys(PAPER_METRICS, Summary(1.5, 0.1))),
    ]
    result = Result(HOSTILE, 10, dict.fromkeys(PAPER_METRICS, 0.5), dict.fromkeys(PAPER_METRICS, (0.25, 0.75)), [])
    return {
        "board": board_table(board),
        "paper": board_table(Board.paper("tieredimagenet-h", others=True)),
        "differences": differences_table(board, compare_rows(board, "ce")),
        "ledger": ledger_table(build_ledger(replace(board, dataset="cifar100"), Board.paper("cifar100"))),
        "ablation": ablation_table([(HOSTILE, with_best_means(Board("d", "paper", "height", rows, (HOSTILE,))))]),
        "printed ablation": ablation_table(ablation_from_paper("all")),
        "report": report_table(Report(FORMULA, HOSTILE, "height", [result], 1000, 0)),
        "cells": CELLS,
    }


def parts_of(cell):
    """What a reader must find of a cell; digits are counted here again."""
    if isinstance(cell, Interval):
        if cell.mean is None:
            return ["-"]
        width = cell.digits if cell.ci_digits is None else cell.ci_digits
        mean = f"{cell.mean:{'+' if cell.signed else ''}.{cell.digits}f}"
        interval = mean if cell.ci95 is None else f"{mean} +/- {cell.ci95:.{width}f}"
        return [interval, COMPARISON_ARROWS.get(cell.versus, ""), cell.small]
    if isinstance(cell, Number):
        return ["-" if cell.value is None or math.isnan(cell.value) else format(cell.value, cell.form), cell.small]
    if isinstance(cell, Flag):
        return [cell.text]
    return [cell.text, cell.small, *(["*"] if cell.star else [])]


def shown_cells(table, form):
    """The cells of a rendered table as a reader sees them."""
    text = render(table, form)
    if form == "markdown":
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
        assert len(lines[0]) == len(table.columns)
        return [[re.sub(r"\\(.)", r"\1", cell) for cell in cells] for cells in lines[2:]]
    if form == "terminal":
        lines = text.splitlines()
        start = next(n for n, line in enumerate(lines) if all(column in line for column in table.columns)) + 1
        start += lines[start].startswith("--")
        return [[line] * len(table.columns) for line in lines[start : start + len(table.rows)]]
    if form == "latex":
        lines = [line for line in text.replace("--", "-").splitlines() if re.match(r"\{\}.* \\\\$", line)]
        return [line[2:-3].split(" & ") for line in lines]
    root = ElementTree.fromstring(text[text.index("<table") : text.index("</table>") + len("</table>")])
    plain = str.maketrans({"\N{MINUS SIGN}": "-", "±": "+/-", "\u202f": " ", "–": "-", "★": "*"})
    return [["".join(cell.itertext()).translate(plain) for cell in row] for row in root.find("tbody")]


@pytest.mark.parametrize("form", SHOWN)
@pytest.mark.parametrize("name", TABLES)
def test_every_cell_and_sentence_is_shown(tables, name, form):
    table, escaped = tables[name], {"latex": latex_escaped, "html": escape}.get(form, str)
    text = render(table, form)
    text = re.sub(r"\\([*<|~_`\\])", r"\1", text) if form == "markdown" else text
    assert all(escaped(sentence) in text for sentence in (*table.notes, *table.above, *table.items))
    shown = shown_cells(table, form) if table.rows else []
    for place, (line, cells) in enumerate(zip(table.rows, shown, strict=True)):
        assert len(cells) == len(line.cells) == len(table.columns)
        for column, (cell, shown) in enumerate(zip(line.cells, cells, strict=True)):
            if form == "latex" and column < table.merged and place and cell == table.rows[place - 1].cells[column]:
                continue  # printed once
            for part in parts_of(cell):
                if form == "latex":  # stars are shades, flags are marks
                    part = {"*": r"\cellcolor{blue!", "✓": r"\cmark", "✗": r"\xmark"}.get(part) or latex_escaped(part)
                assert part in shown


@pytest.mark.parametrize("name", TABLES)
def test_csv_and_json_have_the_numbers_of_the_records(tables, name):
    table = tables[name]
    records, text = table.as_records(), render(table, "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(records) and text.startswith(",".join(records[0] if records else table.keys) + "\n")
    for row, record in zip(rows, records, strict=True):
        for key, value in record.items():
            if value is None:
                assert row[key] == ""
            elif isinstance(value, float):
                assert float(row[key]) == value or math.isnan(value)
            elif isinstance(value, list | tuple):
                assert row[key] == " ".join(map(str, value))
            else:  # no spreadsheet computes it
                assert row[key] == ("'" if value in (FORMULA, "-x", "@z") else "") + str(value)
    content = json.loads(render(table, "json"))
    assert content["schema"] == 1
    numbers = {float(value) for value in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text + json.dumps(content))}
    names = ["value", "mean", *(["ci95"] if name != "boards" else [])]  # of a row that is gone there is the mean alone
    shown = [getattr(cell, part, None) for line in table.rows for cell in line.cells for part in names]
    assert all(value is None or math.isnan(value) or value in numbers for value in shown)


@pytest.mark.parametrize("name", TABLES)
def test_html_explains_its_marks_and_nothing_in_the_data_acts(tables, name):
    table = tables[name]
    page, cells = render(table, "html"), [cell for line in table.rows for cell in line.cells]
    part = html.notebook(table)
    root = ElementTree.fromstring(part)  # well-formed, so that every bracket of the data is escaped
    elements = {(element.tag, *sorted(element.keys())) for element in root.iter()}
    of_data = {"script", "img", "i"} | ({"u"} if not table.underline else set())
    assert not {tag for tag, *_ in elements} & of_data
    assert not any("on" in key[:2] for _, *keys in elements for key in keys)
    assert (
        page.startswith("<!DOCTYPE html>")
        and html.fragment(table) in page
        and html.style() in page
        and html.style() in part
    )
    assert 'name="viewport" content="width=device-width' in page  # read on a telephone
    legend = "".join(text for p in root.iter("div") if p.get("class") == "legend" for text in p.itertext())
    assert ("★" in legend) == ("★" in part) == bool(table.star and any(line.starred for line in table.rows))
    assert ("Bold: " in legend) == bool(table.bold) and table.star in legend and table.bold in legend
    assert ("±: half the width of the 95% interval." in legend) == any(isinstance(cell, Interval) for cell in cells)
    assert all(" ".join(note.split()) in legend for note in table.notes)


@pytest.mark.skipif(not shutil.which("pdflatex"), reason=NO_PDFLATEX)
@pytest.mark.parametrize("names", [("board",), TABLES], ids=["one", "all"])
def test_latex_compiles(tmp_path, tables, names):
    """In one document, with the packages that their comments name."""
    for name in names:
        (tmp_path / f"{name}.tex").write_text(render(tables[name], "latex"), encoding="utf-8")
    done = typeset(tmp_path, names)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Float too large" not in done.stdout and (tmp_path / "document.pdf").stat().st_size > 1000


def test_a_table_without_records_derives_them_from_its_cells():
    keys = ["Model", "Name", "Top-1", "Top-1 ci95", "Gap", "Kept", "E_C|<b>t"]
    assert render(CELLS, "csv").splitlines()[0].split(",") == keys
    rows = json.loads(render(CELLS, "json"))["rows"]
    assert [list(row) for row in rows] == [keys] * 4 and rows[0]["Top-1"] == 2.0 and rows[2]["Gap"] is None
    assert render(replace(CELLS, rows=[]), "csv") == "Model,Name,Top-1,Gap,Kept,E_C|<b>t\n"
    assert set(TABLE_FORMATS) == {*SHOWN, "csv", "json"}
    with pytest.raises(UserError, match="did you mean 'markdown'"):
        render(CELLS, "markdwon")


def test_a_board_names_missing_seeds_and_explains_its_marks(board):
    table = board_table(board)
    text = render(table)
    assert text.count("not ranked") == 1 and "=1+1\\|x (lacks seed 4; not ranked)" in text
    note = "better, ▼ worse than cross-entropy of its type: p below 0.05 over seeds after Holm's correction over 5"
    assert note in text
    assert r"\<b>4 x 2" in text and rf"\* {STAR}. **Bold**: {BOLD}." in text
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(render(table, "csv")))}
    assert [rows[name]["lacking"] for name in ("ce", "flamingo")] == ["", "4"]
    arrows = {row["method"]: row["hierdist@20 versus ce"] for row in rows.values()}
    assert arrows == {"ce": "", "flamingo": "", "hafeature": ""}
    assert [line for line in render(table, "html").splitlines() if line.startswith('<tr class="lacking">')]
    lines = render(table, "latex").splitlines()
    (grey,) = (line for line in lines if r"lacks seed 4" in line)
    assert grey.count(r"\color{gray}") == len(table.columns) - 1 and r"\bigtriangleup" in "".join(lines)
    assert all("▼" not in render(board_table(Board.paper("fgvc")), form) for form in TABLE_FORMATS)


def test_json_of_a_board_keeps_the_contract(board):
    content = json.loads(render(board_table(board), "json"))
    assert set(content) == {"schema", "dataset", "protocol", "distance", "rows", "seeds"}
    ce, flamingo = content["rows"][:2]
    keys = {"type", "method", "title", "n", "planned", "competitive", "metrics", "runs"}
    assert set(ce) == keys | {"seeds", "tuning", "verdict"} and set(flamingo) == keys | {"seeds", "verdict", "lacking"}
    assert set(ce["metrics"]) == set(PAPER_METRICS) and set(flamingo["metrics"]["top1"]) == {
        "mean",
        "ci95",
        "values",
        "best",
    }
    assert (content["seeds"], flamingo["lacking"]) == ([0, 1, 2, 3, 4], [4])
    chosen = replace(board, columns=(find_column("mistake_severity"), find_column("top1")))
    assert json.loads(render(board_table(chosen), "json"))["columns"] == ["mistake_severity", "top1"]
    paper = json.loads(render(board_table(Board.paper("fgvc")), "json"))
    assert set(paper) == {"schema", "dataset", "protocol", "distance", "rows"}
    assert set(paper["rows"][0]) == keys


def test_a_row_without_runs_adds_no_column(board):
    """A job that failed has an empty cell of every metric, also of those that a small tree does not have."""
    empty = replace(board.rows[0], n=0, metrics=dict.fromkeys(PAPER_METRICS, Summary(None, None)))
    cells = {name: cell for name, cell in board.rows[1].metrics.items() if name != "hierdist@20"}
    mixed = board_table(replace(board, rows=(empty, replace(board.rows[1], metrics=cells))))
    alone = board_table(replace(board, rows=(empty,)))  # where nothing is finished, all columns are there
    for form in (*SHOWN, "csv"):
        heading = "hierdist@20" if form == "csv" else "HierDist@20"
        assert heading not in render(mixed, form) and heading in render(alone, form)
        assert "0 of 5" in render(mixed, form) or form == "csv"
    pairs = compare_rows(board, "ce")
    few = [replace(pair, differences={"top1": pair.differences["top1"]}) for pair in pairs]
    assert "HierDist@20" in render(differences_table(board, pairs))
    assert "HierDist@20" not in render(differences_table(board, few))


def test_half_widths_have_the_digits_of_the_mean_but_for_the_papers_own(board):
    share = Column("share", "Share")
    rows = [replace(row, metrics={**row.metrics, "share": Summary(0.5, 0.06789)}) for row in board.rows]
    further = board_table(replace(board, rows=tuple(rows), columns=(find_column("top1"), share)))
    printed = board_table(Board.paper("fgvc"))
    for form, sign in (("markdown", "+/- "), ("terminal", "+/- "), ("latex", r"$\pm$ "), ("html", "±&#8239;")):
        text = render(further, form)
        assert re.search(rf"\d\d\.\d\d\D+{re.escape(sign)}\d\.\d\d\D", text) and f"{sign}0.0679" in text
        assert f"{sign}0.5873" in render(printed, form)
    text = render(printed, "latex")  # in the paper's look
    assert r"\multirow{4}{*}{type-I}" in text and r"\cellcolor{blue!35}81.00 $\pm$ 0.5873" in text
    assert r"\cellcolor{blue!15}2.04 $\pm$ 0.0343" in text and r" & 79.18 $\pm$ 0.5511" in text


def test_boards_rows_and_cells_are_never_changed(board):
    before, row = render(board_table(board), "json"), board.rows[0]
    for value in (board, row, row.metrics["top1"], board_table(board), CELLS.rows[0]):
        with pytest.raises(FrozenInstanceError):
            setattr(value, next(iter(vars(value))), None)
    assert isinstance(board.rows, tuple) and isinstance(row.runs, tuple) and isinstance(row.seeds, tuple)
    assert replace(board, rows=board.rows[::-1]) == board  # always in the order of a table
    assert render(board_table(board), "json") == before
    assert repr(board) == f"<Board {NAME}, protocol paper: 3 rows, 14 of 14 runs>"
    assert repr(Board.paper("fgvc", others=True)).endswith(" 45 of 45 runs>")


@pytest.mark.parametrize(
    ("form", "cell", "legend"),
    [
        ("markdown", "<u>70.00 +/- 0.10</u>", "<u>Underlined</u>: best of all"),
        ("latex", r"\underline{70.00 $\pm$ 0.10}", "Underlined: best of all"),
        ("html", "<u>70.00</u>", "<u>Underlined</u>: best of all"),
    ],
)
def test_the_best_of_all_is_underlined(form, cell, legend):
    rows = [Line([Text("a"), Interval(70.0, 0.1, underlined=True)])]
    text = render(Table("t", ["Method", "Top-1 ↑"], rows, ["A note."], underline="best of all"), form)
    assert cell in text and legend in text


@pytest.mark.parametrize("width", [80, 134])
def test_a_terminal_shows_a_table_within_its_width(tables, width, monkeypatch, capsys):
    """Numbers are whole, names are broken at most; bold and underlined are not written as signs."""
    monkeypatch.setenv("COLUMNS", str(width))
    table = tables["board"]
    terminal.show(table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width and "**" not in "".join(lines)
    numbers = [str(cell) for line in table.rows for cell in line.cells if isinstance(cell, Interval)]
    for number in numbers:
        assert any(number.replace(" +/- ", "±") in line for line in lines), number
