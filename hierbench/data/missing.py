"""Images that are missing or unreadable: named, counted, and refused unless the user says to leave them out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hierbench.data.source import KeptError, Labels, Source
from hierbench.data.writer import Outcome, keep_done_rows
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_atomically

SHOWN = 5  # names in an error's line; the file it speaks of has all


def complete(source: Source, outcome: Outcome, partial: Path, listed: Path, allow_missing: bool) -> dict[str, Labels]:
    """Return the labels of what is there; refuse if something is missing and that is not allowed.

    Args:
        source: what was read.
        outcome: what came of it.
        partial: where the rows are.
        listed: gets the names of all that is missing.
        allow_missing: leave it out.

    Raises:
        UserError: naming the images.
    """
    if not outcome.num_missing:
        return source.labels
    unreadable = list(outcome.unreadable.values())
    absent = [
        f"{split}/{source.names[split][row]}"
        for split, rows in outcome.done.items()
        for row in np.flatnonzero(~rows)
        if source.names and (split, int(row)) not in outcome.unreadable
    ]
    total = sum(len(rows) for rows in source.labels.values())
    problem = "; ".join(filter(None, [_about_absent(absent, total, source, outcome), _about_unreadable(unreadable)]))
    if not source.names:
        raise UserError(problem)
    if not allow_missing:
        text = "".join(f"{line}\n" for line in [*absent, *unreadable])
        write_atomically(listed, lambda file: file.write(text.encode("utf-8", "surrogateescape")))
        raise KeptError(
            f"{problem}; all of them are listed in {listed}; add them, or prepare without them: --allow-missing "
            "(what was read is kept)"
        )
    for split, rows in outcome.done.items():
        if not rows.any():
            raise KeptError(f"{problem}; no {split} images are left")
    source.remarks.append(problem)
    return keep_done_rows(source, partial, outcome.done)


def _about_absent(absent: list[str], total: int, source: Source, outcome: Outcome) -> str:
    if not absent:
        return ""
    gone = [
        f"{split}/{list(source.paths)[label]}"
        for split, rows in outcome.done.items()
        for label in sorted(set(source.labels[split].tolist()) - set(source.labels[split][rows].tolist()))
    ]
    whole = f"; whole classes: {_some(gone)}" if gone else ""
    return f"{len(absent):,} of {total:,} images are missing: {_some(absent)}{whole}"


def _about_unreadable(errors: list[str]) -> str:
    shown = "; ".join(errors[:SHOWN]) + ("; ..." if len(errors) > SHOWN else "")
    return shown if len(errors) < 2 else f"{len(errors):,} images cannot be read: {shown}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", ... ({len(names):,})" if len(names) > SHOWN else "")
