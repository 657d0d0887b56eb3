"""Figures, a file KIND_plot.py per kind of `hierbench plot`: its `draw(board)` returns a `Drawing`."""

from pathlib import Path

PLOT_FILES = {file.stem.removesuffix("_plot"): file for file in sorted(Path(__file__).parent.glob("*_plot.py"))}
# {kind: its docstring's first line}, read from the text: an import would load matplotlib for `hierbench --help`.
PLOT_TITLES = {
    kind: file.read_text(encoding="utf-8").split('"""')[1].splitlines()[0] for kind, file in PLOT_FILES.items()
}
