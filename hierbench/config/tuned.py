"""What tuning found: one TOML file per dataset, with the search that each set of hyperparameters came out of."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hierbench.config.recipe import FeatureType, Protocol
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_text, write_text
from hierbench.utils.lock import Lock

HEADER = "# Written by hierbench tune, read by hierbench run --tuned.\n"


class Tuned(BaseModel):
    """The best configuration of one method on one type of model.

    Attributes:
        params: the hyperparameters.
        study: the Optuna study, which holds all trials.
        date: of the end of the search.
        sampler: "grid" or "tpe".
        trials: configurations that were tried to their end.
        pruned: configurations that were stopped early.
        runs: per configuration.
        mean: of validation hierdist@1 over the runs.
        ci95: half-width of its interval, None below two runs.
        runner_up: the second best configuration, with its mean and interval.
        separated: whether the two intervals do not meet; if they do, the choice may be chance.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    params: dict[str, float]
    study: str
    date: str
    sampler: str
    trials: int
    pruned: int
    runs: int
    mean: float
    ci95: float | None = None
    runner_up: dict[str, float] = {}
    runner_up_mean: float | None = None
    runner_up_ci95: float | None = None
    separated: bool = False

    @property
    def budget(self) -> str:
        """Configurations times runs."""
        return f"{self.trials + self.pruned} x {self.runs}"


Found = dict[tuple[Protocol, str, FeatureType], Tuned]


def tuned_file(runs: Path, dataset: str) -> Path:
    """Return where tuning writes what it found on a dataset: to the folder of runs, as all results."""
    return runs / "tuned" / f"{dataset}.toml"


def find_tuned(runs: Path, dataset: str) -> Found:
    """Return what tuning found on a dataset, in this folder of runs or else as the project ships it.

    Raises:
        UserError: a file is damaged.
    """
    shipped = Path(str(resources.files("hierbench.benchmarks"))) / "tuned" / f"{dataset}.toml"
    return read_tuned(shipped) | read_tuned(tuned_file(runs, dataset))


def read_tuned(file: Path) -> Found:
    """Read a file, nothing if there is none.

    Raises:
        UserError: it is damaged.
    """
    try:
        content = tomllib.loads(read_text(file, follow=True))
        found: dict[Any, Tuned] = {
            (protocol, method, kind): Tuned.model_validate(entry)
            for protocol, methods in content.items()
            for method, kinds in methods.items()
            for kind, entry in kinds.items()
        }
        return found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, ValidationError, RecursionError) as error:
        raise UserError(f"{file} is damaged ({' '.join(str(error).split())[:200]}); remove it and tune again") from None


def write_tuned(file: Path, found: Mapping[tuple[Protocol, str, FeatureType], Tuned]) -> None:
    """Add what was found to a file; what other searches found stays, also of commands that end at the same time.

    Raises:
        UserError: the file is damaged or cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with Lock(file.parent, "tuned"):
            text = HEADER
            for (protocol, method, kind), tuned in sorted((read_tuned(file) | dict(found)).items()):
                text += f"\n[{protocol}.{_toml(method)}.{kind}]\n"
                entries = tuned.model_dump(exclude_none=True).items()
                text += "".join(f"{key} = {_toml(value)}\n" for key, value in entries)
            write_text(file, text)
    except OSError as error:
        raise UserError(f"{file} cannot be written ({error.strerror or error}); choose another with --output") from None


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + " }" if value else "{}"
        )
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML knows no pairs of surrogates
