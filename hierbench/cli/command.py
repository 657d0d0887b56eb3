"""The frame of every command: options, help with an example, the format of its table, and an exit code."""

import sys
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, getdoc, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from hierbench.cli.shared_options import TableOptions
from hierbench.config.options import Options
from hierbench.leaderboard.formats import Format, render
from hierbench.leaderboard.formats.terminal import show
from hierbench.leaderboard.table import CommandOutput, Table
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

Result = Table | CommandOutput | int | None
FOLDERS = ("base", "data_dir", "folder", "head", "offline", "publish", "runs")  # parameters


def command(
    example: str, *, table: Format | None = None, **fixed: Any
) -> Callable[[Callable[..., Result]], Callable[..., None]]:
    """Turn a function into a command that exits with the code it returns, by default 0.

    Of a parameter `Annotated[kind, help]`, or with more than help in a `typer.Option`, an option is made. So it is of
    the fields of a dataclass, such as `Options` or `RunSelection`, of which a parameter of the same name replaces one.

    Args:
        example: arguments of `hierbench` that the help ends with; a test runs them.
        table: default of --format, for a function that returns a table or `CommandOutput`; it is written once.
        fixed: values of fields that are not options of the command.
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., None]:
        function_parameters = dict(signature(function, eval_str=True).parameters)
        groups = {
            name: (parameter.annotation, _fields(parameter.annotation, fixed))
            for name, parameter in function_parameters.items()
            if _is_group(parameter)
        }
        parameters: dict[str, Parameter] = {}
        for name, parameter in function_parameters.items():
            parameters |= groups[name][1] if name in groups else {name: parameter}
        if table is not None:
            table_parameters = _fields(TableOptions, fixed)
            about = f"Format of the table; by default {table}, fitted to a terminal. --json: --format json."
            format_parameter = table_parameters["format_"]
            table_parameters["format_"] = format_parameter.replace(annotation=Annotated[Format | None, about])
            parameters |= {name: p for name, p in table_parameters.items() if name not in function_parameters}

        @wraps(function)
        def run(**values: Any) -> None:
            from hierbench.utils.console import say

            if table is not None:
                format_name = values["format_"]
                values["format_"] = format_name or table
            passed = {name: values[name] for name in function_parameters if name not in groups}
            for name, (kind, options) in groups.items():
                constants = {field.name: fixed[field.name] for field in fields(kind) if field.name in fixed}
                passed[name] = kind(**constants, **{option: values[option] for option in options})
            output = None if "output" in function_parameters else values.get("output")
            trains = any(kind is Options for kind, _ in groups.values())
            if trains and output is not None and not output.resolve().parent.is_dir():  # not after the training
                raise UserError(f"--output {output}: no such folder")
            result = function(**passed)
            shown = CommandOutput(result) if isinstance(result, Table) else result
            if not isinstance(shown, CommandOutput):
                raise typer.Exit(shown or 0)
            if shown.table is not None and output is None and is_terminal(format_name):
                show(shown.table)
            elif shown.table is not None:
                write_result(render(shown.table, values["format_"]), output)
            for line in shown.lines:
                say(line)
            raise typer.Exit(shown.code)

        words = [p.replace(kind=Parameter.KEYWORD_ONLY, annotation=_add_help_word(p)) for p in parameters.values()]
        vars(run)["__signature__"] = Signature(words)
        run.__annotations__ = {p.name: p.annotation for p in words}
        vars(run)["example"] = example
        return run

    return decorate


def is_terminal(format_name: str | None) -> bool:
    """Whether a table has to fit the width of a terminal."""
    return format_name in (None, "terminal") and sys.stdout.isatty()


def group(help: str, *commands: Callable[..., None], panels: dict[str, str] | None = None) -> typer.Typer:
    """Return commands under one name; lists show the first paragraph of their help whole.

    `panels` {title: names of commands} divides the list.
    """
    app = typer.Typer(
        cls=type("Divided", (Group,), {"panels": panels or {}}),
        help=help,
        short_help=help,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(lambda: None)  # keeps the name of a single command
    for function in commands:
        about = " ".join((getdoc(function) or "").partition("\n\n")[0].split())
        epilog = f"\b\nExample: hierbench {vars(function)['example']}"
        name = function.__name__.strip("_")
        app.command(name, cls=Command, short_help=about, epilog=epilog)(function)
    return app


class Group(TyperGroup):
    """Commands, listed in `panels`; one without a panel, which programs call, is not listed."""

    panels: ClassVar[dict[str, str]] = {}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; where there is one alone, the error for another word says it."""
        if len(self.commands) == 1 and args and args[0] not in self.commands:
            words = " ".join([ctx.command_path, *self.commands, *args])
            raise UserError(f"no command {args[0]!r}; did you mean: {words}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, a section for each panel."""
        every = self.list_commands(ctx)
        width = formatter.width - 6 - max(map(len, every))
        for title, names in (self.panels or {"Commands": " ".join(every)}).items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names.split()])


