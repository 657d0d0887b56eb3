"""Completion by the shell: names of datasets, methods, metrics and plots, without loading PyTorch."""

import pytest

from hierbench.config.completion import complete_methods, method_names


@pytest.fixture
def complete(cli, tmp_path):
    def complete(*words):
        """Return bash's completions of the last word, by its protocol."""
        line = ["hierbench", *words]
        environment = {
            "_HIERBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(line), "COMP_CWORD": str(len(words)),
        }  # fmt: skip
        return cli(tmp_path, **environment).ok().out.split()

    return complete


@pytest.mark.parametrize(
    ("words", "offered"),
    {
        "lead": ["leaderboard"],
        "leaderboard --met": ["--metrics"],
        "leaderboard --format m": ["markdown"],
        "leaderboard --metrics ec": ["ece"],
        "leaderboard --metrics +ece,+mc": ["+ece,+mce"],
        "plot tr": ["tradeoff"],
        "run --dataset tiny": ["tiny-imagenet", *(f"tiny-imagenet-{end}" for end in ("frozen", "lite2", "small"))],
        "data prepare cub": ["cub", "cub-finetuned", "cub-frozen", "cub-lite2", "cub100"],
        "run --dataset ./bir": [],  # the shell completes the file
    }.items(),
)
def test_words(complete, words, offered):
    assert complete(*words.split()) == offered


@pytest.mark.parametrize("command", ["run", "tune"])
def test_methods_are_completed_after_each_comma(complete, command):
    assert complete(command, "--types", "type-I,") == ["type-I,pooled", "type-I,type-II"]
    assert complete(command, "--methods", "multil") == ["multilevel_ce"]
    assert complete(command, "--methods", "ce,haf") == [
        "ce,hafeature",
        "ce,haframe",
        "ce,haframe_frame",
        "ce,haframe_paper",
    ]
    assert "ce,ce" not in complete(command, "--methods", "ce,") and "ce,paper" in complete(command, "--methods", "ce,")
    assert set(complete_methods("")) == {"all", "paper", *method_names()}


def test_the_script_calls_back_and_nothing_heavy_is_loaded(cli, tmp_path):
    undetected = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # no shell started a job of cron's
    assert "_HIERBENCH_COMPLETE=complete_bash" in cli.real(tmp_path, "--show-completion", "bash", **undetected).ok().out
    program = (
        "import sys\nfrom hierbench.cli.main import main\nsys.argv = ['hierbench']\ntry:\n    main()\n"
        "except SystemExit:\n    print(sorted({'torch', 'pandas', 'optuna', 'mlflow'} & set(sys.modules)))"
    )
    words = "hierbench\nrun\n--methods\nmultil"
    environment = {"_HIERBENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    assert cli.real(tmp_path, python=("-c", program), **environment).ok().out.split() == ["multilevel_ce", "[]"]
