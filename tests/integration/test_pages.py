"""Every block of the README and of the pages in docs/ is run as it stands, or parsed if it cannot be run here.

How blocks are run, and what is made smaller: tests/support/pages.py. Numbers and drawings have tests of their own.
"""

import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from hierbench.api.registry import find_method
from hierbench.config.recipe import recipe_names
from tests.support.pages import NOT_HERE, blocks_of, command_of, is_run
from tests.support.tamperings import TAMPERINGS

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


def lines_of(path):
    return [line for block in blocks_of(path) if block.language == "bash" for line in block.lines]


def test_listed_exceptions_of_pages_exist():
    """The list of lines that cannot be run here holds no others."""
    lines = [line for path in PAGES for line in lines_of(path)]
    for beginning in NOT_HERE:
        assert any(re.match(beginning, line) for line in lines), beginning


def commands_of(path):
    """The commands in a page's sentences, as in `hierbench run ...`, and in lines that are not run."""
    text = re.sub(r"^```.*?^```", "", (ROOT / path).read_text(encoding="utf-8"), flags=re.M | re.S)
    commands = re.findall(r"`(?:uv run )?hierbench ([a-z][^`]*)`", re.sub(r"\n\s*", " ", text))
    for line in lines_of(path) if path in PAGES else ():
        if not is_run(line):
            commands += re.findall(r"hierbench ([a-z][^>]*)", line)
    return [text for text in dict.fromkeys(commands) if text.split()[0] != "COMMAND"]


@pytest.mark.parametrize(("path", "text"), [(path, text) for path in SPOKEN for text in commands_of(path)])
def test_a_command_that_is_not_run_is_taken(path, text):
    """Its words name a command and options of it; one that names a dataset is whole."""
    words = text.split()
    first = words[1].split("|") if len(words) > 1 and "|" in words[1] else words[1:2]  # methods list|check|new
    for word in first or [None]:
        command, rest = command_of([words[0], *([word] if word else []), *words[2:]])
        assert not hasattr(command, "commands") or rest == []
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        options |= {"--json"} if "--format" in options else set()  # a word for --format json
        assert set(re.findall(r"--[a-z-]+", text)) <= options
    if "--dataset" in text and not re.search(r"[\[|$]|\.\.\.", text):
        command, rest = command_of(shlex.split(text))
        taken = command.make_context(command.name, rest).params
        assert taken["dataset"] in (*recipe_names(), "birds", "NAME") or taken["dataset"].startswith("./")
        for name in (taken.get("methods") or "all").split(","):
            assert name in ("all", "paper", "NAME") or name.startswith("./") or find_method(name)


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
    table = (ROOT / "leaderboard/published/cifar100-frozen.md").read_text(encoding="utf-8")
    published = {}
    for line in table.splitlines():
        if line.startswith("| type-II"):
            cells = [cell.replace("**", "").strip() for cell in line.split("|")]
            published[cells[2].rstrip(" *")] = cells[3:8]
    _, _, below = text.partition("## On photographs")  # above it is the first command's table
    below = below.partition("<!-- end -->")[2]  # test_overview_table.py has what is before
    lines = [line for line in below.splitlines() if line.startswith("|") and " +/- " in line]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert len(rows) >= 5 and all(published[name] == values for name, *values in rows)


def test_every_page_begins_with_its_use():
    for path in PAGES[1:]:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.match(r"# .*\n\nAfter this page you ", text) or path == "docs/index.md", path


def test_the_threat_model_names_existing_files_and_tests():
    """Files, and the functions, classes and cases in them."""
    text = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+/[\w/.-]+)(?:::(\w+))?`", text)
    assert len(named) > 50
    for path, name in named:
        assert (ROOT / path).exists(), path
        assert not name or re.search(rf"^ *(def|class) {name}\b", (ROOT / path).read_text("utf-8"), re.M), (path, name)
    assert all(f"::{case.__name__}`" in text or case.__name__.startswith("impossible_name") for case in TAMPERINGS)


def test_the_files_that_publishing_makes_are_described(page):
    folder, _ = page("docs/publishing.md")
    table = (ROOT / "docs/publishing.md").read_text(encoding="utf-8").split("| File | Content |")[1].split("\n\n")[0]
    for name in re.findall(r"`(shapes\S*|[-.]\S+)`", table):
        path = name if name.startswith("shapes") else f"shapes{name}"
        assert "<id>" in path or (folder / "boards" / path).exists() or path.endswith(".svg"), path


def test_the_workflow_of_publishing_with_others_verifies_each_table(page, cli, tmp_path):
    published, _ = page("docs/publishing.md")
    place, _ = page("docs/publishing-with-others.md")
    workflow = yaml.safe_load((place / ".github/workflows/verify.yml").read_text(encoding="utf-8"))
    commands = [step["run"] for step in workflow["jobs"]["verify"]["steps"] if "run" in step]
    assert commands[0].startswith("pip install ") and len(commands) == 3
    shutil.copytree(published / "boards", tmp_path / "tables")
    for command in commands[1:]:
        cli(tmp_path, *shlex.split(command)[1:]).ok()
    assert (tmp_path / "site/index.html").is_file()
    metrics = min((tmp_path / "tables/shapes").glob("*/metrics.json"))
    metrics.write_text(metrics.read_text(encoding="utf-8").replace('"top1": ', '"top1": 1'), encoding="utf-8")
    assert cli(tmp_path, *shlex.split(commands[1])[1:]).code == 1


def test_printed_output_of_python_blocks(page):
    from hierbench.metrics import find_metric, known_metrics

    _, outputs = page("docs/metrics.md")
    names = outputs["names"]
    assert find_metric("ece").formula in "".join(text for text in outputs.values() if isinstance(text, str))
    assert list(names["values"]) == ["top1", "hf_macro", "hops@20", "ece", "haurc_climbing"]
    assert names["every"].keys() == set(known_metrics(names["tree"]))


def test_the_printed_method_is_short(page):
    folder, _ = page("docs/your-method.md")
    assert len((folder / "my_soft_labels.py").read_text(encoding="utf-8").strip().splitlines()) <= 25


@pytest.mark.parametrize("name", ["layers", "run"])
def test_the_pictures_are_those_of_the_code(name):
    """The layers are those of the contract, and each function of a run's life exists."""
    drawn = runpy.run_path(str(ROOT / f"docs/pictures/{name}.py"))["draw"]()
    assert (ROOT / f"docs/pictures/{name}.svg").read_text(encoding="utf-8") == drawn
