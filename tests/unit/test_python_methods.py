"""Methods given as classes and instances: what is kept of a notebook's or a script's class, and what is refused."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hierbench import Method
from hierbench.api.registry import find_method
from hierbench.experiments.interface.extraction import standalone
from hierbench.experiments.interface.methods import options_of
from hierbench.methods.crm import CRM
from hierbench.methods.haframe import HAFrame
from hierbench.utils.errors import UserError
from tests.notebook_cells import CLASS, IMPORTS, PLAIN, Notebook


@pytest.fixture
def notebook(monkeypatch):
    return Notebook("a_notebook", monkeypatch)


def test_what_a_class_needs_is_kept_and_nothing_else(notebook, tmp_path):
    cells = [
        IMPORTS + "import json\nfrom math import *",
        "SCALE = 1.0\nSCALE += 0.5\nsecret = [1, 2]",
        "def halved(value):\n    # why not\n    return value / (2 * SCALE) + floor(0.5) * len(ORDER)",
        "ORDER = tuple(reversed([i for i in range(3)]))\nbroken = (",
        CLASS.replace("LOSS", "halved(F.cross_entropy(outputs, targets)) * self.params.beta"),
    ]
    with pytest.raises(SyntaxError):
        notebook.run(*cells)
    module = notebook.run("ORDER = tuple(reversed([i for i in range(3)]))", cells[-1])
    text = standalone(module.Mine)
    assert "SCALE = 1.5" in text and "ORDER = (2, 1, 0)" in text and "# why not" in text
    assert "json" not in text and "secret" not in text and "get_ipython" not in text
    (path,), given = options_of(module.Mine, tmp_path / "runs")
    found = find_method(path)
    assert found.cls is not module.Mine and found.name == "mine" and not given
    assert found.cls.Params(beta=2.0).beta == 2.0
    assert Path(path).read_text(encoding="utf-8") == text
    assert options_of(module.Mine, tmp_path / "runs")[0] == [path]  # the same text, the same file
    changed = notebook.run("SCALE = 4", cells[2], cells[-1])
    assert options_of([changed.Mine], tmp_path / "runs")[0] != [path]


def test_statements_are_kept_where_values_cannot_be_written(notebook):
    cell = """
    try:
        from nowhere import absent
    except ImportError:
        absent = nn.Identity()
    WEIGHTS = absent(F.one_hot(__import__("torch").arange(3)).sum())
    """
    module = notebook.run(IMPORTS, cell, CLASS.replace("LOSS", "F.cross_entropy(outputs, targets) * WEIGHTS"))
    text = standalone(module.Mine)
    assert text.index("except ImportError") < text.index("WEIGHTS = absent") < text.index("class Mine")
    scope = {"__name__": "elsewhere"}
    exec(text, scope)
    assert int(scope["WEIGHTS"]) == 3


REFUSED = {
    "defined within a function": lambda notebook: notebook.run(
        f"{IMPORTS}def make():\n{textwrap.indent(PLAIN, '    ')}\n    return Mine\nMine = make()"
    ),
    "needs handle (": lambda notebook: notebook.run(
        "handle = iter([])\nfor handle in [handle]: pass\nIn[:] = In[:1]",
        IMPORTS + CLASS.replace("LOSS", "F.cross_entropy(outputs, targets) * bool(handle)"),
    ),
    "another method that is defined beside it": lambda notebook: notebook.run(
        IMPORTS
        + PLAIN.replace("Mine", "Base")
        + "\nclass Mine(Base):\n    name = 'own'\n    def merit(self, m): return 0"
    ),
    "cannot be found": lambda notebook: exec(IMPORTS + PLAIN, vars(notebook.module)) or notebook.module,
    "differs": lambda notebook: notebook.run(
        IMPORTS + PLAIN, "Mine.scores = lambda self, outputs: -outputs\nMine.scores.__module__ = Mine.__module__"
    ),
    "must set name": lambda notebook: notebook.run(IMPORTS + PLAIN.replace('"mine"', '"mi,ne"')),
    "must set source": lambda notebook: notebook.run(IMPORTS + PLAIN.replace('source = "here"', "")),
    "letters, digits, _ and -, not 'mi.ne'": lambda notebook: notebook.run(
        IMPORTS + PLAIN.replace('"mine"', '"mi.ne"')
    ),
    "must set title": lambda notebook: notebook.run(IMPORTS + PLAIN.replace('title = "Mine"', "")),
}


@pytest.mark.parametrize("problem", REFUSED)
def test_a_class_that_cannot_stand_alone_is_one_line(problem, notebook, tmp_path):
    module = REFUSED[problem](notebook)
    with pytest.raises(UserError) as error:
        options_of(module.Mine, tmp_path / "runs")
    assert problem in str(error.value) and "\n" not in str(error.value)
    assert "must set" not in problem or not (tmp_path / "runs").exists()  # the source is not to blame


def test_decorated_code_and_dataclasses_are_kept_from_the_notebook(notebook, tmp_path):
    text = """
    import torch
    from dataclasses import dataclass
    from hierbench import PostHoc

    @dataclass
    class Cfg:
        a: int = 1

    CFG = Cfg()

    @torch.no_grad()
    def helper(x):
        return x * CFG.a

    class B(PostHoc):
        name, title, source = "b", "B", "here"

        @torch.no_grad()
        def rescore(self, probabilities):
            return helper(probabilities)
    """
    module = notebook.run(text)
    (path,), _ = options_of(module.B, tmp_path / "runs")
    kept = Path(path).read_text(encoding="utf-8")
    assert kept.count("@torch.no_grad()") == 2 and kept.count("@dataclass\nclass Cfg") == 1


def test_a_file_of_its_own_is_given_by_its_path(monkeypatch, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(IMPORTS + PLAIN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import mine

    monkeypatch.setitem(sys.modules, "mine", mine)
    assert options_of(mine.Mine, tmp_path / "runs") == ([str(file)], [])
    assert not (tmp_path / "runs").exists()
    file.write_text((IMPORTS + PLAIN).replace("return outputs", "return -outputs"), encoding="utf-8")
    with pytest.raises(UserError, match=r"not what is in memory: scores differs"):  # what a notebook holds is old
        options_of(mine.Mine, tmp_path / "runs")


def test_a_class_among_others_in_a_module_is_kept_alone(monkeypatch, tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo/__init__.py").touch()
    (tmp_path / "zoo/parts.py").write_text("def same(value):\n    return value\n", encoding="utf-8")
    text = "from __future__ import annotations\n" + IMPORTS + "from .parts import same\n"
    text += PLAIN.replace("return outputs", "return same(outputs)") + PLAIN.replace("Mine", "Other")
    (tmp_path / "zoo/methods.py").write_text(text + '\nif __name__ == "__main__":\n    Mine = 1\n', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import zoo.methods

    (path,), _ = options_of(zoo.methods.Mine, tmp_path / "runs")
    kept = Path(path).read_text(encoding="utf-8")
    assert "from zoo.parts import same" in kept and "Other" not in kept and kept.count("__future__") == 1
    for name in ("zoo", "zoo.parts", "zoo.methods"):
        monkeypatch.delitem(sys.modules, name)


def test_methods_are_names_paths_classes_and_instances_with_hyperparameters(tmp_path, cifar100):
    built = CRM(cifar100)
    names, given = options_of(["ce, flamingo", Path("./mine.py"), HAFrame.with_params(alpha=0.3), built], tmp_path)
    assert names == ["ce", "flamingo", "mine.py", "haframe", "crm"]
    assert given == ["methods.haframe.alpha=0.3", *(f"methods.crm.{key}={value}" for key, value in built.params)]
    assert options_of(HAFrame, tmp_path) == (["haframe"], [])
    assert options_of((HAFrame, HAFrame), tmp_path) == (["haframe"], [])
    with pytest.raises(UserError, match="given twice with different hyperparameters"):
        options_of([HAFrame.with_params(alpha=0.3), HAFrame], tmp_path)
    with pytest.raises(UserError, match=r"hyperparameters of HAFrame: .*alhpa"):
        HAFrame.with_params(alhpa=0.3)
    for odd in (3, Method, [None]):
        with pytest.raises(UserError, match=r"a method is a name|must set name"):
            options_of(odd, tmp_path)


def test_processes_do_not_run_the_user_s_script_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "print('once', flush=True)\nfrom multiprocessing import get_context\n"
        "from hierbench.utils.processes import starting_children\n"
        "process = get_context('spawn').Process(target=print, args=('child',))\n"
        "with starting_children():\n    process.start()\nprocess.join()\nassert not process.exitcode\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["once", "child"], done.stderr
