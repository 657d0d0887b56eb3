"""Printed numbers: the tables of Liang & Davis (ICCV 2023), and numbers of other authors, which are cited below them.

Numbers of other authors are never ranked with the paper's, nor counted as runs.
"""

import csv
import tomllib
from importlib import resources

from hierbench.config.validation import Closed
from hierbench.leaderboard.statistics import PAPER_METRICS, CitedRow, Summary

ABOUT = ("dataset", "type", "method", "title", "source", "sample")  # the columns that are not metrics
INTERVAL = " ci95"
PAPER_RUNS = 5  # behind every row of the paper
PAPER_DDOF = 0  # of the standard deviations in its intervals: docs/protocols.md, row 4


def paper_datasets() -> list[str]:
    """Return the datasets with a shipped published table."""
    files = (resources.files("hierbench.leaderboard") / "paper").iterdir()
    return sorted(
        {file.name.removesuffix(".csv") for file in files if file.name.endswith(".csv")} - {"ablation", "others"}
    )


def paper_lines(name: str) -> list[tuple[dict[str, str], dict[str, Summary]]]:
    """Return the lines of a table in `paper/`: all columns as printed, and the cells of the metrics."""
    return [
        (line, {metric: Summary(float(line[metric]), float(line[metric + INTERVAL])) for metric in PAPER_METRICS})
        for line in _read_lines(name)
    ]


def _read_lines(name: str) -> list[dict[str, str]]:
    text = (resources.files("hierbench.leaderboard") / "paper" / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def paper_distance(dataset: str) -> str:
    """Return the hierarchical distance that the paper's numbers use."""
    return "depth" if dataset == "tieredimagenet-h" else "height"


class PaperSource(Closed):
    """One entry of others.toml."""

    key: str
    citation: str
    where: str
    setting: str


def known_sources() -> dict[str, PaperSource]:
    """Return the entries of others.toml by key."""
    text = (resources.files("hierbench.leaderboard") / "others.toml").read_text(encoding="utf-8")
    return {source.key: source for source in map(PaperSource.model_validate, tomllib.loads(text)["source"])}


def other_rows(dataset: str) -> list[CitedRow]:
    """Return the rows of a dataset in paper/others.csv, in its order; a metric that is not printed has no cell.

    A row's type is the network that its source names; its title has the hyperparameters that the source states.
    """
    sources = known_sources()
    rows = []
    for line in _read_lines("others"):
        if line["dataset"] == dataset:
            source = sources[line["source"]]
            about = source.citation, source.where, source.setting, line["sample"]
            rows.append(CitedRow(line["type"], line["method"], line["title"], _cells(line), *about))
    return rows


def _cells(line: dict[str, str]) -> dict[str, Summary]:
    """Return the cells of the metrics that a line has, with the intervals that are printed."""
    names = [name for name in line if name not in ABOUT and not name.endswith(INTERVAL) and line[name]]
    widths = {name: line[name + INTERVAL] for name in names}
    return {name: Summary(float(line[name]), float(widths[name]) if widths[name] else None) for name in names}
