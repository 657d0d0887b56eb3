"""Builds the site of these pages: `uv run --group docs python docs/build.py [--no-notebooks]` writes build/docs.

The pages are copied to build/pages, with the published tables, the command line's reference and the notebooks, which
are executed; then the generator makes HTML of them. Any warning ends it, and nothing is read from the network.
"""

import argparse
import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jupytext
import typer
from latex2mathml.converter import convert
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbformat import NotebookNode
from typer.cli import get_docs_for_click

ROOT = Path(__file__).resolve().parents[1]
DOCS, BUILD = ROOT / "docs", ROOT / "build"
PUBLISHED = ROOT / "leaderboard/published"
TITLES = {"-differences": "differences from cross-entropy", "-metrics": "further metrics"}


def copy_pages(pages: Path) -> None:
    """Copy what is written by hand; links to published tables lead to their copies."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.py", "*.toml", "__pycache__"))
    for page in pages.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        text = text.replace("](../leaderboard/published/", "](published/")
        text = re.sub(r"\]\((notebooks/\w+)\.py\)", r"](\1.md)", text)
        text = re.sub(r"\$`(.+?)`\$", lambda formula: convert(formula[1]), text)  # MathML, which browsers typeset
        page.write_text(text, encoding="utf-8")


def copy_published(folder: Path) -> None:
    """Copy the published tables, their pictures, and other pages of them with a heading."""
    folder.mkdir()
    for path in [*PUBLISHED.glob("*.svg"), *PUBLISHED.glob("*.html")]:
        shutil.copy(path, folder)
    for path in PUBLISHED.glob("*.md"):
        end = next((end for end in TITLES if path.stem.endswith(end)), None)
        title = "" if end is None else f"# {path.stem.removesuffix(end)}: {TITLES[end]}\n\n"
        (folder / path.name).write_text(title + path.read_text(encoding="utf-8"), encoding="utf-8")


def command_line() -> str:
    """Return the reference of all commands, from their help."""
    from hierbench.cli.main import app

    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="hierbench", title="The command line")
    text = re.sub(r"^#+ `(.*)`$", lambda line: f"{'#' * (line[1].count(' ') + 1)} {line[1]}", text, flags=re.M)
    text = re.sub(r"^\x08\n(Example:) (.*)$", r"\1 `\2`", text, flags=re.M)
    return text.replace("```console\n$ ", "```text\n")


def copy_sources(package: Path) -> None:
    """Copy the four folders as they are installed, for the pages of names; metrics as the registry says."""
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(ROOT / "hierbench", package)
    for name in ("methods", "benchmarks", "leaderboard"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("published"))
    from hierbench.metrics import functions

    file = package / "metrics/functions.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:  # the site's generator reads files and runs none
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            node.body[0] = ast.Expr(ast.Constant(inspect.getdoc(getattr(functions, node.name))))
            node.decorator_list = []
    file.write_text(ast.unparse(tree), encoding="utf-8")


def write_notebook(source: Path, folder: Path, *, execute: bool) -> None:
    """Execute a notebook in an empty folder and write it as a page, with its pictures; an error in a cell ends it."""
    notebook: NotebookNode = jupytext.read(source)
    if execute:
        with tempfile.TemporaryDirectory() as place:
            NotebookClient(notebook, timeout=900, resources={"metadata": {"path": place}}).execute()
    for cell in notebook.cells:  # progress is for the one who waits
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    text, resources = MarkdownExporter().from_notebook_node(notebook)
    for name, content in resources["outputs"].items():
        (folder / f"{source.stem}-{name}").write_bytes(content)
        text = text.replace(f"]({name})", f"]({source.stem}-{name})")
    (folder / f"{source.stem}.md").write_text(text, encoding="utf-8")


def main() -> int:
    """Build the site; return the generator's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-notebooks", action="store_true", help="show the notebooks' code without executing it")
    arguments = parser.parse_args()
    pages = BUILD / "pages"
    copy_pages(pages)
    copy_published(pages / "published")
    copy_sources(BUILD / "source/hierbench")
    (pages / "command-line.md").write_text(command_line(), encoding="utf-8")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for !hierbench
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # on a busy machine waiting threads would take its time
    for source in sorted(DOCS.glob("notebooks/*.py")):
        (pages / "notebooks").mkdir(exist_ok=True)
        write_notebook(source, pages / "notebooks", execute=not arguments.no_notebooks)
    shutil.copy(DOCS / "zensical.toml", BUILD)
    return subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=BUILD).returncode


if __name__ == "__main__":
    raise SystemExit(main())
