"""Tables against the records that they are made of: published ones, and those that a command wrote beside its runs."""

import glob
import math
import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hierbench.config.recipe import recipe_names
from hierbench.config.sections import PROTOCOLS
from hierbench.experiments.verification.copies import CLOSE, compare_copies
from hierbench.experiments.verification.evidence import EVIDENCE, ranked_anew, with_verdicts
from hierbench.experiments.verification.findings import Finding, Report
from hierbench.experiments.verification.records import WHAT_FAILS
from hierbench.leaderboard.board import RECIPE_PLANS, TWO_SEEDS, Board, board_from_runs, board_with_scored
from hierbench.leaderboard.columns import PAPER, Column, column_of
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.ranking import rank
from hierbench.leaderboard.render import as_json, markdown, shown_columns
from hierbench.leaderboard.statistics import METRICS
from hierbench.runs.further_metrics import has_predictions, read_further
from hierbench.runs.store import Store
from hierbench.utils.files import parse_json_object, read_json_object, read_text
from hierbench.utils.text import one_line

# Parts of a remark on runs that are not among the published records.
ELSEWHERE = re.compile(
    r"\d+ finished runs with other settings are not in this table"
    r"|there are runs under protocol (\w+), in a table of their own: --protocol \1"
    r"|\d+ scored predictions are not in this table: they are of (other data, another tree or another distance"
    r"|all test images, of which the runs leave out the last incomplete batch)"
    r"|not all columns could be computed of (a run that has|\d+ runs that have) no predictions here"
)
EVIDENCE_LINE = "Evidence: "
SAYABLE = "|".join([*EVIDENCE.values(), "rejected and not counted"])
COUNTS = re.compile(rf"\d+ runs? ({SAYABLE})(, \d+ ({SAYABLE}))*")  # what a table can say of evidence
STRENGTH = {verdict: place for place, verdict in enumerate(EVIDENCE)}
LATER = ("seeds", "lacking", "groups")  # keys that came after the first tables
DEPARTURE = "not as in the recipe: "


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
    """Compare a table's .json and .csv by value, its .md and .tex by line, with what the records in `store` give.

    With a report, the table is a published one of all these records, and what it says of evidence is compared too.
    `file` is that of a user's dataset, "" where it was not given.
    """
    finding, page = Finding(str(path.with_suffix(""))), path.with_suffix(".md")
    try:
        content = read_json_object(path)
        lost = [run_id for row in content["rows"] for run_id in row["runs"] if not store.run(run_id).has_spec]
        for run_id in lost:
            finding.reject(f"it has the run {run_id[:12]}, whose record is not here")
        if lost:
            return finding
        text = read_text(page).split("\n") if os.path.lexists(page) else []
        lines, earlier = list(text), not any("seeds" in row for row in content["rows"])
        board = _board(content, lines, store, data_dir, finding, published=report is not None, file=file)
        board = _as_claimed(content, lines, board, report, finding)
        _compare_rows(content, parse_json_object(as_json(board)), finding)
        made = markdown(board).split("\n")
        same_text = bool(lines) and _compare_pages(lines, made, board, finding, file or "a recipe that is not here")
        if not text:
            finding.note(f"{page.name} is missing")
        if report is not None and not earlier:
            compare_copies(path, board, finding, same_text=same_text, all_columns=bool(lines) or not text)
    except WHAT_FAILS as error:  # of which a UserError is one
        finding.reject(f"it cannot be made again from its records: {error}")
    return finding


def _board(
    content: dict[str, Any],
    page: list[str],
    store: Store,
    data_dir: Path,
    finding: Finding,
    *,
    published: bool,
    file: str,
) -> Board:
    """Return the table of the records, with the columns that the given one has."""
    dataset, protocol = file or str(content["dataset"]), content["protocol"]
    if published:
        board = board_with_scored(dataset, store, protocol if protocol in PROTOCOLS else None)
    else:
        board = board_from_runs(dataset, store, [run_id for row in content["rows"] for run_id in row["runs"]])
    names = dict.fromkeys(name for row in content["rows"] for name in row["metrics"] if name not in METRICS)
    known = {column.heading: column for column in (*PAPER, *map(column_of, names))}
    heads = [cell.strip() for cell in page[0].split("|")] if page else []
    columns: list[Column] = [known[head] for head in heads if head in known] or [*PAPER, *map(column_of, names)]
    if not names:
        own = shown_columns(replace(board, columns=PAPER))
        return board if columns in (own, [*PAPER]) else with_columns(board, columns, store, data_dir)
    runs = [store.run(run_id) for row in board.rows for run_id in row.runs]
    if any(has_predictions(run) and not read_further(run, store).keys() >= names.keys() for run in runs):
        finding.note("its columns beyond the paper's are not checked: their values are not kept with all runs")
        for row in content["rows"]:
            row["metrics"] = {name: cell for name, cell in row["metrics"].items() if name in METRICS}
        page.clear()
        return board
    return with_columns(board, columns, store, data_dir)  # reads what is kept, and computes nothing


