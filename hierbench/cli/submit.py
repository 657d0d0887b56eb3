"""`hierbench submit`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, print_said
from hierbench.config.options import DataOption, RequestOption
from hierbench.utils.errors import UserError


@command(
    "submit runs --output submission --dataset shapes --author 'A. Author' --title 'Two methods' --licence CC-BY-4.0"
)
def submit(
    runs: Annotated[Path, typer.Argument(help="A runs folder, or a folder of published tables.")],
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="New, for the submission.")],
    dataset: Annotated[str, "Datasets, separated by commas."],
    author: Annotated[list[str] | None, "An author; may be repeated."] = None,
    title: Annotated[str | None, "What is submitted, in one line."] = None,
    licence: Annotated[
        str | None, typer.Option("--licence", "--license", help="SPDX identifier, as MIT or CC-BY-4.0.")
    ] = None,
    link: Annotated[list[str] | None, "Address of a paper or of code; may be repeated."] = None,
    notes: Annotated[str | None, "What a reader should know."] = None,
    card: Annotated[Path | None, "TOML file with title, authors, licence, links, notes and replaces instead."] = None,
    methods: Annotated[str, "Only these methods, separated by commas, and what they re-rank."] = "",
    data_dir: DataOption = Path("data"),
    request: RequestOption = None,
) -> None:
    """Write a submission to a results repository: published tables of some methods, and a card that says whose."""
    from hierbench.sharing.card import asked_statement
    from hierbench.sharing.submission import submit as write_submission

    statement = asked_statement(card, author=author, title=title, licence=licence, link=link, notes=notes)
    datasets, names = _listed(dataset, "--dataset"), _listed(methods, "--methods") if methods else []
    said = write_submission(runs, output, datasets, statement, names, data_dir, request)
    print_said(said.notes, said.lines)


def _listed(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserError(f"{option} {text!r}: give names separated by commas")
    return names
