import csv
import io
import json
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from hierbench.leaderboard.board import Board, board_from_paper
from hierbench.leaderboard.render import FORMATS, as_csv, as_json, latex, markdown
from hierbench.leaderboard.statistics import METRICS, Cell, Row, highlight
from tests.judge.compare import TABLES, differing_texts


@pytest.fixture
def board():
    """A row of each kind: complete, incomplete, failed, without severity, with a title that needs escaping."""

    def row(kind, method, mean, n=3, title=None):
        cells = {metric: Cell(mean, 0.1 if mean is not None and n > 1 else None, [1.0] * n) for metric in METRICS}
        return Row(kind, method, title or method, n, 3, cells, ["id"] * 3)

    rows = [
        row("type-II", "b", 2.0),
        row("type-I", "z_1", 2.04, n=1, title="z_1 & 100% {of} ~^\\ #$<é>"),
        row("type-I", "a", None, n=0),
    ]
    highlight(rows)
    return Board("shapes", "paper", "height", rows)


def test_markdown(board):
    lines = markdown(board).splitlines()
    assert lines[0].split("|")[1].strip() == "Model"
    assert [line.split("|")[2].strip() for line in lines[2:5]] == ["a", "z_1 & 100% {of} \\~^\\\\ #$\\<é> *", "b *"]
    assert lines[2].count(" - ") >= 5
    assert "0 of 3" in lines[2] and "1 of 3" in lines[3] and "**2.00 +/- 0.1000**" in lines[4]


def test_a_row_without_runs_adds_no_column(board):
    """A job that failed has an empty cell of every metric, also of those that a small tree does not have."""
    for row in board.rows[:2]:
        del row.metrics["hierdist@20"]
    assert "HierDist@20" not in markdown(board) and "hierdist@20 mean" not in as_csv(board).splitlines()[0]
    assert "hierdist@5" in as_csv(board).splitlines()[0] and "HierDist@20" not in latex(board)
    board.rows = board.rows[2:]  # where nothing is finished, all columns are there
    assert "HierDist@20" in markdown(board)


def test_a_notebook_shows_a_table_and_nothing_of_the_data_acts(board):
    board.dataset, board.remark = "<i>data", "<script>alert(1)</script>"
    board.rows[0].title, board.rows[0].type = "<img src=x onerror=alert(1)>", "a & b"
    board.rows[1].tuning = {"trials": "<b>4", "runs": 2, "study": "<u>"}
    text = board._repr_html_()
    root = ElementTree.fromstring(text)  # well-formed, so that every bracket of the data is escaped
    assert {element.tag for element in root.iter()} == {
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "b"),
    }
    assert root.find("caption").text.startswith("<i>data, protocol paper") and "<script>" in root.find("caption").text
    cells = [["".join(cell.itertext()) for cell in row] for row in root.find("tbody")]
    assert [row[1] for row in cells] == ["<img src=x onerror=alert(1)> *", "a", "z_1 & 100% {of} ~^\\ #$<é> *"]
    assert cells[0][2] == "2.00 +/- 0.1000" and cells[2][-2:] == ["1 of 3", "<b>4 x 2"]
    assert len(root.findall(".//b")) == len(METRICS)  # the best of the competitive


def test_repr_is_short(board):
    assert repr(board) == "<Board shapes, protocol paper: 3 rows, 4 of 9 runs>"
    assert repr(board_from_paper("fgvc")) == "<Board fgvc, protocol published: 9 rows, 45 of 45 runs>"


def test_a_pipe_in_a_title_does_not_break_the_table(board):
    board.rows[0].title = "a|b"
    line = next(line for line in markdown(board).splitlines() if "b" in line and "type-II" in line)
    assert line.replace("\\|", "").count("|") == 9


def test_csv(board):
    rows = list(csv.DictReader(io.StringIO(as_csv(board))))
    assert [row["method"] for row in rows] == ["a", "z_1", "b"]
    assert rows[2]["top1"] == "2.0" and rows[2]["top1 ci95"] == "0.1" and rows[2]["competitive"] == "1"
    assert rows[0]["top1"] == "" and rows[0]["n"] == "0"


def test_json_keeps_the_contract(board):
    content = json.loads(as_json(board))
    assert set(content) == {"schema", "dataset", "protocol", "distance", "rows"}
    assert set(content["rows"][0]) == {
        "type", "method", "title", "n", "planned", "competitive", "metrics", "runs"
    }  # fmt: skip
    assert set(content["rows"][0]["metrics"]) == set(METRICS)
    assert set(content["rows"][0]["metrics"]["top1"]) == {"mean", "ci95", "values", "best"}
    assert content["rows"][0]["metrics"]["top1"]["mean"] is None
    assert content["rows"][2]["metrics"]["top1"]["mean"] == 2.0


def test_latex_has_the_papers_look():
    text = latex(board_from_paper("fgvc"))
    assert r"\multirow{4}{*}{Type-I}" in text and r"\multirow{5}{*}{Type-II}" in text
    assert r"\cellcolor{blue!35}81.00 +/- 0.5873" in text
    assert r"\cellcolor{blue!15}2.04 +/- 0.0343" in text
    assert "\n & 79.18 +/- 0.5511" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex: install texlive-latex-extra")
@pytest.mark.parametrize("name", ["paper", "odd"])
def test_latex_compiles(tmp_path, board, name):
    text = latex(board if name == "odd" else board_from_paper("tieredimagenet-h"))
    (tmp_path / "table.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "table.pdf").stat().st_size > 1000


SMALL = {  # a table in each format, and the same with another cell
    "markdown": ("above\n| A | B |\n|:--|--:|\n| a \\| b | **1.0** |\nbelow\n", "**1.0**", "1.0"),
    "csv": ('A,B\n"a | b",1.0\n', "1.0", "1.00"),
    "html": ("<p>1</p><table><tr><th>A<th>B</tr><tr><td>a | b</td><td><b>1.0</b></td></table>", "<b>1.0</b>", "1.0"),
    "latex": (
        r"\begin{tabular}{c|c} A & B \\ \hline \multirow{1}{*}{a | b} & \cellcolor{blue!35}1.0 \\ \end{tabular}",
        "blue!35",
        "blue!15",
    ),
    "json": ('{"a": [{"b": 1.0, "time": "x"}]}', '"b"', '"c"'),
    "yaml": ("---\na:\n- b: 1.0\n---\n", "1.0", "1.01"),
    "text": ("found 3 rows (0123456789ab) in 2.5 s\n", "3", "4"),
}


@pytest.mark.parametrize("kind", SMALL)
def test_the_judge_sees_cells_and_not_what_is_around_them(kind):
    text, old, new = SMALL[kind]
    if kind in TABLES:
        (table,) = TABLES[kind](text)
        assert [line[0].replace("\\", "") for line in table] == ["A", "a | b"] and "1.0" in table[1][1]
    around = text.replace("above", "other").replace("<p>1", "<p>2").replace(r"\hline", r"\midrule").replace("2.5", "7")
    assert not [*differing_texts(text, around, kind)]
    assert len([*differing_texts(text, text.replace(old, new), kind)]) == (2 if kind == "json" else 1)


@pytest.mark.parametrize("name", TABLES)
def test_the_judge_reads_every_format(name):
    (table,) = TABLES[name](FORMATS[name](board_from_paper("cifar100")))
    assert len(table) == 10 and "cross-entropy" in table[1] and "77.65" in " ".join(table[1])
