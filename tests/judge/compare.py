"""What two commits print, as values: tables of each format, JSON, other files; and where two of them differ."""

import csv
import html
import io
import json
import math
import re
from collections import Counter
from itertools import zip_longest

import numpy as np
import yaml

VOLATILE = re.compile(r"seconds|^(time|started|date|mtime_ns|sha256|checksum|size)$")  # keys
TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|\+00:00)?)?")
TAKES = re.compile(r"[\d.,]+ (?:s|ms|min|h|MB|GB)\b")
FACT = re.compile(r"\b[0-9a-f]{12,64}\b|(?<![\w.-])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?")
DATA = re.compile(r'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)  # of a page
GROUP = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"  # in braces, two levels deep
TEX = (  # how the text of a cell is read, in this order
    (r"\\cellcolor\{blue!35\}", "[dark]"),
    (r"\\cellcolor\{blue!15\}", "[light]"),
    (r"\\color\{gray\}", "[grey]"),
    (r"\\textbf" + GROUP, r"**\1**"),
    (r"\\textsuperscript" + GROUP, r" \1"),
    (r"\\(?:cellcolor|cline|cmidrule)\{.*?\}|\\(?:centering|hline|toprule|midrule|bottomrule|endhead)\b", " "),
    (r"\\([_&%#$])", r"\1"),
    (r"\{\}", ""),
)  # fmt: skip


def markdown_tables(text):
    """Return the pipe tables of a text as lists of lines of cells, without padding; bold and stars are content."""
    blocks = re.findall(r"(?:^ *\|.*\|[ \t]*\n?)+", text, re.MULTILINE)
    lines = [[re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in block.splitlines()] for block in blocks]
    tables = [[[cell.strip() for cell in line] for line in table] for table in lines]
    return [[line for line in table if not re.fullmatch(":?-+[-:]*", "".join(line))] for table in tables]


def csv_tables(text):
    """Return the one table of a CSV file."""
    return [list(csv.reader(io.StringIO(text)))]


def latex_tables(text):
    """Return the tables of a TeX file: without layout, the shade of a cell as a word before it."""
    text = re.sub(r"(?<!\\)%.*", "", text)
    text = re.sub(r"\\shortstack" + GROUP, lambda found: found[1].replace(r"\\", " "), text)
    text = re.sub(r"\\multirow\{(\d+)\}\{.*?\}" + GROUP, r"<\1>\2", text)
    bodies = re.findall(r"\\begin\{(longtable|tabular\w?)\}" + GROUP + r"(.*?)\\end\{\1\}", text, re.DOTALL)
    return [[*_latex_lines(body)] for _, _, body in bodies]


def _latex_lines(body):
    spans = {}  # {column: (lines left, text)} of cells over several lines
    for line in re.split(r"\\\\\*?", body):
        cells = []
        for column, cell in enumerate(re.split(r"(?<!\\)&", line)):
            for pattern, text in TEX:
                cell = re.sub(pattern, text, cell)
            cell = " ".join(cell.split())
            if found := re.match(r"<(\d+)>", cell):
                spans[column] = (int(found[1]), cell[found.end() :].strip())
            left, text = spans.get(column, (0, ""))
            spans[column] = (left - 1, text)
            cells.append(text if left > 0 else cell)
        if any(cells):
            yield cells


def html_tables(text):
    """Return the tables of a page; bold is content."""
    text = re.sub(r"</?(?:b|strong)\b[^>]*>", "**", text)
    tables = [re.split(r"<tr\b[^>]*>", table)[1:] for table in re.findall(r"<table\b.*?</table>", text, re.DOTALL)]
    cells = [[re.split(r"<t[dh]\b[^>]*>", line)[1:] for line in table] for table in tables]
    return [[[_html_text(cell) for cell in line] for line in table] for table in cells]


def _html_text(cell):
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", cell)).split())


TABLES = {"markdown": markdown_tables, "csv": csv_tables, "latex": latex_tables, "html": html_tables}


def differing_tables(olds, news):
    """Yield where lists of tables differ; columns are compared by name, lines in order."""
    if len(olds) != len(news):
        yield f"tables: {len(olds)} | {len(news)}"
    for number, (old, new) in enumerate(zip(olds, news, strict=False), 1):
        where, names = f"table {number}", [_unique(table[0] if table else []) for table in (old, new)]
        if names[0] != names[1]:
            yield f"{where}: columns: {names[0]} | {names[1]}"
        if len(old) != len(new):
            yield f"{where}: lines: {len(old)} | {len(new)}"
        for line, rows in enumerate(zip(old[1:], new[1:], strict=False), 1):
            one, other = (dict(zip_longest(*pair, fillvalue="")) for pair in zip(names, rows, strict=True))
            for name in one:
                if name in other and not same_cell(one[name], other[name]):
                    label = " ".join(rows[0][:2])[:40]
                    yield f"{where}, line {line} ({label}), {name}: {one[name]!r} | {other[name]!r}"


WAYS = (  # to print the same, by which earlier versions differ
    (r" ±\s*", " +/- "),
    ("★ competitive", "*"),
    ("[−–]", "-"),
    ("^Type-", "type-"),
    (r"\*\*(.*?) (\(d .*?\))\*\*", r"**\1** \2"),
    (r"\*\*(\S+) \+/- ([\d.]+)\*\*", r"**\1** +/- \2"),
    (r"\((lacks .*?|\d+ of \d+ runs|d [-+\d.]+)\)", r"\1"),
    (r"\\\*", "*"),
    (r" \+/- -$", ""),
)


def close(old, new):
    """Whether two values are equal, numbers but for rounding: another version may add in another order."""
    try:
        same_kind = type(old) is type(new)
        return old == new or (same_kind and math.isclose(float(old), float(new), rel_tol=1e-12, abs_tol=1e-12))
    except (TypeError, ValueError):
        return False


def same_cell(old, new):
    """Whether two cells say the same: half-widths have had four digits, and now have those of the mean."""
    for pattern, text in WAYS:
        old, new = (re.sub(pattern, text, cell) for cell in (old, new))
    widths = [re.search(r"\+/- (\d+\.(\d+))", cell) for cell in (old, new)]
    if all(widths) and len(widths[0][2]) > len(widths[1][2]):
        (one, _), (other, digits) = (found.groups() for found in widths)
        if abs(float(one) - float(other)) < 0.5 * 10 ** -len(digits) + 1e-4:  # both were rounded from the same
            old = old.replace(one, other)
    return close(old, new)


def _unique(names):
    return names if len({*names}) == len(names) else [f"{name} ({number})" for number, name in enumerate(names)]


def differing_values(old, new, where="$"):
    """Yield where two values of JSON differ; of times and sizes only whether they are there."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from (f"{where}.{key}: {'missing' if key in old else 'added'}" for key in old.keys() ^ new.keys())
        for key in [key for key in old if key in new and not VOLATILE.search(key)]:
            yield from differing_values(old[key], new[key], f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}: length: {len(old)} | {len(new)}"
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from differing_values(one, other, f"{where}[{number}]")
    elif repr(old) != repr(new) and not (type(old) is type(new) is float and close(old, new)):
        yield f"{where}: {repr(old)[:200]} | {repr(new)[:200]}"


def differing_lists(old, new, what):
    """Yield the first place where two lists differ."""
    pairs = enumerate(zip_longest(old, new))
    yield from [f"{what} {number}: {one!r} | {other!r}" for number, (one, other) in pairs if not close(one, other)][:1]


def facts(text):
    """Return the numbers and ids of a text that is no table."""
    return FACT.findall(TAKES.sub(" ", TIME.sub(" ", text)))


def differing_texts(old, new, kind):
    """Yield where two texts of a kind differ: a format of a table, json, yaml, words, or text."""
    old, new = (TIME.sub("<time>", text) for text in (old, new))
    try:
        if kind == "json":
            yield from differing_values(*(json.loads(text or "null") for text in (old, new)))
        elif kind == "yaml":
            yield from differing_values(*(yaml.safe_load(text.strip("- \n")) for text in (old, new)))
        elif kind in TABLES and (kind != "markdown" or markdown_tables(old)):
            yield from differing_tables(*(TABLES[kind](text) for text in (old, new)))
            yield from differing_values(*([*map(json.loads, DATA.findall(text))] for text in (old, new)))
        elif kind == "words":  # a list whose layout may change
            yield from differing_lists(*(sorted(Counter(text.split()).items()) for text in (old, new)), "word")
        else:
            yield from differing_lists(facts(old), facts(new), "number")
    except (ValueError, yaml.YAMLError) as error:
        yield f"is no {kind}: {error}"


KINDS = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".json": "json", ".toml": "words"}
NOT_COMPARED = re.compile(r"\.(db|lock|sqlite|pt|png)(-\w+)?$|\block$")


def differing_files(old, new, cleans):
    """Yield where two files differ; `cleans` takes from the text of each what is of its side."""
    if NOT_COMPARED.search(old.name):
        return
    if old.suffix == ".npz":
        with np.load(old) as one, np.load(new) as other:
            arrays = ([(name, hash(read[name].tobytes())) for name in sorted(read)] for read in (one, other))
            yield from differing_lists(*arrays, "array")
        return
    contents = [
        clean(path.read_bytes().decode(errors="replace")) for path, clean in zip((old, new), cleans, strict=True)
    ]
    if old.suffix == ".svg":  # what is drawn; letters are <use>
        yield from differing_lists(
            *(sorted(Counter(re.findall(r"<(?!use)\w+", text)).items()) for text in contents), "elements"
        )
    elif old.suffix == ".jsonl":
        yield from differing_values(*([json.loads(line) for line in text.splitlines()] for text in contents))
    else:
        yield from differing_texts(*contents, KINDS.get(old.suffix, "text"))
