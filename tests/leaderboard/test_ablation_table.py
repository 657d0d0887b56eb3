import re
from dataclasses import replace

import pytest

from hierbench.leaderboard.ablation_table import ablation_from_paper, ablation_table, with_best_means
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.paper_tables import paper_datasets
from hierbench.leaderboard.statistics import PAPER_METRICS, Row, Summary
from hierbench.utils.errors import UserError


def rows_of(tex):
    """Return (title, model, check marks, [(mean, half-width, bold)]) of each row of an ablation table in TeX."""
    (table,) = [part for part in re.findall(r"\\begin\{table\*\}.*?\\end\{table\*\}", tex, re.S) if r"\cmark" in part]
    rows, title = [], ""
    for line in table.split(r"\\" + "\n"):
        if line.count("+/-") != 5:
            continue
        if match := re.search(r"\\multirow\{4\}\{\*\}\{(?:\\shortstack\{)?(.*?)\}", line):
            title = match[1].replace(r"\\", "")
        parts = [" ".join(part.split()) for part in line.split("&")]
        marks = []
        for part in parts[2:6]:
            colour, mark = re.fullmatch(r"\\cellcolor\{(green|red)!15\} ?\\([cx])mark", part).groups()
            assert (colour == "green") == (mark == "c")
            marks.append(mark == "c")
        cells = [re.fullmatch(r"(\\textbf\{)?([\d.]+) \+/- ([\d.]+)\}?", part).groups() for part in parts[6:]]
        rows.append((title, parts[1], marks, [(mean, ci95, bold is not None) for bold, mean, ci95 in cells]))
    return rows


@pytest.fixture(scope="session")
def printed(shared):
    """The rows of the paper's own table; it writes two titles over several lines without a hyphen of their own."""
    rows = rows_of((shared / "paper/haframe-iccv2023.tex").read_text(encoding="utf-8"))
    titles = {"iNatura-list2019": "iNaturalist2019", "tiered-ImageNet-H": "tieredImageNet-H"}
    return [(titles.get(title, title), *rest) for title, *rest in rows]


def test_our_latex_equals_the_papers_row_by_row(printed):
    assert len(printed) == 16 and sum(bold for row in printed for *_, bold in row[3]) == 20
    ours = render(ablation_table(ablation_from_paper("all")), "latex").replace(r"$\pm$", "+/-")
    assert rows_of(ours) == printed


def test_one_dataset_of_the_paper():
    ((_, table),) = ablation_from_paper("inat19")
    assert [row.title for row in table.rows] == ["ResNet50", "ResNet50*", "ResNet50*", "ours"]
    assert [row.metrics["top1"].best for row in table.rows] == [False, False, True, False]
    assert ablation_from_paper("tieredimagenet-h")[0][1].distance == "depth"
    with pytest.raises(UserError, match="did you mean 'cifar100'"):
        ablation_from_paper("cifar10")
    assert "ablation" not in paper_datasets()  # it is no leaderboard


def test_best_is_settled_by_the_interval_and_needs_a_number():
    """And all runs that were planned."""
    means = [(2.0, 0.2), (2.0, 0.1), (None, None), (2.3, 0.1)]
    rows = [
        Row("", "", "", 5, 5, dict.fromkeys(PAPER_METRICS[:2], Summary(mean, ci95, best=True))) for mean, ci95 in means
    ]
    marked = with_best_means(Board("d", "paper", "height", rows)).rows
    assert [row.metrics["mistake_severity"].best for row in marked] == [False, True, False, False]
    assert [row.metrics["top1"].best for row in marked] == [False, False, False, True]
    short = replace(rows[3], n=4, lacking=(4,), metrics=dict.fromkeys(PAPER_METRICS[:2], Summary(9.0, 0.1)))
    lacking = with_best_means(Board("d", "paper", "height", [*rows[:3], short]))
    assert [row.metrics["top1"].best for row in lacking.rows] == [False, True, False, False]
    assert "(4 of 5 runs)" in render(ablation_table([("D", lacking)]))


def test_the_papers_table_without_torch(without_torch, tmp_path):
    words = ("ablate", "--dataset", "all", "--numbers", "paper", "--format", "latex", "--output", "table")
    assert not without_torch(*words).out and (tmp_path / "table").read_text().count("80.49") == 1
