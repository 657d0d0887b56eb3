"""Worked examples of docs/statistics.md and docs/metrics.md equal the results of the functions."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hierbench.leaderboard.columns import find_column
from hierbench.leaderboard.paired import difference, holm
from hierbench.leaderboard.statistics import Row, summarise
from hierbench.metrics import compute_metrics, hops, known_metrics, selective
from hierbench.metrics import metric_table as registry_module

DOCS = Path(__file__).resolve().parents[2] / "docs"
STATISTICS, METRICS = ((DOCS / f"{name}.md").read_text("utf-8") for name in ("statistics", "metrics"))
SEVERITY = find_column("mistake_severity")


def flat(text):
    """A page without its line breaks."""
    return " ".join(text.split())


def tables(text):
    """The cells of each table's lines, with its head."""
    blocks = [block.splitlines() for block in re.findall(r"(?:^\|.*\|\n)+", text, re.M)]
    return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block] for block in blocks]


@pytest.fixture(scope="module")
def values():
    """{row: {seed: value}} of the first table of the statistics' example."""
    (table,) = [table for table in tables(STATISTICS) if table[0][0] == "seed"]
    (_, *names), _, *rows = table
    assert len(names) == 4 and len(rows) == 5
    return {name: {int(row[0]): float(row[1 + place]) for row in rows} for place, name in enumerate(names)}


def test_the_statistics_of_the_values(values):
    reference, *others = values
    gaps = {name: difference(values[name], values[reference]) for name in others}
    adjusted = dict(zip(others, holm([gap.p for gap in gaps.values()]), strict=True))
    rows = [
        Row("type-I", name, name, 5, 5, {SEVERITY.name: summarise(list(v.values()))}, seeds=list(v))
        for name, v in values.items()
    ]
    lines = []
    for row in sorted(rows, key=lambda row: row.metrics[SEVERITY.name].mean):
        cell, gap = row.metrics[SEVERITY.name], gaps.get(row.method)
        against = [f"{gap.mean:+.3f} +/- {gap.ci95:.3f}", f"{adjusted[row.method]:.4f}"] if gap else ["", ""]
        lines.append([row.method, f"{cell.mean:.3f} +/- {cell.ci95:.3f}", *against])
    (printed,) = [table[2:] for table in tables(STATISTICS) if table[0][:2] == ["row", "mean"]]
    assert printed == lines


@pytest.fixture(scope="module")
def drawn():
    return SimpleNamespace(**runpy.run_path(str(DOCS / "pictures/metrics.py")))


@pytest.fixture(scope="module")
def described():
    """{name: cells} of the metrics' descriptions."""
    lines = [line for table in tables(METRICS) for line in table if line[0].startswith("`")]
    return {line[0].strip("`"): [cell.replace("\\|", "|") for cell in line] for line in lines}


def family(name):
    """A name as on the page, with k or l for its parameter."""
    base, at, _ = name.partition("@")
    return f"{base}@{'l' if base.startswith('level') else 'k'}" if at else name


def test_every_metric_is_described_as_in_the_registry(described):
    assert set(described) == {family(name) for name in known_metrics()}
    assert list(described) == [spec.name for spec in registry_module.METRIC_SPECS]
    for spec in registry_module.METRIC_SPECS:
        _, says, formula, unit, better, where, source = described[spec.name]
        assert (unit, better, source) == (spec.unit, spec.better, spec.source)
        assert re.fullmatch(r"\$`[^`$]+`\$", formula)  # the registry's is plain text, for terminals
        assert says and where


def test_the_printed_values_are_those_of_the_metrics(drawn, described):
    printed = re.findall(r"`([a-z0-9_@]+)` = ([0-9.]+)", METRICS)
    assert {family(name) for name, _ in printed} == set(described)
    values = compute_metrics([name for name, _ in printed], drawn.EVIDENCE)
    for name, text in printed:
        assert text == f"{values[name]:.{len(text.partition('.')[2])}f}", name
        assert f"`{name}`" in described[family(name)][5]


def test_the_example_of_the_metrics(drawn):
    lines = re.findall(r"^\| ([1-5]) \| (\w+) \| (.*) \| ([a-z, ]+) \| ([0-9, ]+) \|$", METRICS, re.M)
    order = drawn.PROBABILITIES.sort(dim=1, descending=True, stable=True).indices.tolist()
    for i, (image, target, numbers, ranking, distances) in enumerate(lines):
        assert (int(image), target) == (i + 1, drawn.TARGETS[i])
        assert numbers.split(" | ") == [f"{p:.2f}" for p in drawn.PROBABILITIES[i].tolist()]
        assert ranking.split(", ") == [drawn.CLASSES[c] for c in order[i]]
        row = drawn.TREE.distances[drawn.CLASSES.index(target)]
        assert distances.split(", ") == [str(row[c]) for c in order[i]]
    assert len(lines) == 5
    targets, tree = drawn.EVIDENCE.targets, drawn.TREE
    assert hops.hops_scores(drawn.PROBABILITIES, targets, tree)[2].item() == pytest.approx(1 - 3.375 / 4.4375)
    assert drawn.weights([0, 1, 2, 3, 3]) == [1.0, 0.5, 0.25, 0.125, 0.0625]
    assert "1, 0.5, 0.25, 0.125, 0.0625" in METRICS and "1 - 3.375 / 4.4375 = 0.239" in METRICS
    arguments = (drawn.EVIDENCE.top, targets, drawn.EVIDENCE.climb, tree)
    curve = selective.operating_curve(*arguments, thresholds=torch.tensor([0.4], dtype=torch.float64))
    assert curve.risk.item() == pytest.approx(2 / 5) and f"{curve.coverage.item():.3f}" == "0.777"


def test_pictures_of_metrics_are_drawn_from_the_example(drawn, tmp_path):
    """The committed pictures hold the texts of new ones; bytes differ between versions of matplotlib."""
    drawn.write(tmp_path)
    assert set(re.findall(r"\(pictures/(metrics-\w+)\.svg\)", METRICS)) == set(drawn.PICTURES)
    for name in drawn.PICTURES:
        new, kept = ((folder / f"{name}.svg").read_text(encoding="utf-8") for folder in (tmp_path, DOCS / "pictures"))
        texts = [re.findall(r"<!-- (.*?) -->", text, re.S) for text in (new, kept)]
        assert texts[0] == texts[1] and texts[0]
