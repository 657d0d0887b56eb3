"""Files of a run, read without the checks of its reader."""

import json

from hierbench.runs.record import Record
from hierbench.runs.state import State


def _record(run):
    return Record(run.folder, State.RECORDED, status=run.status)


def spec_of(run):
    """The content of spec.json."""
    return json.loads((run.folder / "spec.json").read_text(encoding="utf-8"))


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
