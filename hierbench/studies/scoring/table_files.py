"""Predictions in tables, .csv, .parquet and .json, also those of timm's `inference.py`.

Shapes: N examples, K classes, k ranked classes.

A row is an example. Columns are found by name: an id, a target, and either a column of scores for every class (named as
the class, or numbered from 0: `prob_0`, `prob_1`), or ranked classes (`index_0`, `label_0`) with or without their
scores. A single column may hold a list in each cell instead of numbered columns.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hierbench.hierarchy.class_names import inner_numbers
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.studies.scoring.column_roles import NUMBERED, ROLES, class_columns, find_role
from hierbench.studies.scoring.table_formats import read_frame
from hierbench.utils.errors import Argument, InputError, UserError, unknown_name

MOST_NAMED = 8  # columns, in an error
SPLIT_NAMES = ("train", "val", "test")
FOR_TIMM = "timm's inference.py writes the classes with --include-index, or the scores of all classes with --topk 0"


def read_table(
    path: Path, tree: Hierarchy, *, only_targets: bool = False, ignored: Sequence[str] = (), group: str = ""
) -> dict[str, NDArray[Any]]:
    """Read the parts of a table: "scores", "names" of their columns, "classes", "targets", "ids", as they are there.

    Classes and targets may be names or numbers; `only_targets` looks for nothing but targets and ids; `ignored` columns
    are left out, numbered ones by their common name; the column `group` is the part "groups".

    Raises:
        UserError: its columns are not understood.
        OSError, ValueError: it cannot be read or is damaged.
    """
    where = path.name
    frame = _only_test(_without(read_frame(path, tree.num_classes), ignored, where), where)
    if not len(frame):
        raise UserError(f"{where} has no rows")
    grouped = {}
    if group:
        if group not in frame.columns:
            raise unknown_name(f"column of {where}", group, list(frame.columns))
        grouped = {"groups": frame.pop(group).to_numpy()}
    columns = list(frame.columns)
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise UserError(f"{where} has two columns {twice!r}")
    class_by_column = {} if only_targets else class_columns(columns, tree, where)
    groups = _groups([name for name in columns if name not in class_by_column], where, lenient=only_targets)
    if only_targets:
        chosen = groups.get("targets") or groups.get("labels") or groups.get("")
        if chosen is None or len(chosen) != 1:
            raise UserError(f"{where} has no column of targets; it has {_join_first(columns)}")
        return {"targets": frame[chosen[0]].to_numpy()} | _single(frame, groups, "ids", where)
    ranks = [] if class_by_column or groups.keys() & {"scores", "classes"} else groups.get("", [])
    answers = _deepest_nodes(frame[ranks], tree) if len(ranks) > 1 else None
    if answers is not None:
        parts = _single(frame, groups, "ids", where) | _single(frame, groups, "targets", where)
        return parts | grouped | {"classes": answers}
    if "" in groups:
        raise _not_understood(groups[""], where, are_classes=bool(class_by_column))
    num_scores = _num_entries(frame, groups, "scores")
    if "targets" not in groups and _num_entries(frame, groups, "labels") == 1:
        is_answer = any(name.casefold() in ("index", "index_0") for name in columns)  # its name, which timm writes
        if class_by_column or ("classes" in groups and not is_answer) or num_scores == tree.num_classes:
            groups["targets"] = groups.pop("labels")
    parts = _single(frame, groups, "ids", where) | _single(frame, groups, "targets", where) | grouped
    ranked = groups.get("labels") or groups.get("classes")  # names rather than numbers, where both are there
    if ranked is not None:
        parts["classes"] = _cells(frame[ranked], where, numeric=False)
    if class_by_column:
        parts["names"] = np.array(list(class_by_column.values()))
        return parts | {"scores": _numbers(frame[list(class_by_column)], where)}
    if "scores" in groups:
        parts["scores"] = _cells(frame[groups["scores"]], where, numeric=True)
        _check_scores(parts, groups["scores"][0], tree, where)
    if not parts.keys() & {"scores", "classes"}:
        raise UserError(f"{where} has no column of scores or classes; it has {_join_first(columns)}")
    return parts


def _not_understood(names: Sequence[str], where: str, *, are_classes: bool) -> InputError:
    """Return the error for columns without a role, which should be classes where the others are."""
    choice = Argument("ignore", ",".join(dict.fromkeys(map(_common_name, names[:MOST_NAMED]))))
    if len(names) == 1:
        problem = f"column {names[0]!r} is not {'a class of the tree' if are_classes else 'understood'}"
    else:
        problem = f"columns {_join_first(names)} are {'no classes of the tree' if are_classes else 'not understood'}"
    return InputError(f"{where}: {problem}; to leave out what is not needed, {choice}", choice)


def _common_name(column: str) -> str:
    """Return the name that numbered columns have in common; of another its own."""
    match = NUMBERED.fullmatch(column)
    return match[1] if match and match[1] else column


def _without(frame: pd.DataFrame, ignored: Sequence[str], where: str) -> pd.DataFrame:
    """Return a table without some columns, each named, or numbered with a common name."""
    prefix_by_column = {name: _common_name(name) for name in frame.columns}
    for name in ignored:
        if name not in {*prefix_by_column, *prefix_by_column.values()}:
            raise UserError(f"{where} has no column {name!r}; it has {_join_first(list(frame.columns))}")
    left_out = [name for name, prefix in prefix_by_column.items() if {name, prefix} & set(ignored)]
    return frame.drop(columns=left_out)


def _groups(columns: Sequence[str], where: str, *, lenient: bool) -> dict[str, list[str]]:
    """Return {role: its columns, in the order of their numbers}; columns without a role have the role "".

    Raises:
        UserError: two groups of columns have one role, or numbers are missing. Not in `lenient` reading, where a role
            that is not known is no error.
    """
    numbered = dict[str, list[tuple[int, str]]]()
    for name in columns:
        is_whole = name.casefold() in ROLES
        match = None if is_whole else NUMBERED.fullmatch(name)
        prefix, number = (match[1], int(match[2])) if match and match[1] else (name, -1)
        numbered.setdefault(prefix, []).append((number, name))
    groups = dict[str, list[str]]()
    prefixes = dict[str, str]()
    for prefix, members in numbered.items():
        role = (ROLES.get(prefix.casefold()) if lenient else find_role(prefix)) or ""
        names = [name for _, name in sorted(members)]
        if role and role in groups and not lenient:
            raise UserError(f"{where}: columns {prefixes[role]!r} and {prefix!r} could both be the {role}")
        numbers = sorted(number for number, _ in members)
        if role and numbers[0] >= 0:
            if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
                raise UserError(f"{where}: the columns {prefix}_0, {prefix}_1, ... are not all there")
            if numbers[0] > 1:
                raise UserError(f"{where}: the columns {prefix}... begin with {numbers[0]}, not with 0")
        groups.setdefault(role, []).extend(names)
        prefixes[role] = prefix
    return groups


def _single(frame: pd.DataFrame, groups: dict[str, list[str]], role: str, where: str) -> dict[str, NDArray[Any]]:
    """Return {role: [N]} of a role that has one column, {} without it."""
    names = groups.get(role, [])
    if len(names) > 1:
        raise UserError(f"{where}: columns {names[0]!r} and {names[1]!r} could both be the {role}")
    return {role: frame[names[0]].to_numpy()} if names else {}


def _deepest_nodes(frame: pd.DataFrame, tree: Hierarchy) -> NDArray[Any] | None:
    """Return the answers [N] of a table with a column for each rank, the last name of each row; None of another."""
    nodes = {*tree.classes, *inner_numbers(tree), ""}
    texts = frame.fillna("").astype(str)
    if not all(set(texts[name]) <= nodes for name in texts) or not texts.to_numpy().astype(bool).any(axis=1).all():
        return None
    rows = texts.to_numpy()
    return np.array([next(cell for cell in reversed(row) if cell) for row in rows.tolist()])


def _num_entries(frame: pd.DataFrame, groups: dict[str, list[str]], role: str) -> int:
    """Return the number of values that a row has of a role, in columns or in the list of one cell."""
    names = groups.get(role, [])
    cell = frame[names[0]].iloc[0] if len(names) == 1 else None
    return len(_list(cell)) if _is_list(cell) else len(names)


def _check_scores(parts: dict[str, NDArray[Any]], column: str, tree: Hierarchy, where: str) -> None:
    """Raise a UserError for scores [N, k] that are neither of all classes nor of the k ranked ones."""
    scores = parts["scores"]
    classes = parts.get("classes")
    if classes is None or (classes.shape[1] == 1 and scores.shape[1] == tree.num_classes > 1):
        if scores.shape[1] != tree.num_classes:
            raise UserError(
                f"{where} has {scores.shape[1]:,} columns of scores, the tree has {tree.num_classes:,} classes; "
                f"{FOR_TIMM}"
            )
        # Sorted in every row: the classes are not known.
        if len(scores) > 1 and scores.shape[1] > 3 and (np.diff(scores, axis=1) <= 0).all() and np.ptp(scores) > 0:
            raise UserError(f"{where}: {column}, ... are sorted in every row, so they are not classes; {FOR_TIMM}")
    elif scores.shape != classes.shape:
        raise UserError(f"{where} has {classes.shape[1]:,} ranked classes and {scores.shape[1]:,} scores per row")


def _only_test(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Return the test rows of a table that has a column `split`, all rows of another."""
    column = next((name for name in frame.columns if name.casefold() == "split"), None)
    if column is None:
        return frame
    names = frame[column].astype(str)
    for name in names.unique():
        if name not in SPLIT_NAMES:
            raise unknown_name(f"split in {where}:", name, SPLIT_NAMES)
    return frame[names == "test"].drop(columns=column).reset_index(drop=True)


