"""Information given against correct answers where a rule may stop at an inner node: from the kept `answers` of runs."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist

from hierbench.answers.choices import DEFAULT_RULES, RuleChoice, parse_choices
from hierbench.figures.plots import style
from hierbench.figures.plots.figure_data import FigureRequest, Floats, heading, open_figure_board, over_runs, remarks_on
from hierbench.leaderboard.board_answers import BoardAnswers, board_answers, trained_runs
from hierbench.leaderboard.statistics import Row
from hierbench.runs.run_evidence import Trees

FRONTIER = "darts"  # the rule whose parameter draws the lines: it maximises information at a share of correct answers
POINT_MARKERS = {  # rules without a parameter to fit, in the order in which they give up information: their markers
    "argmax_leaf": "o",
    "top_down": "v",
    "crm": "s",
    "least_cost:cost=hf": "D",
    "expected_information": "*",
    "plurality": "P",
    "majority": "X",
    "speciesnet_rollup": "<",
    "inaturalist_rollup": ">",
}
STEPS = 200  # of a line


def draw(request: FigureRequest) -> style.Drawing:
    """Draw a panel per type of model: a line per method, and points for the rules of its best one."""
    answers = read_board_answers(request, parse_choices(DEFAULT_RULES))
    rows = answers.board.rows
    types = list(dict.fromkeys(row.type for row in rows))
    looks = style.assign_looks(rows)
    figure = style.new_figure(style.TWO_COLUMNS, 4.4)
    panels = figure.subplots(1, len(types), sharex=True, sharey=True, squeeze=False)[0]
    choice = next(choice for choice in answers.choices if choice.curve == FRONTIER)
    handles = list[Artist]()
    titles = list[str]()
    for axes, kind in zip(panels, types, strict=True):
        shown = [row for row in rows if row.type == kind]
        for i, row in enumerate(shown):
            curves = [np.array(answers.curve(each, choice)) for each in answers.answers_of(row)]
            correct = np.linspace(max(curve[:, 1].min() for curve in curves), 1.0, STEPS)
            mean, _ = over_runs([_information_at(curve, correct) for curve in curves], 1)
            line = style.line_style(looks[style.look_key(row)])
            axes.plot(100 * correct, mean, markevery=(i * 4, 30), **line)
        best = max(shown, key=lambda row: float(np.mean(answers.areas(choice, row))))
        points = _points(answers, best)
        handles = [
            axes.plot(*point, marker=POINT_MARKERS[label], color=style.BLACK, markersize=5, linestyle="none", zorder=4)[
                0
            ]
            for label, (_, point) in points.items()
        ]
        titles = [title for title, _ in points.values()]
        axes.set_title(kind, loc="left")
        axes.set_xlabel(f"correct answers (%); points: {style.plain(best.title)}")
    style.legend_below(figure, rows, looks, lambda look: panels[0].plot([], [], **style.line_style(look))[0])
    points_legend = figure.legend(handles, titles, loc="outside right upper", title="Other rules", alignment="left")
    points_legend.get_title().set_fontsize(style.SMALL_TYPE)
    panels[0].set_ylabel("information given (% of a class's)")
    panels[0].set_xlim(right=100.0)
    title = f"{heading(answers.board, request.dataset)}. Lines: DARTS, mean over seeds"
    figure.suptitle(title, fontsize=8.0, x=0.02, ha="left")
    return style.Drawing(figure, [*remarks_on(answers.board), *answers.notes])


def read_board_answers(request: FigureRequest, choices: Sequence[RuleChoice]) -> BoardAnswers:
    """Return the answers of these rules that `hierbench answers` has kept beside the runs of a figure."""
    board = open_figure_board(request)
    tree = Trees(request.data_dir).of(trained_runs(board)[0].data)
    return board_answers(board, choices, tree)


def _information_at(curve: Floats, correct: Floats) -> Floats:
    """Return the largest coverage (%) that a curve [points, 2] of coverage and correct reaches at each share [n]."""
    reached = curve[None, :, 1] >= correct[:, None] - 1e-9
    largest: Floats = 100.0 * np.where(reached, curve[None, :, 0], 0.0).max(axis=1)
    return largest


def _points(answers: BoardAnswers, row: Row) -> dict[str, tuple[str, tuple[float, float]]]:
    """Return {label: (title, (correct, coverage))} of rules without a fitted parameter."""
    points = {}
    for choice in answers.choices:
        if choice.label in POINT_MARKERS:
            metrics = next(each for each in answers.boards[choice.label].rows if each.key == row.key).metrics
            correct, coverage = (metrics[name].mean or 0.0 for name in ("correct", "coverage"))
            points[choice.label] = (choice.title, (correct, coverage))
    return points
