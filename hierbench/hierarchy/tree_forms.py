"""The forms in which people have trees: files of text, JSON, Newick or Parquet, and Python objects."""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hierbench.config.tree_options import TreeOptions
from hierbench.hierarchy.node_paths import DEEPEST, WHOLE_NUMBER, Branches, NodePath, paths_from_edges
from hierbench.hierarchy.tree_columns import TreeTable
from hierbench.hierarchy.tree_tables import (
    MOST_CELLS,
    branches_from_lines,
    branches_from_pairs,
    branches_from_table,
    read_rows,
    split_header,
)
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
CHILDREN = ("children", "subcategory", "subcategories", "subclasses", "nodes", "items", "child")
NAME_KEYS = ("name", "labelname", "label", "title", "id", "text", "key")


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
        return _branches_of_newick(text)
    table = read_rows(text, options, suffix, header)
    return branches_from_lines(table, options) if isinstance(table, list) else branches_from_table(table, options)


def decode(content: bytes, encoding: str) -> tuple[str, str]:
    """Return the text of a file and its encoding in words; a ValueError names the encoding to try."""
    for mark, name in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if content.startswith(mark) and encoding == "utf-8":
            raise ValueError(f"it is not UTF-8 text: try --encoding {name}")
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
        raise ValueError(f"it is not {encoding.upper()} text ({error}): try --encoding {other}") from None
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
            if any(_children_key(item) for item in source):
                return _branches_of_objects(list(source), options, before)
            if (links := _links_of_records(source)) is not None:
                names = {_text(item.get("id")): _text(item.get("name", item.get("id"))) for item in source}
                return _branches_of_edges(links, names, options, f"{before}list of records", "children's ids in lists")
            return branches_from_table(_table_of_records(source, f"{before}list of records"), options)
        if all(isinstance(item, list | tuple) for item in source):
            width = max(map(len, source))
            rows = [[_text(cell) for cell in item] + [""] * (width - len(item)) for item in source]
            table = TreeTable(None, _checked_rows(rows), _places(len(rows)), f"{before}list of rows")
            return branches_from_table(split_header(table, options) if before else table, options)
        if all(isinstance(item, str) for item in source):
            table = TreeTable(None, [[item.strip()] for item in source], _places(len(source)), f"{before}list of names")
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


def _text(cell: Any) -> str:
    """Return a cell as text, "" for one that is missing."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def _places(num: int) -> list[str]:
    return [f"row {row}" for row in range(1, num + 1)]


def _checked_rows(rows: list[list[str]]) -> list[list[str]]:
    if sum(map(len, rows)) > MOST_CELLS:
        raise ValueError(f"it has more than {MOST_CELLS:,} cells")
    if len(rows[0]) > DEEPEST:
        raise ValueError(f"it has more than {DEEPEST} columns")
    return rows


def _table_of_frame(frame: Any) -> TreeTable:
    if frame.index.name is not None or frame.index.nlevels > 1:
        frame = frame.reset_index()
    if not len(frame) or not len(frame.columns):
        raise ValueError("the table is empty")
    if len(frame) * len(frame.columns) > MOST_CELLS:
        raise ValueError(f"it has more than {MOST_CELLS:,} cells")
    columns = [[_text(cell) for cell in frame.iloc[:, i].astype(object).tolist()] for i in range(len(frame.columns))]
    rows = [list(row) for row in zip(*columns, strict=True)]
    unnamed = list(frame.columns) == list(range(len(frame.columns)))
    header = None if unnamed else tuple(str(name) for name in frame.columns)
    return TreeTable(header, _checked_rows(rows), _places(len(rows)), f"table of {len(rows[0])} columns")


def _table_of_records(records: Sequence[Mapping[str, Any]], source: str) -> TreeTable:
    """Return records as a table; keys whose values are lists or objects are left out."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    plain = [key for key in keys if not any(isinstance(record.get(key), list | dict) for record in records)]
    if not plain:
        raise ValueError("its records have no names")
    if len(plain) * len(records) > MOST_CELLS:
        raise ValueError(f"it has more than {MOST_CELLS:,} cells")
    rows = [[_text(record.get(key)) for key in plain] for record in records]
    return TreeTable(tuple(map(str, plain)), _checked_rows(rows), _places(len(rows)), source)


