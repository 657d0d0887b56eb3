"""The report of `hierbench score`: a line per metric with its interval, over images or over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hierbench.answers.definitions import IDENTITIES
from hierbench.answers.node_metrics import NODE_METRICS
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column
from hierbench.leaderboard.formats import html, render
from hierbench.leaderboard.statistics import PAPER_METRICS, summarise
from hierbench.leaderboard.table import Cell, Interval, Line, Number, Table, Text
from hierbench.studies.scoring.scores import Result
from hierbench.utils.errors import unknown_name

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Report:
    """The results of one file, or of one file per seed; only common metrics are shown.

    Metrics that are not the paper's have an interval over seeds, but not over images.
    """

    name: str
    subject: str  # the dataset or the tree
    distance: str
    results: Sequence[Result]
    resamples: int
    seed: int
    runs: Sequence[str] = ()  # ids of the records
    columns: Sequence[Column] = PAPER_COLUMNS
    rules: Mapping[str, str] = field(default_factory=dict)  # {label: title} of those that were asked for

    def __getitem__(self, metric: str) -> float:
        """Return the mean of a metric, NaN where it is undefined; a UserError for one that is not in the report."""
        means = {line["metric"]: line["mean"] for line in self.lines()}
        if metric not in means:
            raise unknown_name("metric of this report", metric, means)
        return math.nan if means[metric] is None else float(means[metric])

    def __repr__(self) -> str:
        """Return the name, the data and the first metrics."""
        shown = ", ".join(
            f"{line['metric']} {line['mean']:.4g}" for line in self.lines()[:2] if line["mean"] is not None
        )
        return f"<Report {self.name} on {self.subject}: {shown}>"

    def __str__(self) -> str:
        return render(report_table(self))

    def _repr_html_(self) -> str:
        return html.notebook(report_table(self))

    def frame(self) -> "pd.DataFrame":
        """Return a line per metric for pandas: metric, mean, and the bounds low and high of its interval."""
        import pandas as pd

        keys = ("metric", "mean", "low", "high")
        table = pd.DataFrame([{key: line[key] for key in keys} for line in self.lines()], columns=list(keys))
        return table.astype({key: float for key in keys[1:]})

    @property
    def about_interval(self) -> str:
        """The kind of the intervals, in a sentence."""
        if len(self.results) > 1:
            return f"95% t-interval over {len(self.results)} seeds"
        if not self.resamples:
            return "no interval"
        return f"95% bootstrap interval over images ({self.resamples:,} resamples, seed {self.seed})"

    def lines(self) -> list[dict[str, Any]]:
        """Return per metric its mean and the bounds of its interval, or None."""
        lines = []
        for metric in (column.name for column in self.columns):
            if not all(metric in result.metrics for result in self.results):
                continue
            cell = summarise([result.metrics[metric] for result in self.results])
            low = high = None
            if len(self.results) == 1:
                low, high = self.results[0].intervals.get(metric, (None, None))
            elif cell.mean is not None and cell.ci95 is not None:
                low = cell.mean - cell.ci95
                high = cell.mean + cell.ci95
            lines.append({"metric": metric, "mean": cell.mean, "low": low, "high": high, "values": cell.values})
        return lines


def report_table(report: Report) -> Table:
    """Return the definitions or the rules that were asked for, else the metrics."""
    if report.results[0].defined:
        return _definitions_table(report)
    return _rules_table(report) if report.rules else _metrics_table(report)


def _definitions_table(report: Report) -> Table:
    """Return a line per definition."""
    lines = []
    for definitions in zip(*(result.defined for result in report.results), strict=True):
        source, definition, _ = definitions[0]
        cell = summarise([value for _, _, value in definitions])
        lines.append((source, definition, cell))
    return Table(
        title=f"{report.name} on {report.subject}, as others define it",
        columns=("Source", "Number", "Value", "Formula, c the best class, y the target"),
        rows=[
            Line([Text(source), Text(each.title), Interval(cell.mean, cell.ci95, 4), Text(each.formula)])
            for source, each, cell in lines
        ],
        notes=[f"{_about(report)} {IDENTITIES}"],
        merged=1,
        records=[
            {"source": source, "number": each.title, "value": cell.mean, "ci95": cell.ci95, "formula": each.formula}
            for source, each, cell in lines
        ],
    )


def _rules_table(report: Report) -> Table:
    """Return a line per rule with its node metrics."""
    lines = []
    records = []
    for label, title in report.rules.items():
        cells = list[Cell]()
        values = dict[str, float | None]()
        for name, metric in NODE_METRICS.items():
            summary = summarise([metric.scale * result.nodes[label][name] for result in report.results])
            cells.append(Interval(summary.mean, summary.ci95))
            values |= {name: summary.mean, f"{name} ci95": summary.ci95}
        lines.append(Line([Text(title), *cells]))
        records.append({"rule": label, **values})
    headings = (f"{metric.title} {'↑' if metric.better == 'higher' else '↓'}" for metric in NODE_METRICS.values())
    note = "Over all images; a rule has the temperature 1 unless it says another."
    if set(report.rules) == {"answers"}:
        note = "Some answers are nodes above the classes, which metrics of classes do not measure."
    return Table(
        title=f"{report.name} on {report.subject}, answers",
        columns=("Rule", *headings),
        rows=lines,
        notes=[f"{_about(report)} {note}", *_understood(report)],
        records=records,
        content={"name": report.name, "of": report.subject, "rows": records, **_taken(report)},
    )


def _taken(report: Report) -> dict[str, Any]:
    """Return what the files were read as, for JSON."""
    return {
        "files": [result.where for result in report.results],
        "examples": [result.num_examples for result in report.results],
        "scores": [result.kind for result in report.results],
        "columns": [result.columns for result in report.results],
        "notes": [list(result.notes) for result in report.results],
    }


def _understood(report: Report) -> list[str]:
    """Return sentences on what the files were read as, each once."""
    kinds = [f"Scores are {result.kind}, columns {result.columns}." for result in report.results if result.kind]
    return list(dict.fromkeys([*kinds, *(note for result in report.results for note in result.notes)]))


def _about(report: Report) -> str:
    """Return the sentences on the images of a report."""
    sizes = ", ".join(dict.fromkeys(f"{result.num_all:,}" for result in report.results))
    above = max(result.num_all - result.num_examples for result in report.results)
    inner = f" {above:,} of them are labelled with a node above the classes, which metrics of classes leave out."
    return f"{report.name} on {report.subject}: {sizes} images.{inner if above else ''}"


def _metrics_table(report: Report) -> Table:
    """Return a line per metric with the bounds of its interval, and a sentence on the interval."""
    by_name = {column.name: column for column in report.columns}
    lines = report.lines()
    keys = ("metric", "mean", "low", "high")
    sizes = ", ".join(dict.fromkeys(f"{result.num_examples:,}" for result in report.results))
    about = f"{report.name} on {report.subject}: {sizes} images, distance {report.distance}; {report.about_interval}."
    over = "seeds" if len(report.results) > 1 else "images"
    above = max(result.num_all - result.num_examples for result in report.results)
    inner = [f"{above:,} more images are labelled with a node above the classes: --rules scores them."] if above else []
    ties = [
        f"{result.where}: {result.num_ties:,} of {result.num_examples:,} images have their largest score in several "
        "classes, of which the first in the order of the tree counts."
        for result in report.results
        if result.num_ties
    ]
    absent = [column.heading for column in report.columns if column.name not in {line["metric"] for line in lines}]
    few = "for fewer classes than they rank"
    reason = few if report.results[0].kind else "as they need the scores of all classes, or more ranked ones"
    left_out = [f"Left out, {reason}: {', '.join(absent)}."] if absent else []
    over_images = [line["metric"] for line in lines if line["metric"] not in PAPER_METRICS]
    if len(report.results) == 1 and report.resamples and over_images:
        names = ", ".join(by_name[name].title for name in over_images)
        left_out.append(
            f"No interval for {names}: the paper's metrics alone are resampled; seeds give all of them one."
        )
    return Table(
        title=f"{report.name} on {report.subject}",
        columns=("Metric", "Mean", "Low", "High"),
        rows=[
            Line([Text(column.heading), *(Number(line[key], f".{column.digits}f") for key in keys[1:])])
            for line in lines
            if (column := by_name[line["metric"]])
        ],
        notes=[about, *inner, *_understood(report), *left_out, *ties],
        records=[{key: line[key] for key in keys} for line in lines],
        content={
            "name": report.name,
            "of": report.subject,
            "distance": report.distance,
            **_taken(report),
            "interval": {"over": over, "about": report.about_interval},
            "metrics": {line["metric"]: {key: line[key] for key in line if key != "metric"} for line in lines},
            "runs": list(report.runs),
        },
    )
