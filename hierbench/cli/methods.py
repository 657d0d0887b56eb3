"""`hierbench methods list|check|new`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.config.names import complete_methods

app = typer.Typer(help="List and check methods, or start a new one.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_() -> None:
    """List the installed methods."""
    from hierbench.api.registry import Broken, find_all

    methods = list(find_all())
    name_width = max(len(found.name) for found in methods)
    title_width = max((len(found.cls.title) for found in methods if not isinstance(found, Broken)), default=0)
    for found in methods:
        if isinstance(found, Broken):
            print(f"{found.name:{name_width}}  BROKEN: {found.reason}")
        else:
            types = ",".join(found.cls.types)
            print(f"{found.name:{name_width}}  {found.cls.title:{title_width}}  {types:14}  {found.cls.source}")


@app.command("check")
def check(
    methods: Annotated[
        list[str], typer.Argument(help="Names of methods, or paths of their files.", autocompletion=complete_methods)
    ],
    limit: Annotated[float, typer.Option(min=1, max=86400, help="Seconds for the import, and for each check.")] = 60.0,
) -> None:
    """Check in a separate process that a method fulfils the contract."""
    passed = [_passes(method, limit) for method in methods]
    raise typer.Exit(0 if all(passed) else 1)


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


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the method.")],
    folder: Annotated[Path, typer.Option(help="Folder for the file.")] = Path(),
) -> None:
    """Write a commented template NAME.py that already passes `methods check`."""
    from hierbench.api.template import new_method

    path = new_method(name, folder)
    shown = path if path.is_absolute() else f"./{path}"
    print(f"wrote {path}; next: hierbench methods check {shown}")
