"""Careless users, invalid method files and damaged records."""

import signal

import pytest

from hierbench.api.registry import BrokenMethodError, digest_of_code, find_method
from hierbench.config.recipe import load_recipe
from hierbench.execution.plan import make_plan
from hierbench.leaderboard.board import Board
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError


@pytest.mark.parametrize(
    ("name", "kind", "body", "message"),
    [
        ("odd", "Method", "types = None", "types must be a tuple"),
        ("odd", "Method", 'types = ("type-III",)', "types must be a tuple"),
        ("odd", "Method", "version = 2", "version must be a string"),
        ("odd", "Method", "Params = dict", "Params must subclass"),
        ("odd", "Method", "class Params(Method.Params): lr: float = 0.1", "a hyperparameter cannot be called lr"),
        ("all", "Method", "pass", "the name stands for every method"),
        ("paper", "Method", "pass", "the name stands for the methods of the paper"),
        ("odd", "PostHoc", 'base = ("ce", "odd")', "it cannot be its own base"),
        ("odd", "PostHoc", 'base = ("ce", "ce")', "base names a method twice: ce, ce"),
        ("odd", "PostHoc", "base = ()", "base must be a method's name, or a tuple of them"),
        ("odd", "PostHoc", 'base = ["ce"]', "base must be a method's name, or a tuple of them"),
        ("odd", "PostHoc", 'base = ("ce", 3)', "base must be a method's name, or a tuple of them"),
    ],
)
def test_invalid_class_attributes_are_named(tmp_path, name, kind, body, message):
    text = f"from hierbench import {kind}\nclass Odd({kind}):\n    name = title = source = {name!r}\n    {body}\n"
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    with pytest.raises(BrokenMethodError, match=f"^method {name}: .*{message}"):
        find_method(str(tmp_path / f"{name}.py"))


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("raise KeyboardInterrupt", r"KeyboardInterrupt \(line 1 of odd\.py\)"),
        ("raise GeneratorExit('now')", r"GeneratorExit: now \(line 1 of odd\.py\)"),
        ("raise type('Boom', (BaseException,), {})('x')", r"Boom: x \(line 1 of odd\.py\)"),
        ("raise type('Mute', (BaseException,), {'__str__': lambda e: 1 / 0})", r"Mute \(line 1 of odd\.py\)"),
        ("def f(): f()\nf()", r"RecursionError: .* \(line 1 of odd\.py\)"),
        ("import os\nos.remove(__file__)", r"FileNotFoundError: .*odd\.py'"),
        ("import json\njson.loads('{')", r"JSONDecodeError: .* \(line 2 of odd\.py\)"),  # its own line
        ("def f(:", r"SyntaxError: invalid syntax \(odd\.py, line 1\)"),
    ],
)
def test_an_exception_of_a_file_is_one_line(tmp_path, monkeypatch, first, reason):
    """In a process where Ctrl-C is ignored, as it is in a worker: an interrupt can be the file's alone."""
    path = tmp_path / "odd.py"
    last = "from hierbench import Method\nclass Odd(Method): name = title = source = 'odd'\n"
    path.write_text(f"{first}\n{last}", encoding="utf-8")
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(BrokenMethodError, match=rf"^method .*odd\.py cannot be imported: {reason}$"):
            find_method(str(path))
    finally:
        signal.signal(signal.SIGINT, handler)


def test_the_users_interrupt_is_passed_on(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text("raise KeyboardInterrupt", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        find_method(str(path))


def test_the_digest_sees_code_beside_a_docstring_and_no_docstring(tmp_path):
    path, digests = tmp_path / "m.py", []
    for text in (
        'def f(x):\n    "doc"; return x * 1\n',
        'def f(x):\n    "doc"; return x * 2\n',
        'def f(x):\n    "one"\n    return x\n',
        'def f(x):\n    "other"\n\n    return x  # comment\n',
        '\ufeffdef f(x):\n    "other"\n    return x\n',
    ):
        path.write_text(text, encoding="utf-8")
        digests.append(digest_of_code(path.read_bytes()))
    assert digests[0] != digests[1]
    assert digests[2] == digests[3] == digests[4]


def test_re_ranked_runs_without_their_base_are_named(tmp_path, shapes):
    recipe = load_recipe("shapes")
    plan = make_plan(recipe, shapes, [find_method("crm")], ["type-I"], 1)
    crm = next(job for job in plan if not job.trains)
    Store(tmp_path).run(crm.id).plan(crm.spec.content())
    with pytest.raises(UserError, match="have lost their bases"):
        Board.of("shapes", read_records(tmp_path))


def test_a_file_that_is_given_without_its_path_is_suggested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "focal_tree.py").touch()
    with pytest.raises(UserError, match=r"unknown method 'focal_tree'.*did you mean '\./focal_tree\.py'\?"):
        find_method("focal_tree")


def test_a_dataset_of_the_runs_folder_is_suggested(cli, tmp_path, shapes):
    (job,) = make_plan(load_recipe("shapes"), shapes, [find_method("ce")], ["type-I"], 1)
    spec = job.spec.model_copy(update={"dataset": job.spec.dataset.model_copy(update={"name": "figs"})})
    Store(tmp_path / "runs").run(spec.id).plan(spec.content())
    for options in (["leaderboard"], ["compare", "ce"]):
        wanted = "unknown recipe 'fig'; did you mean 'figs'? known: cifar100, "
        cli(tmp_path, *options, "--dataset", "fig").one_line(wanted)
    assert "no runs of cifar100" in cli(tmp_path, "leaderboard", "--dataset", "cifar100").err
