"""The columns of a table that holds a tree: which are ranks, in which order, and which cannot be.

What the names of columns say comes first, what their cells say next; where both leave two readings, it is an error.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from hierbench.hierarchy.node_paths import WHOLE_NUMBER, NodePath
from hierbench.hierarchy.tree_table import TreeTable

FILE_NAME = re.compile(r".+\.(jpe?g|png|webp|gif|bmp|tiff?|wav|mp3|txt|json)", re.IGNORECASE)
FLOAT = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|[+-]?\d+[eE][+-]?\d+")
RANKS = {  # of taxonomy, coarsest first
    name: number
    for number, name in enumerate(
        "domain superkingdom empire realm kingdom subkingdom infrakingdom superphylum phylum division subphylum "
        "subdivision infraphylum superclass class subclass infraclass superorder order suborder infraorder parvorder "
        "superfamily family subfamily supertribe tribe subtribe genus subgenus species specificepithet epithet "
        "subspecies infraspecificepithet variety".split()
    )
}
AMBIGUOUS = ("class", "order", "division", "subclass", "superclass")  # words of other trees, too
GROUPS = {  # of everything else, coarsest first
    name: number
    for number, names in enumerate(
        (
            "supersuperclass supersupercategory",
            "superclass supercategory supergroup supercat superlabel coarse coarseclass coarselabel coarsename",
            "group parentclass parentcategory",
            "class category cat label name classname categoryname fine fineclass finelabel finename leaf",
            "subclass subcategory subgroup",
        )
    )
    for name in names.split()
}
LEVEL = re.compile(r"(level|lvl|rank|tier)\d+|path|lineage|taxonomy|hierarchy")
NUMBERED_HEADER = re.compile(r"(.*?)[_ .-]?(\d{1,3})")
EPITHETS = ("epithet", "specificepithet", "infraspecificepithet")
NAME_COLUMNS = (
    "scientificname",
    "canonicalname",
    "name",
    "label",
    "title",
    "classname",
    "species",
    "taxon",
    "displayname",
)
COUNTS = re.compile(
    r"n|(num|number|no|nr|total)?(of)?(images?|photos?|samples?|counts?|size|freq(uency)?|total)|num|count"
)
OTHERS = re.compile(  # names that are never ranks, and what they are
    r"(?P<another_name>.*(common|vernacular|english|german|french|spanish|chinese|japanese).*name|common|vernacular|"
    r"synonyms?|abbreviation|abbr)|(?P<text>author(ship)?|notes?|comments?|remarks?|description|definition|gloss|source|"
    r"url|link|href|rank|taxonrank|status|taxonomicstatus)|(?P<file>file|filename|image|imagefile|imagepath|imagedirname|"
    r"imageurl|thumbnail|photo)"
)
PARENT = re.compile(r"parent.*|hypernym|broader|isa|source|up")
IDS = re.compile(r"unnamed\d*|index|idx|.*id|id.*|.*key|code|tsn|number")


def is_known_word(word: str) -> bool:
    """Whether a word names a column of trees, as far as it is known here."""
    patterns = (IDS, OTHERS, COUNTS, LEVEL)
    return (
        word in RANKS or word in GROUPS or word in NAME_COLUMNS or any(pattern.fullmatch(word) for pattern in patterns)
    )


class LeftOut(NamedTuple):
    """A column that is no rank, and why."""

    column: int
    reason: str


@dataclass(frozen=True)
class Order:
    """Columns coarsest first, and the paths of the rows in this order."""

    columns: tuple[int, ...]
    paths: list[NodePath]

    @cached_property
    def is_unique(self) -> bool:
        """Whether different paths end in different classes."""
        return len({path[-1] for path in self.paths}) == len(set(self.paths))

    @cached_property
    def num_crossings(self) -> int:
        """The number of names with several parents, a parent for each beyond the first."""
        edges = {pair for path in self.paths for pair in pairwise(path)}
        return len(edges) - len({name for _, name in edges})


def rank_columns(table: TreeTable) -> tuple[Order, list[LeftOut], str]:
    """Return the ranks of a table of paths in their order, the columns that are left out, and a note.

    Raises:
        ValueError: two readings remain; it shows both, with the option for each.
    """
    columns = list(range(table.width))
    numbered = _order_of(table, columns, _numbers_of(list(map(table.word, columns))))
    if numbered is not None:
        return numbered, [], ""
    columns, left_out = _possible_ranks(table)
    if left_out:  # a table of photographs has a row for each
        table = table.distinct(columns)
    named = _order_by_names(table, columns)
    if named is not None:
        left_out += [LeftOut(i, "no rank") for i in columns if i not in named.columns]
        return named, sorted(left_out), ""
    numbers = [i for i in columns if table.is_numeric(i)]
    if numbers and len(numbers) < len(columns):
        without = [i for i in columns if i not in numbers]
        # Else a number names the class, or, before it, its group.
        if any(table.is_unique(i) for i in without) and columns != [*numbers, *without][:2]:
            raise ValueError(_two_readings(table, columns, without, f"is {table.title(numbers[0])!r} a rank?"))
    order, fit_nowhere, note = _order_by_cells(table, columns)
    return order, sorted(left_out + fit_nowhere), note


def _possible_ranks(table: TreeTable) -> tuple[list[int], list[LeftOut]]:
    """Return the columns that can be ranks, and the others."""
    left_out: list[LeftOut] = []

    def leave(index: int, reason: str) -> None:
        left_out.append(LeftOut(index, reason))
        columns.remove(index)

    columns = list(range(table.width))
    for i in list(columns):
        word = table.word(i)
        if not any(table.values[i]):
            leave(i, "empty")
        elif len(columns) > 1 and all(map(FILE_NAME.fullmatch, table.values[i])):
            leave(i, "file names")
        elif len(columns) < 2:
            continue
        elif all(map(is_number, table.values[i])) and any(map(FLOAT.fullmatch, table.values[i])):
            leave(i, "numbers")
        elif table.is_numeric(i) and table.header and COUNTS.fullmatch(word):
            leave(i, "numbers")
        elif (other := OTHERS.fullmatch(word)) and len(columns) > 2:
            leave(i, str(other.lastgroup).replace("_", " "))
    texts = [i for i in columns if not table.is_numeric(i)]
    has_name = any(table.is_unique(i) for i in texts)
    for i in [i for i in columns if i not in texts]:
        is_index = bool(table.header) and (not table.word(i) or IDS.fullmatch(table.word(i)) is not None)
        if len(texts) and table.is_unique(i) and (has_name or (is_index and len(texts) > 1)):
            leave(i, "unique numbers")
        elif any(_is_chain(table, (i, j), 2) for j in texts):
            leave(i, "numbers of another column")
    return columns, left_out


def _order_by_names(table: TreeTable, columns: Sequence[int]) -> Order | None:
    """Return columns coarsest first as far as their names say so, None if they do not."""
    words = {i: table.word(i) for i in columns}
    ranked = [i for _, i in sorted((RANKS[word], i) for i, word in words.items() if word in RANKS)]
    if len(ranked) > 1:
        chosen = ranked
        names = [i for name in NAME_COLUMNS for i in columns if words[i] == name and i not in ranked]
        name = next((i for i in names if table.is_unique(i)), None)
        if name is not None and words[ranked[-1]] in EPITHETS:  # which alone is no name
            chosen = [*ranked[:-1], name]
        elif name is not None and not table.is_unique(ranked[-1]):
            chosen = [*ranked, name]
        order = order_rows(table, chosen)
        num_certain = sum(words[i] not in AMBIGUOUS for i in ranked)
        is_whole = len(ranked) > 2 or set(chosen) == set(columns)
        return order if is_whole and num_certain and (num_certain > 1 or order.is_unique) else None
    return None


def _order_of(table: TreeTable, columns: Sequence[int], positions: Mapping[str, int]) -> Order | None:
    """Return columns in the order of the positions of their names, where these differ and the classes then do."""
    places = [(positions[table.word(i)], i) for i in columns if table.word(i) in positions]
    if not len({place for place, _ in places}) == len(places) == len(columns) > 1:
        return None
    order = order_rows(table, [i for _, i in sorted(places)])
    return order if order.is_unique else None


def _numbers_of(words: Sequence[str]) -> dict[str, int]:
    """Return the numbers of names that differ in a number alone, as level1, level2; else none."""
    matches = [NUMBERED_HEADER.fullmatch(word) for word in words]
    if not all(matches) or len({match[1] for match in matches if match}) != 1:
        return {}
    return {match[0]: int(match[2]) for match in matches if match and match[1]}


def _order_by_cells(table: TreeTable, columns: list[int]) -> tuple[Order, list[LeftOut], str]:
    """Return columns in nesting order, the columns without a place, and a note."""
    if len(columns) == 1:
        return order_rows(table, columns), [], ""
    by_size = sorted(columns, key=lambda i: len(table.values[i]))
    if _is_chain(table, by_size):
        moved = by_size not in (columns, columns[::-1])
        return order_rows(table, by_size), [], "columns put in the order in which they nest" if moved else ""
    forward = order_rows(table, columns)
    backward = order_rows(table, columns[::-1])
    valid = [order for order in (forward, backward) if order.is_unique]
    named = _order_of(table, columns, GROUPS)  # these words order columns that their cells do not
    if named is not None:
        valid = [named]
    if not valid:
        if any(table.is_unique(i) for i in columns):
            return _order_around_class(table, by_size)
        return (forward if forward.num_crossings <= backward.num_crossings else backward), [], ""
    if len(valid) == 2 and len(set(forward.paths)) < len(forward.paths):
        return forward, [], ""  # rows that are equal are the error to tell
    if len(valid) == 2 and forward.num_crossings == backward.num_crossings:
        raise ValueError(_two_readings(table, forward.columns, backward.columns, "which end is the class?"))
    order = min(valid, key=lambda order: order.num_crossings)
    pairs = [(i, j) for i, j in pairwise(order.columns) if _is_chain(table, (i, j), 2)]
    if order is not named and pairs and pairs[-1][1] == order.columns[-1] and (table.header or order is backward):
        other = order.columns[:-1] if order is forward else forward.columns
        raise ValueError(_two_readings(table, order.columns, other, "which column names the classes?"))
    alike = "; ".join(f"{table.title(i)} and {table.title(j)}" for i, j in pairs)
    return order, [], f"{alike} divide the classes alike" if alike else ""


def _order_around_class(table: TreeTable, by_size: Sequence[int]) -> tuple[Order, list[LeftOut], str]:
    """Return the one chain of columns that ends in the class, and the names that depend on it and fit nowhere."""
    *above, leaf = by_size
    left_out: list[LeftOut] = []
    while not _is_chain(table, [*above, leaf]):
        fits = [sum(_is_chain(table, sorted((i, j), key=by_size.index)) for j in above) for i in above]
        worst = [i for i, num in zip(above, fits, strict=True) if num == min(fits)]
        if len(worst) > 1 or len(above) < 3:
            first = [i for i in above if i != worst[-1]]
            second = [i for i in above if i != worst[0]]
            question = f"{table.title(worst[0])!r} and {table.title(worst[-1])!r} do not nest"
            raise ValueError(_two_readings(table, [*first, leaf], [*second, leaf], question))
        above.remove(worst[0])
        left_out.append(LeftOut(worst[0], f"depends on {table.title(leaf)}"))
    return order_rows(table, [*above, leaf]), left_out, ""


def _is_chain(table: TreeTable, columns: Sequence[int], ways: int = 1) -> bool:
    """Whether each column determines the one before it; not the other way round, or, with two ways, also that."""
    for coarse, fine in pairwise(columns):
        num = len(set(zip(table.column(coarse), table.column(fine), strict=True)))
        if num != len(table.values[fine]) or (num == len(table.values[coarse])) != (ways == 2):
            return False
    return True


def order_rows(table: TreeTable, columns: Sequence[int]) -> Order:
    """Return the paths of all rows along columns, without missing ranks."""
    paths = list(zip(*(table.column(i) for i in columns), strict=True))
    if any("" in table.values[i] for i in columns):
        paths = [tuple(filter(None, path)) for path in paths]
    row = next((row for row, path in enumerate(paths) if not path), None)
    if row is not None:
        raise ValueError(f"{table.places[row]} has no name in {', '.join(map(table.title, columns))}")
    return Order(tuple(columns), paths)


def join_advice(table: TreeTable, order: Order) -> str:
    """Return the option that joins columns to unique classes, as the beginning of a sentence, or ""."""
    columns = list(order.columns)
    for first in range(len(columns) - 2, -1, -1):
        joined = [tuple(row[i] for i in columns[first:]) for row in table.rows]
        if len(set(joined)) == len(set(order.paths)):
            titles = [table.title(i) for i in columns]
            choice = ",".join([*titles[:-1], "+".join(titles[first:])])
            return f"join them to one name with --columns {choice}; "
    return ""


def _two_readings(table: TreeTable, first: Sequence[int], second: Sequence[int], question: str) -> str:
    def reading(columns: Sequence[int]) -> str:
        return f"{' > '.join(map(table.title, columns))} ({table.option(columns)})"

    return f"it can be read in two ways, {reading(first)} or {reading(second)}: {question}"


def is_number(cell: str) -> bool:
    """Whether a cell is a number, or missing."""
    return not cell or WHOLE_NUMBER.fullmatch(cell) is not None or FLOAT.fullmatch(cell) is not None
