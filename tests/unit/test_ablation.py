import json
import re

import pytest

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.experiments.ablation import plan_variants
from hierbench.leaderboard.ablation import (
    PARTS,
    Ablation,
    ablation_from_paper,
    ablation_from_runs,
    ablation_table,
)
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.printed import paper_datasets
from hierbench.leaderboard.statistics import METRICS, Cell, Row
from hierbench.runs.integrity import fingerprints
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError


def rows_of(tex):
    """Return (title, model, check marks, [(mean, half-width, bold)]) of each row of an ablation table in TeX."""
    (table,) = [part for part in re.findall(r"\\begin\{table\*\}.*?\\end\{table\*\}", tex, re.S) if r"\cmark" in part]
    rows, title = [], ""
    for line in table.split(r"\\" + "\n"):
        if line.count("+/-") != 5:
            continue
        if found := re.search(r"\\multirow\{4\}\{\*\}\{(?:\\shortstack\{)?(.*?)\}", line):
            title = found[1].replace(r"\\", "")
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
    assert rows_of(render(ablation_table(ablation_from_paper("all")), "latex")) == printed


def test_one_dataset_of_the_paper():
    (table,) = ablation_from_paper("inat19")
    assert [row.title for row in table.rows] == ["ResNet50", "ResNet50*", "ResNet50*", "ours"]
    assert [row.metrics["top1"].best for row in table.rows] == [False, False, True, False]
    assert ablation_from_paper("tieredimagenet-h")[0].distance == "depth"
    with pytest.raises(UserError, match="did you mean 'cifar100'"):
        ablation_from_paper("cifar10")
    assert "ablation" not in paper_datasets()  # it is no leaderboard


def runs_of_variants(folder, shapes):
    """A store with two seeds of the four variants, of the last one seed; and their ids."""
    store, recipe = Store(folder), load_recipe("shapes", ["train.precision=float32", "model.backbone=wrn28-8"])
    variants = plan_variants(recipe, shapes, [find_method("ce"), find_method("haframe")], 2, None)
    jobs = [(position, job) for position, group in enumerate(variants) for job in group]
    for position, job in jobs:
        run = store.run(job.id)
        run.plan(job.spec.content())
        if (position, job.spec.seed) != (3, 1):
            test = dict.fromkeys(METRICS[:-1], 2.0 + position + job.spec.seed)  # few classes: no hierdist@20
            (run.folder / "metrics.json").write_text(json.dumps({"title": "title", "test": test}))
            run.set_status("done", files=fingerprints(run.folder))
    return store, [tuple(job.id for job in group) for group in variants]


def test_from_runs(tmp_path, shapes):
    store, ids = runs_of_variants(tmp_path, shapes)
    table = ablation_from_runs("shapes", "Shapes", "wrn28-8", store, ids)
    assert [row.title for row in table.rows] == ["WideResNet28", "WideResNet28*", "WideResNet28*", "HAFrame"]
    assert [row.runs for row in table.rows] == ids
    assert [row.metrics["top1"].mean for row in table.rows] == [2.5, 3.5, 4.5, 5.0]
    assert [row.metrics["top1"].best for row in table.rows] == [False, False, True, False]  # HAFrame lacks a seed
    assert [row.metrics["mistake_severity"].best for row in table.rows] == [True, False, False, False]
    assert (table.protocol, table.distance) == ("paper", "height")
    text = render(ablation_table([table]))
    assert "| HAFrame (1 of 2 runs)" in text and "5.00 +/- -" in text and "HierDist@20" not in text
    assert "shapes: protocol paper, distance height; settings: wrn28-8, 10 epochs, " in text
    content = json.loads(render(ablation_table([table]), "json"))
    assert set(content) == {"schema", "protocol", "rows"} and content["schema"] == 1
    assert [sum(row[part] for part in PARTS) for row in content["rows"]] == [1, 2, 3, 4]
    last = content["rows"][3]
    assert (last["dataset"], last["model"], last["n"], last["planned"]) == ("shapes", "HAFrame", 1, 2)
    assert last["metrics"]["top1"] == {"mean": 5.0, "ci95": None, "values": [5.0], "best": False}
    assert last["runs"] == list(ids[3])


def test_best_is_settled_by_the_interval_and_needs_a_number():
    means = [(2.0, 0.2), (2.0, 0.1), (None, None), (2.3, 0.1)]
    rows = [Row("", "", "", 5, 5, dict.fromkeys(METRICS[:2], Cell(mean, ci95, best=True))) for mean, ci95 in means]
    found = Ablation.of("d", "D", "paper", "height", rows).rows
    assert [row.metrics["mistake_severity"].best for row in found] == [False, True, False, False]
    assert [row.metrics["top1"].best for row in found] == [False, False, False, True]


def test_the_papers_table_without_torch(without_torch, tmp_path):
    words = ("ablate", "--dataset", "all", "--numbers", "paper", "--format", "latex", "--output", "table")
    assert not without_torch(*words).out and (tmp_path / "table").read_text().count("80.49") == 1
