"""`hierbench answers`."""

from typing import Annotated, Literal

from hierbench.cli.command import command
from hierbench.config.options import DatasetOption, RunSelection
from hierbench.leaderboard.table import CommandOutput
from hierbench.utils.errors import UserError

Show = Literal["rules", "temperature", "levels", "sets", "tree"]


@command("answers --dataset shapes --rules argmax_leaf,majority,climbing", table="markdown", protocol=None)
def answers(
    dataset: DatasetOption,
    selection: RunSelection,
    rules: Annotated[
        str | None,
        "Rules, separated by commas, NAME[:PARAMETER=VALUE...] or a file each, then @SHARE or @RULE to fit to; "
        "by default all.",
    ] = None,
    at: Annotated[str, "Shares of correct answers on validation for rules with a parameter."] = "0.9,0.95",
    show: Annotated[
        Show,
        "The rules; the temperature; calibration per level; sets with a guarantee; whether mistakes respect the tree.",
    ] = "rules",
    full: Annotated[bool, "All rules, in place of the best one at each share."] = False,
    trees: Annotated[str | None, "Further trees for --show tree, files or names, separated by commas."] = None,
) -> CommandOutput:
    """Print what methods answer under decision rules: which node, how sure, with which guarantee.

    From the scores of finished runs; nothing is trained. Temperature and parameters are fitted on validation.
    """
    from hierbench.answers.choices import DEFAULT_RULES, parse_choices, split_rules
    from hierbench.leaderboard.answers_table import answer_table, short_table, tree_table
    from hierbench.leaderboard.open_board import open_board
    from hierbench.studies.computed_answers import answer_board, read_trees

    try:
        accuracies = [float(share) for share in at.split(",")]
    except ValueError:
        raise UserError(f"--at {at}: give shares separated by commas, as in 0.9,0.95") from None
    if trees is not None and show != "tree":
        raise UserError("--trees is for --show tree")
    choices = parse_choices(DEFAULT_RULES if rules is None else split_rules(rules), accuracies)
    board = open_board(dataset, selection, with_unranked=False)
    table_answers = answer_board(board, choices, selection.data_dir)
    if show == "tree":
        further = read_trees(trees.split(",") if trees else [], table_answers.hierarchy)
        return CommandOutput(tree_table(table_answers, further), table_answers.notes)
    is_short = show == "rules" and rules is None and not full
    table = short_table(table_answers) if is_short else answer_table(table_answers, show)
    return CommandOutput(table, table_answers.notes)
