"""The forms in which people have trees: files of text, JSON, Newick or Parquet, and Python objects."""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hierbench.hierarchy.nested_trees import (
    branches_of_keys,
    branches_of_newick,
    branches_of_objects,
    children_key,
    plain_text,
)
from hierbench.hierarchy.node_paths import WHOLE_NUMBER, Branches, check_size, paths_from_edges
from hierbench.hierarchy.tree_columns import NAME_COLUMNS
from hierbench.hierarchy.tree_options import TreeOptions
from hierbench.hierarchy.tree_rows import (
    EDGES_FORM,
    PATHS_FORM,
    branches_from_lines,
    branches_from_pairs,
    branches_from_table,
)
from hierbench.hierarchy.tree_table import TreeTable, plain_word
from hierbench.hierarchy.tree_text import read_rows, split_header
from hierbench.utils.errors import Argument, InputError
from hierbench.utils.files import read_bytes, unique_keys

NEWICK = (".nwk", ".newick", ".tre", ".tree", ".nhx", ".treefile")
WAYS = {  # of files that are not read
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the sheet as .csv"),
    **dict.fromkeys(
        (".pkl", ".pickle", ".pt", ".joblib"),
        "pickles can run any code and are never read; give the object to Hierarchy.read, or save it as .json",
    ),
    **dict.fromkeys((".gz", ".zip", ".bz2", ".xz", ".7z"), "unpack it first"),
    **dict.fromkeys((".xml", ".owl", ".rdf", ".nex", ".nexus"), "save it as a table, JSON or Newick"),
}


def branches_from_file(path: Path, options: TreeOptions, header: bool | None = None) -> Branches:
    """Return the paths of a tree's file.

    Raises:
        ValueError: its form is not read, or it is no tree; what to do is said.
        OSError: it cannot be read.
    """
    suffix = path.suffix.lower()
    if suffix in WAYS:
        raise ValueError(f"{suffix} files are not read: {WAYS[suffix]}")
    content = read_bytes(path, follow=True)
    if suffix == ".parquet" or content[:4] == b"PAR1":
        import pandas as pd

        try:
            return branches_from_object(pd.read_parquet(io.BytesIO(content)), options)
        except OSError as error:
            raise ValueError(f"it is no Parquet file ({error})") from None
    text, encoding = decode(content, options.encoding)
    branches = branches_from_text(text, suffix, options, header)
    return replace(branches, source=f"{branches.source}, {encoding}")


def branches_from_text(text: str, suffix: str, options: TreeOptions, header: bool | None = None) -> Branches:
    """Return the paths of a tree's text, whose form its file's suffix or its first character says."""
    begins = text.lstrip()[:1]
    if suffix in (".json", ".jsonl", ".ndjson") or begins in ("{", "["):
        return branches_from_object(_parse_json(text), options, "JSON, ")
    if suffix in NEWICK or (begins == "(" and text.rstrip().endswith(";")):
        return branches_of_newick(text)
    table = read_rows(text, options, suffix, header)
    return branches_from_lines(table, options) if isinstance(table, list) else branches_from_table(table, options)


def decode(content: bytes, encoding: str) -> tuple[str, str]:
    """Return the text of a file and its encoding in words; a ValueError names the encoding to try."""
    for mark, name in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if content.startswith(mark) and encoding == "utf-8":
            choice = Argument("encoding", name)
            raise InputError(f"it is not UTF-8 text: try {choice}", choice)
    try:
        text = content.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except LookupError:
        raise ValueError(f"unknown encoding {encoding!r}; known are utf-8, utf-16, cp1252, latin-1, ...") from None
    except UnicodeError as error:
        try:
            content.decode("cp1252")
            other = "cp1252"
        except UnicodeError:
            other = "latin-1"
        choice = Argument("encoding", other)
        raise InputError(f"it is not {encoding.upper()} text ({error}): try {choice}", choice) from None
    marked = encoding == "utf-8" and content.startswith(b"\xef\xbb\xbf")
    return text, f"{encoding.upper()}{' with mark' if marked else ''}"


