"""The ledger: our runs beside the published numbers, cell by cell, with the known differences that touch each."""

from __future__ import annotations

import csv
import io
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from itertools import groupby
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from hierbench.config.recipe import FeatureType, Protocol
from hierbench.config.spec import Spec
from hierbench.leaderboard.board import Board, NoRunsError, board_from_paper, board_from_runs, paper_datasets
from hierbench.leaderboard.render import ARROWS, TITLES, number, seeds, tex_template
from hierbench.leaderboard.settings import MISSING, published_value, recipe_of, recorded
from hierbench.leaderboard.statistics import METRICS, Cell, Row
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.files import as_json_text
from hierbench.utils.text import markdown_escaped

BASES = {"crm": "ce"}  # a re-ranking inherits what touches the model below it
COLUMNS = ("Model", "Method", "Metric", "Published", "Ours", "Gap", "Overlap", "Runs", "Differences")
ROUNDING = 1e-9  # intervals that touch do so in decimals, not always in binary


class Difference(BaseModel):
    """One entry of differences.toml; an empty key means all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    row: int
    summary: str
    datasets: tuple[str, ...] = ()
    types: tuple[FeatureType, ...] = ()
    methods: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    protocols: tuple[Literal["paper", "authors", "none"], ...] = ()
    key: str = ""

    def touches(
        self, dataset: str, kind: str, method: str, metric: str, protocol: str, spec: Spec | None = None
    ) -> bool:
        """Return whether a published cell and ours differ by it.

        Args:
            dataset: of both.
            kind: type of model.
            method: its name.
            metric: its name.
            protocol: of ours.
            spec: of a run of ours, whose own setting counts; None where there is no run.
        """
        place = (
            (not self.datasets or dataset in self.datasets)
            and (not self.types or kind in self.types)
            and (not self.methods or bool({method, BASES.get(method, method)} & set(self.methods)))
            and (not self.metrics or metric in self.metrics)
        )
        if place and self.key and spec is not None:
            value = recorded(spec, self.key)
            return value is not MISSING and value != published_value(dataset, self.key)
        return place and (not self.protocols or protocol in self.protocols)


@dataclass(frozen=True)
class Line:
    """One metric of one method: published, ours (either may be missing), and the row of ours it comes from."""

    type: str
    method: str
    title: str
    metric: str
    published: Cell | None
    ours: Cell | None
    row: Row | None
    differences: tuple[int, ...]

    @property
    def gap(self) -> float | None:
        """Our mean minus the published one, None where there is only one of them."""
        if self.published is None or self.ours is None or self.published.mean is None or self.ours.mean is None:
            return None
        return self.ours.mean - self.published.mean

    @property
    def overlap(self) -> bool | None:
        """Whether the two intervals have a point in common, None where there are not two."""
        widths = [cell.ci95 for cell in (self.published, self.ours) if cell is not None and cell.ci95 is not None]
        return None if self.gap is None or len(widths) < 2 else abs(self.gap) <= sum(widths) + ROUNDING


@dataclass
class Ledger:
    """All lines of one dataset, the differences that occur in them, and why there is no run among them."""

    dataset: str
    protocol: str
    distance: str
    published_distance: str
    lines: list[Line]
    differences: list[Difference]
    remark: str = ""
    note: str = ""


def known_differences() -> list[Difference]:
    """Return the entries of differences.toml, by row."""
    text = (resources.files("hierbench.leaderboard") / "differences.toml").read_text(encoding="utf-8")
    return sorted(map(Difference.model_validate, tomllib.loads(text)["difference"]), key=lambda known: known.row)


def ledger_from_runs(dataset: str, store: Store, protocol: Protocol | None = None) -> Ledger:
    """Return the ledger of the runs on disk; without any it is the published column alone, and its note says so.

    Raises:
        UserError: the paper has no table of the dataset.
    """
    if dataset not in paper_datasets():
        known = ", ".join(paper_datasets())
        raise UserError(f"the paper has no table of {dataset} to set runs beside; --source both takes: {known}")
    published, note = board_from_paper(dataset), ""
    try:
        ours = board_from_runs(dataset, store, protocol=protocol)
    except NoRunsError as error:
        ours, note = Board(dataset, protocol or "paper", published.distance, []), str(error)
    recipe = recipe_of(dataset, ours.protocol)
    settings = {} if recipe is None else recipe.methods

    def spec_of(row: Row) -> Spec:
        return Spec.model_validate(store.run(row.runs[0]).spec())

    def as_published(row: Row) -> bool:
        params = spec_of(row).method.params
        return all(params.get(name) == value for name, value in settings.get(row.method, {}).items())

    return replace(build_ledger(ours, published, as_published, spec_of), note=note)


def build_ledger(
    ours: Board,
    published: Board,
    as_published: Callable[[Row], bool] = lambda row: True,
    spec_of: Callable[[Row], Spec | None] = lambda row: None,
) -> Ledger:
    """Return a line per metric of every row that either board has.

    Args:
        ours: from runs.
        published: from the paper.
        as_published: whether a row of ours has the hyperparameters of the published one; of several variants of a
            method only such a row is set beside it.
        spec_of: the spec of a row's runs, None where it is not known.
    """
    known = known_differences()
    printed = {(row.type, row.method): row for row in published.rows}
    run = {(row.type, row.method) for row in ours.rows}
    variants = Counter((row.type, row.method) for row in ours.rows)
    pairs: list[tuple[Row, Row | None, Row | None]] = [
        (row, printed.get(key) if variants[key] == 1 or as_published(row) else None, row)
        for row in ours.rows
        for key in [(row.type, row.method)]
    ]
    pairs += [(row, row, None) for key, row in printed.items() if key not in run]
    lines = []
    for row, theirs, own in sorted(pairs, key=lambda pair: (pair[0].type, pair[0].method)):
        spec = None if own is None else spec_of(own)
        for metric in METRICS:
            cell, our_cell = (side.metrics.get(metric) if side else None for side in (theirs, own))
            if cell is None and our_cell is None:
                continue
            place = (ours.dataset, row.type, row.method, metric, ours.protocol)
            touching = tuple(entry.row for entry in known if cell is not None and entry.touches(*place, spec))
            lines.append(Line(row.type, row.method, row.title, metric, cell, our_cell, own, touching))
    occurring = {entry for line in lines for entry in line.differences}
    differences = [entry for entry in known if entry.row in occurring]
    return Ledger(ours.dataset, ours.protocol, ours.distance, published.distance, lines, differences, ours.remark)


def groups(ledger: Ledger) -> list[list[Line]]:
    """Return the lines of each row of the boards together."""
    return [list(lines) for _, lines in groupby(ledger.lines, lambda line: (line.type, line.method, line.title))]


def texts(line: Line) -> list[str]:
    """Return what a table prints of a line after its metric: published, ours, gap, overlap, runs, differences."""
    gap = "-" if line.gap is None else f"{line.gap:+z.2f}"
    overlap = {None: "-", True: "yes", False: "no"}[line.overlap]
    runs = "-" if line.row is None else seeds(line.row)
    return [number(line.published), number(line.ours), gap, overlap, runs, ", ".join(map(str, line.differences)) or "-"]


def legend(ledger: Ledger) -> list[str]:
    """Return the sentences that say what is compared."""
    distance = f"distance {ledger.distance}"
    if ledger.published_distance != ledger.distance:
        distance += f" (published: {ledger.published_distance})"
    lines = [
        f"{ledger.dataset}, protocol {ledger.protocol}, {distance}, beside the tables of Liang & Davis (ICCV 2023). "
        "Mean +/- half-width of the 95% t-interval over runs.",
        "Gap: ours minus published. Overlap: whether the two intervals meet.",
    ]
    if ledger.remark:
        lines.append(f"Settings: {ledger.remark}.")
    lines.append("Known differences:" if ledger.differences else "No known difference touches these cells.")
    return lines


def markdown(ledger: Ledger) -> str:
    """Return a markdown table with one line per metric, and the differences below it."""
    from tabulate import tabulate

    lines = []
    for group in groups(ledger):
        for line in group:
            first = line is group[0]
            names = [line.type if first else "", markdown_escaped(line.title) if first else ""]
            title, direction = TITLES[line.metric]
            lines.append([*names, f"{title} {ARROWS[direction]}", *texts(line)])
    table = tabulate(lines, COLUMNS, tablefmt="pipe", disable_numparse=True)
    differences = "".join(f"- {entry.row}: {entry.summary}\n" for entry in ledger.differences)
    return f"{table}\n\n{chr(10).join(map(markdown_escaped, legend(ledger)))}\n" + (
        f"\n{differences}" if differences else ""
    )


def records(ledger: Ledger) -> list[dict[str, Any]]:
    """Return the lines as JSON types, at full precision."""

    def numbers(cell: Cell | None) -> tuple[float | None, float | None]:
        return (None, None) if cell is None else (cell.mean, cell.ci95)

    return [
        {
            "type": line.type,
            "method": line.method,
            "title": line.title,
            "metric": line.metric,
            **dict(zip(("published", "published_ci95"), numbers(line.published), strict=True)),
            **dict(zip(("ours", "ours_ci95"), numbers(line.ours), strict=True)),
            "gap": line.gap,
            "overlap": line.overlap,
            "n": line.row.n if line.row else None,
            "planned": line.row.planned if line.row else None,
            "differences": list(line.differences),
        }
        for line in ledger.lines
    ]


def as_csv(ledger: Ledger) -> str:
    """Return CSV with numbers at full precision, nothing where there is none, overlap as 1 or 0."""
    text = io.StringIO()
    rows = records(ledger)
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        overlap = None if row["overlap"] is None else int(row["overlap"])
        writer.writerow(row | {"overlap": overlap, "differences": ", ".join(map(str, row["differences"]))})
    return text.getvalue()


def as_json(ledger: Ledger) -> str:
    """Return JSON; what is not known is null."""
    head = {"schema": 1, "dataset": ledger.dataset, "protocol": ledger.protocol, "distance": ledger.distance}
    return as_json_text({**head, "rows": records(ledger)})


def latex(ledger: Ledger) -> str:
    """Return a LaTeX document with a table that may go over pages; it alone stands between two marked lines."""
    return tex_template("ledger.tex.j2").render(
        columns=COLUMNS,
        groups=groups(ledger),
        titles=TITLES,
        arrows={"up": r"$\uparrow$", "down": r"$\downarrow$"},
        texts=texts,
        legend=legend(ledger),
        differences=ledger.differences,
    )


FORMATS: dict[str, Callable[[Ledger], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
    "json": as_json,
}
