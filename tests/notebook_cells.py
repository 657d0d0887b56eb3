"""A notebook's cells without a kernel, and the text of a method for them."""

import linecache
import sys
import textwrap
from types import ModuleType

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
