"""Tuned hyperparameters: one TOML file per dataset, with the search that each set came from."""

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from pydantic import Field, TypeAdapter

from hierbench.config.overrides import toml_text
from hierbench.config.sections import FeatureType, Protocol
from hierbench.config.validation import Closed
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_text, write_text
from hierbench.utils.lock import Lock

HEADER = "# Written by hierbench tune, read by hierbench run --tuned.\n"


class Tuned(Closed):
    """The best hyperparameters and learning rates of one method on one type of model."""

    params: dict[str, float]  # by hyperparameter; "lr.backbone", "lr.transform" and "lr.classifier" are learning rates
    study: str  # of Optuna, which holds all trials
    date: str  # of the end of the search
    sampler: str  # "grid", "random" or "tpe"
    trials: int  # completed configurations
    pruned: int = 0  # configurations of searches before 0.2 that were stopped early
    runs: int  # per configuration
    finalists: str = ""  # how many of the best were trained further x their runs, of which the mean decides
    earlier: int = 0  # configurations of searches that this one replaced, as when a range is widened
    mean: float  # of validation hierdist@1 over the runs
    ci95: float | None = None  # half-width of its interval, None below two runs
    runner_up: dict[str, float] = Field(default={})  # the second best
    runner_up_mean: float | None = None
    runner_up_ci95: float | None = None
    others: dict[str, dict[str, float]] = Field(default={})  # what other rules would have chosen, by the rule
    ends: tuple[str, ...] = ()  # hyperparameters that are at an end of the range that was searched
    separated: bool = False  # whether the two intervals are disjoint; if not, the choice may be due to chance

    @property
    def configurations(self) -> int:
        """The number of configurations tried, earlier searches included."""
        return self.trials + self.pruned + self.earlier

    @property
    def budget(self) -> str:
        """Configurations times runs."""
        return f"{self.configurations} x {self.runs}"


TUNED_FILE = TypeAdapter(dict[Protocol, dict[str, dict[FeatureType, Tuned]]])
AllTuned = Mapping[tuple[Protocol, str, FeatureType], Tuned]


def tuned_file(runs: Path, dataset: str) -> Path:
    """Return the file of tuned values of a dataset in the runs folder."""
    return runs / "tuned" / f"{dataset}.toml"


def find_tuned(runs: Path, dataset: str) -> AllTuned:
    """Return the tuned hyperparameters of a dataset: the shipped values, overridden by this runs folder's.

    Raises:
        UserError: a file is damaged.
    """
    shipped = Path(str(resources.files("hierbench.benchmarks"))) / "tuned" / f"{dataset}.toml"
    return {**read_tuned(shipped), **read_tuned(tuned_file(runs, dataset))}


def read_tuned(file: Path) -> AllTuned:
    """Return the content of a file, {} if it does not exist; raise a UserError if it is damaged."""
    if not file.exists():
        return {}
    try:
        content = TUNED_FILE.validate_python(tomllib.loads(read_text(file, follow=True)))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged ({' '.join(str(error).split())[:200]}); remove it and tune again") from None
    return {
        (protocol, method, feature_type): tuned
        for protocol, methods in content.items()
        for method, types in methods.items()
        for feature_type, tuned in types.items()
    }


def write_tuned(file: Path, results: AllTuned) -> None:
    """Add results to a file; other rows stay, even when several commands write at the same time.

    A result that replaces one of another study counts its configurations too: both searches were made for the row.

    Raises:
        UserError: the file is damaged or cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with Lock(file.parent, "tuned"):
            text = HEADER
            rows = dict(read_tuned(file))
            for key, tuned in results.items():
                before = rows.get(key, tuned)
                earlier = before.earlier if before.study == tuned.study else before.configurations
                rows[key] = tuned.model_copy(update={"earlier": earlier})
            for (protocol, method, feature_type), tuned in sorted(rows.items()):
                text += f"\n[{protocol}.{toml_text(method)}.{feature_type}]\n"
                entries = tuned.model_dump(exclude_none=True).items()
                text += "".join(f"{key} = {toml_text(value)}\n" for key, value in entries)
            write_text(file, text)
    except OSError as error:
        raise UserError(f"{file} cannot be written ({error.strerror or error}); choose another with --output") from None
