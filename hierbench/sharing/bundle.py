"""The published files of each run: its records, the file of a user's method, and compact predictions."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hierbench.config.spec import json_digest
from hierbench.data.prepared import find_for_spec
from hierbench.hierarchy.label_tree import IntArray
from hierbench.leaderboard.board import Board
from hierbench.runs import compact, further_metrics
from hierbench.runs.answer_file import ANSWERS_FILE, kept_answers
from hierbench.runs.further_metrics import read_further
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.method_files import is_code
from hierbench.runs.record import Record
from hierbench.runs.record_reader import read_record, read_records
from hierbench.runs.records import Records
from hierbench.runs.requests import Request, read_requests, with_id, write_requests
from hierbench.runs.run_archive import opened
from hierbench.runs.run_evidence import Trees
from hierbench.sharing import published_tree
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_bytes, write_json
from hierbench.utils.text import without_paths

PUBLISHED_FILES = ("spec.json", "status.json", "metrics.json", "history.csv", "environment.json")


def published_ids(board: Board) -> list[str]:
    """Return the ids of all runs that are published with a table, in the order of the records."""
    ids = set(board.records.with_bases(run_id for row in board.rows for run_id in row.runs))
    return [record.id for record in board.records if record.id in ids]


class Bundle:
    """The folder of a publication's records, while it is written."""

    def __init__(self, folder: Path, data_dir: Path) -> None:
        self.folder = folder
        self.data_dir = data_dir
        self._trees = Trees(data_dir)
        self._targets: str | None = None  # the digest of targets.npy
        self._later = False  # whether runs of an earlier part are there

    def add(self, source: Records, ids: Sequence[str], metrics: Sequence[str] = ()) -> None:
        """Publish runs of another folder with the requests that name them.

        They count as asked for after those of earlier calls, and replace runs of the same id.

        Existing files of the same result stay, as do compact predictions that the other folder lacks.

        Args:
            source: the runs.
            ids: of them.
            metrics: names of the table's further columns, whose values are published with them.

        Raises:
            UserError: a record is a link, a method's file is not the one that ran, or a run changes meanwhile.
        """
        later = self._later and any(not (self.folder / run_id).exists() for run_id in ids)
        for run_id in ids:
            record = source[run_id]
            target = self.folder / run_id
            files = _record_files(record)
            if target.exists() and read_record(target).status != record.status:
                shutil.rmtree(target)
            target.mkdir(parents=True, exist_ok=True)
            for name, content in files:
                write_bytes(target / name, content)
            values = read_further(record, source) if metrics else {}
            if values:
                further = further_metrics.values_content(record, source, values)
                write_json(target / further_metrics.FURTHER_FILE, further)
            self._add_predictions(record, target, source.root)
            self._add_tree(record, source.root)
            if kept_answers(record) is not None:
                write_bytes(target / ANSWERS_FILE, record.read(ANSWERS_FILE))
            copied = read_record(target)
            if copied is None or not copied.done:  # the table is that of a moment ago
                raise UserError(f"run {run_id[:12]} is being changed by another program; publish again")
        publish_requests(self.folder, opened(source.root), self.folder.name, ids, later=later)
        self._later = True

    def keep(self, ids: Iterable[str]) -> None:
        """Remove the records of all other runs."""
        kept_ids = set(ids)
        for record in read_records(self.folder):
            if record.id not in kept_ids:
                shutil.rmtree(record.folder)
        keep_requests(self.folder, [*kept_ids])

    def _add_predictions(self, record: Record, target: Path, root: Path) -> None:
        """Write a run's predictions in compact form, and the targets of all runs once."""
        if record.spec is not None and record.spec.follows_from_base:
            return
        packed, targets = self._compact_arrays(record, opened(root))
        if packed is None:
            return
        compact.write_packed(target, packed)
        if targets is not None and self._targets is None:
            compact.write_targets(self.folder, targets)
            self._targets = compact.digest_of_targets(targets)

    def _add_tree(self, record: Record, root: Path) -> None:
        """Write the tree of all runs once, where the project does not ship it and it is known here."""
        data = record.data
        if (self.folder / published_tree.TREE_FILE).exists() or published_tree.shipped_tree(data) is not None:
            return
        paths = published_tree.read_paths(opened(root), data)
        prepared = find_for_spec(data, self.data_dir)
        if paths is None and prepared is not None and prepared.hierarchy(data.distance).digest() == data.hierarchy:
            paths = [tuple(path) for path in prepared.meta["paths"]]
        if paths is not None:
            published_tree.write_tree(self.folder, paths)

    def _compact_arrays(self, record: Record, root: Path) -> tuple[dict[str, NDArray[Any]] | None, IntArray | None]:
        """Return the arrays of a run's compact file and its targets [N], as far as there are any."""
        try:
            if record.has_predictions:
                return self._pack(record)
            if not record.has_ranks:
                return None, None
            arrays = compact.read_packed(record.folder)
            digest = compact.unpack(arrays).targets
            has_targets = os.path.lexists(root / compact.TARGETS)
            targets = compact.read_targets(root) if has_targets and self._targets is None else None
            if targets is not None and compact.digest_of_targets(targets) != digest:
                targets = None  # of other runs
            return arrays, targets
        except (OSError, ValueError) as error:
            raise UserError(f"the predictions of run {record.id[:12]} cannot be published: {error}") from None

    def _pack(self, record: Record) -> tuple[dict[str, NDArray[Any]] | None, IntArray]:
        source = record.recorded_digest(PREDICTIONS)
        if source is None:
            raise ValueError("status.json has no digest of them")
        if record.scored is None or record.scored.top is None:
            scores, targets = record.predictions()
            return compact.pack(scores, targets, source), targets
        ranked, targets = record.arrays("classes", "targets")
        tree = self._trees.find(record.scored.dataset)
        if tree is None:  # the number of classes is not in the file
            return None, targets
        return compact.pack_ranked(ranked, tree.num_classes, targets, source), targets


