"""The file of a run's answers: what is written is read, and damage is a ValueError."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hierbench.runs.answer_file import (
    ANSWERS_FILE,
    AnswerRecord,
    CalibrationRecord,
    RunAnswers,
    read_answers,
    write_answers,
)


def made(table, confusions=((0, 1, 3), (2, 2, 400))):
    """Answers with a rule per column of a table."""
    labels = [f"rule {place}" for place in range(table.shape[1])]
    calibration = CalibrationRecord(temperature=1.5, at_bound=False, num=3, nll=(1.0, 0.9), ece=(2.0, 1.0))
    record = AnswerRecord(
        labels=labels,
        parameters={label: {"threshold": 0.5} for label in labels},
        curves={"rule": [(0.0, 1.0), (1.0, 0.5)]},
        calibration=calibration,
        levels=[],
        sets=[],
        predictions="0" * 64,
        logits=True,
    )
    nodes = {label: table[:, place] for place, label in enumerate(labels)}
    return RunAnswers(nodes, np.array(confusions, dtype=np.int64), record)


@given(arrays(np.int64, st.tuples(st.integers(1, 40), st.integers(1, 9)), elements=st.integers(0, 70_000)))
def test_what_is_written_is_read(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("run")
    answers = made(table)
    write_answers(folder, answers)
    again = read_answers(folder)
    assert again.record == answers.record
    assert list(again.nodes) == list(answers.nodes)
    assert all(np.array_equal(again.nodes[label], nodes) for label, nodes in answers.nodes.items())
    assert np.array_equal(again.confusions, answers.confusions)


def test_rules_that_agree_take_little_space(tmp_path):
    """20 rules that answer a class or its parent take less than two bytes per image more than one rule."""
    generator = np.random.default_rng(0)
    classes = generator.integers(20, 120, size=5000)
    sure = generator.random(5000)
    table = np.stack([np.where(sure > place / 20, classes, classes // 10) for place in range(20)], axis=1)
    sizes = [write_answers(tmp_path, made(part)).stat().st_size for part in (table[:, :1], table)]
    assert sizes[1] - sizes[0] < 2 * 5000


def damaged(**changes):
    """A file with changed arrays."""

    def change(path):
        content = dict(np.load(path))
        content |= {name: np.asarray(values) for name, values in changes.items()}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **content)
        path.write_bytes(buffer.getvalue())

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(path.read_bytes()[:200]),
        damaged(nodes=np.zeros(3, dtype=np.uint8)),
        damaged(pattern=np.full(10, 99, dtype=np.uint8)),
        damaged(patterns=np.zeros((9, 1), dtype=np.uint8)),
        damaged(patterns=np.zeros((3, 4), dtype=np.int64)),
        damaged(confusions=np.zeros((2, 2), dtype=np.uint8)),
        damaged(content=np.frombuffer(b'{"schema": 2}', dtype=np.uint8)),
        damaged(content=np.frombuffer(b"[1]", dtype=np.uint8)),
        damaged(more=np.zeros(3, dtype=np.uint8)),
        damaged(pattern=np.zeros(20_000_000, dtype=np.uint8)),
    ],
    ids=["torn", "nodes", "pattern", "rules", "type", "confusions", "schema", "no object", "another array", "too many"],
)
def test_damage_is_a_value_error(tmp_path, change):
    generator = np.random.default_rng(0)
    write_answers(tmp_path, made(generator.integers(0, 9, size=(10, 3))))
    change(tmp_path / ANSWERS_FILE)
    with pytest.raises(ValueError):
        read_answers(tmp_path)


def test_a_link_is_not_followed(tmp_path):
    write_answers(tmp_path, made(np.zeros((2, 1), dtype=np.int64)))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ANSWERS_FILE).symlink_to(tmp_path / ANSWERS_FILE)
    with pytest.raises(OSError):
        read_answers(tmp_path / "run")
