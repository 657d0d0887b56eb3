"""How far confidence is from accuracy at each level, before and after the temperature: from kept `answers`."""

import numpy as np
from matplotlib.lines import Line2D

from hierbench.figures.plots import style
from hierbench.figures.plots.answers_plot import read_board_answers
from hierbench.figures.plots.figure_data import FigureRequest, heading, over_runs, remarks_on

STATES = ("uncalibrated", "with the temperature of the run")


def draw(request: FigureRequest) -> style.Drawing:
    """Draw a row of panels per type of model, before and after the temperature, in each a line per method."""
    answers = read_board_answers(request, [])
    rows = answers.board.rows
    types = list(dict.fromkeys(row.type for row in rows))
    levels = np.arange(1, answers.hierarchy.num_levels + 1)
    looks = style.assign_looks(rows)
    figure = style.new_figure(style.TWO_COLUMNS, 0.7 + 1.9 * len(types))
    panels = figure.subplots(len(types), 2, sharex=True, sharey=True, squeeze=False)
    for row in sorted(rows, key=lambda row: looks[style.look_key(row)] != style.OTHER_LOOK):
        line = style.line_style(looks[style.look_key(row)])
        for state, words in enumerate(STATES):
            runs = [[level.ece[state] for level in each.record.levels] for each in answers.answers_of(row)]
            axes = panels[types.index(row.type), state]
            axes.plot(levels, over_runs(runs, 1)[0], **line)
            axes.set_title(f"{row.type}, {words}", loc="left")
    panels[0, 0].set_ylim(bottom=0.0)
    panels[0, 0].set_xticks(levels)
    for axes in panels[-1]:
        axes.set_xlabel("level, from the coarsest to the classes")
    for axes in panels[:, 0]:
        axes.set_ylabel("calibration error (%)")
    style.legend_below(figure, rows, looks, lambda look: Line2D([], [], **style.line_style(look)))
    figure.suptitle(f"{heading(answers.board, request.dataset)}. Mean over seeds", fontsize=8.0)
    return style.Drawing(figure, [*remarks_on(answers.board), *answers.notes])
