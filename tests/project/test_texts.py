"""The pages as texts: commands that they name, links, pictures, and what the README and the threat model say."""

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest

from hierbench.api.registry import find_method
from hierbench.config.recipe import recipe_names
from tests.support.pages import NOT_HERE, blocks_of, command_of, is_run
from tests.support.tamperings import TAMPERINGS

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md"))]
SPOKEN = [*PAGES, "CONTRIBUTING.md", *(f"{folder}/README.md" for folder in ("methods", "benchmarks", "leaderboard"))]


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


def test_the_readme_and_the_verdict_are_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110
    text = (ROOT / "docs/verdict.md").read_text(encoding="utf-8")
    generated = re.compile("<!-- verdict -->.*?<!-- end of the verdict -->", re.S)
    assert len(generated.sub("", text).split()) <= 1500


def test_every_page_begins_with_its_use():
    for path in PAGES[1:]:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.match(r"# .*\n\nAfter this page you ", text) or path == "docs/index.md", path


def test_the_page_of_answers_has_means_of_published_numbers():
    """Correct answers of the best class, for cross-entropy on type II."""
    files = sorted((ROOT / "leaderboard/published").glob("*-answers.json"))
    rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
    wanted = ("argmax_leaf", "ce", "type-II")
    correct = [row["correct"] for row in rows if (row["rule"], row["method"], row["type"]) == wanted]
    assert len(correct) == len(files)
    assert f"| `argmax_leaf` | {sum(correct) / len(correct):.1f} | 100.0 |" in (ROOT / "docs/answers.md").read_text(
        "utf-8"
    )


def test_the_threat_model_names_existing_files_and_tests():
    """Files, and the functions, classes and cases in them."""
    text = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+/[\w/.-]+)(?:::(\w+))?`", text)
    assert len(named) > 50
    for path, name in named:
        assert (ROOT / path).exists(), path
        assert not name or re.search(rf"^ *(def|class) {name}\b", (ROOT / path).read_text("utf-8"), re.M), (path, name)
    assert all(f"::{case.__name__}`" in text or case.__name__.startswith("impossible_name") for case in TAMPERINGS)


@pytest.mark.parametrize("name", ["layers", "run"])
def test_the_pictures_are_those_of_the_code(name):
    """The layers are those of the contract, and each function of a run's life exists."""
    drawn = runpy.run_path(str(ROOT / f"docs/pictures/{name}.py"))["draw"]()
    assert (ROOT / f"docs/pictures/{name}.svg").read_text(encoding="utf-8") == drawn
