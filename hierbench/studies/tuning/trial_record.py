"""The Optuna study in a database that records the trials of a search."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial

from hierbench.utils.errors import UserError, foreign_errors
from hierbench.utils.files import make_database
from hierbench.utils.lock import Lock


class TrialRecord:
    """A study in a database; trials are added as they end, under a lock in the folder.

    Raises:
        UserError: from all methods: the database is full, or not a database.
    """

    def __init__(self, storage: str, name: str, folder: Path) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.storage = storage
        self.name = name
        self.folder = folder
        with self._lock_study():
            make_database(storage, lambda uri: RDBStorage(uri).engine.dispose())
            database = RDBStorage(storage, engine_kwargs={"connect_args": {"timeout": 60}})
            self._study = optuna.create_study(
                storage=database, study_name=name, direction="minimize", load_if_exists=True
            )

    @contextmanager
    def _lock_study(self) -> Iterator[None]:
        def problem(error: BaseException) -> UserError:
            cause = error.__cause__ or error
            reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
            return UserError(f"{self.storage}: {reason}; finished runs are kept")

        with foreign_errors(problem), Lock(self.folder, "study"):  # SQLAlchemy and its drivers raise many types
            yield

    def trials(self) -> list[FrozenTrial]:
        """Return the recorded trials."""
        with self._lock_study():
            return self._study.get_trials(deepcopy=False)

    def add(self, trial: FrozenTrial, runs: Sequence[str]) -> bool:
        """Add a trial with the ids of its runs; return False if it is there already."""
        with self._lock_study():
            trials = [(trial.user_attrs.get("runs"), trial.state) for trial in self._study.get_trials(deepcopy=False)]
            if (list(runs), trial.state) in trials:
                return False
            trial.user_attrs["runs"] = list(runs)
            self._study.add_trial(trial)
            return True