def _record_files(record: Record) -> list[tuple[str, bytes]]:
    """Return (name, content) of a run's records; a UserError for a link, or if the method's file is another."""
    method = None if record.spec is None else record.spec.method  # [] where predictions were only scored
    source = "" if method is None or "/" in method.name else f"{method.name}.py"
    files = []
    for name in filter(None, (*PUBLISHED_FILES, source)):
        try:
            content = record.read(name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UserError(f"{record.folder / name} cannot be published: {error.strerror or error}") from None
        if method and name == source and not is_code(content, method.code):
            raise UserError(f"{record.folder / name} cannot be published: it is not the method that ran")
        files.append((name, content))
    return files


def publish_requests(root: Path, source: Path, dataset: str, ids: Sequence[str], *, later: bool = False) -> None:
    """Add the requests of another folder that name published runs, as the newest.

    One that asked the same for no other runs is replaced. What is published has no paths and no ids of other runs. Runs
    of a `later` part of a publication that no request names get one without options, in the order of `ids`, as they
    count after those of the earlier parts.
    """
    request_by_id = {request.id: request for request in read_requests(root)}
    reduced = [_publish(request, ids) for request in read_requests(source, [])]
    published_requests = [request for request in reduced if request.ids]
    named = {run_id for request in published_requests for run_id in request.ids}
    unnamed = [run_id for run_id in ids if run_id not in named]
    if later and unnamed:
        published_requests.insert(0, with_id(kind="comparison", dataset=dataset, ids=tuple(unnamed)))
    first: dict[tuple[str, str], Request] = {}  # by options and first run
    for request in [*request_by_id.values(), *published_requests]:
        digest = json_digest([request.kind, request.dataset, request.options])
        runs = set(request.ids)
        for run_id in request.ids:
            other = first.get((digest, run_id))
            if other is not None and runs.issuperset(other.ids):
                request_by_id.pop(other.id, None)
        request_by_id.pop(request.id, None)
        request_by_id[request.id] = first[digest, request.ids[0] if request.ids else ""] = request
    write_requests(root, request_by_id.values())


def keep_requests(root: Path, ids: Sequence[str]) -> None:
    """Remove all ids but these from a publication's requests, and the requests that have no others."""
    kept = [_publish(request, ids) for request in read_requests(root)]
    write_requests(root, [request for request in kept if request.ids])


def _publish(request: Request, ids: Iterable[str]) -> Request:
    kept_ids = set(ids)
    kept: dict[str, Any] = {name: without_paths(getattr(request, name)) for name in ("options", "budget")}
    kept["ids"] = tuple(run_id for run_id in request.ids if run_id in kept_ids)
    return with_id(**{**dict(request), **kept})