def _branches_of_mapping(source: Mapping[str, Any], options: TreeOptions, before: str) -> Branches:
    if isinstance(records := source.get("categories"), list) and records and isinstance(records[0], Mapping):
        return branches_from_table(_table_of_records(records, f"{before}list of records, key categories"), options)
    links = source.get("links", source.get("edges"))
    if isinstance(source.get("nodes"), list) and isinstance(links, list):
        edges = [(_text(link.get("source")), _text(link.get("target"))) for link in links]
        names = {_text(node.get("id")): _text(node.get("name", node.get("id"))) for node in source["nodes"]}
        return _branches_of_edges(edges, names, options, f"{before}nodes and links", "edges, source > target")
    if not source:
        raise ValueError("it is empty")
    if _children_key(source):
        return _branches_of_objects([source], options, before)
    values = list(source.values())
    if (records := _records_of_mapping(source)) is not None:
        return branches_from_table(_table_of_records(records, f"{before}records by key"), options)
    if all(not isinstance(value, list | tuple | Mapping) for value in values):
        return _branches_of_pairs_in_mapping(
            {_text(key): _text(value) for key, value in source.items()}, options, before
        )
    if all(isinstance(value, list | tuple) and all(not isinstance(v, list | dict) for v in value) for value in values):
        return _branches_of_lists({str(k): [_text(v) for v in value] for k, value in source.items()}, options, before)
    paths = list[NodePath]()
    _walk_mapping(source, (), paths)
    return _from_occurrences(paths, options, f"{before}nested objects", "names as keys", ())


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
    return values


