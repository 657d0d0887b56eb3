"""What a run of a job is in MLflow: its dataset, source, metrics, parameters and the name of its model."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierbench.config.spec import Spec

if TYPE_CHECKING:
    from hierbench.runs.store import Run

DIGEST_LENGTH = 36  # characters of a dataset's digest that MLflow allows


def dataset_input(spec: Spec) -> Any:
    """Return the dataset of a job as an MLflow input: for training, or for a test alone where the job re-ranks."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    data = spec.dataset
    source = json.dumps({"tags": {"tool": "hierbench data prepare", **data.model_dump(mode="json")}})
    dataset = Dataset(data.name, data.digest[:DIGEST_LENGTH], source_type="code", source=source)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training" if spec.base is None else "test")])


@cache
def source_tags() -> dict[str, str]:
    """Return the tags of the column Source: this program and, where it runs from a checkout, the commit."""
    tags = {"mlflow.source.name": "hierbench", "mlflow.source.type": "LOCAL"}
    checkout = Path(str(resources.files("hierbench"))).parent
    if (checkout / ".git").exists():
        command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return tags
        tags["mlflow.source.git.commit"] = found.stdout.strip()
    return tags


def model_name(label: str) -> str:
    """Return a name for a model, with nothing that MLflow refuses in it."""
    return re.sub(r"""[/:.%"']""", "_", label)


def history_metrics(run: Run) -> Iterator[tuple[str, float, int]]:
    """Yield (name, value, epoch) of every epoch."""
    if (run.folder / "history.csv").exists():
        for row in run.history():
            for name, value in row.items():
                if name != "epoch":
                    yield _allowed(name), value, int(row["epoch"])


def metrics_of_test(run: Run) -> Iterator[tuple[str, float]]:
    """Yield (name, value) of a finished run on the test set."""
    if run.done:
        for name, value in run.metrics().get("test", {}).items():
            if value is not None:
                yield _allowed(f"test_{name}"), value


def _allowed(name: str) -> str:
    """Return a name with nothing that MLflow refuses in names."""
    return re.sub(r"[^\w./ :-]", "_", name.replace("@", "_at_"))


def flat(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the names of nested parameters, joined by dots, and their values; None is left out."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value
