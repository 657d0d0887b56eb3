"""Methods given as classes and instances: the kept source of a notebook's or a script's class, and refused classes."""

import linecache
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from hierbench.api.registry import find_method
from hierbench.methods.crm import CRM
from hierbench.methods.haframe import HAFrame
from hierbench.python.method_classes import method_options
from hierbench.utils.errors import UserError

IMPORTS = (
    "import torch.nn.functional as F\nfrom torch import nn, Tensor\nfrom hierbench import Method, hyperparameter\n"
)
CLASS = '''class Mine(Method):
    """Mine."""

    name = "mine"
    title = "Mine"
    source = "here"

    class Params(Method.Params):
        """beta."""

        beta: float = hyperparameter(1.0, low=0.0, high=10.0)

    params: Params

    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.classifier(features)  # why not

    def loss(self, outputs, targets):
        return {"ce": F.cross_entropy(outputs, targets)}

    def scores(self, outputs):
        return outputs
'''
KEPT = '''"""Method Mine, kept from the notebook or script that defined it."""

import torch.nn.functional as F
from hierbench import Method, hyperparameter
from torch import nn, Tensor

'''


class Notebook:
    """Runs cells as a notebook's kernel does: their sources are in linecache, their texts in `In`."""

    def __init__(self, name, monkeypatch):
        self.module, self.patch = ModuleType(name), monkeypatch
        vars(self.module).update({"In": [""], "get_ipython": lambda: None})
        monkeypatch.setitem(sys.modules, name, self.module)

    def run(self, *cells):
        for text in cells:
            file = f"<{self.module.__name__} cell {len(self.module.In)}>"
            self.patch.setitem(linecache.cache, file, (len(text), None, text.splitlines(True), file))
            self.module.In.append(text)
            exec(compile(text, file, "exec"), vars(self.module))
        return self.module


@pytest.fixture
def notebook(monkeypatch):
    return Notebook("a_notebook", monkeypatch)


def kept(cls, folder):
    """The text of the file that is kept of a class."""
    (path,), options = method_options(cls, folder / "runs")
    loaded = find_method(path)
    assert loaded.cls is not cls and loaded.name == cls.name and not options
    return Path(path).read_text(encoding="utf-8")


def test_a_class_is_kept_with_the_imports_that_it_uses(notebook, tmp_path):
    cells = ["import json\nsecret = [1, 2]", IMPORTS, "broken = (", "# the idea\n" + CLASS]
    with pytest.raises(SyntaxError):
        notebook.run(*cells)
    module = notebook.run(cells[-1])
    assert kept(module.Mine, tmp_path) == KEPT + CLASS
    assert kept(module.Mine, tmp_path) and len(list(tmp_path.glob("runs/.methods/*"))) == 1  # of the same text one file
    again = notebook.run(CLASS.replace("cross_entropy(", "cross_entropy(2 * "))
    assert "2 * outputs" in kept(again.Mine, tmp_path) and len(list(tmp_path.glob("runs/.methods/*"))) == 2
    with pytest.raises(ZeroDivisionError):
        notebook.run("1 / 0\n" + CLASS)  # a cell that defined nothing
    assert "2 * outputs" in kept(again.Mine, tmp_path)


def test_a_class_may_define_its_helpers_within_it(notebook, tmp_path):
    text = """
    from __future__ import annotations
    import math, functools
    import os.path
    import os

    import torch
    from hierbench import PostHoc

    @functools.cache
    def unused(): pass

    class Blend(PostHoc):
        name, title, source = "blend", "Blend", __name__
        SCALE = math.pi

        class Helper:
            exponent: torch.Tensor | float = 1.0

        @torch.no_grad()
        def rescore(self, probabilities: torch.Tensor) -> torch.Tensor:
            from math import floor
            return super(Blend, self).rescore and self.helped(probabilities, os.path.sep) ** floor(self.Helper.exponent)

        @staticmethod
        def helped(probabilities, *_):
            return sum([probabilities * Blend.SCALE])
    """
    lines = kept(notebook.run(textwrap.dedent(text)).Blend, tmp_path).splitlines()
    assert lines[2:8] == [
        "from __future__ import annotations",
        "from hierbench import PostHoc",
        "import math, functools",
        "import os.path",
        "import os",
        "import torch",
    ]
    assert "unused" not in "".join(lines) and lines.count("    @torch.no_grad()") == 1