class Command(TyperCommand):
    """A command whose help names arguments by words, without their Python types."""

    def __init__(self, *args: Any, **more: Any) -> None:
        """Make the command that Typer has read from a function."""
        super().__init__(*args, **more)
        self.arguments = [parameter for parameter in self.params if parameter.param_type_name == "argument"]
        for argument in self.arguments:
            vars(argument)["display_type_rich"] = lambda ctx: None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line.

        --json stands for --format json.
        """
        if any(parameter.name == "format_" for parameter in self.params) and "--json" in args:
            form = "".join(args[args.index("--format") + 1 :][:1]) if "--format" in args else "json"
            if form != "json":
                raise UserError(f"--json does not go with --format {form}")
            args = [word for arg in args for word in (("--format", "json") if arg == "--json" else (arg,))]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command's name: [OPTIONS] A [B]."""
        return [
            "[OPTIONS]",
            *(f"{argument.metavar}" if argument.required else f"[{argument.metavar}]" for argument in self.arguments),
        ]


def is_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter was on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


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


def print_lines(notes: Sequence[str], lines: Sequence[str]) -> None:
    """Print notes on standard error, each in one line, and the outcome on standard output."""
    for line in notes:
        print(f"note: {one_line(line)}", file=sys.stderr, flush=True)
    for line in lines:
        print(one_line(line), flush=True)


def _is_group(parameter: Parameter) -> bool:
    return isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)


def _fields(kind: Any, fixed: dict[str, Any]) -> dict[str, Parameter]:
    """Return the fields of a dataclass as parameters."""
    made = {field.name: field.default_factory() for field in fields(kind) if field.default_factory is not MISSING}
    parameters = signature(kind, eval_str=True).parameters.items()
    return {name: p.replace(default=made.get(name, p.default)) for name, p in parameters if name not in fixed}


def _add_help_word(parameter: Parameter) -> Any:
    """Return the annotation of a parameter with its option, and with the word that help shows for its value."""
    if get_origin(parameter.annotation) is not Annotated:
        return parameter.annotation  # typer.Context
    kind, info = get_args(parameter.annotation)
    name = parameter.name.strip("_").replace("_", "-")
    info = typer.Option(f"--{name}", help=info) if isinstance(info, str) else copy(info)
    if kind is not bool and info.metavar is None:
        info.metavar = _word(parameter.name, kind)
    return Annotated[kind, info]


def _word(name: str, kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        return _word(name, next(part for part in get_args(kind) if part is not NoneType))
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) is list:
        return _word(name, *get_args(kind))
    if kind is Path:
        return "FOLDER" if name in FOLDERS else "PATH" if name in ("images", "source") else "FILE"
    return "N" if kind in (int, float) else name.strip("_").rpartition("_")[2].upper()
