"""The differences between the specs and environments of two rows, key by key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hierbench.config.overrides import flatten
from hierbench.leaderboard.statistics import Row
from hierbench.runs.record import Record
from hierbench.runs.records import Records
from hierbench.utils.text import one_line

RUN_KEYS = ("seed", "base", "schema_version")  # keys of a spec that do not describe its row
ENVIRONMENT = ("hierbench", "torch", "torchvision", "timm", "python", "system", "device", "devices")
ABSENT_VALUE = "none"
DIGEST = 12  # characters of a digest that are shown
MAX_VALUE_LENGTH = 80  # of a value, which may be a stranger's


@dataclass(frozen=True)
class Change:
    """One key that differs: `method.params.gamma`, `train.epochs`, `environment.torch`; values as text."""

    key: str
    old: str
    new: str

    def __str__(self) -> str:
        """Return "key: old -> new"."""
        return f"{self.key}: {self.old} -> {self.new}"


def spec_changes(old: Row, old_records: Records, new: Row, new_records: Records) -> list[Change]:
    """Return the keys that differ between the runs of two rows, first of the spec; [] for scored rows."""
    if old.scored or new.scored:
        return []
    sides = [finished_runs(row, records) for row, records in ((old, old_records), (new, new_records))]
    old_values, new_values = (_shared_settings(runs[0].content) | _environment(runs) if runs else {} for runs in sides)
    keys = different_keys(old_values, new_values)
    return [Change(key, value_text(old_values.get(key)), value_text(new_values.get(key))) for key in keys]


def different_keys(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the keys with different values; an empty section, as of a method without hyperparameters, equals None."""
    empty: tuple[Any, ...] = (None, {})
    return [
        key
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key) and not (old.get(key) in empty and new.get(key) in empty)
    ]


def finished_runs(row: Row, records: Records) -> list[Record]:
    """Return a row's finished runs that count, or without any the planned ones."""
    runs = [record for run_id in row.runs if (record := records.get(run_id)) is not None]
    if row.n in (0, row.planned):
        return runs
    return [run for run in runs if run.done and run.job.seed in row.seeds]


def _shared_settings(content: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that the runs of a row share, {dotted key: value}."""
    return dict(flatten({key: value for key, value in content.items() if key not in RUN_KEYS}))


def _environment(runs: Sequence[Record]) -> dict[str, Any]:
    """Return the software and hardware of a row's runs as {key: values}, as far as recorded."""
    values_by_key: dict[str, set[str]] = {}
    for run in runs:
        for name in ENVIRONMENT:
            if name in run.environment:
                value = one_line(str(run.environment[name]), MAX_VALUE_LENGTH)
                values_by_key.setdefault(f"environment.{name}", set()).add(value)
    return {name: " / ".join(sorted(values)) for name, values in values_by_key.items()}


def value_text(value: Any) -> str:
    """Return a value of a spec as it is shown: of a digest the beginning."""
    if value is None or value == {}:
        return ABSENT_VALUE
    text = one_line(str(value), MAX_VALUE_LENGTH)
    is_digest = len(text) == 64 and set(text) <= set("0123456789abcdef")
    return text[:DIGEST] if is_digest else text
