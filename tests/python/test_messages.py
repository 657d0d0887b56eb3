"""Mistakes in `hierbench.run`, `board` and `score`: a ValueError of one line, and nothing is written; the wording."""

import os

import numpy as np
import pandas as pd
import pytest

import hierbench
from hierbench import Method
from hierbench.methods.haframe import HAFrame
from hierbench.python.method_classes import method_options
from tests.support.messages import check_message

ONES = np.ones((1, 100))
MISTAKES = {
    "unknown method 'cee'; did you mean 'ce'": lambda: hierbench.run("cee", "shapes"),
    "unknown recipe": lambda: hierbench.run("ce", "shape"),
    "seeds must be at least 1": lambda: hierbench.run("ce", "shapes", seeds=0),
    "seeds is a whole number, got [0, 1]": lambda: hierbench.run("ce", "shapes", seeds=[0, 1]),
    "unknown device 'gpu'": lambda: hierbench.run("ce", "shapes", device="gpu"),
    "train.epoch": lambda: hierbench.run("ce", "shapes", set={"train.epoch": 3}),
    "is not a number, text": lambda: hierbench.run("ce", "shapes", set={"train.epochs": object()}),
    "unknown metric": lambda: hierbench.run("ce", "shapes", metrics="hf"),
    "unknown type 'III'": lambda: hierbench.run("ce", "shapes", types="III"),
    "protocol": lambda: hierbench.run("ce", "shapes", protocol="ours"),
    "a method is a name": lambda: hierbench.run([1], "shapes"),
    "no runs of shapes": lambda: hierbench.board("shapes", runs="nowhere"),
    "give either a dataset, whose leaderboard gets a row, or a tree": lambda: hierbench.score([[1.0]], [0]),
    "scores are 1 x 3": lambda: hierbench.score([[1.0, 2.0, 3.0]], [0], "cifar100"),
    "scores must be [N, 100]": lambda: hierbench.score([1.0, 2.0], [0, 1], "cifar100"),
    "'pears' in row 0 is not a class": lambda: hierbench.score(np.ones((1, 100)), ["pears"], "cifar100"),
    "targets of a file": lambda: hierbench.score("some.npz", [0], "cifar100"),
    "resamples must be at least 0, got -1": lambda: hierbench.score(ONES, [0], "cifar100", resamples=-1),
    "resamples must be 0, or from 100 to 1,000,000, got 1": lambda: hierbench.score(ONES, [0], "cifar100", resamples=1),
    "seed must be at least 0, got -1": lambda: hierbench.score(ONES, [0], "cifar100", seed=-1),
    "seed is a whole number, got 0.5": lambda: hierbench.score(ONES, [0], "cifar100", seed=0.5),
    "scores: column 'c0' is not a class": lambda: hierbench.score(
        pd.DataFrame(ONES).add_prefix("c"), [0], "cifar100", resamples=0
    ),
    "tree none.csv: No such file": lambda: hierbench.score(ONES, [0], "none.csv"),
    "metrics hf_macro,+ece: put + before all": lambda: hierbench.score(
        ONES, [0], "cifar100", metrics=["hf_macro", "+ece"]
    ),
    "methods names no method": lambda: hierbench.run([], "shapes"),
    "types names no type": lambda: hierbench.run("ce", "shapes", types=[]),
    "set is a dict": lambda: hierbench.run("ce", "shapes", set=["train.epochs=1"]),
    "set: a key is a text": lambda: hierbench.run("ce", "shapes", set={1: 1}),
    "'train.epochs' = None cannot be given as a setting": lambda: hierbench.run(
        "ce", "shapes", set={"train": {"epochs": None}}
    ),
    "tuned is True, False or a file, got ''": lambda: hierbench.run("ce", "shapes", tuned=""),
    "unknown source 'papr'; did you mean 'paper'": lambda: hierbench.board("shapes", source="papr"),
    "hierbench leaderboard --numbers both": lambda: hierbench.board("shapes", source="both"),
    "unknown protocol 'nonsense'": lambda: hierbench.board("shapes", protocol="nonsense"),
    "given twice with different hyperparameters": lambda: method_options(
        [HAFrame.with_params(alpha=0.3), HAFrame], "runs"
    ),
    "hyperparameters of HAFrame: unknown key 'alhpa'; did you mean 'alpha'": lambda: HAFrame.with_params(alhpa=0.3),
    "a method is a name, a path": lambda: method_options(3, "runs"),
    "a method is a name, ": lambda: method_options([None], "runs"),
    "must set name": lambda: method_options(Method, "runs"),
}


@pytest.mark.parametrize("problem", MISTAKES)
def test_a_mistake_is_a_value_error_of_one_line(problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not check_message(problem, MISTAKES[problem]).startswith("^--")
    assert os.listdir(tmp_path) == []
