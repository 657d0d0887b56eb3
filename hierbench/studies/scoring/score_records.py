"""The records of scored predictions, which a leaderboard reads like runs."""

import os
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np

from hierbench.config.scored_spec import Scored
from hierbench.leaderboard.scored_rows import scored_records
from hierbench.runs.integrity import PREDICTIONS, fingerprints
from hierbench.runs.record_reader import read_record, read_records
from hierbench.runs.scored_record import stored_type
from hierbench.runs.store import Run, Store
from hierbench.studies.scoring.prediction_parts import Predictions
from hierbench.studies.scoring.scores import Result
from hierbench.utils.errors import UserError
from hierbench.utils.files import remove_abandoned, sync_folder, temporary_beside, write_atomically

Origin = dict[str, Any]  # content of environment.json


def write_records(
    store: Store,
    records: Sequence[Scored],
    all_predictions: Sequence[Predictions],
    results: Sequence[Result],
    origin: Origin,
) -> None:
    """Write the records of a command like runs, all or nothing; existing ones stay as they are.

    `origin` has the facts of the scoring; the names of the files are added.

    Raises:
        UserError: an existing record is damaged.
    """
    remove_abandoned(store.root)
    staging = temporary_beside(store.root / "scored")
    try:
        for record, predictions, result in zip(records, all_predictions, results, strict=True):
            earlier = read_record(store.run(record.id).folder)
            if not earlier.done and os.path.lexists(earlier.folder):
                why = "; ".join((*earlier.findings, *earlier.notes))
                raise UserError(f"{earlier.folder} is damaged or unfinished ({why}); remove it and score again")
            if not earlier.done:
                facts = {"file": predictions.where, "scores": result.kind, "columns": predictions.columns}
                _fill(Run(staging / record.id), record, predictions, result, {**origin, **facts})
        for folder in staging.iterdir() if staging.is_dir() else ():
            try:
                folder.rename(store.run(folder.name).folder)
            except OSError:
                if not read_record(store.run(folder.name).folder).done:  # another command has just scored the same file
                    raise
        sync_folder(store.root)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _fill(run: Run, record: Scored, predictions: Predictions, result: Result, environment: Origin) -> None:
    """Write the files of a record into a new folder."""
    run.folder.mkdir(parents=True)
    run.write_record("spec.json", record.content())
    if predictions.classes is None:
        scores = predictions.all_scores
        run.write_predictions(np.asarray(scores, dtype=stored_type(scores.dtype)), predictions.true_classes)
    else:
        parts = {
            "classes": predictions.classes,
            "scores_of_classes": predictions.scores,
            "targets": predictions.targets,
        }
        arrays: dict[str, Any] = {name: values for name, values in parts.items() if values is not None}
        write_atomically(run.folder / PREDICTIONS, lambda file: np.savez(file, **arrays))
    metrics = {"test": result.metrics, "mistakes_by_distance": result.mistakes, "examples": result.num_examples}
    intervals = {metric: list(bounds) for metric, bounds in result.intervals.items()}
    run.write_record("metrics.json", {"schema": 1, "title": record.name, **metrics, "intervals": intervals})
    run.write_record("environment.json", environment)
    run.set_status("done", files=fingerprints(run.folder))


def check_name(store: Store, records: Sequence[Scored]) -> None:
    """Raise a UserError if the name of these records already stands for predictions that are not among them.

    A row's seeds are those of one command: with other files added to it, or all of them again, it is the same row.
    """
    name = records[0].name
    dataset = records[0].dataset
    ids = {record.id for record in records}
    scored = scored_records(read_records(store.root))
    recorded_ids = {
        scored_record.id
        for scored_record, _ in scored
        if (scored_record.name, scored_record.dataset) == (name, dataset)
    }
    if recorded_ids - ids and ids - recorded_ids:
        earlier = min(recorded_ids - ids)[:12]
        raise UserError(
            f"{name!r} already stands for other predictions in {store.root} ({earlier}): "
            "give another name, give the earlier files too if these are more seeds, or remove the earlier folders"
        )
