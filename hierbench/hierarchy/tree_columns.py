"""The columns of a table that holds a tree: which are levels, in which order.

A column is a level if its name says so, or if no other reading of the table is possible. Everything else is proposed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise, permutations
from typing import NamedTuple

from hierbench.hierarchy.node_paths import NodePath
from hierbench.hierarchy.tree_table import TreeTable
from hierbench.utils.errors import Argument, InputError
from hierbench.utils.text import one_line

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
EPITHETS = ("epithet", "specificepithet", "infraspecificepithet")
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
LEVEL = re.compile(r"(level|lvl|rank|tier|l)\d+|\d+nodes?")
PATH_WORD = re.compile(r"path|lineage|taxonomy|hierarchy")
NUMBERED_HEADER = re.compile(r"(.*?)[_ .-]?(\d{1,3})")
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
OTHERS = re.compile(  # names that are never levels, and what they are
    r"(?P<another_name>.*(common|vernacular|english|german|french|spanish|chinese|japanese).*name|common|vernacular|"
    r"synonyms?|abbreviation|abbr)|(?P<text>author(ship)?|notes?|comments?|remarks?|description|definition|gloss|source|"
    r"url|link|href|rank|taxonrank|status|taxonomicstatus|date|time)|(?P<flag>(is|has).*|split|seen|native)"
)
IDS = re.compile(
    r"unnamed\d*|index|idx|.*id|id.*|.*key|tsn|number|uuid|guid|hash|.*(file|filename|image|photo|thumbnail|dirname|path)|"
    r"image.*|sample|specimen|patient|subject"
)
FLAG_WORDS = frozenset("yes no y n true false t f 0 1 on off seen unseen train val valid test".split())
FEW_VALUES = "one value or two"
CODES = re.compile(r"code|.*code")
ID_CELL = re.compile(r".+\.(jpe?g|png|webp|gif|bmp|tiff?|wav|mp3|txt|json)|(?=.*\d)[0-9a-f-]{16,}", re.IGNORECASE)
NUMBER_CELL = re.compile(r"[+-]?(\d+([.,]\d*)*|[.,]\d+)([eE][+-]?\d+)?%?|[(\[]?\d+([,; ]+\d+)*[)\]]?|#[0-9a-fA-F]{3,8}")
NUMERIC = "numbers"
PARENT = re.compile(r"parent.*|hypernym|broader|isa|source|up")
MAX_PROPOSALS = 4
MAX_PERMUTED = 5  # columns of which all orders are tried
MAX_COMBINED = 12  # columns of which all choices are tried
MAX_TRIED_CELLS = 1 << 21


def is_level_word(word: str) -> bool:
    """Whether a word names a level."""
    return word in RANKS or word in GROUPS or LEVEL.fullmatch(word) is not None


def is_known_word(word: str) -> bool:
    """Whether a word names a column of trees, as far as it is known here."""
    patterns = (IDS, CODES, OTHERS, COUNTS, PATH_WORD)
    return is_level_word(word) or word in NAME_COLUMNS or any(pattern.fullmatch(word) for pattern in patterns)


class LeftOut(NamedTuple):
    """A column that is no level, and why."""

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
        return len({path[-1:] for path in self.paths}) == len(set(self.paths))

    @cached_property
    def nests(self) -> bool:
        """Whether every name has one parent, and the classes differ."""
        if not all(self.paths) or not self.is_unique:
            return False
        pairs = {(above, name) for path in self.paths for above, name in zip(("", *path), path, strict=False)}
        pairs = {(above, name) for above, name in pairs if above != name}  # a family and its one variant
        return len(pairs) == len({name for _, name in pairs})


def rank_columns(table: TreeTable) -> tuple[Order, list[LeftOut], str]:
    """Return the levels of a table of paths in their order, the columns that are left out, and a note.

    Raises:
        ValueError: the names of columns do not say which are levels, and their cells do not either.
    """
    columns = tuple(range(table.width))
    if table.width == 1:
        return order_rows(table, [0]), [], ""
    reasons = {i: reason_against(table, i) for i in columns}
    excluded = {i: reason for i, reason in reasons.items() if reason}
    order, kept, is_declared = _levels(table, columns, excluded)
    left_out = [LeftOut(i, excluded.get(i, "no level by its name")) for i in columns if i not in kept]
    if order is None or (left_out and not table.header):
        raise _proposals(table, excluded)
    if not is_declared and any(_may_be_level(table, order, out) for out in left_out):
        raise _proposals(table, excluded)
    moved = order.columns not in (kept, kept[::-1]) and not table.header
    note = "columns put in the order in which they nest" if moved else ""
    return order_rows(table.distinct(kept) if left_out else table, order.columns), left_out, note


def _levels(
    table: TreeTable, columns: tuple[int, ...], excluded: dict[int, str]
) -> tuple[Order | None, tuple[int, ...], bool]:
    """Return the levels in their order, None where it is unclear, their columns, and whether names declare them all."""
    words = {i: table.word(i) for i in columns}
    ranked = _ranked(table, words)
    if ranked is None:
        return None, columns, False
    num_certain = sum(words[i] not in AMBIGUOUS for i in ranked)
    by_rank = order_rows(table, _with_name(table, ranked)) if num_certain > 1 else None
    if by_rank is not None and num_certain > 2:
        return by_rank, by_rank.columns, True
    numbered = _numbered(words)
    if numbered and not any(word in GROUPS for i, word in words.items() if i not in numbered):
        return order_rows(table, numbered), tuple(sorted(numbered)), True
    named = {i for i, word in words.items() if word in GROUPS or LEVEL.fullmatch(word) or i in (*ranked, *numbered)}
    named -= {i for i in named if not any(table.values[i])}
    kept = tuple(i for i in columns if i in named or i not in excluded)
    orders = _nesting_orders(table, kept) if len(kept) > 1 else []
    if len(orders) == 1:
        return orders[0], kept, False
    if by_rank is not None:
        return by_rank, tuple(sorted(by_rank.columns)), True
    by_word = next((order for order in orders if list(order.columns) == ranked), None)
    if by_word is not None:
        return by_word, kept, False
    if set(kept) == named and len(kept) > 1:  # in which one name may be below several
        by_group = tuple(sorted(kept, key=lambda i: GROUPS.get(words[i], -1)))
        for columns in (kept, kept[::-1], by_group):
            places = [GROUPS[words[i]] for i in columns if words[i] in GROUPS]
            in_rank = [i for i in columns if i in ranked] == ranked
            if places != sorted(places) or not in_rank or (orders and len(set(places)) < len(places)):
                continue  # where several orders nest, words alone decide
            order = order_rows(table, columns)
            if order.is_unique and all(order.paths):
                return order, kept, False
    return None, kept, False


def _ranked(table: TreeTable, words: dict[int, str]) -> list[int] | None:
    """Return the columns that are named by ranks, coarsest first; last a "class" that has the labels, and is no rank.

    It has them if it has more values than the rank below it. None where it may be either.
    """
    ranked = [i for _, i in sorted((RANKS[word], i) for i, word in words.items() if word in RANKS)]
    sizes = {i: len(table.values[i]) for i in ranked}
    for i, below in pairwise(ranked):
        if words[i] in GROUPS and sizes[i] == max(sizes.values()):
            if sizes[i] > sizes[below]:
                return [*(other for other in ranked if other != i), i]
            return ranked if sum(words[rank] not in AMBIGUOUS for rank in ranked) > 2 else None
    return ranked


def _numbered(words: dict[int, str]) -> list[int]:
    """Return the columns whose names differ in a number alone, as level1 and level2, in its order."""
    series: dict[str, dict[int, int]] = {}
    for i, word in words.items():
        match = NUMBERED_HEADER.fullmatch(word)
        if match and match[1] and not COUNTS.fullmatch(match[1]) and not IDS.fullmatch(match[1]):
            series.setdefault(match[1], {})[int(match[2])] = i
    several = [places for places in series.values() if len(places) > 1]
    return [several[0][number] for number in sorted(several[0])] if len(several) == 1 else []


def reason_against(table: TreeTable, i: int) -> str:
    """Return why a column can be no level unless its name says so, or ""."""
    word = table.word(i)
    cells = {cell for cell in table.values[i] if cell}
    if not cells:
        return "empty"
    if other := OTHERS.fullmatch(word):
        return str(other.lastgroup).replace("_", " ")
    if word and (COUNTS.fullmatch(word) or (IDS.fullmatch(word) and not PATH_WORD.fullmatch(word))):
        return "ids or counts"
    if all(map(NUMBER_CELL.fullmatch, cells)):
        return NUMERIC
    if all(map(ID_CELL.fullmatch, cells)):
        return "ids or counts"
    if (len(cells) == 2 or (table.header and len(cells) == 1)) and {cell.casefold() for cell in cells} <= FLAG_WORDS:
        return "flag"
    return FEW_VALUES if len(cells) < 3 and table.header and len(table.rows) > len(cells) else ""


def _may_be_level(table: TreeTable, order: Order, out: LeftOut) -> bool:
    """Whether a column that is left out for its cells may be a level, or hold the classes."""
    if out.reason not in (FEW_VALUES, NUMERIC):
        return False
    if table.is_unique(out.column):  # classes, unless the rows have others
        return len(set(order.paths)) < len(table.rows)
    return any(wider.columns[-1] == order.columns[-1] for wider in _nesting_orders(table, (*order.columns, out.column)))


def _with_name(table: TreeTable, ranked: list[int]) -> list[int]:
    """Return ranks with the column of names below them, where the last rank is an epithet or not the class."""
    names = [i for name in NAME_COLUMNS for i in range(table.width) if table.word(i) == name and i not in ranked]
    name = next((i for i in names if table.is_unique(i)), None)
    last = table.word(ranked[-1])
    if name is not None and last in EPITHETS:  # which alone is no name
        return [*ranked[:-1], name]
    if name is None or table.column(name) == table.column(ranked[-1]):
        return ranked
    return [*ranked, name] if RANKS[last] < RANKS["species"] or not table.is_unique(ranked[-1]) else ranked


def _nesting_orders(table: TreeTable, columns: Sequence[int]) -> list[Order]:
    """Return the orders of columns in which each value lies below one value of the column before."""
    sizes = {i: len(table.values[i]) for i in columns}
    if len(columns) > MAX_PERMUTED and len(set(sizes.values())) < len(columns):
        return []  # those of as many values may nest in several orders
    by_size = sorted(columns, key=sizes.__getitem__)
    several = permutations(columns) if len(columns) <= MAX_PERMUTED else (columns, columns[::-1], by_size)
    orders = dict.fromkeys(map(tuple, several))
    if not any("" in table.values[i] for i in columns):  # then a column has no fewer values than one above it
        orders = {ways: None for ways in orders if all(sizes[a] <= sizes[b] for a, b in pairwise(ways))}
    distinct = table.distinct(columns)
    return [order for order in (order_rows(distinct, ways) for ways in orders) if order.nests]


def order_rows(table: TreeTable, columns: Sequence[int]) -> Order:
    """Return the paths of all rows along columns, without missing levels."""
    paths = list(zip(*(table.column(i) for i in columns), strict=True))
    if any("" in table.values[i] for i in columns):
        paths = [tuple(filter(None, path)) for path in paths]
    return Order(tuple(columns), paths)


def joined_columns(table: TreeTable, order: Order) -> Argument | None:
    """Return the argument that joins columns to unique classes, None if none does."""
    columns = list(order.columns)
    for first in range(len(columns) - 2, -1, -1):
        joined = [tuple(row[i] for i in columns[first:]) for row in table.rows]
        if len(set(joined)) == len(set(order.paths)):
            titles = [table.title(i) for i in columns]
            choice = ",".join([*titles[:-1], "+".join(titles[first:])])
            return Argument("columns", choice)
    return None


def _proposals(table: TreeTable, excluded: dict[int, str]) -> InputError:
    """Return an error that shows which columns could be levels: the option, the sizes and the first path of each."""
    possible = [i for i in range(table.width) if excluded.get(i) in (None, FEW_VALUES, NUMERIC)]
    orders: dict[tuple[int, ...], Order] = {}
    if len(possible) > 1 and (complete := order_rows(table, possible)).is_unique:
        orders[complete.columns] = complete
    num_tried = 0
    for size in range(min(len(possible), MAX_PERMUTED), 1, -1):
        for columns in combinations(possible, size) if len(possible) <= MAX_COMBINED else ():
            num_tried += size * len(table.rows)
            if num_tried > MAX_TRIED_CELLS:
                break
            orders |= {order.columns: order for order in _nesting_orders(table, columns)}
    if any(map(table.is_unique, possible)):  # then it names the classes
        orders = {columns: order for columns, order in orders.items() if table.is_unique(columns[-1])}
    # The likeliest first: columns that differ in every row, numbers, and columns of few values are no levels.
    doubts = {
        columns: sum(i in excluded for i in columns) + any(map(table.is_unique, columns[:-1])) for columns in orders
    }
    orders = {
        columns: orders[columns] for columns in sorted(orders, key=lambda columns: (doubts[columns], -len(columns)))
    }
    lines = ["its columns do not say which are the levels of the tree; name them, coarsest first, as one of:"]
    arguments = [table.choice(columns) for columns in list(orders)[:MAX_PROPOSALS]]
    for argument, order in zip(arguments, orders.values(), strict=False):
        sizes = [len({path[: level + 1] for path in order.paths}) for level in range(len(order.columns))]
        path = " > ".join(one_line(part, 30) for part in order.paths[0])
        lines.append(f"  {argument}  ({' > '.join(map(str, sizes))} nodes; {path})")
    if table.has_empty and "" in table.values[0]:
        arguments.append(Argument("fill", True))
        lines.append(f"  {arguments[-1]}  (an empty cell means the cell above)")
    if not orders:
        arguments = [Argument("columns")]
        titles = ", ".join(map(table.title, possible[:MAX_COMBINED])) + ", ..." * (len(possible) > MAX_COMBINED)
        problem = "do not nest" if len(possible) <= MAX_COMBINED else f"are {len(possible):,}"
        lines = [f"its columns {problem}; name the levels with {arguments[0]} {titles}"]
    return InputError("\n".join(lines), *arguments)
