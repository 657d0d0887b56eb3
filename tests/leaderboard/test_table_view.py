"""A table as its reader wants it: rows, order, columns, marks."""

import pytest

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.table import Interval
from hierbench.leaderboard.table_view import choose_columns, choose_rows, find_columns, mark, sort_rows
from hierbench.utils.errors import UserError


@pytest.fixture(scope="module")
def table():
    return Board.paper("fgvc").table


def titles(table):
    return [line.cells[1].text for line in table.rows]


def test_rows_are_chosen_by_number_or_by_words(table):
    assert titles(choose_rows(table, "2")) == titles(table)[:2]
    assert set(titles(choose_rows(table, "haframe, crm"))) == {"HAFrame", "CRM"}
    with pytest.raises(UserError, match="unknown row 'hofrome'; did you mean 'haframe'"):
        choose_rows(table, "hofrome")


def test_rows_are_sorted_best_first(table):
    for heading, reverse in (("top1", True), ("severity", False), ("HierDist@5", False)):
        (place,) = find_columns(table, heading)
        means = [line.cells[place].mean for line in sort_rows(table, heading).rows]
        assert means == sorted(means, reverse=reverse)
    with pytest.raises(UserError, match="unknown column 'tp1'"):
        sort_rows(table, "tp1")


def test_columns_and_marks(table):
    few = choose_columns(table, "hierdist@5,top1")
    assert [column.rstrip(" ↑↓") for column in few.columns] == ["Model", "Method", "HierDist@5", "Top-1 accuracy"]
    for bold, num in (("best", 1), ("none", 0)):
        cells = [line.cells[2] for line in mark(few, bold).rows]
        assert sum(isinstance(cell, Interval) and cell.strong for cell in cells) == num
        assert "competitive" not in render(mark(few, bold))
