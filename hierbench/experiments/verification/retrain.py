"""Training some runs again, in a temporary folder, and comparing the results."""

import math
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from hierbench.api.registry import Found
from hierbench.config.options import Device
from hierbench.config.spec import CODE_VERSION, Spec
from hierbench.data.prepared import find, variant_name
from hierbench.execution.run_job import execute
from hierbench.experiments.verification.methods import Methods
from hierbench.experiments.verification.records import Record
from hierbench.experiments.verification.together import same_environment
from hierbench.models.weights import find_weights
from hierbench.planning.resources import Setting, choose_device
from hierbench.runs.further_metrics import has_predictions
from hierbench.runs.job import Job
from hierbench.runs.store import Run
from hierbench.utils.console import Meter
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object

POINTS = 2.0  # of top-1 between two machines, beside three standard errors of a difference of proportions
SHARE = 0.1  # of a distance, likewise


def train_again(records: Sequence[Record], num: int, data_dir: Path, asked: Device) -> None:
    """Train `num` runs, drawn at random, again, and write what came out to their findings.

    For a re-ranked run its bases are trained again, compared like runs that were drawn, and re-ranked.

    Only runs that are not rejected are drawn, and of installed methods whose code is the one that ran: code that came
    with a record is never run. Runs that cannot be trained here keep their verdict, and a note says why.

    Raises:
        UserError: there is no such run, or no such device.
    """
    methods, device = Methods(), choose_device(asked)
    by_id = {record.run.folder.name: record for record in records}
    fit = [record for record in records if _may_train(record, by_id, methods, data_dir)]
    if not fit:
        raise UserError(
            "--retrain: no run can be trained again here: of installed methods with the code that ran, their data "
            f"prepared in {data_dir}"
        )
    drawn = random.SystemRandom().sample(fit, min(num, len(fit)))
    # What re-ranks a run is drawn with it, so that it is trained once.
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in drawn:
        assert record.spec is not None
        groups.setdefault(record.spec.bases or (record.spec.id,), []).append(record)
    for ids, group in groups.items():
        with TemporaryDirectory(prefix="hierbench-verify-") as folder:
            again = _Again(by_id, methods, Path(folder), data_dir.resolve(), device)
            for record in [*(by_id[run_id] for run_id in ids), *(one for one in group if not one.trains)]:
                if not again.run(record):
                    break


def _may_train(record: Record, records: Mapping[str, Record], methods: Methods, data_dir: Path) -> bool:
    spec = record.spec
    if spec is None or not record.is_tested or record.finding.rejected:
        return False
    if spec.code != CODE_VERSION or methods.that_ran(spec) is None:
        return False
    if not all(base in records and _may_train(records[base], records, methods, data_dir) for base in spec.bases):
        return False
    try:
        prepared = find(variant_name(spec.dataset.name, spec.dataset.jpeg_quality), data_dir)
    except UserError:
        return False
    return prepared is not None and prepared.digest == spec.dataset.digest


@dataclass(frozen=True)
class _Again:
    """Runs that are made again in one folder, where what re-ranks finds its bases."""

    records: Mapping[str, Record]
    methods: Methods
    folder: Path
    data_dir: Path
    device: str

    def run(self, record: Record) -> bool:
        """Train or re-rank a run and compare the result; return whether there is one."""
        spec = record.spec
        assert spec is not None
        found, *bases = (self._method_of(one) for one in (spec, *map(self._spec_of, spec.bases)))
        job = Job(spec, found, bases=tuple(bases))
        try:
            setting = Setting(
                runs=self.folder,
                data_dir=self.data_dir,
                device=self.device,
                threads=_threads(record),
                weights=None if spec.weights is None else find_weights(spec.model, self.data_dir / "weights"),
            )
        except UserError as error:
            record.finding.note(f"not trained again: {error}")
            return False
        with redirect_stdout(sys.stderr), Meter(f"training {spec.label} again", float(spec.train.epochs)) as meter:
            outcome = execute(job, setting, lambda done, total: meter.part("epochs", done, total), meter.say)
        if outcome.state != "done":
            record.finding.note(f"not trained again: {outcome.error or outcome.state}")
            return False
        _compare(record, setting.store.run(job.id), spec)
        return True

    def _spec_of(self, run_id: str) -> Spec:
        spec = self.records[run_id].spec
        assert spec is not None
        return spec

    def _method_of(self, spec: Spec) -> Found:
        found = self.methods.that_ran(spec)
        assert found is not None
        return found


def _threads(record: Record) -> int | None:
    """Return the threads that a run computed with on a CPU: results are rounded as their number says."""
    threads = record.environment.get("threads")
    return threads if record.environment.get("device") == "cpu" and type(threads) is int and threads > 0 else None


def _compare(record: Record, again: Run, spec: Spec) -> None:
    """Compare a run with the one trained again: bitwise, elsewhere and on a GPU within the stated tolerance."""
    finding, new, old = record.finding, again.metrics()["test"], record.metrics["test"]
    if _same_predictions(record.run, again) and new == old:
        finding.verdict = "reproduced"
        finding.note("trained again: bitwise the same")
        return
    fresh = Record(again, finding, spec=spec, environment=_environment(again))
    exact = _must_be_same(record, fresh)
    num = int(fresh.environment.get("data", {}).get("splits", {}).get("test", 1))
    odd = [
        f"{name} is {old.get(name)}, trained again {value}"
        for name, value in new.items()
        if (old.get(name) != value if exact else not is_close(name, old.get(name), value, num))
    ]
    where = "in the same environment" if same_environment(fresh, record) else "in another environment"
    if odd or exact:
        finding.reject(f"trained again {where}: {'; '.join(odd) or 'its predictions are not bitwise the same'}")
        return
    finding.verdict = "reproduced"
    finding.note(f"trained again {where}: within tolerance, not bitwise")


def _must_be_same(one: Record, other: Record) -> bool:
    """Whether two trainings of one spec can only be bitwise the same: on a CPU that both name, with equal threads.

    On a GPU, sums are not always taken in the same order.
    """
    known = [record.environment.get(name) for name in ("processor", "threads") for record in (one, other)]
    return (
        one.environment.get("device") == "cpu"
        and None not in known
        and known[2] == known[3]
        and same_environment(one, other)
    )


def is_close(name: str, recorded: float | None, new: float | None, num: int) -> bool:
    """Whether a metric of two trainings on different machines is the same within the stated tolerance.

    top1: two points and three standard errors of the difference of two proportions over `num` examples. Distances:
    a tenth, and three times 1 / sqrt(num) of the value.
    """
    if recorded is None or new is None:
        return recorded is new
    if name == "top1":
        share = (recorded + new) / 200.0
        error = 100.0 * math.sqrt(2.0 * share * (1.0 - share) / num)
        return abs(recorded - new) <= POINTS + 3.0 * error
    return abs(recorded - new) <= (SHARE + 3.0 / math.sqrt(num)) * max(recorded, new)


def _same_predictions(one: Run, other: Run) -> bool:
    """Whether two runs have bitwise the same scores; of one without predictions, whether the digest is the same."""
    if not has_predictions(one):
        return one.digest_of("predictions.npz") == other.digest_of("predictions.npz")
    (scores, targets), (others, its_targets) = one.predictions(), other.predictions()
    same_type = scores.dtype == others.dtype and scores.shape == others.shape
    return same_type and scores.tobytes() == others.tobytes() and np.array_equal(targets, its_targets)


def _environment(run: Run) -> dict[str, object]:
    return read_json_object(run.folder / "environment.json")