HELPED = IMPORTS + CLASS.replace("F.cross", "SCALE * F.cross")
FORMS = CLASS.replace("nn.Linear", "floor(sum) or nn.Linear")
REFUSED = {
    "Mine cannot be found; define it at the top level": [
        f"{IMPORTS}def make():\n{textwrap.indent(CLASS, '    ')}\n    return Mine\nMine = make()"
    ],
    "needs SCALE, defined beside it: move that into the class": ["SCALE = 2.0", HELPED],
    "needs SCALE, defined": ["from math import pi as SCALE", "SCALE += 1.0", HELPED],
    "needs floor, sum, defined": ["from math import *\ndef sum(values): return 1", IMPORTS + FORMS],
    "needs Base, defined": [
        IMPORTS + CLASS.replace("Mine", "Base"),
        "class Mine(Base):\n    name = 'own'\n    def merit(self, m): return 0",
    ],
    "is not self-contained": [IMPORTS + CLASS + "    limit = VALUE  # of a name that is gone\n"],
    "must set name to letters, digits, _ and -, not 'mi.ne'": [IMPORTS + CLASS.replace('"mine"', '"mi.ne"')],
    "must set source": [IMPORTS + CLASS.replace('source = "here"', "")],
    "must set title": [IMPORTS + CLASS.replace('title = "Mine"', "")],
}


@pytest.mark.parametrize("problem", REFUSED)
def test_a_class_that_cannot_stand_alone_is_one_line(problem, notebook, tmp_path):
    notebook.module.VALUE = 1
    module = notebook.run(*REFUSED[problem])
    if problem == "is not self-contained":
        del module.VALUE
    with pytest.raises(UserError) as error:
        method_options(module.Mine, tmp_path / "runs")
    assert problem in str(error.value) and "\n" not in str(error.value)
    assert "self-contained" in problem or not (tmp_path / "runs").exists()


def test_a_class_without_source_is_one_line(notebook, tmp_path):
    exec(IMPORTS + CLASS, vars(notebook.module))
    with pytest.raises(UserError, match="source of Mine cannot be found"):
        method_options(notebook.module.Mine, tmp_path)


def test_a_file_of_its_own_is_given_by_its_path(monkeypatch, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("SCALE = 1.0\n" + HELPED, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import mine

    monkeypatch.setitem(sys.modules, "mine", mine)
    assert method_options(mine.Mine, tmp_path / "runs") == ([str(file)], [])
    assert not (tmp_path / "runs").exists()


def test_a_class_among_others_in_a_module_is_kept_alone(monkeypatch, tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo/__init__.py").touch()
    (tmp_path / "zoo/parts.py").write_text("def same(value):\n    return value\n", encoding="utf-8")
    text = "from __future__ import annotations\n" + IMPORTS + "from .parts import same\n"
    text += CLASS.replace("return outputs", "return same(outputs)") + CLASS.replace("Mine", "Other")
    (tmp_path / "zoo/methods.py").write_text(text + '\nif __name__ == "__main__":\n    Mine = 1\n', encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import zoo.methods

    text = kept(zoo.methods.Mine, tmp_path)
    assert "from zoo.parts import same" in text and "Other" not in text and text.count("__future__") == 1
    for name in ("zoo", "zoo.parts", "zoo.methods"):
        monkeypatch.delitem(sys.modules, name)


def test_methods_are_names_paths_classes_and_instances_with_hyperparameters(tmp_path, cifar100):
    built = CRM(cifar100)
    methods = ["ce, flamingo", Path("./mine.py"), HAFrame.with_params(alpha=0.3), built]
    names, options = method_options(methods, tmp_path)
    assert names == ["ce", "flamingo", "mine.py", "haframe", "crm"]
    assert options == ["methods.haframe.alpha=0.3", *(f"methods.crm.{key}={value}" for key, value in built.params)]
    assert method_options(HAFrame, tmp_path) == (["haframe"], [])
    assert method_options((HAFrame, HAFrame), tmp_path) == (["haframe"], [])


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
