"""The columns of a table: the paper's five, and any other metric that `--metrics` chooses or adds."""

from collections.abc import Sequence
from dataclasses import dataclass

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics import metric_table
from hierbench.metrics.metric import Metric
from hierbench.utils.errors import UserError


@dataclass(frozen=True)
class Column:
    """A metric as tables show it.

    Attributes:
        name: of the metric, as in `hierbench.metrics.metric_table`.
        title: its heading.
        higher: whether larger values are better.
        unit: "%", "edges" or "bits"; "" for a fraction, which is printed with more digits.
        claimed: whether it cannot be recomputed from the predictions of the runs, so that it has no best value.
    """

    name: str
    title: str
    higher: bool = False
    unit: str = ""
    claimed: bool = False

    @property
    def digits(self) -> int:
        """Digits after the decimal point of a printed mean; the best of a column are compared at this precision."""
        return 2 if self.unit else COST_DIGITS.get(self.name, 4)

    @property
    def heading(self) -> str:
        """Title and direction."""
        return f"{self.title} {'↑' if self.higher else '↓'}{' (claimed)' if self.claimed else ''}"


COSTS = {  # recorded with a run, so that no predictions give them
    "parameters": Column("parameters", "Parameters", claimed=True),
    "seconds": Column("seconds", "Seconds per test image", claimed=True),
    "training_seconds": Column("training_seconds", "Seconds of training", claimed=True),
}
COST_DIGITS = {"parameters": 0, "seconds": 6, "training_seconds": 1}


def find_column(name: str) -> Column:
    """Return the column of a metric; a UserError for an unknown name suggests the nearest."""
    if name in COSTS:
        return COSTS[name]
    return column_of(metric_table.find_metric(name))


def column_of(metric: Metric) -> Column:
    """Return the column of a metric, of classes or of nodes."""
    return Column(metric.name, metric.title, metric.better == "higher", metric.unit)


PAPER_COLUMNS = tuple(map(find_column, metric_table.PAPER_NAMES))
PAPER_BY_NAME = {column.name: column for column in PAPER_COLUMNS}


def requested_columns(text: str | None, option: str = "--metrics") -> tuple[Column, ...]:
    """Return the columns of --metrics: names choose them, names that begin with + are added to the paper's.

    Without the option they are the paper's. Each is shown once, in the order of the option. `option` begins errors.

    Raises:
        UserError: an unknown name, with the nearest one; no name at all; or a + before some names only.
    """
    if text is None:
        return PAPER_COLUMNS
    names = [name.strip() for name in text.split(",")]
    if not all(name.removeprefix("+").strip() for name in names):
        raise UserError(f"{option} {text!r}: give names separated by commas, as in hf_macro,ece or +hf_macro,+ece")
    adds = {name.startswith("+") for name in names}
    if len(adds) > 1:
        raise UserError(f"{option} {text}: put + before all names to add columns to the paper's, or before none")
    columns = [find_column(name.removeprefix("+").strip()) for name in names]
    return tuple(dict.fromkeys([*(PAPER_COLUMNS if adds == {True} else ()), *columns]))


def check_columns(columns: Sequence[Column], hierarchy: Hierarchy) -> None:
    """Raise a UserError for a level or a k, beyond the paper's columns, that the tree does not have."""
    for name in further_names(columns):
        metric_table.find_metric(name, hierarchy)


def further_names(columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns that are not the paper's: these are computed from predictions."""
    return [column.name for column in columns if column.name not in PAPER_BY_NAME and column.name not in COSTS]
