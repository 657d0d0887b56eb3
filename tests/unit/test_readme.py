"""Every command that is printed in a README or in docs/ is one that the command line takes."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from hierbench.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"{folder}/README.md" for folder in ("methods", "benchmarks", "leaderboard")),
]
PAGES += [f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))]


def commands(page):
    """What follows `hierbench` in a page's blocks, comments left out and lines joined; and in its sentences."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = [
        re.sub(r"\\\n\s+|\n {8,}", " ", block) for block in re.findall(r"^```[a-z]*\n(.*?)^```", text, re.M | re.S)
    ]
    lines = [part for block in blocks for line in block.splitlines() for part in re.split(r" && | {3,}(?=hier)", line)]
    found = [re.match(r"(?:uv run )?hierbench +(\S.*)", line.partition(" #")[0].strip()) for line in lines]
    found += re.finditer(r"`(?:uv run )?hierbench ([a-z][^`]*)`", re.sub(r"\n\s*", " ", text))
    return [match[1].split(" > ")[0].strip() for match in found if match and match[1].split()[0] != "COMMAND"]


def command_of(words):
    """The command that the first words name, and the words that are left."""
    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


CASES = [pytest.param(text, id=f"{page}: {text}") for page in PAGES for text in dict.fromkeys(commands(page))]


@pytest.mark.parametrize("text", CASES)
def test_a_printed_command_is_taken(text):
    words = text.split()
    first = words[1].split("|") if len(words) > 1 and "|" in words[1] else words[1:2]  # methods list|check|new
    for word in first or [None]:
        command, rest = command_of([words[0], *([word] if word else []), *words[2:]])
        assert not hasattr(command, "commands") or rest == ["--version"]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert set(re.findall(r"--[a-z-]+", text)) <= known


@pytest.mark.parametrize("text", [case.values[0] for case in CASES if "--dataset" in case.values[0]])
def test_a_printed_command_is_whole(text):
    """All that need a dataset name it, and their values are taken; synopses have brackets and are left out."""
    if not re.search(r"[\[|$]", text):
        command, rest = command_of(shlex.split(text))
        command.make_context(command.name, rest)


def test_the_pages_have_commands():
    assert len(CASES) > 50 and sum("[" in case.values[0] for case in CASES) > 5