def branches_from_object(source: Any, options: TreeOptions, before: str = "") -> Branches:
    """Return the paths of a tree that is a Python object, or the content of a JSON file.

    Raises:
        ValueError: it is no tree.
    """
    kind = type(source).__module__.partition(".")[0]
    if kind == "pandas" and hasattr(source, "columns"):
        return branches_from_table(_table_of_frame(source), options)
    if kind == "networkx":
        return _branches_of_graph(source, options)
    if isinstance(source, Mapping):
        return _branches_of_mapping(source, options, before)
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        if not source:
            raise ValueError("it is empty")
        if all(isinstance(item, Mapping) for item in source):
            if any(children_key(item) for item in source):
                return branches_of_objects(list(source), options, before)
            links = _links_of_records(source)
            if links is not None:
                names = {plain_text(item.get("id")): plain_text(item.get("name", item.get("id"))) for item in source}
                return _branches_of_edges(links, names, options, f"{before}list of records", "children's ids in lists")
            return branches_from_table(_table_of_records(source, f"{before}list of records"), options)
        if all(isinstance(item, list | tuple) for item in source):
            rows = [[plain_text(cell) for cell in item] for item in source]
            table = _table_of_rows(rows, f"{before}list of rows")
            return branches_from_table(split_header(table, options) if before else table, options)
        if all(isinstance(item, str) for item in source):
            table = _table_of_rows([[item.strip()] for item in source], f"{before}list of names")
            return branches_from_table(table, options)
    raise ValueError(f"{before}{type(source).__name__} is no tree: give nested dicts, records, paths, edges, or a file")


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1 and all(line.lstrip()[0] in "{[" for line in lines):  # a row per line
            return [json.loads(line, object_pairs_hook=unique_keys) for line in lines]
        raise ValueError(f"it is not JSON: {error}") from None


def _table_of_rows(rows: Sequence[Sequence[str]], source: str, header: Sequence[str] | None = None) -> TreeTable:
    """Return rows as a table; shorter ones end in blanks."""
    width = max(map(len, rows))
    check_size(width * len(rows), width)
    padded = [[*row, *[""] * (width - len(row))] for row in rows]
    return TreeTable(
        None if header is None else tuple(header), padded, [f"row {i + 1}" for i in range(len(rows))], source
    )


def _table_of_frame(frame: Any) -> TreeTable:
    if frame.index.name is not None or frame.index.nlevels > 1:
        frame = frame.reset_index()
    if not len(frame) or not len(frame.columns):
        raise ValueError("the table is empty")
    check_size(len(frame) * len(frame.columns), len(frame.columns))
    columns = [
        [plain_text(cell) for cell in frame.iloc[:, i].astype(object).tolist()] for i in range(len(frame.columns))
    ]
    unnamed = list(frame.columns) == list(range(len(frame.columns)))
    header = None if unnamed else tuple(str(name) for name in frame.columns)
    return _table_of_rows(list(zip(*columns, strict=True)), f"table of {len(columns)} columns", header)


def _table_of_records(records: Sequence[Mapping[str, Any]], source: str) -> TreeTable:
    """Return records as a table, without keys of lists and objects."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    plain = [key for key in keys if not any(isinstance(record.get(key), list | dict) for record in records)]
    if not plain:
        raise ValueError("its records have no names")
    check_size(len(plain) * len(records), len(plain))
    rows = [[plain_text(record.get(key)) for key in plain] for record in records]
    return _table_of_rows(rows, source, list(map(str, plain)))


def _branches_of_mapping(source: Mapping[str, Any], options: TreeOptions, before: str) -> Branches:
    records = source.get("categories")
    if isinstance(records, list) and records and isinstance(records[0], Mapping):
        return branches_from_table(_table_of_records(records, f"{before}list of records, key categories"), options)
    links = source.get("links", source.get("edges"))
    if isinstance(source.get("nodes"), list) and isinstance(links, list):
        edges = [(plain_text(link.get("source")), plain_text(link.get("target"))) for link in links]
        names = {plain_text(node.get("id")): plain_text(node.get("name", node.get("id"))) for node in source["nodes"]}
        return _branches_of_edges(edges, names, options, f"{before}nodes and links", "edges, source > target")
    if not source:
        raise ValueError("it is empty")
    if children_key(source):
        return branches_of_objects([source], options, before)
    values = list(source.values())
    if options.form is None and all(map(WHOLE_NUMBER.fullmatch, map(str, source))) and _names_or_numbers(values):
        raise InputError(
            f"its keys are numbers: say whether they are parents ({EDGES_FORM}) or classes ({PATHS_FORM})",
            EDGES_FORM,
            PATHS_FORM,
        )
    records = _records_of_mapping(source)
    if records is not None:
        return branches_from_table(_table_of_records(records, f"{before}records by key"), options)
    if all(not isinstance(value, list | tuple | Mapping) for value in values):
        return _branches_of_pairs_in_mapping(
            {plain_text(key): plain_text(value) for key, value in source.items()}, options, before
        )
    if all(isinstance(value, list | tuple) and all(not isinstance(v, list | dict) for v in value) for value in values):
        return _branches_of_lists(
            {str(k): [plain_text(v) for v in value] for k, value in source.items()}, options, before
        )
    return branches_of_keys(source, options, before)


def _names_or_numbers(values: Sequence[Any]) -> bool:
    """Whether values are lists of names, or numbers: what numbers as their keys are is then unclear."""
    are_lists = all(isinstance(value, list) and not any(isinstance(v, list | dict) for v in value) for value in values)
    return are_lists or all(WHOLE_NUMBER.fullmatch(plain_text(value)) for value in values)


def _records_of_mapping(source: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the records of {key: record}, or of pandas' {column: {row: cell}}; else None."""
    values = list(source.values())
    if len(values) < 2 or not all(isinstance(value, Mapping) and value for value in values):
        return None
    keys = list(values[0])
    if any(list(value) != keys or not any(isinstance(cell, str) for cell in value.values()) for value in values):
        return None
    if all(map(WHOLE_NUMBER.fullmatch, map(str, keys))):  # pandas numbers the rows
        return [dict(zip(source, cells, strict=True)) for cells in zip(*(v.values() for v in values), strict=True)]
    if all(map(WHOLE_NUMBER.fullmatch, map(str, source))):
        return values
    title = "key" if any(plain_word(str(key)) in NAME_COLUMNS for key in keys) else "name"
    return [{title: key, **value} for key, value in source.items()]


