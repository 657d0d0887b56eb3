"""Names from data in HTML, LaTeX, markdown, CSV and figures are shown verbatim."""

import csv
import html.parser
import io
import json
import shutil
import xml.etree.ElementTree

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hierbench
from hierbench.leaderboard import ablation_table, ledger
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.formats.latex import LATEX_ARROWS, latex_escaped
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, Summary
from hierbench.leaderboard.tables.board_table import board_table
from hierbench.utils.text import REPLACEMENT, markdown_escaped, one_line
from tests.support.pages import typeset

HARM = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\" onmouseover='alert(1)' x=\"",
    "&lt;b&gt; &amp;",
    "{{ 7 * 7 }} {% raw %} << x >> <% if %> <# c #>",
    r"\input{/etc/passwd} \write18{id} \end{document}",
    "100% of $x_1^2$ & {a} #~",
    "^^M^^5cinput{x} ^^41",
    r"\\[1cm] \\* [x] *y*",
    "a | b || c",
    "line\nbreak\r\n\n| x | y |",
    "`code | <b>` [link](javascript:alert(1)) ![i](http://x/)",
    "\0\x07\x1b[31mred\x9b31m \u202e right \ud800 \u2028",
    "«Ð» Ąą ŋ ſ ¿¡ ß é ñ 猫 🐈",
    "-- --> ]]> <!-- ?> '' `` ,, << >>",
    "$\\frac{ unclosed $ \\$",
    "_hidden _x_ a_b",
    "=1+1 @x +y",
    "x" * 10_000,
    "",
]
TEXT = st.text(max_size=40) | st.sampled_from(HARM) | st.text("\\|`*_~<>&[](){}$%#^\n\r\"' a1", max_size=20)


def board_of(titles, remark=""):
    def row(number, title):
        cells = {metric: Summary(number / 7, 0.1, [number / 7]) for metric in PAPER_METRICS}
        return Row("type-I", f"m{number} {title}", title, 3, 3, cells, ["id"], number == 0)

    return Board(
        "data",
        "paper",
        "height",
        [row(number, title) for number, title in enumerate(titles)],
        (remark,) if remark else (),
    )


@given(TEXT)
def test_one_line(text):
    line = one_line(text)
    assert line.isprintable() or REPLACEMENT in line
    assert "\n" not in line and one_line(line) == line
    line.encode()
    assert len(one_line(text, 10)) <= 10


@given(st.lists(TEXT, min_size=1, max_size=4), TEXT)
def test_markdown_keeps_the_shape_of_the_table(targets, titles, remark):
    board = board_of(titles, remark)
    text = render(board_table(board))
    targets.check_table(text, len(titles))
    beside = ledger.build_ledger(board, Board.paper("fgvc"))
    targets.check_table(render(ledger.ledger_table(beside)), len(beside.lines))
    below = text.split("\n\n", 1)[1]
    assert below.count("\n") == (3 if remark else 2)


@given(TEXT)
def test_escaped_markdown_shows_the_text(text):
    """Without its backslashes before punctuation it is the line again, and nothing in it opens an element or a link."""
    escaped = markdown_escaped(text)
    shown, kept = "", ""
    rest = iter(escaped)
    for char in rest:
        following = next(rest) if char == "\\" else ""
        shown += following or char
        kept += "x" if following else char
    assert shown == one_line(text)
    assert not set(kept) & set("<`*|") and "](" not in kept


def is_computed(text):
    """Whether a spreadsheet takes a text for a formula."""
    try:
        float(text)
    except ValueError:
        return text.startswith(("=", "+", "-", "@"))
    return False


@given(TEXT)
def test_csv_and_json_come_back(text):
    board = board_of([text, "b"])
    rows = list(csv.DictReader(io.StringIO(render(board_table(board), "csv"), newline="")))
    line = one_line(text)
    assert [row["title"] for row in rows] == [f"'{line}" if is_computed(line) else line, "b"]
    assert json.loads(render(board_table(board), "json"))["rows"][0]["title"] == text


@given(TEXT)
@example("↑ of a column")
def test_tex_acts_upon_no_character(text):
    escaped = latex_escaped(text)
    for command in (
        r"\textbackslash{}",
        r"\textasciitilde{}",
        r"\textasciicircum{}",
        r"\textless{}",
        r"\textgreater{}",
        *LATEX_ARROWS.values(),
    ):
        escaped = escaped.replace(command, "")
    escaped = escaped.replace(r"\textbar{}", "")
    for char in r"&%$#_{}":
        escaped = escaped.replace("\\" + char, "")
    assert not set(escaped) & set("\\&%$#_{}~^<>|\n\0") and escaped.isprintable()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex: install texlive-latex-extra")
@pytest.mark.parametrize("kind", ["table", "ledger", "ablation"])
def test_tex_with_names_made_to_harm_compiles(tmp_path, kind):
    letters = "".join(map(chr, range(0xA0, 0x180)))
    titles = [*HARM[:-2], letters[:100], letters[100:]]
    board = board_of(titles, " ".join(HARM[:-2]))
    if kind == "ablation":
        rows = [
            Row(v.type, v.method, title, 3, 3, {}) for v, title in zip(ablation_table.VARIANTS, titles, strict=False)
        ]
        tables = [(title, Board("d", "paper", "height", rows, title)) for title in titles]
        table = ablation_table.ablation_table(tables)
    else:
        table = board_table(board) if kind == "table" else ledger.ledger_table(ledger.build_ledger(board, board))
    (tmp_path / "x.tex").write_text(render(table, "latex"), encoding="utf-8")
    done = typeset(tmp_path, ["x"])
    assert done.returncode == 0, done.stdout[-3000:]
    assert "root:" not in done.stdout


class Elements(html.parser.HTMLParser):
    """Counts what data could bring in: elements by name with their attributes' names."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, sorted(name for name, _ in attrs)))


def test_no_element_of_a_report_comes_from_data():
    """Names of classes, nodes, files and trees, each one to do harm, stand in the page as they are."""

    def page(names):
        paths = {f"{name} leaf {i}": (f"{names[0]} {i}", f"{name} leaf {i}") for i, name in enumerate(names)}
        tree = hierbench.Hierarchy.from_paths(paths)
        scores = np.random.default_rng(0).normal(size=(60, len(paths)))
        made = hierbench.report(
            scores, np.arange(60) % 3, tree, order="tree", against=-scores, name=names[1], resamples=100
        )
        return made.text()

    plain = Elements(page(["a", "b", "c"])).found
    for start in range(0, len(HARM) - 2, 3):
        names = [*HARM[start : start + 3], "x", "y"][:3]
        text = page(names)
        assert Elements(text).found == plain


def test_names_in_figures(tmp_path):
    """They are drawn as they stand: no mathematics, and nothing that breaks the file."""
    with style.house_style():
        figure = style.new_figure(16, 24)
        axes = figure.subplots()
        axes.set_yticks(range(len(HARM)), [style.plain(name, 28) for name in HARM])
        axes.set_title("\n".join(style.plain(name) for name in HARM))
        (handle,) = axes.plot([1, 2], [1, 2])
        rows = [Row("type-I", "m", name, 1, 1, {}, ["id"]) for name in HARM]
        style.legend_below(figure, rows, style.assign_looks(rows), lambda look: handle)
        style.write_figure(figure, tmp_path / "x.svg")
    names = {element.tag.rpartition("}")[2] for element in xml.etree.ElementTree.parse(tmp_path / "x.svg").iter()}
    assert not names & {"script", "img", "foreignObject", "a"}
