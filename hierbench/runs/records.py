"""The runs of a folder, as all that reads results gets them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hierbench.runs.record import Record, variant_key
from hierbench.runs.requests import Request, find_budget, only_ablated, read_budgets
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line


@dataclass(frozen=True, eq=False)
class Records:
    """The runs of one folder, in the order in which they were asked for.

    Attributes:
        root: the folder.
        by_id: the runs, {id: record}.
        rejected_row_ids: ids of runs in rejected rows.
        requests: of the folder, oldest first.
        notes: a line on each request that is ignored.
    """

    root: Path
    by_id: Mapping[str, Record] = field(default_factory=dict)
    rejected_row_ids: frozenset[str] = frozenset()
    requests: tuple[Request, ...] = ()
    notes: tuple[str, ...] = ()

    def __getitem__(self, run_id: str) -> Record:
        """Return a run; a UserError where it is not here."""
        if run_id not in self.by_id:
            raise UserError(f"run {one_line(run_id, 12)} is not in {self.root}")
        return self.by_id[run_id]

    def __contains__(self, run_id: object) -> bool:
        """Whether a run is here."""
        return run_id in self.by_id

    def __iter__(self) -> Iterator[Record]:
        """Yield the runs."""
        return iter(self.by_id.values())

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.by_id)

    def get(self, run_id: str) -> Record | None:
        """Return a run, None where it is not here."""
        return self.by_id.get(run_id)

    @cached_property
    def ablated(self) -> frozenset[str]:
        """The ids of variants of an ablation: whole rows beside another one of the same method, type and settings.

        An ablation's request leaves out nothing else: neither a seed of a row nor a whole method.
        """
        named = only_ablated(self.requests)
        if not named:
            return frozenset()
        shown = set[str]()
        requested_variants = set[tuple[str, str, str]]()
        for record in self:
            if record.spec is not None and record.id not in named:
                shown.add(record.row)
                requested_variants.add(variant_key(record))
        return frozenset(
            record.id
            for record in self
            if record.spec is not None and record.row not in shown and variant_key(record) in requested_variants
        )

    @cached_property
    def _budgets(self) -> Mapping[str, list[Mapping[str, Any]]]:
        return read_budgets(self.requests)

    def tuning_budget(self, record: Record) -> dict[str, Any] | None:
        """Return the search that chose the hyperparameters of a run, None if no search is recorded."""
        return find_budget(record.id, record.job, self._budgets)

    def with_bases(self, ids: Iterable[str]) -> list[str]:
        """Return the ids of runs, of their bases, and of their bases' bases."""
        ids_in_order = dict[str, None]()
        pending = list(ids)
        while pending:
            run_id = pending.pop(0)
            if run_id not in ids_in_order:
                ids_in_order[run_id] = None
                pending += self.by_id[run_id].bases if run_id in self.by_id else ()
        return list(ids_in_order)
