"""Every block of the README and of the pages in docs/ is run as it stands; what cannot be run here is parsed.

How blocks are run, and what is made smaller: tests/pages.py. Numbers and drawings of pages have tests of their own.
"""

import csv
import json
import re
import runpy
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md"))]
# Pages that are run by tests which go on from what the page has made.
ELSEWHERE = {"docs/your-data.md": "test_your_data.py", "docs/python.md": "test_python.py"}
SPOKEN = [*PAGES, "CONTRIBUTING.md", *(f"{folder}/README.md" for folder in ("methods", "benchmarks", "leaderboard"))]


@pytest.mark.parametrize("path", [path for path in PAGES if path not in ELSEWHERE])
def test_a_page_runs_from_top_to_bottom(page, path):
    page(path)


def test_other_pages_run_where_it_is_said():
    for path, test in ELSEWHERE.items():
        assert f'{path}"' in (Path(__file__).parent / test).read_text(encoding="utf-8")


def test_what_is_not_run_is_there(page):
    """The list of lines that cannot be run here holds no others, and each has a reason."""
    blocks = [block for path in PAGES for block in page.blocks(path)]
    lines = {line for block in blocks if block.language == "bash" for line in block.lines}
    assert page.not_here.keys() <= lines and all(page.not_here.values())


def spoken(path):
    """The commands in a page's sentences, as in `hierbench run ...`."""
    text = re.sub(r"^```.*?^```", "", (ROOT / path).read_text(encoding="utf-8"), flags=re.M | re.S)
    found = re.findall(r"`(?:uv run )?hierbench ([a-z][^`]*)`", re.sub(r"\n\s*", " ", text))
    return [text for text in dict.fromkeys(found) if text.split()[0] != "COMMAND"]


@pytest.mark.parametrize(("path", "text"), [(path, text) for path in SPOKEN for text in spoken(path)])
def test_a_command_in_a_sentence_is_taken(page, path, text):
    """Its words name a command and options of it; one that names a dataset is whole."""
    words = text.split()
    first = words[1].split("|") if len(words) > 1 and "|" in words[1] else words[1:2]  # methods list|check|new
    for word in first or [None]:
        command, rest = page.command_of([words[0], *([word] if word else []), *words[2:]])
        assert not hasattr(command, "commands") or rest == []
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert set(re.findall(r"--[a-z-]+", text)) <= known
    if "--dataset" in text and not re.search(r"[\[|$]|\.\.\.", text):
        command, rest = page.command_of(shlex.split(text))
        command.make_context(command.name, rest)


@pytest.mark.parametrize("path", SPOKEN)
def test_links_lead_somewhere(path):
    """To files of the checkout, also of notebooks, whose links docs/build.py changes."""
    text = re.sub(r"^```.*?^```", "", (ROOT / path).read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith("http"):
            assert ((ROOT / path).parent / link.partition("#")[0]).exists(), link


def test_the_readme_is_short_and_its_rows_are_published():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    table = (ROOT / "leaderboard/published/tiny-imagenet-frozen.md").read_text(encoding="utf-8")
    published = {}
    for line in table.splitlines():
        if line.startswith("| type-II"):
            cells = [cell.strip().strip("*") for cell in line.split("|")]
            published[cells[2].rstrip(" *")] = [re.match(r"[0-9.]+ \+/- [0-9.]+", cell)[0] for cell in cells[3:8]]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if " +/- " in line and line[0] == "|"
    ]
    assert len(rows) >= 5 and all(published[name] == values for name, *values in rows)


def test_every_page_begins_with_its_use():
    for path in PAGES[1:]:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.match(r"# .*\n\nAfter this page you ", text) or path == "docs/index.md", path


def test_features_of_a_frozen_backbone_are_extracted_once(page):
    _, said = page("docs/frozen-features.md")
    _, planned, ran, again, listed, pruned = [done.said for done in said.values() if hasattr(done, "said")]
    number = 2 * 48 * 4 + 48 * 2 + 48 * 8
    assert f"{number * 512 * 4 / 1e6:.1f} MB, to extract, about" in planned
    assert "torchvision:resnet18 frozen, views 2, 3 epochs" in ran and ran.count("done: ") == 5
    assert "to extract" not in again and "done: hafeature type-I seed 0" in again
    assert "torchvision:resnet18, weights random, seed 0, average-pooled, views 2" in listed
    assert "0 removed" in pruned and "1 caches of features" in pruned


def test_what_publishing_makes(page):
    from hierbench.experiments.publication.card import read_statement

    folder, said = page("docs/publishing.md")
    out = {" ".join(line.split()[1:3]): done.out for line, done in said.items() if line.startswith("hierbench ")}
    assert "added flamingo:type-I" in out["publish --dataset"]
    assert "4 recomputed" in out["verify submission"]
    assert "added crm:type-I" in out["repository check"] and "# Results: accepted" in out["repository check"]
    rows = json.loads((folder / "results/boards/shapes.json").read_text())["rows"]
    assert {row["method"] for row in rows} == {"ce", "crm"}
    assert read_statement(folder / "card.toml").replaces[0].row == "crm:type-I"
    table = (ROOT / "docs/publishing.md").read_text(encoding="utf-8").split("| File | Content |")[1].split("\n\n")[0]
    for name in re.findall(r"`(shapes\S*|[-.]\S+)`", table):
        path = name if name.startswith("shapes") else f"shapes{name}"
        assert "<id>" in path or (folder / "boards" / path).exists() or path.endswith(".svg"), path


def test_what_scored_predictions_give(page):
    _, said = page("docs/your-predictions.md")
    out = [done.out for line, done in said.items() if line.startswith("hierbench ")]
    assert "bootstrap interval over images" in out[0] and '"over": "seeds"' in out[1]
    assert "my ViT (scored)" in out[4] and "HierDist@20" not in out[5] and "HierDist@5" in out[5]
    rows = list(csv.DictReader(out[6].splitlines()))
    assert [(row["type"], row["method"]) for row in rows] == [("scored", "my ViT"), ("scored", "my ViT, top 5")]
    assert rows[0]["top1"] == rows[1]["top1"] and rows[0]["hierdist@20"] and not rows[1]["hierdist@20"]


def test_python_of_other_pages(page):
    from hierbench.metrics import find_metric, known_metrics

    _, said = page("docs/metrics.md")
    names = said["names"]
    assert find_metric("ece").formula in "".join(text for text in said.values() if isinstance(text, str))
    assert list(names["values"]) == ["top1", "hf_macro", "hops@20", "ece", "haurc_climbing"]
    assert names["every"].keys() == set(known_metrics(names["tree"]))
    _, said = page("docs/reproduce.md")
    (printed,) = [text for text in said.values() if isinstance(text, str)]
    assert printed.startswith("hierbench run --methods flamingo --types type-I --dataset tiny-imagenet-frozen")


def test_the_printed_method_is_short_and_passes_the_check(page):
    folder, said = page("docs/your-method.md")
    assert len((folder / "my_soft_labels.py").read_text(encoding="utf-8").strip().splitlines()) <= 25
    assert said["hierbench methods check ./my_soft_labels.py"].code == 0


def test_the_picture_of_the_layers_is_that_of_the_contract():
    drawn = runpy.run_path(str(ROOT / "docs/pictures/layers.py"))["draw"]()
    assert (ROOT / "docs/pictures/layers.svg").read_text(encoding="utf-8") == drawn
