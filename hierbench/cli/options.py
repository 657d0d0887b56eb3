"""How a command gets the options that all commands that train share, and how a result is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from hierbench.config.options import Options
from hierbench.utils.errors import UserError

Format = Literal["markdown", "latex", "csv", "json"]
KEYWORD = Parameter.KEYWORD_ONLY
HINTS = get_type_hints(Options, include_extras=True)
ProtocolOfRuns = Annotated[
    Literal["paper", "authors"] | None,
    typer.Option("--protocol", help="Of the runs; by default that of the newest, two are never mixed."),
]


def trains(**fixed: Any) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Make a function of `Options` a command that takes them all, and exits with the code that it returns.

    What the function declares itself comes on top; a name of `Options` among it has that declaration instead.

    Args:
        fixed: fields of `Options` that the command has no option for, with their values.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., None]:
        own = {name: p for name, p in signature(command, eval_str=True).parameters.items() if name != "options"}
        shared = {
            field.name: Parameter(field.name, KEYWORD, annotation=HINTS[field.name], default=_default(field))
            for field in fields(Options)
            if field.name not in fixed
        }
        parameters = {**shared, **{name: p.replace(kind=KEYWORD) for name, p in own.items()}}

        @wraps(command)
        def run(**values: Any) -> None:
            options = Options(**fixed, **{name: value for name, value in values.items() if name in shared})
            raise typer.Exit(command(options, **{name: values[name] for name in own}))

        run.__signature__ = Signature(list(parameters.values()))  # type: ignore[attr-defined]
        run.__annotations__ = {name: p.annotation for name, p in parameters.items()}
        return run

    return decorate


def _default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return Parameter.empty if field.default is MISSING else field.default


def write_result(text: str, output: Path | None, *, follow: bool = True) -> None:
    """Print a result, or write it to the file of --output; `follow` says whether that may be a link."""
    from hierbench.utils.files import write_text

    if output is None:
        print(text, end="", flush=True)
        return
    target = output.resolve() if follow else output
    try:
        if follow and target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")  # a device or a pipe is written to, not replaced
        else:
            write_text(target, text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"--output {output}: {reason}") from None
