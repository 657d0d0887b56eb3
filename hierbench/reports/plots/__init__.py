"""Figures, one file per kind: `draw(request)` computes what is shown with pure functions and returns a `Drawing`.

A new kind is a file here and a name in `hierbench.cli.plot.KINDS`. `style` has widths, fonts and how a method
looks, `source` reads runs and trees. Nothing here needs a display.
"""