def _as_claimed(
    content: dict[str, Any], page: list[str], board: Board, report: Report | None, finding: Finding
) -> Board:
    """Return a board with the evidence that a table claims, and so ranked, after noting where what is here shows less.

    Whoever made it may have had predictions, or have trained runs again.
    """
    own = board if report is None else with_verdicts(board, report)
    claims = {tuple(row["runs"]): row.get("verdict", "") for row in content["rows"]}
    claims |= {tuple(row.runs): row.verdict for row in own.rows if row.verdict == "rejected"}
    rows = [replace(row, verdict=claims.get(tuple(row.runs), row.verdict)) for row in own.rows]
    less = [
        row.title
        for row, here in zip(rows, own.rows, strict=True)
        if STRENGTH.get(here.verdict, len(STRENGTH)) > STRENGTH.get(row.verdict, len(STRENGTH))
        or here.verdict == "claimed" != row.verdict
    ]
    if less:
        finding.note(f"it says more of {', '.join(less[:3])}{', ...' if len(less) > 3 else ''} than is found here")
    if report is None:
        return replace(board, rows=rows, seeds=rank(rows, columns=board.columns))
    said = next((line for line in page if line.startswith(EVIDENCE_LINE)), "")
    evidence = said.removeprefix(EVIDENCE_LINE).rstrip(".")
    if said and not COUNTS.fullmatch(evidence):
        finding.reject(f"what it says of evidence is free text: {one_line(evidence)!r}")
    elif said and evidence != own.evidence:
        finding.note(f"it says {one_line(evidence)!r}, and what is here gives {own.evidence!r}")
    return ranked_anew(replace(board, rows=rows, evidence=evidence))


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


def _compare_pages(given: list[str], made: list[str], board: Board, finding: Finding, recipe: str) -> bool:
    """Reject a .md with another line than the records give; what it says of runs elsewhere cannot be compared.

    `recipe` is how a note names the recipe of a user's dataset.

    Returns:
        whether all text below the table is what the records give.
    """
    has, gives = ([line for line in lines if line.startswith("|")] for lines in (given, made))
    for number, line in enumerate(has):
        if number >= len(gives) or line != gives[number]:
            finding.reject(f"line {given.index(line) + 1} of the .md is not what the records give")
            break
    else:
        if len(has) < len(gives):
            finding.reject(f"the .md lacks {len(gives) - len(has)} lines of the table")
    below = [_parts(lines) for lines in (given, made)]
    own = board.dataset not in recipe_names()  # remarks may quote the recipe of a user's dataset, as it was then
    quoted = {part for lines in (given, made) for part in _parts([line for line in lines if _is_settings(line)])}
    more = [part for part in below[0] if part not in below[1]]
    lacking = [part for part in below[1] if part not in below[0]]
    for part in [*(part for part in more if not ELSEWHERE.fullmatch(part)), *lacking]:
        if part.startswith((RECIPE_PLANS, TWO_SEEDS)) and part in below[1]:  # tables did not say so from the start
            finding.note(f"the .md does not say that {part}")
        elif own and part in quoted:
            finding.note(f"the .md and what is here differ in settings, which quote {recipe}: {part!r}")
        elif part.startswith(DEPARTURE):  # from the recipe of this version, which may be another than it was then
            finding.note(f"the .md and this version differ in what departs from the recipe: {part!r}")
        else:
            finding.reject(f"the text below the .md's table differs from what the records give: {part!r}")
    return not more and not lacking


def _is_settings(line: str) -> bool:
    return line.startswith("Settings: ")


def _parts(lines: list[str]) -> list[str]:
    """Return the statements below a table, which may come in any order."""
    below = [line for line in lines if line and not line.startswith("|")]
    parts = [part.rstrip(".") for line in below for part in line.removeprefix("Settings: ").split("; ")]
    return [", ".join(sorted(part.split(", "))) if part.startswith(DEPARTURE) else part for part in parts]
