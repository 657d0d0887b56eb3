"""`hierbench.board`, and the checks of arguments that functions for Python share."""

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from hierbench.config.options import RunSelection
from hierbench.config.sections import PROTOCOLS, Protocol
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column, requested_columns
from hierbench.leaderboard.open_board import open_board
from hierbench.utils.errors import UserError, unknown_name


def board(
    dataset: str | Path,
    runs: str | Path = "runs",
    *,
    data_dir: str | Path = "data",
    protocol: Protocol | None = None,
    metrics: str | Sequence[str] | None = None,
    source: Literal["runs", "paper"] = "runs",
    request: str | None = None,
) -> Board:
    """Return the leaderboard of all runs of a dataset, as recorded; as `hierbench leaderboard`.

    Args:
        dataset: a name, or the file of a dataset of yours.
        runs: folder of all runs, or a folder of published tables.
        data_dir: folder of prepared datasets, which gives the tree for further columns.
        protocol: of the runs, "paper" or "authors"; by default that of the last comparison.
        metrics: columns, as "hf_macro,ece" or ["hf_macro", "ece"]; with + before each they are added to the paper's.
        source: "runs", or "paper" for the table printed in Liang & Davis (ICCV 2023) and the numbers of other authors.
        request: the beginning of a comparison's id, to show its settings in place of the last one's.

    Raises:
        UserError: a ValueError: no runs of the dataset, an unknown name, source, protocol or metric.
    """
    if str(source) == "both":
        raise UserError('source "both" is only for hierbench leaderboard --numbers both; give "runs" or "paper"')
    check_known("source", source, ("runs", "paper"))
    if protocol is not None:
        check_known("protocol", protocol, PROTOCOLS)
    columns = parse_columns(metrics)
    return open_board(str(dataset), RunSelection(Path(runs), Path(data_dir), protocol, request), columns, source)


def parse_columns(metrics: str | Sequence[str] | None) -> tuple[Column, ...]:
    """Return the columns of names in a list, or in a text as --metrics takes."""
    return requested_columns(metrics if metrics is None or isinstance(metrics, str) else ",".join(metrics), "metrics")


def check_known(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise a UserError for an argument outside the given choices."""
    if not isinstance(value, str) or value not in choices:
        raise unknown_name(name, str(value), choices)


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number, also of NumPy; a UserError for anything else, and below the least."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UserError(f"{name} is a whole number, got {value!r}") from None
    if number < least or isinstance(value, bool):
        raise UserError(f"{name} must be at least {least}, got {value!r}")
    return number
