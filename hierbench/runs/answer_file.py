"""The answers of a run: a derived result in its folder, small enough to publish.

A file `answers.npz` holds the node of each test example under each rule, the confusions on validation, and a JSON text:
the digest of the predictions that they come from, the temperature, the parameters of the rules, and what follows from
all scores alone.

Shapes: N test examples, A further ones whose target is a node above the classes, R rules, C pairs of classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from hierbench.answers.conformal import SetSummary
from hierbench.answers.temperature import Calibration
from hierbench.config.validation import CLOSED, Closed
from hierbench.hierarchy.label_tree import IntArray
from hierbench.runs.integrity import PREDICTIONS
from hierbench.runs.record import Record
from hierbench.utils.arrays import read_arrays
from hierbench.utils.files import refuse_links, write_atomically

ANSWERS_FILE = "answers.npz"
MAX_BYTES = 1 << 26  # of an unpacked array
MAX_NODES = 1 << 25  # of all rules
Bins = tuple[list[int], list[float], list[float]]
DIMENSIONS = {"patterns": 2, "pattern": 1, "nodes": 1, "confusions": 2, "content": 1}


class LevelCalibration(Closed):
    """The calibration of the sums of probabilities at one level, on the test images.

    Attributes:
        level: 1 the coarsest.
        temperature: fitted to the level.
        nll, ece: uncalibrated, with the temperature of the run, with that of the level; ECE in per cent.
        bins: in the same three states, of 15 bins of confidence: number, mean confidence and accuracy.
    """

    level: int
    temperature: float
    nll: tuple[float, float, float]
    ece: tuple[float, float, float]
    bins: tuple[Bins, Bins, Bins]


@pydantic_dataclass(frozen=True, config=CLOSED)
class CalibrationRecord(Calibration):
    """A temperature as it is stored."""

    def __post_init__(self) -> None:
        if self.temperature <= 0.0:
            raise ValueError(f"a temperature is {self.temperature}")


@pydantic_dataclass(frozen=True, config=CLOSED)
class SetRecord(SetSummary):
    """Sets of one kind; `least` is the coverage of the worst branch."""

    score: str
    nodes: int
    group_level: int | None
    least: float


class AnswerRecord(Closed):
    """What follows from all scores of a run.

    Attributes:
        labels: of the rules.
        parameters: {label: the parameters of the rule}.
        curves: {label without accuracy: (coverage, share of correct answers) as the parameter varies}.
        calibration: the temperature of the run.
        levels: coarsest first.
        sets: at 90%.
        predictions: SHA-256 of predictions.npz.
        logits: whether the softmax of the scores is meant as probabilities, see `Method.has_logits`.
        schema: of this file.
    """

    labels: list[str]
    parameters: dict[str, dict[str, Any]]
    curves: dict[str, list[tuple[float, float]]]
    calibration: CalibrationRecord
    levels: list[LevelCalibration]
    sets: list[SetRecord]
    predictions: str
    logits: bool
    schema_: Literal[1] = Field(default=1, alias="schema")


@dataclass(frozen=True, eq=False)
class RunAnswers:
    """The answers of one run.

    Attributes:
        nodes: {label of a rule: [N + A] int64 nodes}.
        confusions: [C, 3] int64, target, best-ranked class and their number on validation.
        record: what follows from all scores.
        above: [A] the targets of the examples that are labelled with a node above the classes.
    """

    nodes: Mapping[str, IntArray]
    confusions: IntArray
    record: AnswerRecord
    above: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def write_answers(folder: Path, answers: RunAnswers) -> Path:
    """Write the answers of a run into its folder, and return the file's path."""
    table = np.stack(list(answers.nodes.values()), axis=1)
    text = answers.record.model_dump_json(by_alias=True)
    arrays: dict[str, Any] = {
        **_packed(table),
        "confusions": _smallest(answers.confusions),
        "content": np.frombuffer(text.encode(), dtype=np.uint8),
        **({"above": _smallest(answers.above)} if len(answers.above) else {}),
    }
    write_atomically(folder / ANSWERS_FILE, lambda file: np.savez_compressed(file, **arrays))
    return folder / ANSWERS_FILE


def _packed(table: IntArray) -> dict[str, NDArray[Any]]:
    """Return the nodes [N, R] in three arrays, which compress to half of one.

    Rules often agree, and in few ways: "patterns" [R, P] has for each rule the first one with the same node, "pattern"
    [N] which of these ways an example has, and "nodes" the nodes of its first rules, example by example.
    """
    first = (table[:, :, None] == table[:, None, :]).argmax(axis=2)
    patterns, pattern = np.unique(first, axis=0, return_inverse=True)
    nodes = table[first == np.arange(table.shape[1])]
    arrays = {"patterns": patterns.T, "pattern": pattern.ravel(), "nodes": nodes}
    return {name: _smallest(values) for name, values in arrays.items()}


def _unpacked(arrays: Mapping[str, NDArray[Any]]) -> IntArray:
    """Return the nodes [N, R]; a ValueError or IndexError unless they were packed so."""
    if len(arrays["pattern"]) * len(arrays["patterns"]) > MAX_NODES:
        raise ValueError(f"it has more than {MAX_NODES:,} nodes")
    first = arrays["patterns"].T.astype(np.int64)[arrays["pattern"].astype(np.int64)]
    table = np.zeros(first.shape, dtype=np.int64)
    is_first = first == np.arange(first.shape[1])
    if arrays["nodes"].shape != (int(is_first.sum()),):
        raise ValueError("its nodes do not fit its patterns")
    table[is_first] = arrays["nodes"]
    return np.take_along_axis(table, first, axis=1)


def _smallest(numbers: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(numbers, dtype=np.min_scalar_type(int(numbers.max(initial=0))))


def read_answers(folder: Path) -> RunAnswers:
    """Read the answers in a run's folder; an OSError or ValueError if they are missing or damaged."""
    file = refuse_links(folder.parent, folder.name) / ANSWERS_FILE
    arrays = read_arrays(file, follow=False, largest=MAX_BYTES)
    above = arrays.pop("above", np.zeros(0, dtype=np.uint8))
    if {name: values.ndim for name, values in arrays.items()} != DIMENSIONS or above.ndim != 1:
        raise ValueError("it has other arrays than answers")
    if any(values.dtype.kind != "u" for values in (above, *arrays.values())) or arrays["confusions"].shape[1] != 3:
        raise ValueError("its arrays are not those of answers")
    record = AnswerRecord.model_validate_json(arrays["content"].tobytes())
    try:
        table = _unpacked(arrays)
    except IndexError:
        raise ValueError("its patterns do not fit its rules") from None
    if table.shape[1] != len(record.labels):
        raise ValueError("its nodes do not fit its rules")
    nodes = {label: table[:, place] for place, label in enumerate(record.labels)}
    return RunAnswers(nodes, arrays["confusions"].astype(np.int64), record, above.astype(np.int64))


def kept_answers(run: Record) -> RunAnswers | None:
    """Return the answers beside a run if they come from its predictions."""
    try:
        answers = read_answers(run.folder)
    except (OSError, ValueError):
        return None
    return answers if answers.record.predictions == run.recorded_digest(PREDICTIONS) else None
