"""Runs the pages of the documentation, block by block, each page in a folder of its own.

A block with a title is a file and is written. Other Python is executed, the blocks of a page in one namespace. Shell
lines are run one after the other, `hierbench` in this process. TOML without a title is a part of a recipe. `text` is
what a command prints. What a reader has before a page begins is made here: small data, and for pages with the tour's
command its runs.
"""

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

ROOT = Path(__file__).resolve().parents[2]
FIRST = "hierbench run --methods paper --dataset shapes"  # the tour's command
# What takes longest is made smaller: in the recipes that commands read, and in the commands.
RECIPE = ((r"^epochs = \d+", "epochs = 1"), (r"^warmup_epochs = \d+", ""), (r"^seeds = \d+", "seeds = 2"))
YOURS = (
    (r"^epochs = \d+", "epochs = 1"),
    (r"^seeds = \d+", "seeds = 1"),
    (r"^image_size = .*", "image_size = [32, 32]"),
)
QUICK_TUNE = "\n[tune]\nruns = 1\n\n[tune.grid.haframe]\nalpha = [0.4]\ngamma = [1.0, 2.0]\n"
LINE = ((r"--max-seeds \d+", "--max-seeds 4"), (r"--seeds 12", "--seeds 4"))
QUICK = {"--jobs": "1", "--mlflow": "off"}  # no process to start, no database to make, where a command takes these

DOWNLOAD = "the data is downloaded, and the training takes hours without a GPU"
NOT_HERE = {  # the beginning of what is not run, and why; test_pages.py parses it
    r"pip |uv (?!run python)|docker |git clone .* peers": "makes an environment or an image",
    r"hierbench --install-completion": "changes the user's shell; test_completion.py has what it installs",
    r"pytest |uv run python tests/tools/bench": "measures for minutes; test_bench.py has it with --quick",
    r"hierbench data new food ": "downloads 5 GB from the hub; test_huggingface.py has saved datasets",
    r"comparison=|count=|sbatch |hierbench run \$comparison": "test_job.py runs these lines with a stand-in for sbatch",
    r"hierbench (tune|run) .*--dataset leaves|WEIGHTS=": DOWNLOAD,
    r"hierbench (run|leaderboard|ablate) .*--dataset fgvc(?! --numbers paper)": DOWNLOAD,
}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str

    @property
    def lines(self):
        """The lines of a shell block, joined where they are continued, without comments."""
        joined = re.sub(r"\\\n\s*", "", self.text).splitlines()
        return [line for line in (re.sub(r"(^|\s+)# .*", "", line).strip() for line in joined) if line]


def blocks_of(page):
    """The blocks of a page, given by its path."""
    text = (ROOT / page).read_text(encoding="utf-8")
    matches = re.findall(r'^```(\w*)(?: title="([^"\n]+)")?\n(.*?)^```$', text, re.M | re.S)
    num_fences = len(re.findall(r"^ *```", text, re.M))
    assert 2 * len(matches) == num_fences, "a block that is indented, or has other attributes"
    return [Block(*block) for block in matches]


def shorten(text, pairs):
    """A text with some patterns replaced, each of which may be missing."""
    for pattern, short in pairs:
        text = re.sub(pattern, short, text, flags=re.M)
    return text


def command_of(words):
    """The command of `hierbench` that the first words name, and the words that are left."""
    from hierbench.cli.main import app

    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def is_run(line):
    """Whether a shell line of a page can be run here."""
    return not any(re.match(beginning, line) for beginning in NOT_HERE)


