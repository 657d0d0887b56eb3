"""`hierbench answers`."""

from typing import Annotated, Literal

from hierbench.cli.command import command
from hierbench.config.options import DatasetOption, RunSelection
from hierbench.leaderboard.table import CommandOutput
from hierbench.utils.errors import UserError

Show = Literal["rules", "temperature", "levels", "sets", "tree"]


@command("answers --dataset shapes --rules argmax_leaf,majority,climbing", table="markdown", view=True)
def answers(
    dataset: DatasetOption,
    selection: RunSelection,
    rules: Annotated[
        str | None,
        "Rules, separated by commas, NAME[:PARAMETER=VALUE...] or a file each; by default all.",
    ] = None,
    at: Annotated[str, "Shares of correct answers on validation for rules with a parameter."] = "0.9,0.95",
    show: Annotated[
        Show, "The rules; the temperature; calibration per level; sets with a guarantee; tests of the tree."
    ] = "rules",
) -> CommandOutput:
    """Print what methods answer under decision rules: which node, how sure, with which guarantee.

    From the scores of finished runs; nothing is trained. Temperature and parameters are fitted on validation.
    """
    from hierbench.answers.choices import DEFAULT_RULES, parse_choices
    from hierbench.leaderboard.open_board import open_board
    from hierbench.studies.answers.answer_tables import answer_table
    from hierbench.studies.answers.board_answers import answer_board

    try:
        accuracies = [float(share) for share in at.split(",")]
    except ValueError:
        raise UserError(f"--at {at}: give shares separated by commas, as in 0.9,0.95") from None
    choices = parse_choices(DEFAULT_RULES if rules is None else rules.split(","), accuracies)
    board = open_board(dataset, selection, with_unranked=False)
    table_answers = answer_board(board, choices, selection.data_dir)
    return CommandOutput(answer_table(table_answers, show), table_answers.notes)
