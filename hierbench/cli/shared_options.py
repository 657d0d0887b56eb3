"""The options that several commands share; those of commands that train are in `hierbench.config.options`."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.models import OptionInfo

from hierbench.config.completion import complete_dataset, complete_last
from hierbench.hierarchy.tree_options import DEFAULT_OPTIONS
from hierbench.leaderboard.formats import Format
from hierbench.utils.errors import UserError, named_arguments


def complete_metrics(incomplete: str) -> list[str]:
    """Complete the last of several metrics, separated by commas, each with a + if the first has one."""
    from hierbench.metrics.metric_table import known_metrics

    sign = "+" if incomplete.startswith("+") else ""
    return complete_last(incomplete, [f"{sign}{name}" for name in known_metrics()])


def dataset_option(help: str) -> OptionInfo:
    """Return --dataset of a command that can do without, or says more of it."""
    option: OptionInfo = typer.Option("--dataset", help=help, autocompletion=complete_dataset)
    return option


OutputOption = Annotated[Path | None, "Write to this file instead of standard output."]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        help="Columns, separated by commas, as in hf_macro,ece; with + before each they are added to the paper's.",
        autocompletion=complete_metrics,
    ),
]
OrderOption = Annotated[
    Literal["tree", "alphabetical"] | None,
    "Order of the classes where nothing names them: the tree's, or that of ImageFolder and timm.",
]
ScoresOption = Annotated[
    Literal["probabilities", "logits", "votes"] | None, "What the scores are; by default what they look like."
]
UseOption = Annotated[Literal["answers", "scores"] | None, "What counts in a file that has both, where they disagree."]
IgnoreOption = Annotated[str, "Columns or arrays of the file to leave out, separated by commas."]
SkipUnlabelledOption = Annotated[bool, "Leave out rows without a target."]
NumbersOption = Annotated[Literal["runs", "paper"], "Numbers of our runs, or of the published table."]


# `data tree` alone has all options of trees; it writes a file that others read without.
PLAIN_TREES: dict[str, Any] = {
    name: value for name, value in vars(DEFAULT_OPTIONS).items() if name not in ("columns", "form")
}


def split_names(text: str) -> list[str]:
    """Return names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


@contextmanager
def plain_trees(tree: str | None) -> Iterator[None]:
    """Let errors that name other options of trees say which command has them."""
    try:
        yield
    except UserError as error:
        if any(argument.name in PLAIN_TREES for argument in named_arguments(error)):
            way = f"hierbench data tree {shlex.quote(str(tree))} OPTIONS --output tree.csv"
            raise UserError(f"{error}; options of trees are those of: {way}") from error
        raise


@dataclass(frozen=True)
class TableOptions:
    """The options of every command that shows a table."""

    format_: Annotated[Format | None, "Format of the table."] = None
    output: OutputOption = None
