"""Tables against the records that they are made of: published ones, and those that a command wrote beside its runs."""

import glob
import math
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hierbench.config.sections import PROTOCOLS
from hierbench.experiments.verification.findings import Finding, Report
from hierbench.experiments.verification.records import WHAT_FAILS
from hierbench.leaderboard.board import Board, planned_seeds
from hierbench.leaderboard.columns import PAPER, Column, column_of, further
from hierbench.leaderboard.formats import Format, render
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.ranking import rank
from hierbench.leaderboard.rows import VERDICTS, Evidence, Verified
from hierbench.leaderboard.statistics import METRICS
from hierbench.leaderboard.tables.board import board_table
from hierbench.runs.further_metrics import has_predictions, read_further
from hierbench.runs.store import Store
from hierbench.utils.files import parse_json_object, read_json_object, read_text

STRENGTH = {verdict: place for place, verdict in enumerate(VERDICTS)}
LATER = ("seeds", "lacking", "groups")  # keys that came after the first tables
CLOSE = 1e-9  # relative, of means and intervals: another machine may add in another order
PAGES: dict[str, Format] = {".md": "markdown", ".csv": "csv", ".tex": "latex"}


def check_tables(
    report: Report, dataset: str | None, store: Store, data_dir: Path, of: str | None = None, file: str = ""
) -> list[Finding]:
    """Return a finding per table.

    Args:
        report: of the runs and rows.
        dataset: whose published table is beside the folder, None for a runs folder.
        store: of the folder.
        data_dir: prepared data, of the trees.
        of: of a runs folder, only tables of this dataset.
        file: of a user's dataset, where it was given: the recipe that its tables quote.
    """
    if dataset is not None:
        return [check_table(store.root.absolute().parent / f"{dataset}.json", store, data_dir, report, file)]
    found = [path for path in sorted(store.root.glob("leaderboard-*.json")) if _is_table(path, of)]
    return [check_table(path, store, data_dir, file=file) for path in found] + _without_values(store.root, of)


def _without_values(folder: Path, of: str | None) -> list[Finding]:
    """Return a finding for each .md in a runs folder that lacks its .json, which alone names the runs."""
    names = "leaderboard-*.md" if of is None else f"leaderboard-{glob.escape(of)}.md"
    pages = [path for path in sorted(folder.glob(names)) if not os.path.lexists(path.with_suffix(".json"))]
    said = "is missing, and the .md was compared with nothing"
    return [Finding(str(page.with_suffix("")), notes=[f"{page.with_suffix('.json').name} {said}"]) for page in pages]


def metrics_shown(folder: Path, dataset: str | None) -> set[str]:
    """Return the metrics beyond the paper's that a published table, or the tables in a runs folder, have."""
    there = folder.glob("leaderboard-*.json") if dataset is None else [folder.absolute().parent / f"{dataset}.json"]
    found: set[str] = set()
    for path in there:
        with suppress(*WHAT_FAILS):
            found |= {str(name) for row in read_json_object(path)["rows"] for name in row["metrics"]}
    return found - set(METRICS)


def _is_table(path: Path, of: str | None) -> bool:
    """Whether a file is a table of runs; it may be one beside the paper's, which has another form."""
    try:
        content = read_json_object(path)
        return all(isinstance(row["runs"], list) for row in content["rows"]) and of in (None, content.get("dataset"))
    except FileNotFoundError:
        return False
    except WHAT_FAILS:
        return not path.is_symlink()


def check_table(path: Path, store: Store, data_dir: Path, report: Report | None = None, file: str = "") -> Finding:
    """Compare a table's .json by value with what the records in `store` give; note its pages that differ.

    With a report, the table is a published one of all these records, and what it says of evidence is compared too.
    `file` is that of a user's dataset, "" where it was not given.
    """
    finding = Finding(str(path.with_suffix("")))
    try:
        content = read_json_object(path)
        lost = [run_id for row in content["rows"] for run_id in row["runs"] if not store.run(run_id).has_spec]
        for run_id in lost:
            finding.reject(f"it has the run {run_id[:12]}, whose record is not here")
        if lost:
            return finding
        board = _board(content, path, store, data_dir, finding, report, file)
        board = _as_claimed(content, board, report, finding)
        _compare_rows(content, parse_json_object(render(board_table(board), "json")), finding)
        if report is not None and not finding.rejected:
            _note_pages(path, board, finding)
    except WHAT_FAILS as error:  # of which a UserError is one
        finding.reject(f"it cannot be made again from its records: {error}")
    return finding


def columns_of(content: Mapping[str, Any], page: Path) -> tuple[Column, ...]:
    """Return the columns of a table: those of the heading of its .md, else all that its .json has."""
    names = dict.fromkeys(name for row in content["rows"] for name in row["metrics"] if name not in METRICS)
    every = (*PAPER, *map(column_of, names))
    known = {column.heading: column for column in every}
    heads = [head.strip() for head in read_text(page).split("\n")[0].split("|")] if os.path.lexists(page) else []
    found = tuple(known[head] for head in heads if head in known)
    there = {name for row in content["rows"] for name in row["metrics"]}
    own = tuple(column for column in PAPER if column.name in there)
    return PAPER if not names and found in ((), own) else found or every


