"""`hierbench submit`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.options import print_said
from hierbench.config.options import DataOption
from hierbench.utils.errors import UserError


def submit(
    runs: Annotated[Path, typer.Argument(help="A runs folder, or a folder of published tables.")],
    to: Annotated[Path, typer.Option("--to", help="New folder for the submission.")],
    dataset: Annotated[str, typer.Option("--dataset", help="Datasets, separated by commas.")],
    author: Annotated[list[str] | None, typer.Option(help="An author; may be repeated.")] = None,
    title: Annotated[str | None, typer.Option(help="What is submitted, in one line.")] = None,
    licence: Annotated[
        str | None, typer.Option("--licence", "--license", help="SPDX identifier, as MIT or CC-BY-4.0.")
    ] = None,
    link: Annotated[list[str] | None, typer.Option(help="Address of a paper or of code; may be repeated.")] = None,
    notes: Annotated[str | None, typer.Option(help="What a reader should know.")] = None,
    card: Annotated[
        Path | None, typer.Option(help="TOML file with title, authors, licence, links, notes and replaces instead.")
    ] = None,
    methods: Annotated[str, typer.Option(help="Only these methods, separated by commas, and what they re-rank.")] = "",
    data_dir: DataOption = Path("data"),
) -> None:
    """Write a submission to a results repository: published tables of some methods, and a card that says whose."""
    from hierbench.experiments.publication.card import make_statement, read_statement
    from hierbench.experiments.publication.submission import Request
    from hierbench.experiments.publication.submission import submit as write_submission

    given = {"--author": author, "--title": title, "--licence": licence, "--link": link, "--notes": notes}
    if card is not None:
        if extra := next((name for name, value in given.items() if value), None):
            raise UserError(f"--card has all of it; leave out {extra}")
        statement = read_statement(card)
    else:
        if lacking := next((name for name in ("--author", "--title", "--licence") if not given[name]), None):
            raise UserError(f"Missing option '{lacking}'; or give all of it by --card FILE")
        statement = make_statement(
            title=title, authors=author, licence=licence, links=link or [], notes=notes or "", replaces=[]
        )
    datasets, names = _listed(dataset, "--dataset"), _listed(methods, "--methods") if methods else []
    said = write_submission(Request(runs, to, datasets, statement, names, data_dir))
    print_said(said.notes, said.lines)


def _listed(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserError(f"{option} {text!r}: give names separated by commas")
    return names
