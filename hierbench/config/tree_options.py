"""How to read a tree, where its form leaves a choice: options of commands, keys of recipes, arguments of Python."""

from dataclasses import dataclass
from typing import Annotated, Literal

Form = Literal["paths", "edges", "ids"]
Parents = Literal["error", "first", "shortest", "longest"]
Inner = Literal["error", "leaf"]


@dataclass(frozen=True)
class TreeOptions:
    """The options, see `Hierarchy.read`."""

    columns: Annotated[str, "Of a tree's table, coarsest first, as in family,genus+epithet; or by number from 1."] = ""
    form: Annotated[Form | None, "Of a tree's table, where it could be several."] = None
    parents: Annotated[Parents, "Which parent to keep of a node that has several: that of the shortest path, ..."] = (
        "error"
    )
    inner: Annotated[Inner, "leaf: a class that is also a parent gets a leaf below it."] = "error"
    encoding: Annotated[str, "Of a tree's file."] = "utf-8"
    separator: Annotated[str, "Of the columns of a tree's table; by default that of all its rows."] = ""

    @property
    def choices(self) -> list[str]:
        """The chosen columns, each a name, a number from 1, or several joined by +."""
        return [choice.strip() for choice in self.columns.split(",")] if self.columns else []


DEFAULT_OPTIONS = TreeOptions()