def _board(
    content: dict[str, Any],
    path: Path,
    store: Store,
    data_dir: Path,
    finding: Finding,
    report: Report | None,
    file: str,
) -> Board:
    """Return the table of the records, with the columns that the given one has."""
    dataset, protocol = file or str(content["dataset"]), content["protocol"]
    if report is not None:
        own = protocol if protocol in PROTOCOLS else None
        board = Board.of(dataset, _judged(store, report.evidence), protocol=own)
    else:
        ids = [run_id for row in content["rows"] for run_id in row["runs"]]
        board = Board.of(dataset, _judged(store, Evidence()), ids)
    columns = columns_of(content, path.with_suffix(".md"))
    names = set(further(columns))
    runs = [store.run(run_id) for row in board.rows for run_id in row.runs]
    if names and any(has_predictions(run) and not read_further(run, store).keys() >= names for run in runs):
        finding.note("its columns beyond the paper's are not checked: their values are not kept with all runs")
        for row in content["rows"]:
            row["metrics"] = {name: cell for name, cell in row["metrics"].items() if name in METRICS}
        return board
    return board if columns == PAPER else with_columns(board, columns, store, data_dir)  # reads what is kept


def _judged(store: Store, found: Evidence) -> Store:
    """Return a store with these verdicts; the values of a run that is rejected are compared all the same."""
    evidence = Evidence({run_id: said for run_id, said in found.verdicts.items() if said != "rejected"}, found.apart)
    if isinstance(store, Verified):
        return replace(store, evidence=evidence)
    return Verified(store.root, store.apart, listed=store.listing(), evidence=evidence)


def _note_pages(path: Path, board: Board, finding: Finding) -> None:
    """Note each page beside a table that is not what this version writes of its records: nobody needs to read it."""
    table = board_table(board)
    for suffix, format in PAGES.items():
        page = path.with_suffix(suffix)
        if not os.path.lexists(page):
            if suffix == ".md":
                finding.note(f"{page.name} is missing")
        elif read_text(page) != render(table, format):
            finding.note(f"{page.name} is not what this version writes of these records; the .json is")


def _as_claimed(content: dict[str, Any], board: Board, report: Report | None, finding: Finding) -> Board:
    """Return a board with the verdicts that a table claims, and so ranked, after noting where what is here shows less.

    Whoever made it may have had predictions, or have trained runs again.
    """
    claims = {tuple(row["runs"]): row.get("verdict", "") for row in content["rows"]}
    claims |= {tuple(row.runs): row.verdict for row in board.rows if row.verdict == "rejected"}
    rows = [replace(row, verdict=claims.get(tuple(row.runs), row.verdict)) for row in board.rows]
    less = [
        row.title
        for row, here in zip(rows, board.rows, strict=True)
        if STRENGTH.get(here.verdict, len(STRENGTH)) > STRENGTH.get(row.verdict, len(STRENGTH))
        or here.verdict == "claimed" != row.verdict
    ]
    if less:
        finding.note(f"it says more of {', '.join(less[:3])}{', ...' if len(less) > 3 else ''} than is found here")
    planned = None if report is None else planned_seeds(board.dataset, board.protocol)
    ranked, seeds = rank(rows, planned, board.columns)
    return replace(board, rows=ranked, seeds=seeds)


def _compare_rows(given: dict[str, Any], made: dict[str, Any], finding: Finding) -> None:
    """Reject a .json whose values are not those of the records."""
    if not any("seeds" in row for row in given["rows"]):
        finding.note("it was made by an earlier version, whose tables do not say which seeds a row has")
        made = _without(made, LATER)
    for name in sorted((given.keys() | made.keys()) - {"rows"}):
        if given.get(name) != made.get(name):
            finding.reject(f"{name} is {given.get(name)!r}, the records give {made.get(name)!r}")
    left = {tuple(row["runs"]): row for row in made["rows"]}
    for row in given["rows"]:
        label = f"{row.get('title')} {row.get('type')}"
        own = left.pop(tuple(row["runs"]), None)
        if own is None:
            finding.reject(f"the row {label} is of runs that no row of the records has together")
        elif difference := _difference(row, own):
            finding.reject(f"the row {label}: {difference}")
    for row in left.values():
        finding.reject(f"the row {row['title']} {row['type']}, which the records have, is missing")


def _without(content: Any, names: Collection[str]) -> Any:
    """Return JSON types without the keys of these names, at any depth."""
    if isinstance(content, dict):
        return {name: _without(value, names) for name, value in content.items() if name not in names}
    return [_without(value, names) for value in content] if isinstance(content, list) else content


def _difference(given: Any, made: Any, place: str = "") -> str:
    """Return the first place where two values differ, "" if none."""
    if isinstance(given, dict) and isinstance(made, dict):
        for name in sorted(given.keys() | made.keys()):
            if found := _difference(given.get(name), made.get(name), f"{place} {name}".strip()):
                return found
        return ""
    if isinstance(given, list) and isinstance(made, list) and len(given) == len(made):
        return next(filter(None, map(_difference, given, made, [place] * len(given))), "")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (given, made))
    same = math.isclose(given, made, rel_tol=CLOSE, abs_tol=CLOSE) if numbers else given == made
    return "" if same else f"{place} is {given!r}, the records give {made!r}"
