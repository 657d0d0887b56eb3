"""A row of a table in the form in which model cards state results: the model-index of their YAML header."""

from typing import Any

from hierbench.config.recipe import Recipe
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import Column
from hierbench.leaderboard.statistics import Row
from hierbench.utils.console import installing
from hierbench.utils.errors import UserError

VERIFIED = ("reproduced", "recomputed")  # verdicts of rows that are exported
STANDARD = {"top1": "accuracy"}  # what the hub calls a metric; others keep their own names


def check_exportable(row: Row) -> None:
    """Raise a UserError for a row that is not verified, or that lacks seeds of its table."""
    label = f"{row.method}:{row.type}"
    if row.citation is not None or row.verdict not in VERIFIED:
        reason = "was printed by other authors" if row.citation else f"is {row.verdict or 'not verified'}"
        raise UserError(
            f"{label} {reason}; only rows that are recomputed from predictions, or trained again, are exported"
        )
    if row.lacking:
        raise UserError(f"{label} lacks seeds {', '.join(map(str, row.lacking))} of its table; finish it first")


def model_index(board: Board, row: Row, digest: str, recipe: Recipe | None, name: str) -> str:
    """Return the header of a model card with a result per column of a row: YAML between lines of three dashes.

    The value of a result is the mean over the row's runs; `args` has the half-width of its 95% interval, the number of
    runs and what determines the numbers. Written with huggingface_hub, whose reader takes it back.

    Args:
        board: the table.
        row: one of its rows, verified.
        digest: of the dataset, which its revision is.
        recipe: of the dataset, which has its title; None leaves the name.
        name: of the model in the card.

    Raises:
        UserError: the row may not be exported, or huggingface_hub is not installed.
    """
    check_exportable(row)
    try:
        from huggingface_hub import ModelCardData
    except ImportError:
        raise UserError(f"model cards need huggingface_hub; run: {installing('hf')}") from None
    results = [_result(board, row, column, digest, recipe) for column in board.columns if column.name in row.metrics]
    card = ModelCardData(model_name=name, library_name="hierbench", eval_results=[one for one in results if one])
    return f"---\n{card.to_yaml()}\n---\n"


def _result(board: Board, row: Row, column: Column, digest: str, recipe: Recipe | None) -> Any:
    """Return a column of a row as a result, None where it has no value."""
    from huggingface_hub import EvalResult

    cell = row.metrics[column.name]
    if cell.mean is None:
        return None
    unit = f" ({column.unit})" if column.unit else ""
    return EvalResult(
        task_type="image-classification",
        task_name="Hierarchy-aware image classification",
        dataset_type=board.dataset,
        dataset_name=board.dataset if recipe is None else recipe.title,
        dataset_split="test",
        dataset_revision=digest,
        dataset_args={"protocol": board.protocol, "distance": board.distance},
        metric_type=STANDARD.get(column.name, column.name),
        metric_name=f"{column.title}{unit}",
        metric_value=cell.mean,
        metric_args={
            "method": row.method,
            "type": row.type,
            "runs": row.n,
            "ci95": cell.ci95,
            "higher_is_better": column.higher,
            "evidence": row.verdict,
        },
    )
