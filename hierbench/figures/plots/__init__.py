"""Figures, one file per kind of `hierbench plot`: its name is the kind's, its `draw(request)` returns a `Drawing`.

`style`, `source` and `tree` are what the kinds share. Nothing here needs a display.
"""

from pathlib import Path

SHARED = {"__init__", "source", "style", "tree"}
FILES = {file.stem: file for file in sorted(Path(__file__).parent.glob("*.py")) if file.stem not in SHARED}
# {kind: its docstring's first line}, read from the text: an import would load matplotlib for `hierbench --help`.
KINDS = {kind: file.read_text(encoding="utf-8").split('"""')[1].splitlines()[0] for kind, file in FILES.items()}
