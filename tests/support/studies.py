"""Studies that are called in the test's own process, without a command line."""

import contextlib
import io
import json
from typing import NamedTuple

from hierbench.config.options import Options
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.table import Table

FAST = ("train.epochs=1", "train.batch_size=96", "model.backbone=wrn10-1-s4")


class Called(NamedTuple):
    """How a study ended: its table and exit code, its lines on standard error, and those below the table."""

    table: Table | None
    code: int
    err: str
    lines: list[str]

    @property
    def markdown(self):
        return render(self.table)

    @property
    def content(self):
        """The table as JSON types."""
        return json.loads(render(self.table, "json"))


def short_options(folder, data_dir, methods="all", types="type-I,type-II", seeds=1, overrides=FAST, **more):
    """Options of a short training of `shapes` in this process."""
    more = {"mlflow": "off", "jobs": 1, "runs": folder / "runs", **more}
    return Options("shapes", methods, types, seeds, list(overrides), data_dir=data_dir, **more)


def call(study, *arguments, **options):
    """Call a study's function, and keep what it prints on standard error."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        result = study(*arguments, **options)
    output = getattr(result, "shown", result)
    return Called(output.table, output.code, err.getvalue(), list(output.lines))
