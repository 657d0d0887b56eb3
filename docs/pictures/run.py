"""Draws docs/pictures/run.svg, the life of a run: `uv run python docs/pictures/run.py`. Its functions must exist."""

import importlib
from pathlib import Path
from xml.sax.saxutils import escape

STEPS = (  # what happens, the file, the function that writes it
    ("The command is read and planned", "no file", "hierbench.studies.study.carry_out"),
    ("The request is recorded", "requests.jsonl", "hierbench.runs.requests.record_request"),
    ("The run folders are created", "<id>/spec.json, status.json", "hierbench.runs.store.Run.plan"),
    ("A worker takes a job", "<id>/status.json: running", "hierbench.execution.run_job.execute"),
    ("An epoch ends", "<id>/checkpoint.pt, history.csv", "hierbench.training.trainer.train"),
    (
        "The test split is predicted",
        "<id>/predictions.npz, metrics.json",
        "hierbench.training.results.write_result",
    ),
    ("The digests of all files are recorded", "<id>/status.json: done", "hierbench.runs.integrity.fingerprints"),
    ("The run is read and checked", "no file: a Record", "hierbench.runs.record_reader.read_records"),
    ("The records make rows and statistics", "no file: a Board", "hierbench.leaderboard.board.Board.of"),
    ("The table is rendered", "leaderboard-DATASET.md, .json", "hierbench.leaderboard.formats.render"),
    ("The table is published", "FOLDER/DATASET.md, DATASET/<id>/", "hierbench.sharing.publication.publish"),
)
WIDTH, STEP, TOP = 900, 48, 44


def check(name: str) -> None:
    """Raise an AttributeError or ImportError if there is no such function."""
    parts = name.split(".")
    num_modules = next(place for place, part in enumerate(parts) if part[0].isupper()) if name != name.lower() else -1
    item: object = importlib.import_module(".".join(parts[:num_modules]))
    for part in parts[num_modules:]:
        item = getattr(item, part)


def draw() -> str:
    """Return the picture as SVG."""
    height = TOP + STEP * len(STEPS) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        "<title>The life of a run: what happens, the file, and the function that writes it</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
    ]
    for left, heading in ((52, "what happens"), (330, "file"), (604, "function")):
        lines.append(f'<text x="{left}" y="28" font-size="13" fill="#555555">{heading}</text>')
    for number, (step, file, function) in enumerate(STEPS):
        check(function)
        top = TOP + STEP * number
        fill = "#fbe3c4" if number < 7 else "#dcefd6"
        package, _, name = function.removeprefix("hierbench.").partition(".")
        lines += [
            f'<rect x="12" y="{top}" width="{WIDTH - 24}" height="40" rx="4" fill="{fill}"/>',
            f'<text x="32" y="{top + 25}" font-size="13" text-anchor="middle" fill="#333333">{number + 1}</text>',
            f'<text x="52" y="{top + 25}" font-size="13.5" fill="#111111">{escape(step)}</text>',
            f'<text x="330" y="{top + 25}" font-size="12.5" font-family="monospace" fill="#222222">'
            f"{escape(file)}</text>",
            f'<text x="604" y="{top + 25}" font-size="12.5" font-family="monospace" fill="#222222">'
            f"{escape(f'{package}.{name}')}</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(), encoding="utf-8")
