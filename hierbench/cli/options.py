"""The options that all training commands share, and the output of results."""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hierbench.config.names import complete_last
from hierbench.config.options import Options
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line


def complete_metrics(incomplete: str) -> list[str]:
    """Complete the last of several metrics, separated by commas, each with a + if the first has one."""
    from hierbench.metrics.registry import known_metrics

    sign = "+" if incomplete.startswith("+") else ""
    return complete_last(incomplete, [f"{sign}{name}" for name in known_metrics()])


Format = Literal["markdown", "latex", "csv", "json"]
TableFormat = Literal["markdown", "latex", "csv", "json", "html", "terminal"]
ProtocolOfRuns = Annotated[
    Literal["paper", "authors"] | None,
    typer.Option("--protocol", help="Protocol of the runs; by default that of the newest. Protocols are never mixed."),
]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        help="Columns, separated by commas, as in hf_macro,ece; with + before each they are added to the paper's.",
        autocompletion=complete_metrics,
    ),
]
SHARED = {  # an option per field of `Options`, with its default
    name: p if p.default is Parameter.empty else p.replace(default=getattr(Options(""), name))
    for name, p in signature(Options, eval_str=True).parameters.items()
}


def trains(**fixed: Any) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Turn a function of `Options` into a command that takes all of them, and exits with the code it returns.

    Parameters of the function are options of the command too, and replace a field of `Options` with the same name.

    Args:
        fixed: values of the fields of `Options` that are not options of the command.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., None]:
        own = {name: p for name, p in signature(command, eval_str=True).parameters.items() if name != "options"}
        shared = {name: p for name, p in SHARED.items() if name not in fixed}
        parameters = {name: p.replace(kind=Parameter.KEYWORD_ONLY) for name, p in (shared | own).items()}

        @wraps(command)
        def run(**values: Any) -> None:
            options = Options(**fixed, **{name: value for name, value in values.items() if name in shared})
            raise typer.Exit(command(options, **{name: values[name] for name in own}))

        vars(run)["__signature__"] = Signature(list(parameters.values()))
        run.__annotations__ = {name: p.annotation for name, p in parameters.items()}
        return run

    return decorate


def write_result(text: str, output: Path | None, *, follow: bool = True) -> None:
    """Print a result, or write it to the file of --output; `follow` allows that to be a symbolic link."""
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


def print_said(notes: Sequence[str], lines: Sequence[str]) -> None:
    """Print notes on standard error, each in one line, and what was done on standard output."""
    for line in notes:
        print(f"note: {one_line(line)}", file=sys.stderr, flush=True)
    for line in lines:
        print(one_line(line), flush=True)
