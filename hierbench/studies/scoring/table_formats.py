"""The formats of tables of predictions, .csv, .parquet and .json, each read as a data frame."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from hierbench.studies.scoring.column_roles import NUMBERED, ROLES
from hierbench.utils.errors import UserError
from hierbench.utils.files import open_regular, read_bytes

LARGEST_JSON = 1 << 28  # bytes
CELLS = 1 << 22  # numbers parsed at a time
MAX_VALUES = 1 << 28  # of a .parquet, which may repeat one without limit
LONGEST_LINE = 1 << 26  # bytes of the first lines of a .csv
MORE_COLUMNS = 1000  # of a .csv beside those of its classes


def read_frame(path: Path, num_classes: int) -> pd.DataFrame:
    """Return a table with text as column names; ids and classes that look like numbers stay text in a .csv."""
    kind = path.suffix.lower()
    if kind == ".csv":
        frame = _csv(path, num_classes)
    elif kind == ".parquet":
        frame = _parquet(path)
    else:
        frame = _json(path)
    frame.columns = [str(name) for name in frame.columns]
    return frame


def _csv(path: Path, num_classes: int) -> pd.DataFrame:
    """Read a table whose separator is that of its header: a semicolon, also with decimal commas, a tab or a comma."""
    with open_regular(path, follow=True) as file:
        header = file.readline(LONGEST_LINE).decode("utf-8-sig", "replace")
        separator = max(";\t,", key=header.count)
        if header.count(separator) > MORE_COLUMNS + 4 * num_classes:
            raise UserError(
                f"{path.name} has {header.count(separator) + 1:,} columns, too many for {num_classes:,} classes"
            )
        row = file.readline(LONGEST_LINE).decode("utf-8-sig", "replace")
        decimal = "," if separator == ";" and re.search(r"\d,\d", row) else "."
        options: dict[str, Any] = {"sep": separator, "decimal": decimal, "encoding": "utf-8-sig"}
        file.seek(0)
        columns = pd.read_csv(file, nrows=0, **options).columns
        prefixes = {name: NUMBERED.sub(r"\1", str(name)).casefold() for name in columns}
        as_text = {name: str for name, prefix in prefixes.items() if prefix in ROLES or str(name).casefold() in ROLES}
        file.seek(0)
        rows = max(1, CELLS // max(1, len(columns)))
        options |= {"dtype": as_text, "keep_default_na": False}
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
            content = pyarrow.parquet.ParquetFile(file)
            groups = [content.metadata.row_group(i) for i in range(content.metadata.num_row_groups)]
            num_values = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
            table = None if num_values > MAX_VALUES else content.read()
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"it is not a complete .parquet file ({error})") from None
    if table is None:
        raise ValueError(f"it has {num_values:,} values, more than {MAX_VALUES:,}; save arrays with numpy.savez")
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
    if isinstance(content, dict) and all(isinstance(row, list) for row in content.values()) and _has_role(content):
        sizes = {len(values) for values in content.values()}
        if len(sizes) > 1:
            raise ValueError(f"its lists have {min(sizes)} to {max(sizes)} entries")
        return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in content.items()})
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


def _has_role(content: dict[str, Any]) -> bool:
    return any(name.casefold() in ROLES for name in content)


def _is_ranking(row: Any) -> bool:
    """Whether a row is [{"label": name, "score": number}, ...]."""
    return (
        isinstance(row, list) and bool(row) and all(isinstance(e, dict) and e.keys() == {"label", "score"} for e in row)
    )