def _join_first(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:40]) for name in names[:MOST_NAMED]) + ", ..." * (len(names) > MOST_NAMED)


def _cells(frame: pd.DataFrame, where: str, *, numeric: bool) -> NDArray[Any]:
    """Return columns, or the lists in the cells of one column, as an array [N, k]."""
    first = frame.iloc[0, 0]
    if frame.shape[1] > 1 or not _is_list(first):
        return _numbers(frame, where) if numeric else frame.to_numpy()
    name = frame.columns[0]
    rows = [_list(cell) for cell in frame.iloc[:, 0]]
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise UserError(f"{where}: the lists in column {name!r} have {min(widths)} to {max(widths)} entries")
    if not numeric:
        return np.array([[str(value) for value in row] for row in rows])
    try:
        return np.array(rows, dtype=np.float64)
    except ValueError:
        raise UserError(f"{where}: a list in column {name!r} holds something that is not a number") from None


def _is_list(cell: Any) -> bool:
    return isinstance(cell, list | np.ndarray) or str(cell).startswith("[")


def _list(cell: Any) -> Sequence[Any]:
    """Return the entries of a list, or of the text that Python or NumPy prints of one."""
    if not isinstance(cell, str):
        return list(cell) if isinstance(cell, list | np.ndarray) else [cell]
    quoted = re.findall(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", cell)
    return [text or other for text, other in quoted] or cell.strip("[] \n").replace(",", " ").split()


def _numbers(frame: pd.DataFrame, where: str) -> NDArray[Any]:
    """Return columns of numbers as an array [N, k]; an error names a cell that is not a number."""
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        if kind.kind not in "fiu":
            numbers = pd.to_numeric(frame[name], errors="coerce")
            odd = np.flatnonzero(numbers.isna().to_numpy())
            if odd.size:
                cell = str(frame[name].iloc[odd[0]])[:40]
                raise UserError(f"{where}: {cell!r} in column {name!r}, row {odd[0]} is not a number")
            frame = frame.assign(**{name: numbers})
    return frame.to_numpy()
