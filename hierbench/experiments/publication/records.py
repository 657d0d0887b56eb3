"""What is published of each run: its records, the file of a method of its user's, and compact predictions."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hierbench.config.scored import is_scored
from hierbench.config.spec import DatasetSpec
from hierbench.data.prepared import find, variant_name
from hierbench.experiments.checking import with_bases
from hierbench.experiments.publication.sources import is_code
from hierbench.hierarchy.tree import IntArray
from hierbench.leaderboard.board import Board
from hierbench.runs import compact, further_metrics, published_tree
from hierbench.runs.evidence import Trees
from hierbench.runs.further_metrics import has_predictions
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.store import STEP, Run, Store, read_predictions
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_bytes, set_time, write_bytes

RECORDS = ("spec.json", "status.json", "metrics.json", "history.csv", "environment.json", "tuning.json")


def ids_of(board: Board, store: Store) -> list[str]:
    """Return the ids of all runs that are published with a table, oldest first."""
    wanted = set(with_bases((run_id for row in board.rows for run_id in row.runs), store))
    return [run.folder.name for run in store.runs() if run.folder.name in wanted]


class Records:
    """The folder of a publication's records, while it is written.

    Attributes:
        store: of that folder.
    """

    def __init__(self, folder: Path, data_dir: Path) -> None:
        self.store, self.data_dir, self._trees = Store(folder), data_dir, Trees(data_dir)
        self._targets: str | None = None  # the digest of targets.npy
        self._time: int | None = None

    def add(self, source: Store, ids: Sequence[str], metrics: Sequence[str] = ()) -> None:
        """Publish runs of another folder; later ones count as newer, and replace earlier ones of the same id.

        What is here already of the same result stays, as do compact predictions that the other folder lacks.

        Args:
            source: where the runs are.
            ids: of them.
            metrics: names of the table's further columns, whose values are published with them.

        Raises:
            UserError: a record is a link, a method's file is not the one that ran, or a run changes meanwhile.
        """
        for run_id in ids:
            run, here = source.run(run_id), self.store.run(run_id)
            files = _files_of(run, further_metrics.FILE if metrics else "")
            if here.folder.exists() and here.status != run.status:
                shutil.rmtree(here.folder)
            here.folder.mkdir(parents=True, exist_ok=True)
            for name, content in files:
                write_bytes(here.folder / name, content)
            self._add_predictions(run, here, source)
            self._add_tree(run, source)
            if not here.done:  # the table is of what it was a moment ago
                raise UserError(f"run {run_id[:12]} is being changed by another program; publish again")
            self._time = self.store.now() if self._time is None else self._time + STEP
            set_time(here.folder / "spec.json", self._time)

    def keep(self, ids: Iterable[str]) -> None:
        """Remove the records of all other runs."""
        wanted = set(ids)
        for run in list(self.store.runs()):
            if run.folder.name not in wanted:
                shutil.rmtree(run.folder)

    def _add_predictions(self, run: Run, here: Run, source: Store) -> None:
        """Write a run's predictions in compact form, and the targets of all runs once."""
        packed, targets = self._compacted(run, source)
        if packed is None:
            return
        compact.write_packed(here.folder, packed)
        if targets is not None and self._targets is None:
            compact.write_targets(self.store.root, targets)
            self._targets = compact.digest_of_targets(targets)

    def _add_tree(self, run: Run, source: Store) -> None:
        """Write the tree of all runs once, where the project does not ship it and it is known here."""
        data = DatasetSpec.model_validate(run.spec()["dataset"])
        if (self.store.root / published_tree.FILE).exists() or published_tree.shipped_tree(data) is not None:
            return
        paths = published_tree.read_paths(source.root, data)
        prepared = find(variant_name(data.name, data.jpeg_quality), self.data_dir)
        if paths is None and prepared is not None and prepared.hierarchy(data.distance).digest() == data.hierarchy:
            paths = [tuple(path) for path in prepared.meta["paths"]]
        if paths is not None:
            published_tree.write_tree(self.store.root, paths)

    def _compacted(self, run: Run, source: Store) -> tuple[dict[str, NDArray[Any]] | None, IntArray | None]:
        """Return the arrays of a run's compact file and its targets [N], as far as there are any."""
        try:
            if has_predictions(run):
                return self._packed(run)
            if not os.path.lexists(run.folder / compact.FILE):
                return None, None
            arrays = compact.read_packed(run.folder)
            digest = compact.unpack(arrays).targets
            known = os.path.lexists(source.root / compact.TARGETS)
            targets = compact.read_targets(source.root) if known and self._targets is None else None
            if targets is not None and compact.digest_of_targets(targets) != digest:
                targets = None  # of other runs
            return arrays, targets
        except (OSError, ValueError) as error:
            raise UserError(f"the predictions of run {run.folder.name[:12]} cannot be published: {error}") from None

    def _packed(self, run: Run) -> tuple[dict[str, NDArray[Any]] | None, IntArray]:
        source = run.digest_of(PREDICTIONS)
        if source is None:
            raise ValueError("status.json has no digest of them")
        spec = run.spec()
        if not is_scored(spec) or spec.get("top") is None:
            scores, targets = run.predictions()
            return compact.pack(scores, targets, source), targets
        names = ("classes", "scores_of_classes?", "targets")
        ranked, scores, targets = read_predictions(run.folder / PREDICTIONS, source, *names)
        try:
            num_classes = self._trees.of(run).num_classes
        except UserError:  # the number of classes is not in the file
            return None, targets
        first = None if scores is None else scores[:, 0]
        return compact.pack_ranked(ranked, first, num_classes, targets, source), targets


def _files_of(run: Run, *more: str) -> list[tuple[str, bytes]]:
    """Return (name, content) of a run's records.

    Raises:
        UserError: one is a link, or the method's file is not the one that ran.
    """
    method = run.spec().get("method")  # none where predictions were only scored
    source = f"{method['name']}.py" if method else ""
    found, names = [], (*RECORDS, *more, source)
    for path in (run.folder / name for name in names if name and "/" not in name):
        try:
            content = read_bytes(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UserError(f"{path} cannot be published: {error.strerror or error}") from None
        if method and path.name == source and not is_code(content, method["code"]):
            raise UserError(f"{path} cannot be published: it is not the method that ran")
        found.append((path.name, content))
    return found
