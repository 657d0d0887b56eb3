"""Predictions in tables, .csv, .parquet and .json, also those of timm's `inference.py`.

Shapes: N examples, K classes, k ranked classes.

A row is an example. Columns are found by name: an id, a target, and either a column of scores for every class (named as
the class, or numbered from 0: `prob_0`, `prob_1`), or ranked classes (`index_0`, `label_0`) with or without their
scores. A single column may hold a list in each cell instead of numbered columns.
"""

import json
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.studies.scoring.column_roles import ROLES, find_role, refuse_smaller_better
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.files import open_regular, read_bytes

LARGEST_JSON = 1 << 28  # bytes
CELLS = 1 << 22  # numbers parsed at a time
SPLIT_NAMES = ("train", "val", "test")
NUMBERED_COLUMN = re.compile(r"(.*?)[_. -]?(\d{1,6})")
FOR_TIMM = "timm's inference.py writes the classes with --include-index, or the scores of all classes with --topk 0"


def read_table(path: Path, tree: Hierarchy, *, only_targets: bool = False) -> dict[str, NDArray[Any]]:
    """Read the parts of a table: "scores", "classes", "targets" and "ids", as far as they are there.

    Classes and targets may be names or numbers; `only_targets` looks for nothing but targets and ids.

    Raises:
        UserError: its columns are not understood.
        OSError, ValueError: it cannot be read or is damaged.
    """
    where = path.name
    frame = _only_test(_frame(path), where)
    if not len(frame):
        raise UserError(f"{where} has no rows")
    columns = list(frame.columns)
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise UserError(f"{where} has two columns {twice!r}")
    named = not only_targets and _named_as_classes(columns, tree, where)
    classes = set(tree.classes) if named else set[str]()
    by_role: dict[str, str] = {}
    for name in columns:
        role = find_role(name)
        if role in ("ids", "targets") and name not in classes:
            if role in by_role:
                raise UserError(f"{where}: columns {by_role[role]!r} and {name!r} could both be the {role}")
            by_role[role] = name
    parts = {role: frame[name].to_numpy() for role, name in by_role.items()}
    others = [name for name in columns if name not in classes and name not in by_role.values()]
    labels = [name for name in others if find_role(name) == "labels"]
    if only_targets:
        labels = labels or (others if len(others) == 1 else [])
        if "targets" not in parts and not labels:
            raise UserError(f"{where} has no column of targets; it has {_join_first(columns)}")
        return {"targets": frame[labels[0]].to_numpy(), **parts} if labels else parts
    if not named:
        return _read_numbered(frame[others], tree, where) | parts
    odd = [name for name in others if find_role(name) not in ("labels", "classes")]
    if odd:
        raise UserError(f"{where}: column {odd[0]!r} is not a class of the tree")
    targets = {"targets": frame[labels[0]].to_numpy()} if labels else {}
    scores = _numbers(frame[list(tree.classes)], where)
    return {"scores": scores, "names": np.array(tree.classes), **targets, **parts}


def _named_as_classes(columns: Sequence[str], tree: Hierarchy, where: str) -> bool:
    """Whether columns are named as the classes; a UserError if a class has no column, or one that differs in case."""
    folded = {name.casefold() for name in tree.classes}
    named = [name for name in columns if name.casefold() in folded]
    if len(named) < 2 or 2 * len(named) < tree.num_classes:
        return False
    missing = [name for name in tree.classes if name not in set(named)]
    if missing:
        meant = next((name for name in named if name.casefold() == missing[0].casefold()), "")
        hint = f"; column {meant!r} differs in case: rename it to {missing[0]!r}" if meant else ""
        raise UserError(
            f"{where}: no column for {len(missing):,} of {tree.num_classes:,} classes: {missing[0]!r}{hint}"
        )
    return True