def _branches_of_pairs_in_mapping(pairs: dict[str, str], options: TreeOptions, before: str) -> Branches:
    """Return the paths of {child: parent} or {class: "a/b/class"}; a ValueError for {id: name}."""
    table = _table_of_rows([[value, key] for key, value in pairs.items()], f"{before}{{child: parent}}")
    values = [value for value in pairs.values() if value]
    linked = any(value in pairs for value in values if value)
    if options.form == "edges" or (options.form is None and (linked or len(values) < len(pairs))):
        return branches_from_pairs(table, (0, 1), options, ())
    if not any("/" in value or ">" in value for value in values) and len(set(values)) == len(values) > 1:
        raise ValueError("it is a list of names {id: name}, not a tree: it names no parent twice")
    return branches_from_table(table, options)


def _branches_of_lists(lists: dict[str, list[str]], options: TreeOptions, before: str) -> Branches:
    """Return the paths of {class: path} or of {parent: children}."""
    members = [name for names in lists.values() for name in names]
    ends = all(names and names[-1] == key for key, names in lists.items())
    starts = all(names and names[0] == key for key, names in lists.items())
    is_paths = ends or starts or (len(set(members)) < len(members) and not set(lists) & set(members))
    if options.form != "edges" and (is_paths or options.form == "paths"):
        source = f"{before}{{class: path}}"
        if ends or starts:
            paths = [tuple(filter(None, names if ends else reversed(names))) for names in lists.values()]
            return Branches(paths, "paths", source, f"paths, {'coarsest' if ends else 'finest'} first")
        lengths = set(map(len, lists.values()))
        if options.form is None and len(lists) > 1 and len(lengths) == 1 and max(lengths) > len(lists):
            rows = list(zip(*lists.values(), strict=True))  # more of them than a class has levels
            return branches_from_table(_table_of_rows(rows, f"{before}columns", list(lists)), options)
        return branches_from_table(_table_of_rows([(*names, key) for key, names in lists.items()], source), options)
    if options.form is None and all(len(names) == 1 for names in lists.values()):
        raise InputError(
            f"it can be read in two ways, {{parent: children}} ({EDGES_FORM}) or {{class: path}} ({PATHS_FORM})",
            EDGES_FORM,
            PATHS_FORM,
        )
    edges = [(key, name) for key, names in lists.items() for name in names]
    return _branches_of_edges(edges, {}, options, f"{before}{{parent: children}}", "edges, parent > child")


def _branches_of_edges(
    edges: Iterable[tuple[str, str]], names: Mapping[str, str], options: TreeOptions, source: str, layout: str
) -> Branches:
    paths, note = paths_from_edges(edges, names, options.parents)
    return Branches(paths, "edges", source, layout, (note,) * bool(note))


def _links_of_records(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]] | None:
    """Return the (parent, child) ids of records that list their children's ids, as AudioSet's; else None."""

    def id_of(record: Mapping[str, Any]) -> str:
        return plain_text(record.get("id"))

    ids = set(map(id_of, records))
    for key in {key for record in records for key, value in record.items() if isinstance(value, list) and value}:
        links = [
            (plain_text(record.get("id")), plain_text(child)) for record in records for child in record.get(key) or ()
        ]
        if all(child in ids for _, child in links):
            return links
    return None


def _branches_of_graph(graph: Any, options: TreeOptions) -> Branches:
    if not graph.is_directed():
        raise ValueError("a graph without directions has no root: give a networkx.DiGraph, parent to child")
    names = {str(node): plain_text(data.get("name", node)) for node, data in graph.nodes(data=True)}
    edges = [(str(above), str(node)) for above, node in graph.edges()]
    edges += [("", str(node)) for node in graph if graph.in_degree(node) == 0 and graph.out_degree(node) == 0]
    return _branches_of_edges(edges, names, options, "networkx graph", "edges, parent > child")
