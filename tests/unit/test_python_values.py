"""The values that a notebook's method uses: those of its kept source must be those in memory."""

import pytest

from hierbench.api.registry import find_method
from hierbench.experiments.interface.methods import options_of
from hierbench.utils.errors import UserError
from tests.notebook_cells import CLASS, IMPORTS, Notebook


@pytest.fixture
def notebook(monkeypatch):
    return Notebook("a_notebook", monkeypatch)


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
