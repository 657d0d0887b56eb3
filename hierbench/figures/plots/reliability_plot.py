"""Accuracy against confidence at each level of the tree, before and after the temperature: from kept `answers`."""

import numpy as np

from hierbench.figures.plots import style
from hierbench.figures.plots.answers_plot import read_board_answers
from hierbench.figures.plots.figure_data import FigureRequest, heading, remarks_on

PANEL = 2.2  # inches
MOST_LEVELS = 5
LEAST_NUMBER = 50  # images of all seeds in a bin that is shown


def draw(request: FigureRequest) -> style.Drawing:
    """Draw two rows of panels per type of model and a panel per level, coarsest first, in it a line per method."""
    answers = read_board_answers(request, [])
    rows = answers.board.rows
    types = list(dict.fromkeys(row.type for row in rows))
    levels = [*range(answers.hierarchy.num_levels)]
    if len(levels) > MOST_LEVELS:  # the ends, and others evenly between them
        levels = [round(place * (len(levels) - 1) / (MOST_LEVELS - 1)) for place in range(MOST_LEVELS)]
    looks = style.assign_looks(rows)
    height = PANEL * 2 * len(types) + 0.6
    figure = style.new_figure(max(style.ONE_COLUMN, PANEL * len(levels)), height)
    panels = figure.subplots(2 * len(types), len(levels), sharex=True, sharey=True, squeeze=False)
    for row in rows:
        records = [each.record.levels for each in answers.answers_of(row)]
        for state, words in enumerate(("uncalibrated", "with the temperature of the run")):
            for column, level in enumerate(levels):
                axes = panels[2 * types.index(row.type) + state, column]
                bins = np.array([levels_of_run[level].bins[state] for levels_of_run in records], dtype=np.float64)
                number = bins[:, 0].sum(axis=0)
                shown = number >= LEAST_NUMBER
                confidence, accuracy = ((bins[:, 0] * bins[:, place]).sum(axis=0)[shown] for place in (1, 2))
                line = style.line_style(looks[style.look_key(row)]) | {"marker": ""}
                axes.plot(100 * confidence / number[shown], 100 * accuracy / number[shown], **line)
                axes.set_title(f"{row.type}, level {level + 1}, {words}", loc="left", fontsize=style.TINY_TYPE)
    for axes in panels.flat:
        axes.plot([0, 100], [0, 100], color=style.GREY, linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
    for axes in panels[-1]:
        axes.set_xlabel("confidence (%)")
    for axes in panels[:, 0]:
        axes.set_ylabel("accuracy (%)")
    style.legend_below(figure, rows, looks, lambda look: panels[0, 0].plot([], [], **style.line_style(look))[0])
    figure.suptitle(
        f"{heading(answers.board, request.dataset)}. 15 bins of all seeds, those with 50 images", fontsize=8.0
    )
    return style.Drawing(figure, [*remarks_on(answers.board), *answers.notes])
