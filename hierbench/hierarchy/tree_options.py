"""How to read a tree, where its form leaves a choice: options of commands, keys of recipes, arguments of Python."""

from dataclasses import dataclass
from typing import Annotated, Literal

Form = Literal["paths", "edges", "ids"]
Parents = Literal["error", "first", "shortest", "longest"]
Inner = Literal["error", "leaf", "drop"]


@dataclass(frozen=True)
class TreeOptions:
    """The options, see `Hierarchy.read`."""

    columns: Annotated[str, "Of a tree's table, coarsest first, as in family,genus+epithet; or by number from 1."] = ""
    form: Annotated[Form | None, "Of a tree's table, where it could be several."] = None
    parents: Annotated[Parents, "Which parent to keep of a node that has several: that of the shortest path, ..."] = (
        "error"
    )
    inner: Annotated[
        Inner, "Of classes that are also parents: leaf makes a leaf below each, drop takes them as nodes alone."
    ] = "error"
    encoding: Annotated[str, "Of a tree's file."] = "utf-8"
    fill: Annotated[bool, "Empty cells of a tree's table mean the cell above, as of merged cells."] = False
    fix: Annotated[str, "Mend slips in the names of a tree: case, placeholders, separated by commas."] = ""
    accept: Annotated[str, "Findings that are meant, by their kinds, separated by commas."] = ""
    separator: Annotated[str, "Of the columns of a tree's table; by default that of all its rows."] = ""

    @property
    def fills(self) -> bool:
        """Whether empty cells mean the cell above."""
        return self.fill or "fill" in self.fix.split(",")

    @property
    def fixes(self) -> list[str]:
        """The kinds of slips to mend."""
        return [kind.strip() for kind in self.fix.split(",") if kind.strip() and kind.strip() != "fill"]

    @property
    def accepted(self) -> list[str]:
        """The kinds of findings that are meant."""
        return [kind.strip() for kind in self.accept.split(",") if kind.strip()]

    @property
    def choices(self) -> list[str]:
        """The chosen columns, each a name, a number from 1, or several joined by +."""
        return [choice.strip() for choice in self.columns.split(",")] if self.columns else []


DEFAULT_OPTIONS = TreeOptions()