def _read_numbered(frame: pd.DataFrame, tree: Hierarchy, where: str) -> dict[str, NDArray[Any]]:
    """Return the parts of a table with numbered columns, or with a list in each cell."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in frame.columns:
        match = NUMBERED_COLUMN.fullmatch(name)
        prefix, number = (match[1], int(match[2])) if match else (name, -1)
        groups.setdefault(prefix, []).append((number, name))
    parts: dict[str, NDArray[Any]] = {}
    prefixes: dict[str, str] = {}
    for prefix, members in groups.items():
        role = find_role(prefix)
        if role == "scores":
            refuse_smaller_better(prefix)
        if role in parts:
            raise UserError(f"{where}: columns {prefixes[role]!r} and {prefix!r} could both be the {role}")
        numbers = sorted(number for number, _ in members)
        if numbers[0] >= 0 and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise UserError(f"{where}: the columns {prefix}_0, {prefix}_1, ... are not all there")
        if numbers[0] not in (-1, 0, 1):
            raise UserError(f"{where}: the columns {prefix}... begin with {numbers[0]}, not with 0")
        cells = frame[[name for _, name in sorted(members)]]
        parts[role] = _cells(cells, where, numeric=role == "scores")
        prefixes[role] = prefix
    scores, labels, classes = (parts.get(role) for role in ("scores", "labels", "classes"))
    one_label = labels is None or labels.shape[1] == 1
    if scores is not None and scores.shape[1] == tree.num_classes and classes is None and one_label:
        # Sorted in every row: the classes are not known.
        if len(scores) > 1 and scores.shape[1] > 3 and (np.diff(scores, axis=1) <= 0).all() and np.ptp(scores) > 0:
            prefix = prefixes["scores"]
            raise UserError(f"{where}: {prefix}... is sorted in every row, so its columns are not classes; {FOR_TIMM}")
        return {"scores": scores} if labels is None else {"scores": scores, "targets": labels[:, 0]}
    classes = labels if classes is None else classes
    if classes is None:
        if scores is None:
            raise UserError(f"{where} has no column of scores or classes; it has {_join_first(list(frame.columns))}")
        raise UserError(
            f"{where} has {scores.shape[1]:,} columns of scores, the tree has {tree.num_classes:,} classes; {FOR_TIMM}"
        )
    if scores is not None and scores.shape != classes.shape:
        raise UserError(f"{where} has {classes.shape[1]:,} ranked classes and {scores.shape[1]:,} scores per row")
    return {"classes": classes} if scores is None else {"classes": classes, "scores": scores}


def _only_test(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Return the test rows of a table that has a column `split`, all rows of another."""
    column = next((name for name in frame.columns if find_role(name) == "split"), None)
    if column is None:
        return frame
    names = frame[column].astype(str)
    for name in names.unique():
        if name not in SPLIT_NAMES:
            raise unknown_name(f"split in {where}:", name, SPLIT_NAMES)
    return frame[names == "test"].drop(columns=column).reset_index(drop=True)


def _join_first(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:40]) for name in names[:8]) + ", ..." * (len(names) > 8)


def _cells(frame: pd.DataFrame, where: str, *, numeric: bool) -> NDArray[Any]:
    """Return columns, or the lists in the cells of one column, as an array [N, k]."""
    first = frame.iloc[0, 0]
    if frame.shape[1] > 1 or not (isinstance(first, list | np.ndarray) or str(first).startswith("[")):
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


def _frame(path: Path) -> pd.DataFrame:
    """Return a table with text as column names; ids and classes that look like numbers stay text in a .csv."""
    kind = path.suffix.lower()
    if kind == ".csv":
        frame = _csv(path)
    elif kind == ".parquet":
        frame = _parquet(path)
    else:
        frame = _json(path)
    frame.columns = [str(name) for name in frame.columns]
    return frame


def _csv(path: Path) -> pd.DataFrame:
    with open_regular(path, follow=True) as file:
        header = pd.read_csv(file, nrows=0, encoding="utf-8-sig")
        as_text = {name: str for name in header.columns if str(name).casefold() in ROLES}
        file.seek(0)
        rows = max(1, CELLS // max(1, len(header.columns)))
        options: dict[str, Any] = {"dtype": as_text, "keep_default_na": False, "encoding": "utf-8-sig"}
        try:
            with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
                parts = list(pd.read_csv(file, chunksize=rows, index_col=False, **options))
        except pd.errors.ParserWarning:
            raise ValueError("a row has more cells than the header") from None
    return pd.concat(parts, ignore_index=True) if len(parts) != 1 else parts[0]


def _parquet(path: Path) -> pd.DataFrame:
    import pyarrow.parquet

    with open_regular(path, follow=True) as file:
        try:
            table = pyarrow.parquet.ParquetFile(file).read()
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"it is not a complete .parquet file ({error})") from None
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


def _json(path: Path) -> pd.DataFrame:
    """Return the rows of JSON, {id: row}, {"columns", "data"}, a list of rows, or a row per line."""
    text = read_bytes(path, LARGEST_JSON, follow=True).decode("utf-8-sig")
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError:
        content = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(content, dict) and content.keys() >= {"columns", "data"}:
        return pd.DataFrame(content["data"], columns=content["columns"])
    if isinstance(content, dict) and content and all(isinstance(row, str | int) for row in content.values()):
        return pd.DataFrame({"filename": list(content), "predicted": list(content.values())})
    if isinstance(content, list) and content and all(map(_is_ranking, content)):  # of a Hugging Face pipeline
        rows = [sorted(row, key=lambda entry: -entry["score"]) for row in content]
        return pd.DataFrame([{key: [entry[key] for entry in row] for key in ("label", "score")} for row in rows])
    if isinstance(content, dict) and content and all(isinstance(row, dict) for row in content.values()):
        return pd.DataFrame([{"filename": name, **row} for name, row in content.items()])
    if isinstance(content, list) and all(isinstance(row, dict) for row in content):
        return pd.DataFrame(content)
    raise ValueError("it holds no table: {id: row}, {columns, data}, or a list of rows")


def _is_ranking(row: Any) -> bool:
    """Whether a row is [{"label": name, "score": number}, ...]."""
    return (
        isinstance(row, list) and bool(row) and all(isinstance(e, dict) and e.keys() == {"label", "score"} for e in row)
    )
