"""The tables of `hierbench answers`: rules, temperature, levels, sets with a guarantee, and tests of the tree."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from scipy.stats import kendalltau

from hierbench.answers.tree_tests import confusion_tree, tree_test
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.leaderboard.board_answers import BoardAnswers
from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.statistics import Row, summarise
from hierbench.leaderboard.table import Cell, Interval, Line, Number, Table, Text
from hierbench.leaderboard.tables.board_table import explain_arrows, lacking, make_arrows, make_cell, named, seeds
from hierbench.runs.answer_file import LevelCalibration

Show = Literal["rules", "temperature", "levels", "sets"]
Lines = Sequence[tuple[Row, str, Sequence[Mapping[str, float]]]]  # a row, the name of a line within it, values per run
BEST_CLASS = "argmax_leaf"  # the rule that follows from the ranked classes alone
BASE = "ce"  # the method from which gains count
SET_NAMES = {"lac": "LAC", "aps": "APS", "raps": "RAPS"}
RULES_NOTE = (
    "Mean +/- half-width of the 95% t-interval over runs. Answers are nodes; probabilities have the temperature that "
    "half of the validation images give, unless a rule is uncalibrated. A rule with a share in brackets reaches this "
    "share of correct answers on validation. Correct: the target or a node above it. Area: under correct answers over "
    "coverage, as the parameter of the rule varies, on the test images."
)


def answer_table(answers: BoardAnswers, show: Show = "rules") -> Table:
    """Return one of the tables of answers."""
    if show == "rules":
        return rules_table(answers)
    if show == "sets":
        return sets_table(answers)
    return temperature_table(answers) if show == "temperature" else levels_table(answers)


@lru_cache(maxsize=1)  # a page, its numbers and their check follow one another
def answers_tables(answers: BoardAnswers) -> Sequence[Table]:
    """Return all tables of answers, of which a published page consists: first that of the rules."""
    return [*(answer_table(answers, show) for show in get_args(Show)), tree_table(answers, {})]


def rules_table(answers: BoardAnswers) -> Table:
    """Return a line per rule and row."""
    boards = [(choice, answers.boards[choice.label]) for choice in answers.choices]
    has_areas = any(choice.accuracy is not None for choice in answers.choices)
    lines = []
    records = []
    for choice, board in boards:
        arrows = make_arrows(board)
        for row in board.rows:
            area = summarise(answers.areas(choice, row))
            cells: list[Cell] = [Text(choice.title), Text(row.type), Text(row.title, small=lacking(row))]
            cells += [make_cell(row, column, arrows.get((row.key, column.name), "")) for column in board.columns]
            cells += [Interval(area.mean, area.ci95, 4)] if has_areas else []
            lines.append(Line([*cells, Text(seeds(row))]))
            records.append({"rule": choice.label, **named(row), "n": row.n, **_values(row, board), "area": area.mean})
    first = boards[0][1]
    about = f"{first.dataset}, protocol {first.protocol}, distance {first.distance}."
    headings = [column.heading for column in first.columns]
    return Table(
        title=f"{first.dataset}, answers",
        columns=["Rule", "Model", "Method", *headings, *(["Area ↑"] if has_areas else []), "Runs"],
        rows=lines,
        notes=[" ".join([about, RULES_NOTE, *_left_out(answers), *_above(answers)])],
        bold="best of the competitive rows under this rule",
        arrows=explain_arrows(len(first.tests)).replace("comparisons", "comparisons per rule"),
        merged=2,
        records=records,
        content={"dataset": first.dataset, "protocol": first.protocol, "rows": records},
    )


def short_table(answers: BoardAnswers) -> Table:
    """Return a line per row: how often its best class is right, and for each share of correct answers the best rule."""
    shares = sorted({choice.accuracy for choice in answers.choices if choice.accuracy is not None})
    metrics = {
        choice.label: {row.key: row.metrics for row in answers.boards[choice.label].rows} for choice in answers.choices
    }
    lines = []
    for row in answers.board.rows:
        cells: list[Cell] = [Text(row.type), Text(row.title, small=lacking(row))]
        cells.append(Number(metrics[BEST_CLASS][row.key]["correct"].mean, ".1f"))
        for share in shares:
            fitted = [choice for choice in answers.choices if choice.accuracy == share]
            scores = [metrics[choice.label][row.key]["scaled_accuracy"].mean or 0.0 for choice in fitted]
            best = [choice for choice, score in zip(fitted, scores, strict=True) if score == max(scores)]
            best_metrics = metrics[best[0].label][row.key]
            cells += [
                Text(" = ".join(choice.rule.title for choice in best)),
                *(Number(best_metrics[name].mean, ".1f") for name in ("correct", "coverage")),
            ]
        lines.append(Line(cells))
    headings = [text for share in shares for text in (f"At {100 * share:g} %", "Correct", "Coverage")]
    about = (
        "Means over runs, in per cent. Best class: how often it is right, at a coverage of 100. Then for each share of "
        "correct answers on validation the rule, fitted to it, that gives the most correct information here: "
        "how often it is right, and the information of its answers relative to a class's. All rules: --full."
    )
    first = answers.boards[BEST_CLASS]
    return Table(
        title=f"{first.dataset}, answers",
        columns=["Model", "Method", "Best class", *headings],
        rows=lines,
        notes=[f"{first.dataset}, protocol {first.protocol}, distance {first.distance}. {about}"],
        merged=1,
        content=rules_table(answers).content,  # of all rules
    )


def _left_out(answers: BoardAnswers) -> list[str]:
    titles = dict.fromkeys(row.title for row in answers.board.rows if not answers.has_logits(row))
    if not titles:
        return []
    return [f"Scores of {' and '.join(titles)} are no log-probabilities: no rule takes them uncalibrated."]


def _above(answers: BoardAnswers) -> list[str]:
    number = max(len(each.above) for each in answers.by_run.values())
    return [f"{number:,} of the images are labelled with a node above the classes."] if number else []


def _values(row: Row, board: BoardData) -> dict[str, Any]:
    return {
        key: value
        for column in board.columns
        for key, value in (
            (column.name, row.metrics[column.name].mean),
            (f"{column.name} ci95", row.metrics[column.name].ci95),
        )
    }


def temperature_table(answers: BoardAnswers) -> Table:
    """Return temperatures, and NLL and ECE of the test images before and after."""
    lines = list[tuple[Row, str, list[dict[str, float]]]]()
    for row in answers.board.rows:
        values = []
        for each in answers.answers_of(row):
            calibration = each.record.calibration
            about = {"Temperature": calibration.temperature, "At bound": float(calibration.at_bound)}
            values.append(about | _calibration(each.record.levels[-1], ("", " after")))
        lines.append((row, "", values))
    digits = {"Temperature": 3, "At bound": 2, "NLL": 4, "NLL after": 4, "ECE": 2, "ECE after": 2}
    note = (
        "Fitted on half of the validation images, between 0.05 and 20; NLL, and ECE (%), are of the test images. At "
        "bound: the share of runs whose temperature is one of these two."
    )
    return runs_table(answers.board, "temperature", digits, lines, note)


def levels_table(answers: BoardAnswers) -> Table:
    """Return NLL and ECE of the summed probabilities at each level of the tree, before and after the temperatures."""
    lines = list[tuple[Row, str, list[dict[str, float]]]]()
    endings = ("", " after", " fitted")
    for row in answers.board.rows:
        for records in zip(*(each.record.levels for each in answers.answers_of(row)), strict=True):
            values = [_calibration(record, endings) | {"Temperature": record.temperature} for record in records]
            lines.append((row, f"level {records[0].level}", values))
    digits = {f"{name}{ending}": places for name, places in (("NLL", 4), ("ECE", 2)) for ending in endings}
    note = (
        "Of the probabilities summed over the classes below each node of a level, 1 the coarsest: uncalibrated, after "
        "the temperature of the run, and after one fitted to the level, on the same half of the validation images."
    )
    return runs_table(answers.board, "calibration per level", digits | {"Temperature": 3}, lines, note)


def _calibration(record: LevelCalibration, endings: Sequence[str]) -> dict[str, float]:
    values = {"NLL": record.nll, "ECE": record.ece}
    return {f"{name}{ending}": values[name][place] for name in values for place, ending in enumerate(endings)}


def sets_table(answers: BoardAnswers) -> Table:
    """Return coverage and size of the sets that hold the target in 90% of the cases."""
    lines = list[tuple[Row, str, list[dict[str, float]]]]()
    intervals = set[tuple[float, float]]()
    shares = {"Coverage": "coverage", "Least": "least", "Roots": "roots", "Empty": "empty"}
    for row in answers.board.rows:
        for records in zip(*(each.record.sets for each in answers.answers_of(row)), strict=True):
            kind = records[0]
            name = SET_NAMES.get(kind.score, f"at most {kind.nodes} node{'s' if kind.nodes > 1 else ''}")
            name += f", per node of level {kind.group_level}" if kind.group_level else ""
            intervals |= {record.interval for record in records}
            values = [
                {heading: 100.0 * getattr(record, key) for heading, key in shares.items()}
                | {"Classes": record.size, "Height": record.height}
                for record in records
            ]
            lines.append((row, name, values))
    low = 100.0 * min(low for low, _ in intervals)
    high = 100.0 * max(high for _, high in intervals)
    headings = ("Coverage", "Least", "Classes", "Height", "Roots", "Empty")
    note = (
        "Split conformal sets at 90%, of the other half of the validation images. Coverage (%): sets with the target; "
        f"of one calibration set it lies between {low:.1f} and {high:.1f} in 95% of the cases, if both splits are "
        "alike. Least: of the coarsest nodes. Height: of the one node above all classes of a set, the root in Roots "
        "(%) of them."
    )
    return runs_table(answers.board, "sets at 90%", dict.fromkeys(headings, 2), lines, note)


def tree_table(answers: BoardAnswers, trees: Mapping[str, Hierarchy]) -> Table:
    """Return whether the mistakes of each row are milder on the tree than on others.

    Args:
        answers: of a table.
        trees: {name: another tree over the same classes}.
    """
    clustered = _clustered_trees(answers)
    trees_of = {row.key: {**clustered.get(row.type, {}), **trees} for row in answers.board.rows}
    severities = dict[tuple[Any, str], list[float]]()
    lines = list[tuple[Row, str, list[dict[str, float]]]]()
    for row in answers.board.rows:
        values = []
        for predicted in answers.best_classes(row):
            done = tree_test(predicted, answers.targets, answers.hierarchy)
            ratio = done.severity / done.expected
            values.append({"Severity": done.severity, "By chance": done.expected, "Ratio": ratio, "p": done.p})
            for name, tree in {"": answers.hierarchy, **trees_of[row.key]}.items():
                severities.setdefault((row.key, name), []).append(_severity(predicted, answers.targets, tree))
        lines.append((row, "", values))
    for row, _, values in lines:
        for name in ("", *trees_of[row.key]):
            gains = _gains(severities, row, name, answers.board)
            for value, gain in zip(values, gains, strict=True):
                value[f"Gain, {name}" if name else "Gain"] = gain
    digits = {"Severity": 3, "By chance": 3, "Ratio": 3, "p": 3}
    names = list(dict.fromkeys(name for names in trees_of.values() for name in names))
    digits |= {heading: 1 for heading in ("Gain", *(f"Gain, {name}" for name in names))}
    note = (
        "Severity of mistakes; its mean over all exchanges of the tree's classes, which is the mean distance of two "
        "classes; their ratio; and p, the share of 999 random exchanges with at most this severity (at least 0.001). "
        "Gain (%): by how much the severity is below that of cross-entropy on the same model, on the tree and on "
        "others; with exchanged classes none remains in the mean. Confusions: a tree clustered from those of "
        f"cross-entropy on the validation images. {' '.join(_agreement(severities, answers.board, names))}"
    )
    return runs_table(answers.board, "mistakes and the tree", digits, lines, note.strip())


def _clustered_trees(answers: BoardAnswers) -> dict[str, dict[str, Hierarchy]]:
    """Return {type: {"confusions": the tree of the mistakes of cross-entropy on validation}}."""
    trees = dict[str, dict[str, Hierarchy]]()
    for row in answers.board.rows:
        if row.method == BASE:
            confusions = np.concatenate([each.confusions for each in answers.answers_of(row)])
            target, predicted = (np.repeat(confusions[:, place], confusions[:, 2]) for place in (0, 1))
            trees[row.type] = {"confusions": confusion_tree(predicted, target, answers.hierarchy)}
    return trees


def _severity(predicted: IntArray, targets: IntArray, tree: Hierarchy) -> float:
    wrong = predicted != targets
    return float(tree.distances_between(targets[wrong], predicted[wrong]).mean()) if wrong.any() else float("nan")


def _gains(severities: Mapping[tuple[Any, str], Sequence[float]], row: Row, tree: str, board: BoardData) -> list[float]:
    """Return by how many per cent each run of a row is below the base of its type, of the same seed if it has it."""
    base = next((each for each in board.rows if each.method == BASE and each.type == row.type), None)
    if base is None:
        return [float("nan")] * len(severities[row.key, tree])
    by_seed = dict(zip(base.seeds, severities[base.key, tree], strict=False))
    mean = float(np.mean(severities[base.key, tree]))
    pairs = zip(severities[row.key, tree], row.seeds, strict=False)
    return [100.0 * (1.0 - severity / by_seed.get(seed, mean)) for severity, seed in pairs]


def _agreement(
    severities: Mapping[tuple[Any, str], Sequence[float]], board: BoardData, trees: Sequence[str]
) -> list[str]:
    """Return for each tree and type how its order of the rows agrees with that of the tree itself."""
    lines = []
    for tree in trees:
        for type_ in dict.fromkeys(row.type for row in board.rows):
            keys = [row.key for row in board.rows if row.type == type_ and (row.key, tree) in severities]
            if len(keys) > 2:
                orders = [[float(np.mean(severities[key, name])) for key in keys] for name in ("", tree)]
                tau = float(kendalltau(*orders).statistic)
                lines.append(f"Kendall's tau-b of the order of {len(keys)} rows of {type_}, {tree}: {tau:.2f}.")
    return lines


def runs_table(board: BoardData, title: str, columns: Mapping[str, int], rows: Lines, note: str) -> Table:
    """Return a table of numbers that each run has.

    Args:
        board: of the rows.
        title: of the table.
        columns: {heading: digits}.
        rows: the lines.
        note: below the table.
    """
    lines = []
    records = []
    for row, name, values in rows:
        cells = [summarise([value[heading] for value in values if heading in value]) for heading in columns]
        named_cells: list[Cell] = [Text(row.type), Text(row.title), *([Text(name)] if name else [])]
        numbers = [Interval(cell.mean, cell.ci95, digits) for cell, digits in zip(cells, columns.values(), strict=True)]
        lines.append(Line([*named_cells, *numbers, Text(seeds(row))]))
        means = {heading: cell.mean for heading, cell in zip(columns, cells, strict=True)}
        records.append({**named(row), **({"of": name} if name else {}), **means})
    has_names = any(name for _, name, _ in rows)
    return Table(
        title=f"{board.dataset}, {title}",
        columns=["Model", "Method", *(["Of"] if has_names else []), *columns, "Runs"],
        rows=lines,
        notes=[f"{board.dataset}, protocol {board.protocol}. {note}"],
        merged=1,
        records=records,
    )
