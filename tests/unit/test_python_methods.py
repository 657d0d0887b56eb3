"""Methods given as classes and instances: what is kept of a notebook's or a script's class, and what is refused."""

import linecache
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from hierbench import Method
from hierbench.api.registry import find_method
from hierbench.experiments.interface.extraction import standalone
from hierbench.experiments.interface.methods import options_of
from hierbench.methods.crm import CRM
from hierbench.methods.haframe import HAFrame
from hierbench.utils.errors import UserError

IMPORTS = (
    "import torch.nn.functional as F\nfrom torch import nn, Tensor\nfrom hierbench import Method, hyperparameter\n"
)
CLASS = '''
class Mine(Method):
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
        return self.classifier(features)

    def loss(self, outputs, targets):
        return {"ce": LOSS}

    def scores(self, outputs):
        return outputs
'''
PLAIN = CLASS.replace("LOSS", "F.cross_entropy(outputs, targets)")


class Notebook:
    """Runs cells as a notebook's kernel does: their sources are in linecache, their texts in `In`."""

    def __init__(self, name, monkeypatch):
        self.module, self.patch = ModuleType(name), monkeypatch
        vars(self.module).update({"In": [""], "get_ipython": lambda: None})
        monkeypatch.setitem(sys.modules, name, self.module)

    def run(self, *cells):
        for text in map(textwrap.dedent, cells):
            file = f"<{self.module.__name__} cell {len(self.module.In)}>"
            self.patch.setitem(linecache.cache, file, (len(text), None, text.splitlines(True), file))
            self.module.In.append(text)
            exec(compile(text, file, "exec"), vars(self.module))
        return self.module


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


OTHER = {  # what is kept would give other values than those in memory
    "U differs": ("U = torch.ones(3)\nU.mul_(5)", "U.sum()", ""),
    "V differs": ("V = torch.ones(3)\nfor i in range(3):\n    V[i] = i", "V.sum()", ""),
    "A differs": ("A = np.zeros(3)\nA[0] = 7", "float(A.sum())", ""),
    "L differs": ("L = [torch.ones(1)]\nL.append(torch.zeros(1))", "len(L)", ""),
    "D differs": ("D = {}\nfor i in range(2):\n    D[i] = torch.ones(1)", "len(D)", ""),
    "T differs": ("T = nn.Linear(1, 1)\nT.eval()", "T(torch.ones(1))", ""),
    "R differs": ("R = torch.randn(3)", "R.sum()", ""),
    "Cfg differs": ("class Cfg:\n    a = 1\n    def b(self): return 2\nCFG = Cfg()\nCFG.a = 9", "CFG.a", ""),
    "Cfg.a differs": ("class Cfg:\n    a = 1\nCFG = Cfg()", "CFG.a", "Cfg.a = 9"),
    "N differs": (
        "class Box:\n    def __init__(self): self.w = torch.ones(1)\nN = {'a': [Box()]}\nN['a'][0].w.fill_(2)",
        "N['a'][0].w",
        "",
    ),
    "helper differs": ("def helper(x, a=2.0): return a * x", "helper(1)", "helper.__defaults__ = (3.0,)"),
    "loss differs": ("", "1", "Mine.loss.__kwdefaults__ = {'beta': 2}"),
    "weights differs": ("", "1", "Mine.weights = [5.0]"),
    "inner differs": ("B = 1", "torch.zeros(1)", "def inner(): return 1\nMine.inner = inner"),
}


@pytest.mark.parametrize("problem", OTHER)
def test_values_that_the_kept_source_does_not_give_are_one_line(problem, notebook, tmp_path):
    before, used, after = OTHER[problem]
    text = CLASS.replace("LOSS", f"F.cross_entropy(outputs, targets) * {used}").replace(
        "targets)", "targets, *, beta=1)", 1
    )
    text = text.replace("    params: Params", "    params: Params\n    weights = [1.0]")
    module = notebook.run(IMPORTS + "import torch\nimport numpy as np\n" + before, text, after)
    with pytest.raises(UserError) as error:
        options_of(module.Mine, tmp_path / "runs")
    assert problem.replace("Cfg differs", "CFG differs") in str(error.value) and "\n" not in str(error.value)