def _branches_of_pairs_in_mapping(pairs: dict[str, str], options: TreeOptions, before: str) -> Branches:
    """Return the paths of {child: parent} or {class: "a/b/class"}; a ValueError for {id: name}."""
    table = TreeTable(
        None, [[value, key] for key, value in pairs.items()], _places(len(pairs)), f"{before}{{child: parent}}"
    )
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
            rows = list(map(list, zip(*lists.values(), strict=True)))  # more rows than a class has levels
            return branches_from_table(
                TreeTable(tuple(lists), _checked_rows(rows), _places(len(rows)), f"{before}columns"), options
            )
        width = 1 + max(map(len, lists.values()))
        rows = [[*names, key, *[""] * (width - 1 - len(names))] for key, names in lists.items()]
        return branches_from_table(TreeTable(None, _checked_rows(rows), _places(len(rows)), source), options)
    if options.form is None and all(len(names) == 1 for names in lists.values()):
        raise ValueError(
            "it can be read in two ways, {parent: children} (--form edges) or {class: path} (--form paths)"
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
    ids = {_text(record.get("id")) for record in records}
    for key in {key for record in records for key, value in record.items() if isinstance(value, list) and value}:
        links = [(_text(record.get("id")), _text(child)) for record in records for child in record.get(key) or ()]
        if all(child in ids for _, child in links):
            return links
    return None


def _children_key(item: Mapping[str, Any]) -> str | None:
    """Return the key that holds a node's children: a list of objects, or of names where it is called so."""
    lists = [key for key, value in item.items() if isinstance(value, list) and value]
    objects = [key for key in lists if all(isinstance(child, Mapping) for child in item[key])]
    named = [key for key in lists if str(key).casefold() in CHILDREN and _name_key(item, key)]
    usual = [key for key in objects if str(key).casefold() in CHILDREN]
    return next(iter([*usual, *named, *objects]), None)


def _name_key(item: Mapping[str, Any], children: str) -> str | None:
    texts = [key for key, value in item.items() if isinstance(value, str | int) and key != children]
    usual = [key for name in NAME_KEYS for key in texts if str(key).casefold() == name]
    return next(iter([*usual, *texts]), None)


def _branches_of_objects(items: list[Mapping[str, Any]], options: TreeOptions, before: str) -> Branches:
    """Return the paths of nested objects with a name and a list of children; several objects are below a root."""
    first = next(item for item in items if _children_key(item))
    if options.columns:
        if len(options.choices) != 2:
            raise ValueError("nested objects have two keys, --columns NAME,CHILDREN")
        name, children = options.choices
    else:
        children = str(_children_key(first))
        name = _name_key(first, children) or ""
    if not any(name in item for item in items):
        raise ValueError(f"its objects have no name beside {children!r}; give --columns NAME,CHILDREN")
    paths, others, counter = list[NodePath](), dict[str, None](), [0]
    for item in items:
        _walk_object(item, name, children, (), paths, others, counter, is_root=len(items) == 1)
    notes = (f"left out: {', '.join(list(others)[:20])}",) if others else ()
    return _from_occurrences(
        paths, options, f"{before}nested objects", f"names in {name}, children in {children}", notes
    )


def _walk_object(
    item: Any,
    name: str,
    children: str,
    above: NodePath,
    paths: list[NodePath],
    others: dict[str, None],
    counter: list[int],
    *,
    is_root: bool,
) -> None:
    is_object = isinstance(item, Mapping)
    if is_object and _text(item.get(name)) == "" and not is_root:
        raise ValueError(f"an object below {above[-1] if above else 'the root'!r} has no {name!r}")
    path = above if is_root else (*above, _text(item[name] if is_object else item))
    counter[0] += len(path)
    if len(path) > DEEPEST or counter[0] > MOST_CELLS:
        raise ValueError(f"it is nested more than {DEEPEST} deep, or has more than {MOST_CELLS:,} cells")
    below = (item.get(children) or []) if is_object else []
    if is_object:
        others.update(dict.fromkeys(key for key in item if key not in (name, children)))
    for child in below if isinstance(below, list) else [below]:
        _walk_object(child, name, children, path, paths, others, counter, is_root=False)
    if not below and path:
        paths.append(path)


def _walk_mapping(item: Any, above: NodePath, paths: list[NodePath]) -> None:
    """Add the paths below a node: keys of objects, names in lists; null, "" and {} end a path."""
    if len(above) > DEEPEST or len(paths) * max(1, len(above)) > MOST_CELLS:
        raise ValueError(f"it is nested more than {DEEPEST} deep, or has more than {MOST_CELLS:,} cells")
    if isinstance(item, Mapping) and item:
        for key, value in item.items():
            _walk_mapping(value, (*above, _text(key)), paths)
    elif isinstance(item, list | tuple) and item:
        for value in item:
            if isinstance(value, Mapping | list):
                _walk_mapping(value, above, paths)
            else:
                paths.append((*above, _text(value)))
    elif isinstance(item, str) and item:
        paths.append((*above, item.strip()))
    else:
        paths.append(above)


def _from_occurrences(
    paths: Sequence[NodePath], options: TreeOptions, source: str, layout: str, notes: tuple[str, ...]
) -> Branches:
    """Return the paths of nested objects; where a class occurs twice, names are nodes, which have several parents."""
    if len({path[-1] for path in paths}) == len(paths):
        return Branches(paths, "paths", source, layout, notes)
    edges: Iterable[tuple[str, str]] = (pair for path in paths for pair in zip(("", *path), path, strict=False))
    edges = list(dict.fromkeys(edges))
    below_root = {node for above, node in edges if not above} & {node for above, node in edges if above}
    edges = [(above, node) for above, node in edges if above or node not in below_root]
    chosen, note = paths_from_edges(edges, None, options.parents)
    tops = {node for above, node in edges if not above}
    if len(tops) == 1:  # it is no root: the objects have one above it
        chosen = [(next(iter(tops)), *path) for path in chosen]
    return Branches(chosen, "edges", source, layout, (*notes, note))


def _branches_of_graph(graph: Any, options: TreeOptions) -> Branches:
    if not graph.is_directed():
        raise ValueError("a graph without directions has no root: give a networkx.DiGraph, parent to child")
    names = {str(node): _text(data.get("name", node)) for node, data in graph.nodes(data=True)}
    edges = [(str(above), str(node)) for above, node in graph.edges()]
    edges += [("", str(node)) for node in graph if graph.in_degree(node) == 0 and graph.out_degree(node) == 0]
    return _branches_of_edges(edges, names, options, "networkx graph", "edges, parent > child")


def _branches_of_newick(text: str) -> Branches:
    """Return the paths of Newick; an inner node without a name of its own gets a number."""
    from Bio.Phylo.NewickIO import NewickError, Parser

    try:
        trees = list(Parser(io.StringIO(text)).parse())
    except (NewickError, ValueError, IndexError) as error:
        raise ValueError(f"it is not Newick: {error}") from None
    if len(trees) != 1:
        raise ValueError(f"it holds {len(trees)} trees, not one")
    has_lengths = has_comments = False
    paths, seen = list[NodePath](), dict[str, int]()
    stack: list[tuple[Any, NodePath]] = [(trees[0].root, ())]
    num_unnamed = num_cells = 0
    while stack:
        clade, above = stack.pop()
        has_lengths |= clade.branch_length is not None
        has_comments |= clade.comment is not None
        name = (clade.name or "").strip()
        is_root = clade is trees[0].root
        if clade.clades and not is_root and (not name or name.replace(".", "").isdecimal() or name in seen):
            num_unnamed += 1
            name = f"node {num_unnamed}"
        seen[name] = 1
        path = above if is_root else (*above, name)
        num_cells += len(path)
        if len(path) > DEEPEST or num_cells > MOST_CELLS:
            raise ValueError(f"it lies more than {DEEPEST} levels deep, or has more than {MOST_CELLS:,} cells")
        if not clade.clades:
            if not name:
                raise ValueError(f"leaf {len(paths) + 1} has no name")
            paths.append(path)
        stack.extend((child, path) for child in reversed(clade.clades))
    ignored = [word for word, is_present in (("lengths", has_lengths), ("comments", has_comments)) if is_present]
    notes = [f"{' and '.join(ignored)} ignored"] if ignored else []
    notes += [f"{num_unnamed:,} nodes have no name of their own, and a number"] if num_unnamed else []
    return Branches(paths, "paths", "Newick", "nested brackets", tuple(notes))
