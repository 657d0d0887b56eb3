"""`hierbench methods list|check|new`."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, group
from hierbench.config.completion import complete_methods
from hierbench.leaderboard.table import Line, Table, Text


@command("methods list", table="terminal", output=None)
def list_() -> Table:
    """List the installed methods."""
    from hierbench.api.registry import BrokenMethod, find_all

    rows = [
        [method.name, f"BROKEN: {method.reason}", "", ""]
        if isinstance(method, BrokenMethod)
        else [method.name, method.cls.title, ",".join(method.cls.types), method.cls.source]
        for method in find_all()
    ]
    return Table("Methods", ("Name", "Method", "Models", "Source"), [Line(list(map(Text, row))) for row in rows])


@command("methods check ce")
def check(
    methods: Annotated[
        list[str],
        typer.Argument(metavar="METHOD...", help="A name, or the path of a file.", autocompletion=complete_methods),
    ],
) -> int:
    """Check that a method fulfils the contract."""
    passed = list(map(_passes, methods))
    return 0 if all(passed) else 1


def _passes(method: str) -> bool:
    """Print how each check of a method ended; return whether all passed."""
    from hierbench.api.contract import check_method, list_checks
    from hierbench.api.registry import find_method
    from hierbench.utils.text import one_line

    with redirect_stdout(sys.stderr):  # a method may print
        loaded = find_method(method)
        problems = list(check_method(loaded.cls))
    names = [check.name for check in list_checks(loaded.cls)]
    failed = 0
    for name, problem in problems:
        names.remove(name)
        failed += bool(problem)
        print(f"FAILED  {name}: {one_line(problem, 1000)}" if problem else f"ok      {name}")
    for name in names:
        print(f"not run {name}")
    summary = f"{failed} {'check' if failed == 1 else 'checks'} failed" + (f", {len(names)} not run" if names else "")
    print(f"{loaded.name}: {summary if failed or names else 'all checks passed'}")
    return not failed and not names


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
