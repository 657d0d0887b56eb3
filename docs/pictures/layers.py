"""Draws docs/pictures/layers.svg from the contract in pyproject.toml: `uv run python docs/pictures/layers.py`."""

import ast
import textwrap
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {  # tint: (heading, layers)
    "#d7e3f4": ("commands", ("cli", "python", "sharing", "studies")),
    "#dcefd6": ("from run folder to table", ("leaderboard",)),
    "#fbe3c4": ("from plan to run folder", ("execution", "training", "runs")),
    "#ead9f2": ("models and data", ("models", "data", "methods", "api")),
    "#f6d5d5": ("the core", ("answers", "metrics", "heads", "losses", "hierarchy")),
    "#e6e6e6": ("shared", ("config", "utils")),
}
WIDTH, HEIGHT, STEP = 900, 34, 40  # pixels: of the picture, of a layer, from one to the next


def layers() -> list[str]:
    """Return the names of the layers, from the top down, as import-linter checks them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (contract,) = [contract for contract in contracts if contract["type"] == "layers"]
    names = [name.removeprefix("hierbench.") for name in contract["layers"]]
    return [name for name in names if "." not in name]  # a package within one is a part of it


def role(layer: str) -> str:
    """Return the first sentence of the docstring of a package or a module."""
    places = (
        ROOT / "hierbench" / layer / "__init__.py",
        ROOT / "hierbench" / f"{layer}.py",
        ROOT / layer / "__init__.py",
    )
    text = next(place for place in places if place.exists()).read_text(encoding="utf-8")
    words = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].split(". ")[0].rstrip(".").replace("`", "")
    return textwrap.shorten(words, 104, placeholder=" ...")


def draw() -> str:
    """Return the picture as SVG."""
    names = layers()
    tint = {name: color for color, (_, members) in GROUPS.items() for name in members}
    height = STEP * len(names) + 62
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        "<title>The layers of hierbench: each imports only from those below it</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555555"/></marker></defs>',
        f'<path d="M22 16V{STEP * len(names) + 2}" stroke="#555555" stroke-width="1.5" marker-end="url(#tip)"/>',
        f'<text transform="translate(14 {STEP * len(names) // 2 + 10}) rotate(-90)" font-size="12" fill="#333333" '
        'text-anchor="middle">imports</text>',
    ]
    for place, name in enumerate(names):
        top = 12 + STEP * place
        lines += [
            f'<rect x="36" y="{top}" width="{WIDTH - 48}" height="{HEIGHT}" rx="4" fill="{tint[name]}"/>',
            f'<text x="50" y="{top + 22}" font-size="15" font-weight="bold" fill="#111111">{name}</text>',
            f'<text x="172" y="{top + 22}" font-size="13" fill="#222222">{escape(role(name))}</text>',
        ]
    x = 36
    for color, (group, _) in GROUPS.items():
        top = 12 + STEP * len(names) + 12
        lines.append(f'<rect x="{x}" y="{top}" width="14" height="14" rx="3" fill="{color}"/>')
        lines.append(f'<text x="{x + 20}" y="{top + 12}" font-size="12.5" fill="#333333">{group}</text>')
        x += 44 + round(6.7 * len(group))
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(), encoding="utf-8")
