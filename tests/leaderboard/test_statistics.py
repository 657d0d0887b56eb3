import math
import re
from dataclasses import replace

import pytest

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.paper_tables import paper_datasets
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, Summary, highlighted, summarise
from hierbench.leaderboard.tables.board_table import make_cell

CAPTIONS = {
    "FGVC-Aircraft": "fgvc",
    "CIFAR-100": "cifar100",
    "iNaturalist2019": "inat19",
    "tieredImageNet-H": "tieredimagenet-h",
}


def test_intervals_by_hand():
    """The authors' protocol divides by n, ours by n - 1."""
    values, quantile = [1.0, 2.0, 3.0, 4.0, 5.0], 2.7764451051977987
    for ddof, deviation in ((0, math.sqrt(2.0)), (1, math.sqrt(2.5))):
        cell = summarise(values, ddof=ddof)
        assert cell.mean == 3.0 and cell.ci95 == pytest.approx(quantile * deviation / math.sqrt(5), rel=1e-12)
    for ddof in (0, 1):
        assert summarise([2.5], ddof=ddof) == Summary(2.5, None, (2.5,))


def test_runs_without_mistakes_have_no_severity():
    assert summarise([math.nan]).mean is None
    assert summarise([math.nan, 2.0]).mean == 2.0


def row(severity, top1=50.0, ci95=0.1, name="m"):
    metrics = {metric: Summary(1.0, ci95) for metric in PAPER_METRICS}
    metrics |= {"mistake_severity": Summary(severity, ci95), "top1": Summary(top1, ci95)}
    return Row("type-I", name, name, 5, 5, metrics)


def test_limit_is_compared_as_printed_decimals():
    rows = [row(6.89), row(6.94), row(6.95), row(6.944), row(6.946)]
    assert 6.94 - 6.89 > 0.05  # in binary
    assert [r.competitive for r in highlighted(rows)] == [True, True, False, True, False]


def test_best_only_among_competitive_and_ties_by_the_interval():
    rows = highlighted([row(2.0, top1=70.0, ci95=0.2), row(2.01, top1=70.004, ci95=0.1), row(3.0, top1=90.0)])
    assert [r.metrics["top1"].best for r in rows] == [False, True, False]
    assert [r.metrics["mistake_severity"].best for r in rows] == [True, False, False]
    assert all(r.metrics["top1"].best for r in highlighted([row(2.0), row(2.0)]))  # equal in everything


def test_a_row_without_severity_is_not_ranked():
    assert [r.competitive for r in highlighted([row(None), row(2.0)])] == [False, True]
    assert [r.competitive for r in highlighted([row(None)])] == [False]


def test_a_cell_of_fewer_runs_is_marked_and_takes_no_mark():
    lucky = replace(row(1.0), metrics=row(1.0).metrics | {"mistake_severity": summarise([0.5, math.nan])})
    marked = highlighted([lucky, row(2.0)])
    assert [r.competitive for r in marked] == [False, True]
    assert [r.metrics["mistake_severity"].leads for r in marked] == [False, True]
    assert make_cell(lucky, PAPER_BY_NAME["mistake_severity"]).small == "of 1 of 2 runs"
    assert not make_cell(row(2.0), PAPER_BY_NAME["mistake_severity"]).small


def paper_cells(tex, caption):
    """The numbers and colours of a table of the paper: {(type, row): (method colour, [(mean, ci, colour)])}."""
    tables = re.findall(r"\\begin\{table\*\}.*?\\end\{table\*\}", tex, re.S)
    (table,) = [table for table in tables if f"Experiment results on {caption} dataset" in table]
    cells, kind = [], ""
    for line in table.split(r"\\"):
        parts = line.split("&")
        if line.count("+/-") != 5:
            continue
        if match := re.search(r"\{(Type-I+)\}", parts[0]):
            kind = match[1].replace("Type", "type")
        colours = [int(match[1]) if (match := re.search(r"blue!(\d+)", part)) else 0 for part in parts[1:]]
        numbers = re.findall(r"([\d.]+) \+/- ([\d.]+)", line)
        title = re.sub(r"\\cellcolor\{.*?\}|\\cite\{.*?\}|\(ours\)", "", parts[1]).strip()
        cells.append((kind, title, colours[0], list(zip(numbers, colours[1:], strict=True))))
    return cells


@pytest.mark.parametrize(("caption", "dataset"), CAPTIONS.items())
def test_highlight_equals_the_papers_colours_cell_by_cell(shared, caption, dataset):
    tex = (shared / "paper/haframe-iccv2023.tex").read_text(encoding="utf-8")
    expected = paper_cells(tex, caption)
    board = Board.paper(dataset)
    assert len(board.rows) == len(expected) == 9
    for row, (kind, title, colour, cells) in zip(board.rows, expected, strict=True):
        assert (row.type, row.title) == (kind, title)
        assert (15 if row.competitive else 0) == colour
        for metric, ((mean, ci95), shade) in zip(PAPER_METRICS, cells, strict=True):
            cell = row.metrics[metric]
            assert (f"{cell.mean:.2f}", f"{cell.ci95:.4f}") == (mean, ci95)
            assert (35 if cell.best else 15 if row.competitive else 0) == shade


def test_the_four_tables_are_shipped():
    assert paper_datasets() == sorted(CAPTIONS.values())


def test_the_best_of_all_is_marked_beside_the_best_of_the_competitive():
    rows = highlighted([row(2.0, top1=70.0), row(2.04, top1=71.0), row(3.0, top1=90.0)])
    assert [r.metrics["top1"].best for r in rows] == [False, True, False]
    assert [r.metrics["top1"].leads for r in rows] == [False, False, True]
    assert [(r.metrics["mistake_severity"].best, r.metrics["mistake_severity"].leads) for r in rows] == [
        (True, True),
        (False, False),
        (False, False),
    ]