def test_honest_values_are_no_difference(notebook, tmp_path):
    before = """
    import enum, functools, itertools, logging, random, re, time
    from collections import Counter, OrderedDict
    from dataclasses import dataclass, field
    from datetime import timedelta
    from typing import NamedTuple
    from pathlib import Path
    import numpy as np
    import pandas as pd
    import torch
    class Color(enum.Enum):
        RED = torch.float32
        BLUE = 2
        def code(self): return self.value
    class Point(NamedTuple):
        x: object
        y: object
    @dataclass
    class Cfg:
        a: int = 1
        many: list = field(default_factory=list)
    class Box:
        other: "Box"
        def __init__(self): self.other, self.memo, self.count = self, {}, 0
        @functools.cached_property
        def total(self): return torch.ones(2).sum()
        def __call__(self, x):
            self.memo[x] = torch.ones(1)
            self.count += 1
            return x
    class Slots:
        __slots__ = ("a",)
        def __init__(self): self.a = torch.full((2,), float("nan"))
    def make(scale):
        def inner(x): return scale * x
        return inner
    def plain(f): return lambda x: f(x)
    @torch.no_grad()
    def helper(x: Color = Color.RED, *, cfg=Cfg()): return cfg.a
    @plain
    def wrapped(x): return x
    @functools.lru_cache
    def kept(x): return torch.ones(x)
    CACHE, COUNTS = {}, itertools.count()
    def cached(x):
        if x not in CACHE: CACHE[x] = kept(x)
        return CACHE[x]
    HERE, WAIT, WORD = Path("."), timedelta(1), re.compile("a+")
    NAN, GRID = torch.tensor([float("nan"), 1.0]), np.array([[float("inf"), 1.0], [float("nan"), 0.0]])
    TABLE, OBJECTS = pd.DataFrame({"a": [1, 2]}), np.array([Cfg(), None], dtype=object)
    COLORS = {Color.RED: torch.ones(1), Color.BLUE: Color.RED}
    SET, COUNT = {Color.RED}, Counter([Color.RED])
    ORDER = OrderedDict(a=Cfg(), b=Box())
    BOX, SLOTS, POINT = Box(), Slots(), Point(torch.ones(1), Cfg())
    LOG, RNG, GEN, NP = logging.getLogger(__name__), random.Random(0), torch.Generator(), np.random.default_rng(0)
    CE, DOUBLE = functools.partial(F.cross_entropy, reduction="none"), make(torch.ones(1))
    LAYER = nn.Sequential(nn.BatchNorm1d(2), nn.ReLU())
    DEVICE, TYPE, BOUND = torch.device("cpu"), torch.float64, BOX.__call__
    NOISE = torch.ones(50, 50) / 3 @ torch.ones(50)
    """
    names = (
        "helper wrapped kept cached HERE WAIT WORD NAN GRID TABLE OBJECTS COLORS SET COUNT ORDER BOX SLOTS POINT LOG "
        "RNG GEN NP CE DOUBLE LAYER DEVICE TYPE BOUND NOISE COUNTS Cfg Color"
    )
    text = CLASS.replace("LOSS", f"({', '.join(names.split())})")
    tried = "[cached(2), BOX(3), BOX.total, next(COUNTS), RNG.random(), NP.random(), helper(), NOISE.mul_(1 + 1e-7)]"
    module = notebook.run(IMPORTS, before, text, tried)
    (path,), _ = options_of(module.Mine, tmp_path / "runs")
    compiled = find_method(path).cls.loss.__globals__
    assert [name for name in names.split() if name not in compiled] == []


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
        "from hierbench.utils.processes import without_main_script\n"
        "process = get_context('spawn').Process(target=print, args=('child',))\n"
        "with without_main_script():\n    process.start()\nprocess.join()\nassert not process.exitcode\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["once", "child"], done.stderr
