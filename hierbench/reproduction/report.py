"""What `hierbench reproduce` prints: the command first, then what it takes, and how the results compare."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hierbench.leaderboard.columns import column_of
from hierbench.leaderboard.statistics import Cell
from hierbench.reproduction.rows import Recorded
from hierbench.utils.text import one_line

if TYPE_CHECKING:
    from hierbench.reproduction.again import Compared

MEANING = {
    "bitwise": "bitwise the same",
    "close": "within tolerance, not bitwise",
    "differs": "differs",
    "failed": "failed",
}


def as_text(found: Recorded, notes: Sequence[str], compared: Sequence["Compared"] | None = None) -> str:
    """Return the command, a block of what it is of, and one line per seed that was carried out."""
    spec, row, data = found.spec, found.row, found.spec.dataset
    lines = [
        ("row", f"{row.title}, {row.type}, protocol {spec.protocol}"),
        ("seeds", ", ".join(map(str, found.runs))),
        *(("value", f"{metric} {shown(row.metrics[metric], metric)}") for metric in found.metrics),
        ("made by", "; ".join(f"{name} {' and '.join(values)}" for name, values in found.environments.items())),
        ("data", f"{data.name}, SHA-256 {data.digest}"),
        ("tree", f"SHA-256 {data.hierarchy}, distance {data.distance}"),
        ("weights", spec.model.weights + (f", SHA-256 {spec.weights}" if spec.weights else "")),
        *(("code", f"{name}, SHA-256 {code}") for name, code in found.codes.items()),
        *(("note", note) for note in notes),
    ]
    for one in compared or ():
        values = ", ".join(f"{name} {_number(old)} -> {_number(new)}" for name, (old, new) in one.metrics.items())
        lines.append(("again", f"seed {one.seed}: {MEANING[one.verdict]}" + (f" ({values})" if values else "")))
    block = [f"{name:8} {one_line(text)}" for name, text in lines]
    return "\n".join([one_line(shlex.join(found.command)), "", *block, ""])


def shown(cell: Cell, metric: str) -> str:
    """Return mean and half-width as a table prints them."""
    interval = "" if cell.ci95 is None else f" +/- {cell.ci95:.4f}"
    return f"{cell.mean:.{column_of(metric).digits}f}{interval}"


def _number(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.6g}"


def as_record(found: Recorded, notes: Sequence[str], compared: Sequence["Compared"] | None = None) -> dict[str, Any]:
    """Return the same as JSON types."""
    spec, cells = found.spec, {name: found.row.metrics[name] for name in found.metrics}
    return {
        "method": found.row.method,
        "type": found.row.type,
        "title": found.row.title,
        "protocol": spec.protocol,
        "command": found.command,
        "seeds": list(found.runs),
        "runs": [run.folder.name for run in found.runs.values()],
        "jobs": list(found.specs),
        "metrics": {name: {"mean": one.mean, "ci95": one.ci95, "values": one.values} for name, one in cells.items()},
        "environment": found.environments,
        "data": spec.dataset.digest,
        "tree": spec.dataset.hierarchy,
        "distance": spec.dataset.distance,
        "weights": spec.weights,
        "code": found.codes,
        "notes": list(notes),
        **({} if compared is None else {"again": list(map(vars, compared))}),
    }