class Pages:
    """Runs pages, each at most once, and keeps the output of their commands."""

    def __init__(self, cli, make_folder, setups):
        self.cli, self.make_folder, self.setups = cli, make_folder, setups
        self.done, self._first = {}, None

    def __call__(self, page):
        """Run a page, given by its path; return its folder and {line: how it ended}."""
        if page not in self.done:
            folder = self.make_folder(Path(page).stem)
            blocks = blocks_of(page)
            with self._small(folder):
                self._prepare(page, folder, blocks)
                self.done[page] = folder, self._run(page, folder, blocks)
        return self.done[page]

    @contextlib.contextmanager
    def _small(self, folder):
        """Small data and short training, in the page's folder, with a cache of its own."""
        from hierbench.config import recipe
        from hierbench.data.datasets import shapes
        from hierbench.leaderboard.pictures import style
        from hierbench.sharing import compose

        real = recipe.recipe_text

        def text_of(dataset):
            where, text = real(dataset)
            return where, text if recipe.is_dataset_file(dataset) else shorten(text, RECIPE)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shapes, "PER_CLASS", {"train": 4, "val": 2, "test": 8})
            patch.setattr(recipe, "recipe_text", text_of)
            patch.setattr(compose, "_draw_pictures", lambda *_: [])  # many; drawn in test_publication.py
            patch.setenv("HIERBENCH_CACHE_DIR", str(folder / ".cache"))
            patch.setenv("MPLBACKEND", "agg")
            patch.setitem(style.STYLE, "savefig.dpi", 50)
            patch.chdir(folder)
            recipe.shipped_recipe.cache_clear()
            yield
        recipe.shipped_recipe.cache_clear()

    def _prepare(self, page, folder, blocks):
        if any("leaderboard/published" in block.text for block in blocks):
            shutil.copytree(ROOT / "leaderboard/published", folder / "leaderboard/published")
        lines = [line for block in blocks if block.language == "bash" for line in block.lines]
        if page in self.setups:
            self.setups[page](folder)
        elif FIRST in lines:
            if self._first is None:
                first = self.make_folder("first")
                self._hierbench(first, FIRST).ok()
                for path in first.glob("runs/*/checkpoint.pt"):
                    path.unlink()
                self._first = first
            shutil.copytree(self._first, folder, dirs_exist_ok=True)
        elif any("shapes" in line for line in lines) and self._first is not None:
            shutil.copytree(self._first / "data", folder / "data", dirs_exist_ok=True)

    def _run(self, page, folder, blocks):
        names, outputs = {"__name__": "__main__"}, {}
        for block in blocks:
            if block.title:
                (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.title).write_text(block.text, encoding="utf-8")
                if block.title.endswith(".py"):
                    compile(block.text, block.title, "exec")
                elif block.title.endswith(".toml"):
                    tomllib.loads(block.text)
            elif block.language == "python":
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(block.text, page, "exec"), names)
                outputs[block.text] = out.getvalue()
            elif block.language == "bash":
                for line in block.lines:
                    outputs[line] = self._line(folder, line)
            elif block.language == "json":
                json.loads(block.text)
            elif block.language == "toml":
                check_part_of_recipe(block.text)
            else:
                assert block.language == "text", (page, block)
                assert not re.search(r"^(\$ )?(hierbench|python|pip|uv) ", block.text, re.M), (page, block)
        outputs["names"] = names
        return outputs

    def _line(self, folder, line):
        if not is_run(line):
            return None
        if line.startswith("hierbench "):
            return self._hierbench(folder, line).ok()
        done = subprocess.run(["bash", "-euc", line], cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, (line, done.stderr)
        return done

    def _hierbench(self, folder, line):
        line, _, output = shorten(line, LINE).partition(" > ")
        arguments = shlex.split(line)[1:]
        command, _ = command_of(arguments)
        taken = {option for parameter in getattr(command, "params", ()) for option in parameter.opts}
        more = [(name, value) for name, value in QUICK.items() if name in taken and name not in arguments]
        if {"--plan-only", "--numbers"} & {*arguments} or (arguments[0] == "reproduce" and "--run" not in arguments):
            more = []  # which they refuse
        done = self.cli(folder, *arguments, *(part for pair in more for part in pair))
        if arguments[:2] == ["data", "new"]:
            file = folder / f"{arguments[2]}.toml"
            file.write_text(shorten(file.read_text(encoding="utf-8"), YOURS) + QUICK_TUNE, encoding="utf-8")
        if output:
            (folder / output).write_text(done.out, encoding="utf-8")
        return done


def check_part_of_recipe(text):
    """A part of a recipe is one of `shapes`."""
    from hierbench.config import recipe

    content = tomllib.loads(recipe.recipe_text("shapes")[1])
    del content["authors"]
    recipe.parse_recipe(recipe.merged(content, tomllib.loads(text)), "a part")


def typeset(folder, names):
    """Run pdflatex on the document of docs/publishing.md, with other tables in it: document.tex in the folder."""
    (block,) = (block for block in blocks_of("docs/publishing.md") if block.title == "paper.tex")
    tables = r"\clearpage".join(rf"\input{{{name}}}" for name in names)
    (folder / "document.tex").write_text(block.text.replace(r"\input{table}", tables), encoding="utf-8")
    command = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="latin1", timeout=300)
