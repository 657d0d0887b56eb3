"""A checked record as text, and back: what other runs, rows and tables need of it.

It has three lines of JSON: the record's own, its row and its environment. The last two are the same for many runs, and
are then parsed once.
"""

import json
import sys
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from hierbench.config.scored import Scored
from hierbench.experiments.verification.findings import Finding
from hierbench.experiments.verification.records import Facts, Record
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.known import OF_ONE, spec_of_row
from hierbench.runs.store import Run


def as_kept(record: Record) -> str:
    """Return a record as lines of JSON, without its history."""
    spec = None if record.spec is None else record.spec.content()
    digest = record.predictions_digest
    files = {} if digest is None else {PREDICTIONS: {"sha256": digest}}
    content = {
        "finding": [record.finding.label, record.finding.verdict, record.finding.reasons, record.finding.notes],
        "own": None if spec is None else {name: spec[name] for name in OF_ONE},
        "scored": None if record.scored is None else record.scored.content(),
        "status": {"state": "done", "files": files},
        "metrics": record.metrics,
        "facts": None if record.facts is None else asdict(record.facts),
        "targets": record.targets,
        "unchecked": record.unchecked,
        "is_intact": record.is_intact,
    }
    environment = {name: value for name, value in record.environment.items() if name != "time"}
    return "\n".join([_text(content), record.row, _text(environment)])


def from_kept(run: Run, text: str) -> Record:
    """Return the record that `as_kept` has written; an exception of any kind unless it has.

    What the runs of a row have in common is one object, which nobody may change.
    """
    own_line, row, environment = text.split("\n")
    content = json.loads(own_line)
    label, verdict, reasons, notes = content["finding"]
    own, facts = content["own"], content["facts"]
    record = Record(
        run,
        Finding(label, run.folder.name, verdict, reasons, notes),
        spec=None if own is None else spec_of_row(row, **_own(own)),
        scored=None if content["scored"] is None else Scored.model_validate(content["scored"]),
        status=content["status"],
        metrics=content["metrics"],
        environment=_object(environment),
        facts=None if facts is None else Facts(**facts),
        targets=content["targets"],
        unchecked=content["unchecked"],
        is_intact=content["is_intact"],
    )
    vars(record)["row"] = sys.intern(row)
    return record


def _own(own: dict[str, Any]) -> dict[str, Any]:
    base = own["base"]
    return {"seed": own["seed"], "base": tuple(base) if isinstance(base, list) else base}


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


@lru_cache(maxsize=512)
def _object(text: str) -> Any:
    return json.loads(text)
