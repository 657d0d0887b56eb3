"""Information given against correct answers where a rule may stop at an inner node: from the kept `answers` of runs."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from hierbench.answers.choices import DEFAULT_RULES, RuleChoice, parse_choices
from hierbench.leaderboard.board_answers import BoardAnswers, board_answers, trained_runs
from hierbench.leaderboard.board_data import BoardData
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.pictures.figure_data import Floats, heading, over_runs, remarks_on, require_runs
from hierbench.leaderboard.statistics import Row
from hierbench.runs.run_evidence import Trees
from hierbench.utils.errors import UserError

FRONTIER = "darts"  # the rule of the methods' lines: it maximises information at a share of correct answers
RULE_POINTS = [  # rules without a parameter to fit
    "argmax_leaf", "top_down", "crm", "least_cost:cost=hf", "expected_information", "plurality", "majority",
    "speciesnet_rollup", "inaturalist_rollup",
]  # fmt: skip
STEPS = 200  # of a line


def draw(board: BoardData) -> style.Drawing:
    """Draw the answers that are kept with the runs of a board, see `draw_answers`."""
    require_runs(board)
    tree = Trees(board.data_dir).of(trained_runs(board)[0].data)
    return draw_answers(board_answers(board, parse_choices(DEFAULT_RULES), tree))


@style.house_style()
def draw_answers(answers: BoardAnswers) -> style.Drawing:
    """Draw the methods under one rule, and the rules of the method that does best under it, names at the lines.

    Raises:
        UserError: there are no answers of that rule.
    """
    frontier = next((choice for choice in answers.choices if choice.curve == FRONTIER), None)
    if frontier is None:
        raise UserError(f"the runs keep no answers of {FRONTIER}")
    rows = sorted(answers.board.rows, key=lambda row: -float(np.mean(answers.areas(frontier, row))))
    figure = style.new_figure(style.TWO_COLUMNS, 3.0)
    methods_axes, rules_axes = figure.subplots(1, 2, sharex=True, sharey=True)
    named = rows[: style.MOST_COLOURED]
    ends = [
        _lines(methods_axes, {f"{style.plain(row.title)}, {row.type}": _line(answers, frontier, row) for row in named})
    ]
    for row in rows[style.MOST_COLOURED :]:
        methods_axes.plot(*_line(answers, frontier, row), color=style.LIGHT, zorder=1)
    fitted = {choice.rule.title: choice for choice in answers.choices if choice.accuracy is not None}
    ends.append(_lines(rules_axes, {title: _line(answers, choice, rows[0]) for title, choice in fitted.items()}))
    for choice in answers.choices:
        if choice.label in RULE_POINTS:
            metrics = next(row for row in answers.boards[choice.label].rows if row.key == rows[0].key).metrics
            point = tuple(metrics[name].mean or 0.0 for name in ("correct", "coverage"))
            rules_axes.plot(*point, ".", color=style.GREY, markersize=4, zorder=4)
            if "rollup" in choice.label:
                rules_axes.annotate(
                    choice.title, point, (-4, -6), textcoords="offset points", ha="right", **style.SMALL_NOTE
                )
    for axes, names in zip((methods_axes, rules_axes), ends, strict=True):  # once the limits are those of all lines
        style.name_lines(axes, names)
    methods_axes.set_title(f"Methods under {frontier.rule.title}", loc="left")
    rules_axes.set_title(f"Rules of {style.plain(rows[0].title)}, {rows[0].type}", loc="left")
    methods_axes.set_ylabel("information given (% of a class's)")
    for axes in (methods_axes, rules_axes):
        axes.set_xlabel("correct answers (%)")
    title = f"{heading(answers.board)}. Mean over seeds; points: rules without a curve"
    figure.suptitle(title, fontsize=8.0, x=0.02, ha="left")
    return style.Drawing(figure, [*remarks_on(answers.board), *answers.notes])


def _lines(axes: Axes, lines: Mapping[str, tuple[Floats, Floats]]) -> list[tuple[float, str, str]]:
    """Draw lines in a colour each, and return their ends, for their names."""
    for colour, line in zip(style.LINE_COLOURS, lines.values(), strict=False):
        axes.plot(*line, color=colour)
    return [
        (line[1][-1], name, colour) for colour, (name, line) in zip(style.LINE_COLOURS, lines.items(), strict=False)
    ]


def _line(answers: BoardAnswers, choice: RuleChoice, row: Row) -> tuple[Floats, Floats]:
    """Return shares of correct answers (%), and the information (%) that a rule gives with them: means over seeds."""
    curves = [np.array(answers.curve(each, choice)) for each in answers.answers_of(row)]
    correct = np.linspace(max(curve[:, 1].min() for curve in curves), 1.0, STEPS)
    return 100.0 * correct, over_runs([_information_at(curve, correct) for curve in curves], 1)[0]


def _information_at(curve: Floats, correct: Floats) -> Floats:
    """Return the largest coverage (%) that a curve [points, 2] of coverage and correct reaches at each share [n]."""
    reached = curve[None, :, 1] >= correct[:, None] - 1e-9
    largest: Floats = 100.0 * np.where(reached, curve[None, :, 0], 0.0).max(axis=1)
    return largest
