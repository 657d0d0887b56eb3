"""A compact letter display: groups of rows of which no two differ, and their letters as tables print them.

R: rows.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 100  # that have letters: the number of pairs grows with its square, and more letters tell nobody anything


def tie_groups(differ: NDArray[np.bool_]) -> list[list[int]]:
    """Return groups of rows of which no two differ, so that any two rows that do not differ share one.

    A compact letter display (Piepho, J. Comput. Graph. Stat. 13, 2004). Every group is maximal, but not all maximal
    groups are needed, and their number can grow exponentially, with it that of the paper's insert-and-absorb steps.
    Here groups are grown from pairs that share none yet, and those whose pairs are all in others are left out (clique
    growing: Gramm et al., Comput. Stat. Data Anal. 52, 2007).

    Args:
        differ: whether two rows differ [R, R], symmetric, in the order of the rows.

    Returns:
        The members of each group, those of the first rows first.
    """
    tied = [sum(1 << int(other) for other in np.flatnonzero(~line)) & ~(1 << row) for row, line in enumerate(differ)]
    together = np.zeros(differ.shape, dtype=np.int32)  # the groups that hold both rows
    groups: list[list[int]] = []

    def grow(group: list[int], common: int) -> None:
        while common:  # the best row that is tied with all
            group.append((common & -common).bit_length() - 1)
            common &= tied[group[-1]]
        groups.append(sorted(group))
        together[np.ix_(group, group)] += 1

    for row, of_row in enumerate(tied):
        if not of_row:
            grow([row], 0)
        for other in range(row + 1, len(tied)):
            if of_row >> other & 1 and not together[row, other]:
                grow([row, other], of_row & tied[other])
    kept = []
    for group in groups:
        block = np.ix_(group, group)
        if len(group) > 1 and (together[block][~np.eye(len(group), dtype=np.bool_)] > 1).all():
            together[block] -= 1
        else:
            kept.append(group)
    return sorted(kept)


def letter(number: int) -> str:
    """Return the name of a group, counted from 0: a to z, then aa, ab, ..."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def number_of(name: str) -> int:
    """Return the number of the group that has this name."""
    number = 0
    for char in name:
        number = 26 * number + ord(char) - ord("a") + 1
    return number - 1


def compact(groups: Sequence[str]) -> str:
    """Return the letters of a row's groups: three or more in a row as a range, commas where a name is longer than one.

    ("a", "b", "c", "f") is a-cf, ("y", "z", "aa", "ac") is y-aa,ac, and no group is an empty text.
    """
    parts = ranges([number_of(name) for name in groups])
    return ("" if all(len(name) == 1 for name in groups) else ",").join(
        letter(first) if first == last else f"{letter(first)}-{letter(last)}" for first, last in parts
    )


def listed(numbers: Sequence[int]) -> str:
    """Return numbers for a reader, three or more in a row as a range: 0-3, 7."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges(numbers))


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of successive numbers; those of a run of two are apart."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [
        pair for run in runs for pair in ([(run[0], run[-1])] if len(run) > 2 else [(number, number) for number in run])
    ]
