"""The help of every command: its words, its example, which is run."""

import json
import re
import shlex

import numpy as np
import pytest
import typer

from hierbench.cli.main import app
from hierbench.leaderboard.formats import TABLE_FORMATS


def commands(command, name=""):
    """Yield the name of every command, without `hierbench`, and the command."""
    for word, subcommand in getattr(command, "commands", {}).items():
        yield from commands(subcommand, f"{name} {word}".strip())
    if not hasattr(command, "commands"):
        yield name, command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.fixture(scope="module")
def examples(page, miniatures):
    """Run examples in one folder, with small data, each once: `examples("publish")` is how it ended."""
    folder, done = page.make_folder("examples"), {}
    needs = dict.fromkeys("compare reproduce plot verify publish leaderboard".split(), "run")
    needs |= {"site build": "publish", "overview": "publish", "data verify": "data prepare"}
    miniatures.birds(folder)
    rng = np.random.default_rng(0)
    np.savez(folder / "predictions.npz", scores=rng.normal(size=(8, 100)), targets=np.arange(8))

    def prepare(name):
        if name == "job":
            plan = page.cli(folder, *shlex.split("run --dataset shapes --methods ce --plan-only --json")).ok()
            return {"ID": json.loads(plan.out)["jobs"][0]["id"][:12]}
        return {}

    def example(name):
        if name not in done:
            if name in needs:
                example(needs[name])
            with page._small(folder):
                words = prepare(name)
                text = COMMANDS[name].epilog.partition("Example: hierbench ")[2]
                done[name] = page.cli(folder, *(words.get(word, word) for word in shlex.split(text)))
        return done[name]

    return example


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_its_help_runs(examples, name):
    examples(name).ok()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_values_by_words_and_ends_with_the_example(cli, tmp_path, name):
    text = cli(tmp_path, *name.split(), "--help").ok().out
    assert not re.search(r"<[a-z]|[{}]|\[OPTIONS\].*[a-z]", text), text
    assert text.rstrip().splitlines()[-1].strip().startswith(f"Example: hierbench {name}")


def test_help_shows_every_description_whole(cli, tmp_path):
    text = cli(tmp_path, "--help").ok().out
    assert "..." not in text.replace("[ARGS]...", "")
    shown = re.sub(r"[\s-]", "", text)
    for name, command in COMMANDS.items():
        assert " " in name or name == "job" or re.sub(r"[\s-]", "", command.short_help) in shown


def test_the_command_line_has_few_options():
    num = sum(parameter.param_type_name == "option" for command in COMMANDS.values() for parameter in command.params)
    assert num <= 220


def test_a_developer_sees_where_an_error_comes_from(cli, tmp_path):
    done = cli(tmp_path, "--traceback", "run", "--dataset", "nowhere")
    first, *_, last = done.err.splitlines()
    assert first.startswith("Traceback") and last.startswith("hierbench: error: unknown recipe 'nowhere'")
    assert "Traceback" not in cli(tmp_path, "run", "--dataset", "nowhere").err


TABLES = [
    "answers",
    *"run ablate leaderboard compare overview score verify reproduce tune runs".split(),
    "methods list",
    "data list",
]


def test_commands_with_a_table_take_all_formats(cli, tmp_path):
    options = {name: {option for p in command.params for option in p.opts} for name, command in COMMANDS.items()}
    texts = {"data tree", "report"}  # lines or JSON, no table
    assert {name for name, names in options.items() if "--format" in names} - texts == set(TABLES)
    for form in TABLE_FORMATS:
        words = ("leaderboard", "--dataset", "fgvc", "--numbers", "paper", "--format", form)
        out = cli(tmp_path, *words).ok().out
        cli(tmp_path, *words, "--output", "table").ok()
        assert "HAFrame" in out and (tmp_path / "table").read_text() == out
        assert "HAFrame" in cli(tmp_path, "methods", "list", "--format", form).ok().out
    assert cli(tmp_path, "data", "list", "--json").ok().out == cli(tmp_path, "data", "list", "--format", "json").out
    cli(tmp_path, "data", "list", "--json", "--format", "csv").one_line("--json does not go with --format csv")
    cli(tmp_path, "run", "--dataset", "shapes", "--output", "a/b").one_line("--output a/b: no such folder")


def test_a_group_of_one_command_says_which(cli, tmp_path):
    done = cli(tmp_path, "site", "boards", "--output", "site")
    done.one_line("no command 'boards'; did you mean: hierbench site build boards --output site?")
