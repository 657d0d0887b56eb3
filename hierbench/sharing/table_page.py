"""The page of a published table: a heading, the commands that it was asked for with, its pictures, and the table."""

import shlex
from pathlib import Path

from hierbench.config.recipe import dataset_title, recipe_names
from hierbench.leaderboard.board import Board
from hierbench.runs.requests import command_words
from hierbench.utils.text import markdown_escaped, one_line

LINKED_FILES = {  # files of a publication that its page leads to
    "tradeoff.svg": "accuracy against severity",
    "severity.svg": "severity with intervals",
    "operating.svg": "operating curves",
    "differences.md": "differences from cross-entropy",
    "metrics.md": "more metrics",
    "mistakes.html": "mistakes",
    "collapse.svg": "collapse in training",
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
