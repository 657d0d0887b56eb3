"""`hierbench methods list|check|new`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, group
from hierbench.config.names import complete_methods
from hierbench.leaderboard.table import Line, Table, Text


@command("methods list", table="terminal")
def list_() -> Table:
    """List the installed methods."""
    from hierbench.api.registry import Broken, find_all

    rows = [
        [found.name, f"BROKEN: {found.reason}", "", ""]
        if isinstance(found, Broken)
        else [found.name, found.cls.title, ",".join(found.cls.types), found.cls.source]
        for found in find_all()
    ]
    return Table("Methods", ("Name", "Method", "Models", "Source"), [Line(list(map(Text, row))) for row in rows])


@command("methods check ce")
def check(
    methods: Annotated[
        list[str],
        typer.Argument(metavar="METHOD...", help="A name, or the path of a file.", autocompletion=complete_methods),
    ],
    limit: Annotated[float, typer.Option(min=1, max=86400, help="Seconds for the import, and for each check.")] = 60.0,
) -> int:
    """Check in a separate process that a method fulfils the contract."""
    passed = [_passes(method, limit) for method in methods]
    return 0 if all(passed) else 1


def _passes(method: str, limit: float) -> bool:
    """Print how each check of a method ended; return whether all passed."""
    from hierbench.api.isolation import NOT_RUN, check_apart
    from hierbench.utils.text import one_line

    steps = check_apart(method, limit)
    _, title = next(steps)
    failed = skipped = 0
    for name, problem in steps:
        if problem == NOT_RUN:
            skipped += 1
            print(f"{NOT_RUN} {name}")
            continue
        failed += bool(problem)
        print(f"FAILED  {name}: {one_line(problem, 1000)}" if problem else f"ok      {name}", flush=True)
    summary = f"{failed} {'check' if failed == 1 else 'checks'} failed" + (f", {skipped} not run" if skipped else "")
    print(f"{title}: {summary if failed or skipped else 'all checks passed'}")
    return not failed and not skipped


@command("methods new mine")
def new(
    name: Annotated[str, typer.Argument(help="Name of the method.")],
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Of the file.")] = Path(),
) -> None:
    """Write a commented template NAME.py that already passes `methods check`."""
    from hierbench.api.registry import new_method

    path = new_method(name, output)
    shown = path if path.is_absolute() else f"./{path}"
    print(f"wrote {path}; next: hierbench methods check {shown}")


app = group("List and check methods, or start a new one.", list_, check, new)
