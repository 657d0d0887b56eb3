"""`hierbench repository`: a results repository on a code forge."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, group, print_said, write_result
from hierbench.cli.options import OutputOption
from hierbench.config.options import DataOption


@command("repository new results --install hierbench")
def new(
    folder: Annotated[Path, typer.Argument(help="The repository's folder.")],
    install: Annotated[str, "What the workflow installs this program from, as pip takes it."],
) -> None:
    """Write the workflows that check pull requests, comment on them and build the boards, and a README."""
    from hierbench.sharing.repository import new_repository

    print_said([], [f"wrote {path}" for path in new_repository(folder, install)])


@command("repository check --base before --head results")
def check(
    base: Annotated[Path, "The repository as it is."],
    head: Annotated[Path, "The repository as it would be; nothing in it is run."],
    data_dir: DataOption = Path("data"),
    output: OutputOption = None,
) -> int:
    """Verify every changed submission, and say in Markdown what a change does to the boards.

    Exit code 0 if it can be accepted, 1 if it is refused.
    """
    from hierbench.sharing.repository import as_markdown
    from hierbench.sharing.repository import check as check_change

    found = check_change(base, head, data_dir)
    write_result(as_markdown(found), output)
    for line in found.problems:
        print(f"refused: {line}", file=sys.stderr, flush=True)
    return 1 if found.problems else 0


@command("repository build results")
def build(
    folder: Annotated[Path, typer.Argument(help="The repository's folder.")],
    data_dir: DataOption = Path("data"),
) -> None:
    """Build boards/ of all submissions."""
    from hierbench.sharing.repository import build as build_boards

    said = build_boards(folder, data_dir)
    print_said(said.notes, said.lines)


app = group("Set up a results repository, check a change of it, build its boards.", new, check, build)
