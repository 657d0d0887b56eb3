"""Method files and classes with a mistake: one line that names the method. The wording is pinned here."""

import signal

import pytest
import torch

from hierbench import Method
from hierbench.api.contract_setup import CONTRACT_TREE
from hierbench.api.method import trainable_groups
from hierbench.api.registry import BrokenMethodError, find_method
from hierbench.training.prediction import level_predictions
from hierbench.utils.errors import UserError
from tests.support.messages import check_message

TUPLE, BASE = "types must be a tuple", "base must be a method's name, or a tuple of them"
ATTRIBUTES = [  # name, class and body of a file
    ("odd", "Method", "types = None", TUPLE),
    ("odd", "Method", 'types = ("type-III",)', TUPLE),
    ("odd", "Method", "version = 2", "version must be a string"),
    ("odd", "Method", "Params = dict", "Params must subclass"),
    ("odd", "Method", "class Params(Method.Params): lr: float = 0.1", "a hyperparameter cannot be called lr"),
    ("all", "Method", "pass", "the name stands for every method"),
    ("paper", "Method", "pass", "the name stands for the methods of the paper"),
    ("odd", "PostHoc", 'base = ("ce", "odd")', "it cannot be its own base"),
    ("odd", "PostHoc", 'base = ("ce", "ce")', "base names a method twice: ce, ce"),
    ("odd", "PostHoc", "base = ()", BASE),
    ("odd", "PostHoc", 'base = ["ce"]', BASE),
    ("odd", "PostHoc", 'base = ("ce", 3)', BASE),
]
EXCEPTIONS = [  # what a file begins with, and what the line says
    ("raise KeyboardInterrupt", "KeyboardInterrupt (line 1 of odd.py)$"),
    ("raise GeneratorExit('now')", "GeneratorExit: now (line 1 of odd.py)$"),
    ("raise type('Boom', (BaseException,), {})('x')", "Boom: x (line 1 of odd.py)$"),
    ("raise type('Mute', (BaseException,), {'__str__': lambda e: 1 / 0})", "Mute (line 1 of odd.py)$"),
    ("def f(): f()\nf()", "RecursionError: ", " (line 1 of odd.py)$"),
    ("import os\nos.remove(__file__)", "FileNotFoundError: ", "odd.py'$"),
    ("import json\njson.loads('{')", "JSONDecodeError: ", " (line 2 of odd.py)$"),  # its own line
    ("def f(:", "SyntaxError: invalid syntax (odd.py, line 1)$"),
]
GROUPS = [
    (lambda m: {"backbone": [m.one]}, "no group can be called backbone"),
    (lambda m: {"transform": [m.one]}, "no group can be called transform"),
    (lambda m: {"a": [m.one], "b": [m.one]}, "parameter one is in group a and b"),
    (lambda m: {"a": [m.one, m.one]}, "parameter one is in group a twice"),
    (lambda m: {"a": [torch.nn.Parameter(torch.zeros(1))]}, "group a has an element that is not its parameter"),
    (lambda m: {"a": [torch.zeros(1)]}, "group a has an element that is not its parameter"),
    (lambda m: {"a b": [m.one]}, "a group's name is letters, digits, _ and -, got 'a b'"),
    (lambda m: {3: [m.one]}, "got 3"),
    (lambda m: [m.one], "parameter_groups must return a dict"),
]


class Odd(Method):
    name = title = source = "odd"
    groups = None

    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        self.one = torch.nn.Parameter(torch.zeros(3))

    def parameter_groups(self):
        return type(self).groups(self)

    def level_scores(self, outputs):
        return outputs


def load(folder, name, text):
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    find_method(str(folder / f"{name}.py"))


def attribute(name, kind, body):
    text = f"from hierbench import {kind}\nclass Odd({kind}):\n    name = title = source = {name!r}\n    {body}\n"
    return lambda folder: load(folder, name, text)


def exception(first):
    last = "from hierbench import Method\nclass Odd(Method): name = title = source = 'odd'\n"
    return lambda folder: load(folder, "odd", f"{first}\n{last}")


def groups(function):
    cls = type("Odd", (Odd,), {"groups": staticmethod(function)})
    return lambda _: trainable_groups(cls(CONTRACT_TREE, 4))


def suggested(folder):
    (folder / "focal_tree.py").touch()
    find_method("focal_tree")


SCORES = [torch.zeros(2, size) for size in CONTRACT_TREE.level_sizes]
NANS = [scores * torch.nan for scores in SCORES]
LEVELS = "level_scores must return a list"
CALLS = [
    *(
        (BrokenMethodError, [f"^method {name}: ", message], attribute(name, base, body))
        for name, base, body, message in ATTRIBUTES
    ),
    *(
        (BrokenMethodError, ["^method ", "odd.py cannot be imported: ", *parts], exception(first))
        for first, *parts in EXCEPTIONS
    ),
    *((UserError, ["^method odd: ", message], groups(function)) for function, message in GROUPS),
    (UserError, ["unknown method 'focal_tree'", "did you mean './focal_tree.py'?"], suggested),
    *(
        (UserError, LEVELS, lambda _, s=scores: level_predictions(Odd(CONTRACT_TREE, 4), s))
        for scores in (SCORES[:-1], SCORES[::-1], [], torch.zeros(2, 3), [*SCORES[:-1], SCORES[-1][:1]])
    ),
    (
        UserError,
        "^method odd: level_scores: ",
        lambda _: level_predictions(Odd(CONTRACT_TREE, 4), NANS),
    ),
]


@pytest.mark.parametrize(("kind", "parts", "call"), CALLS)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, kind, parts, call):
    """In a process where Ctrl-C is ignored, as it is in a worker: an interrupt can be the file's alone."""
    monkeypatch.chdir(tmp_path)
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        check_message(parts, call, tmp_path, kind=kind)
    finally:
        signal.signal(signal.SIGINT, handler)
