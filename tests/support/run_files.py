"""Files of runs, read without the checks of their reader, and what MLflow has of them."""

import contextlib
import json
import sqlite3

from hierbench.runs.record import Record
from hierbench.runs.state import State


def _record(run):
    return Record(run.folder, State.RECORDED, status=run.status)


def spec_of(run):
    """The content of spec.json."""
    return json.loads((run.folder / "spec.json").read_text(encoding="utf-8"))


def specs_in(folder):
    """{id: content of spec.json} of the runs in a folder."""
    return {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*/spec.json")}


def statuses_in(folder):
    """{id: content of status.json} of the runs in a folder."""
    return {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*/status.json")}


def mirrored_in(database):
    """The (id, status) of each job's run in MLflow's database, sorted."""
    query = "select t.value, r.status from tags t join runs r on r.run_uuid = t.run_uuid where t.key = 'hierbench.id'"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return sorted(connection.execute(f"{query} and r.lifecycle_stage = 'active'").fetchall())


def metrics_of(run):
    """The content of metrics.json."""
    return json.loads((run.folder / "metrics.json").read_text(encoding="utf-8"))


def history_of(run):
    """The rows of history.csv."""
    return _record(run).history()


def predictions_of(run):
    """The test scores [N, K] and targets [N]."""
    return _record(run).predictions()


def level_predictions_of(run):
    """The level-wise predictions [N, L], or None."""
    return _record(run).level_predictions()


def digest_of(run, name):
    """The recorded SHA-256 of a file."""
    return _record(run).recorded_digest(name)
