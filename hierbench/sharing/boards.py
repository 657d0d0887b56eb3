"""The boards of a results repository: one publication per dataset, made of all submissions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hierbench.leaderboard.board import Board
from hierbench.records.reading import read_records
from hierbench.sharing.changes import (
    Changes,
    Entry,
    changes_between,
    first_changes,
    label_of,
    read_changes,
    write_changes,
)
from hierbench.sharing.compose import Part, Publication, compose, read_board
from hierbench.sharing.intake import Submission
from hierbench.utils.errors import UserError


@dataclass
class Boards:
    """The publications of all datasets of a set of submissions.

    Attributes:
        folder: of them.
        made: {dataset: what was written}.
        conflicts: (submission, another, row) where two have the same run with different results; the first of them in
            the board is the other's.
        problems: a line per board that cannot be made.
    """

    folder: Path
    made: dict[str, Publication] = field(default_factory=dict)
    conflicts: list[tuple[str, str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def changes_from(self, old: "Boards", dataset: str) -> Changes:
        """Return how a dataset's board differs from that of other boards."""
        if dataset not in old.made:
            return first_changes(self.made[dataset].board)
        if dataset not in self.made:
            rows = tuple(map(label_of, old.made[dataset].board.rows))
            return Changes(Entry(removed=rows), [(row, "removed") for row in rows])
        before, after = old.made[dataset].board, self.made[dataset].board
        return changes_between(old.folder / dataset, before, self.folder / dataset, after)


def make_boards(
    submissions: Sequence[Submission],
    folder: Path,
    data_dir: Path,
    datasets: Sequence[str] | None = None,
    *,
    draw: bool = True,
    previous: Path | None = None,
) -> Boards:
    """Publish the runs of all submissions into a folder, a table per dataset.

    Of two submissions with the same run, the one that comes first by name gives it, unless the other's card replaces
    the row; of two versions of a row's code, the one that comes last, or whose card replaces the row.

    Args:
        submissions: without problems.
        folder: new.
        data_dir: prepared data.
        datasets: only these; by default all.
        draw: whether with pictures.
        previous: boards whose lists of changes are continued.
    """
    found = Boards(folder)
    for dataset in sorted({dataset for one in submissions for dataset in one.datasets}):
        if datasets is not None and dataset not in datasets:
            continue
        parts = _parts([one for one in submissions if dataset in one.datasets], dataset, found)
        try:
            made = compose(folder, dataset, parts, data_dir, draw=draw)
        except UserError as error:
            found.problems.append(f"no board of {dataset}: {error}")
            continue
        found.made[dataset] = made
        if previous is not None:
            _continue_changes(made, folder, previous, data_dir, words_for(submissions, dataset))
    return found


def _parts(submissions: Sequence[Submission], dataset: str, found: Boards) -> list[Part]:
    """Return the runs of a dataset, each once, those of replacing submissions last."""
    replaces = {one.folder: words_for([one], dataset) for one in submissions}
    known = {one.folder: read_records(one.folder / dataset) for one in submissions}
    owner: dict[str, tuple[Submission, object]] = {}
    held: dict[Path, list[str]] = {one.folder: [] for one in submissions}
    for one in sorted(submissions, key=lambda one: (not replaces[one.folder], one.folder.name)):
        for run in known[one.folder]:
            first = owner.setdefault(run.id, (one, run.status.get("files")))
            if first[0] is one:
                held[one.folder].append(run.id)
            elif first[1] != run.status.get("files"):
                spec = run.content
                row = f"{spec.get('method', spec).get('name')}:{spec.get('type', 'scored')}"
                if row not in replaces[first[0].folder]:
                    found.conflicts.append((one.folder.name, first[0].folder.name, row))
    in_order = sorted(submissions, key=lambda one: (bool(replaces[one.folder]), one.folder.name))
    return [Part(known[one.folder], held[one.folder]) for one in in_order if held[one.folder]]


def _continue_changes(
    made: Publication, folder: Path, previous: Path, data_dir: Path, words: Mapping[str, str]
) -> None:
    dataset = made.board.dataset
    if not (previous / dataset).is_dir():
        return write_changes(folder, dataset, first_changes(made.board))
    old = read_board(previous, dataset, data_dir)
    found = changes_between(previous / dataset, old, folder / dataset, made.board)
    because = dict.fromkeys(f"{row}: {words[row]}" for row, _ in found.worse if row in words)
    write_changes(folder, dataset, found, "; ".join(because), read_changes(previous, dataset))


def words_for(submissions: Sequence[Submission], dataset: str) -> Mapping[str, str]:
    """Return {row: why} of what the cards of submissions replace in a table."""
    entries = [entry for one in submissions if one.card for entry in one.card.replaces if entry.dataset == dataset]
    return {entry.row: entry.why for entry in entries}


def rows_not_shown(one: Submission, dataset: str, boards: Boards) -> list[str]:
    """Return the labels of a submission's rows of which a board shows no run."""
    if dataset not in boards.made:
        return []
    shown = {run_id for row in boards.made[dataset].board.rows for run_id in row.runs}
    rows = Board.of(dataset, read_records(one.folder / dataset)).rows
    return [label_of(row) for row in rows if not shown & set(row.runs)]
