"""The tables of `hierbench answers`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hierbench.answers.tree_tests import tree_test
from hierbench.leaderboard.statistics import Row
from hierbench.leaderboard.table import Table
from hierbench.leaderboard.tables.answers_table import answers_table, runs_table
from hierbench.runs.compact import read_compact
from hierbench.runs.record import Record
from hierbench.studies.answers.board_answers import BoardAnswers

Show = Literal["rules", "temperature", "levels", "sets", "tree"]
Lines = list[tuple[Row, str, Sequence[Mapping[str, float]]]]
SET_NAMES = {"lac": "LAC", "aps": "APS", "raps": "RAPS", "nodes": "nodes"}


def answer_table(answers: BoardAnswers, show: Show) -> Table:
    """Return one of the tables of the answers."""
    return {
        "rules": rules_table,
        "temperature": temperature_table,
        "levels": levels_table,
        "sets": sets_table,
        "tree": tree_table,
    }[show](answers)


def rules_table(answers: BoardAnswers) -> Table:
    """Return the table of methods and rules."""
    boards = {choice.title: answers.board_of(choice) for choice in answers.choices}
    areas = dict[tuple[str, Any], list[float]]()
    for choice in answers.choices:
        for row in answers.board.rows:
            about = [answers.by_run[run.id].content["rules"][choice.label] for run in answers.runs_of(row)]
            if all("area" in each for each in about):
                areas[choice.title, row.key] = [each["area"] for each in about]
    return answers_table(boards, areas)


def temperature_table(answers: BoardAnswers) -> Table:
    """Return temperatures, and NLL and ECE of the test images before and after."""
    lines: Lines = []
    for row in answers.board.rows:
        values = []
        for run in answers.runs_of(row):
            content = answers.by_run[run.id].content
            finest = content["levels"][-1]
            calibration = content["calibration"]
            values.append(
                {"Temperature": calibration["temperature"], "At bound": float(calibration["at_bound"])} | _pairs(finest)
            )
        lines.append((row, "", values))
    digits = {"Temperature": 3, "At bound": 2, "NLL": 4, "NLL after": 4, "ECE": 2, "ECE after": 2}
    note = "Fitted on half of the validation images, between 0.05 and 20; NLL, and ECE (%), are of the test images."
    return runs_table(answers.board, "temperature", digits, lines, note)


def levels_table(answers: BoardAnswers) -> Table:
    """Return NLL and ECE of the summed probabilities at each level of the tree, before and after the temperature."""
    lines: Lines = []
    for row in answers.board.rows:
        contents = [answers.by_run[run.id].content for run in answers.runs_of(row)]
        for place, level in enumerate(contents[0]["levels"]):
            lines.append((row, f"level {level['level']}", [_pairs(content["levels"][place]) for content in contents]))
    digits = {"NLL": 4, "NLL after": 4, "ECE": 2, "ECE after": 2}
    note = "Of the probabilities summed over the classes below each node of a level, 1 the coarsest, before and after."
    return runs_table(answers.board, "calibration per level", digits, lines, note)


def _pairs(record: Mapping[str, Any]) -> dict[str, float]:
    return {
        "NLL": record["nll"][0],
        "NLL after": record["nll"][1],
        "ECE": record["ece"][0],
        "ECE after": record["ece"][1],
    }


def sets_table(answers: BoardAnswers) -> Table:
    """Return coverage and size of the sets that hold the target in 90% of the cases."""
    lines: Lines = []
    intervals = set[tuple[float, float]]()
    for row in answers.board.rows:
        contents = [answers.by_run[run.id].content for run in answers.runs_of(row)]
        for place, kind in enumerate(contents[0]["sets"]):
            name = SET_NAMES[kind["score"]] if kind["score"] != "nodes" else f"at most {kind['nodes']} nodes"
            name += f", per node of level {kind['group_level']}" if kind["group_level"] else ""
            values = []
            for content in contents:
                record = content["sets"][place]
                intervals.add(tuple(record["interval"]))
                shares = {"Coverage": "coverage", "Least": "least", "Roots": "roots", "Empty": "empty"}
                values.append(
                    {heading: 100.0 * record[key] for heading, key in shares.items()}
                    | {"Classes": record["size"], "Height": record["height"]}
                )
            lines.append((row, name, values))
    low = min(low for low, _ in intervals)
    high = max(high for _, high in intervals)
    digits = {"Coverage": 2, "Least": 2, "Classes": 2, "Height": 2, "Roots": 2, "Empty": 2}
    note = (
        "Split conformal sets at 90%, of the other half of the validation images. Coverage (%): sets with the target; "
        f"of one calibration set it lies between {100 * low:.1f} and {100 * high:.1f} in 95% of the cases, if both "
        "splits are alike. Least: of the coarsest nodes. Height: of the one node above all classes of a set, the root "
        "in Roots (%) of them."
    )
    return runs_table(answers.board, "sets at 90%", digits, lines, note)


def tree_table(answers: BoardAnswers) -> Table:
    """Return whether the mistakes of each row are milder than on trees whose classes are exchanged."""
    lines: Lines = []
    for row in answers.board.rows:
        values = []
        for run in answers.runs_of(row):
            done = tree_test(_best_classes(run), answers.targets, answers.hierarchy)
            values.append(
                {
                    "Severity": done.severity,
                    "By chance": done.expected,
                    "Ratio": done.severity / done.expected,
                    "p": done.p,
                }
            )
        lines.append((row, "", values))
    digits = {"Severity": 3, "By chance": 3, "Ratio": 3, "p": 3}
    note = (
        "Severity of mistakes; its mean over all exchanges of the tree's classes, which is the mean distance of two "
        "classes; their ratio; and p, the share of 999 random exchanges with at most this severity (at least 0.001)."
    )
    return runs_table(answers.board, "mistakes and the tree", digits, lines, note)


def _best_classes(run: Record) -> Any:
    if run.has_predictions:
        return np.asarray(run.predictions()[0]).argmax(axis=1)
    return read_compact(run.folder).ranked[:, 0]
