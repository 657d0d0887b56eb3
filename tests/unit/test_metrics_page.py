"""docs/metrics.md describes every metric as the registry does, and its numbers are what the functions return."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from hierbench.metrics import compute_metrics, known_metrics
from hierbench.metrics import registry as registry_module

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")
ROWS = {
    row[0].strip("`"): row
    for row in (
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in PAGE.splitlines()
        if line.startswith("| `")
    )
}


@pytest.fixture(scope="module")
def drawn():
    spec = importlib.util.spec_from_file_location("pictures_of_metrics", DOCS / "pictures/metrics.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def family(name):
    """A name as on the page, with k or l for its parameter."""
    base, at, _ = name.partition("@")
    return f"{base}@{'l' if base.startswith('level') else 'k'}" if at else name


def test_every_metric_is_described_as_in_the_registry():
    assert set(ROWS) == {family(name) for name in known_metrics()}
    assert list(ROWS) == [spec.name for spec in registry_module._SPECS]
    for spec in registry_module._SPECS:
        _, says, formula, unit, better, here, source = ROWS[spec.name]
        assert (formula, unit, better, source) == (f"`{spec.formula}`", spec.unit, spec.direction, spec.source)
        assert says and here


def test_the_printed_values_are_those_of_the_functions(drawn):
    printed = re.findall(r"`([a-z0-9_@]+)` = ([0-9.]+)", PAGE)
    assert {family(name) for name, _ in printed} == set(ROWS)
    found = compute_metrics([name for name, _ in printed], drawn.EVIDENCE)
    for name, text in printed:
        assert text == f"{found[name]:.{len(text.partition('.')[2])}f}", name
        assert f"`{name}`" in ROWS[family(name)][5]


def test_the_printed_example_is_the_one_that_is_computed(drawn):
    lines = re.findall(r"^\| ([1-5]) \| (\w+) \| (.*) \| ([a-z, ]+) \| ([0-9, ]+) \|$", PAGE, re.M)
    order = drawn.PROBABILITIES.sort(dim=1, descending=True, stable=True).indices.tolist()
    for i, (image, target, numbers, ranking, distances) in enumerate(lines):
        assert (int(image), target) == (i + 1, drawn.TARGETS[i])
        assert numbers.split(" | ") == [f"{p:.2f}" for p in drawn.PROBABILITIES[i].tolist()]
        assert ranking.split(", ") == [drawn.CLASSES[c] for c in order[i]]
        row = drawn.TREE.distances[drawn.CLASSES.index(target)]
        assert distances.split(", ") == [str(row[c]) for c in order[i]]
    assert len(lines) == 5


def test_numbers_in_the_text(drawn):
    from hierbench.metrics import hops, selective

    targets, tree = drawn.EVIDENCE.targets, drawn.TREE
    assert hops.hops_scores(drawn.PROBABILITIES, targets, tree)[2].item() == pytest.approx(1 - 3.375 / 4.4375)
    assert drawn.weights([0, 1, 2, 3, 3]) == [1.0, 0.5, 0.25, 0.125, 0.0625]
    assert "1, 0.5, 0.25, 0.125, 0.0625" in PAGE and "1 - 3.375 / 4.4375 = 0.239" in PAGE
    arguments = (drawn.EVIDENCE.top, targets, drawn.EVIDENCE.climb, tree)
    curve = selective.operating_curve(*arguments, thresholds=torch.tensor([0.4], dtype=torch.float64))
    assert curve.risk.item() == pytest.approx(2 / 5) and f"{curve.coverage.item():.3f}" == "0.777"


def test_pictures_are_drawn_from_the_example(drawn, tmp_path):
    """The committed pictures hold the texts of new ones; bytes differ between versions of matplotlib."""
    drawn.write(tmp_path)
    assert set(re.findall(r"\(pictures/(metrics-\w+)\.svg\)", PAGE)) == set(drawn.PICTURES)
    for name in drawn.PICTURES:
        new, kept = ((folder / f"{name}.svg").read_text(encoding="utf-8") for folder in (tmp_path, DOCS / "pictures"))
        texts = [re.findall(r"<!-- (.*?) -->", text, re.S) for text in (new, kept)]
        assert texts[0] == texts[1] and texts[0]
    first = (tmp_path / "metrics-levels.svg").read_bytes()
    drawn.write(tmp_path)
    assert (tmp_path / "metrics-levels.svg").read_bytes() == first
