"""The pages of a published table and of its answers: a heading, commands, links to pictures, and tables."""

import shlex
from pathlib import Path

from hierbench.config.recipe import dataset_title, recipe_names
from hierbench.leaderboard.answers_table import answers_tables
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_answers import BoardAnswers
from hierbench.leaderboard.formats import render
from hierbench.runs.requests import command_words
from hierbench.sharing.publication_folder import ANSWERS_PICTURE
from hierbench.utils.text import markdown_escaped, one_line

CLAIMED_NODES = (
    "*Claimed*: the nodes of all rules but the best class. They follow from the scores of all classes, which are not "
    "published; the numbers were computed again from the nodes."
)
LINKED_FILES = {  # files of a publication that its page leads to
    "tradeoff.svg": "accuracy against severity",
    "severity.svg": "severity with intervals",
    "answers.md": "answers under decision rules",
    "differences.md": "differences from cross-entropy",
}


def table_page(board: Board, folder: Path) -> str:
    """Return the page of a table in markdown, with links to the files that are beside it in a folder."""
    name = board.dataset
    title = dataset_title(name) if name in recipe_names() else name
    links = [f"[{words}]({name}-{end})" for end, words in LINKED_FILES.items() if (folder / f"{name}-{end}").is_file()]
    parts = [f"# {markdown_escaped(title)}", "".join(f"    {command}\n" for command in table_commands(board)).rstrip()]
    return "\n\n".join(filter(None, [*parts, " · ".join(links), board.render()]))


def table_commands(board: Board) -> list[str]:
    """Return the commands of a table, without commands repeated later with other seeds."""
    kept: dict[str, str] = {}
    for request in board.records.requests:
        if request.kind == "comparison":
            key = str({name: value for name, value in request.options.items() if name != "seeds"})
            kept.pop(key, None)
            kept[key] = one_line(shlex.join(command_words(request.options)))
    return list(dict.fromkeys(kept.values()))


def answers_page(answers: BoardAnswers, folder: Path) -> str:
    """Return the page of a table's answers in markdown, with the pictures that are beside it in a folder."""
    name = answers.board.dataset
    title = dataset_title(name) if name in recipe_names() else name
    picture = f"{name}-{ANSWERS_PICTURE}.svg"
    tables = answers_tables(answers)
    parts = [
        f"# {markdown_escaped(title)}: answers",
        f"    hierbench answers --dataset {one_line(name)}",
        *([f"![Information given against correct answers]({picture})"] if (folder / picture).is_file() else []),
        *answers.notes,
        CLAIMED_NODES,
        *(f"## {table.title.partition(', ')[2].capitalize()}\n\n{render(table, 'markdown')}" for table in tables),
    ]
    return "\n\n".join(parts)
