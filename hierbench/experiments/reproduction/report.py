"""What `hierbench reproduce` prints: the command first, then what it takes, and how the results compare."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hierbench.experiments.reproduction.rows import Recorded
from hierbench.leaderboard.columns import column_of
from hierbench.leaderboard.statistics import Cell
from hierbench.utils.text import one_line

if TYPE_CHECKING:
    from hierbench.experiments.reproduction.again import Compared

MEANING = {
    "bitwise": "bitwise the same",
    "close": "within tolerance, not bitwise",
    "differs": "differs",
    "failed": "failed",
}


def as_text(found: Recorded, notes: Sequence[str], compared: Sequence["Compared"] | None = None) -> str:
    """Return the command, a block of what it is of, and one line per seed that was carried out."""
    spec = found.spec
    data = spec.dataset
    seeds = found.seeds
    environment = "; ".join(f"{name} {' and '.join(values)}" for name, values in found.environments.items())
    lines = [one_line(shlex.join(found.command)), ""]
    lines.append(f"row      {one_line(found.row.title)}, {found.row.type}, protocol {spec.protocol}")
    lines.append(f"seeds    {', '.join(map(str, seeds))}")
    for metric in found.metrics:
        lines.append(f"value    {metric} {shown(found.cell(metric), metric)}")
    lines.append(f"made by  {one_line(environment)}")
    lines.append(f"data     {one_line(data.name)}, SHA-256 {data.digest}")
    lines.append(f"tree     SHA-256 {data.hierarchy}, distance {data.distance}")
    lines.append(f"weights  {spec.model.weights}" + (f", SHA-256 {spec.weights}" if spec.weights else ""))
    codes = {one.method.name: one.method.code for one in found.specs.values()}
    lines += [f"code     {one_line(name)}, SHA-256 {code}" for name, code in codes.items()]
    lines += [f"note     {one_line(note)}" for note in notes]
    for one in compared or ():
        values = ", ".join(f"{name} {_number(old)} -> {_number(new)}" for name, (old, new) in one.metrics.items())
        lines.append(f"again    seed {one.seed}: {MEANING[one.verdict]}" + (f" ({values})" if values else ""))
    return "\n".join(lines) + "\n"


def shown(cell: Cell, metric: str) -> str:
    """Return mean and half-width as a table prints them."""
    if cell.mean is None:
        return "-"
    interval = "" if cell.ci95 is None else f" +/- {cell.ci95:.4f}"
    return f"{cell.mean:.{column_of(metric).digits}f}{interval}"


def _number(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.6g}"


def as_record(found: Recorded, notes: Sequence[str], compared: Sequence["Compared"] | None = None) -> dict[str, Any]:
    """Return the same as JSON types."""
    spec = found.spec
    record: dict[str, Any] = {
        "method": found.row.method,
        "type": found.row.type,
        "title": found.row.title,
        "protocol": spec.protocol,
        "command": found.command,
        "seeds": found.seeds,
        "runs": [run.folder.name for run in found.runs.values()],
        "jobs": list(found.specs),
        "metrics": {
            name: {"mean": cell.mean, "ci95": cell.ci95, "values": cell.values}
            for name, cell in ((name, found.cell(name)) for name in found.metrics)
        },
        "environment": found.environments,
        "data": spec.dataset.digest,
        "tree": spec.dataset.hierarchy,
        "distance": spec.dataset.distance,
        "weights": spec.weights,
        "code": {one.method.name: one.method.code for one in found.specs.values()},
        "notes": list(notes),
    }
    if compared is not None:
        record["again"] = [vars(one) for one in compared]
    return record
