"""`hierbench repository`: a results repository on a code forge."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.options import print_said, write_result
from hierbench.config.options import DataOption

app = typer.Typer(no_args_is_help=True, help="Set up a results repository, check a change of it, build its boards.")


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="The repository's folder.")],
    install: Annotated[str, typer.Option(help="What the workflow installs this program from, as pip takes it.")],
) -> None:
    """Write the workflows that check pull requests, comment on them and build the boards, and a README."""
    from hierbench.experiments.publication.repository import new_repository

    print_said([], [f"wrote {path}" for path in new_repository(folder, install)])


@app.command()
def check(
    base: Annotated[Path, typer.Option(help="The repository as it is.")],
    head: Annotated[Path, typer.Option(help="The repository as it would be; nothing in it is run.")],
    data_dir: DataOption = Path("data"),
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
) -> None:
    """Verify every changed submission, and say in Markdown what a change does to the boards.

    Exit code 0 if it can be accepted, 1 if it is refused.
    """
    from hierbench.experiments.publication.repository import as_markdown
    from hierbench.experiments.publication.repository import check as check_change

    found = check_change(base, head, data_dir)
    write_result(as_markdown(found), output)
    for line in found.problems:
        print(f"refused: {line}", file=sys.stderr, flush=True)
    raise typer.Exit(1 if found.problems else 0)


@app.command()
def build(
    folder: Annotated[Path, typer.Argument(help="The repository's folder.")],
    data_dir: DataOption = Path("data"),
) -> None:
    """Build boards/ of all submissions."""
    from hierbench.experiments.publication.repository import build as build_boards

    said = build_boards(folder, data_dir)
    print_said(said.notes, said.lines)
