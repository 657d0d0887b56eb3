"""Settings of a training that contradict each other or the machine. The wording is pinned here."""

import pytest
import torch

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.execution.jobs import check_request, make_jobs, with_params
from hierbench.execution.resources import side_by_side
from hierbench.training.fabric import resolve_precision
from hierbench.training.memory import count_micro_batches
from tests.support.messages import check_message


def check_overrides(*overrides):
    check_request(load_recipe("shapes", overrides), [find_method("crm")], ["type-I"])


def planned(shapes, *overrides):
    make_jobs(load_recipe("shapes", overrides), shapes, [find_method("crm")], ["type-I"], 1)


def tuned(params):
    with_params(load_recipe("shapes"), "haframe", params)


RATES = "known: lr.backbone, lr.classifier, lr.transform"
CALLS = [
    ("momentum is for sgd", lambda _: load_recipe("shapes", ["train.momentum=0.5", "train.optimizer=adamw"])),
    ("warmup_epochs = 10 must be less than epochs = 10", lambda _: load_recipe("shapes", ["train.warmup_epochs=10"])),
    ("train.optimizer = 'adam'", lambda _: load_recipe("shapes", ["train.optimizer=adam"])),
    ("train.layer_decay = 0", lambda _: load_recipe("shapes", ["train.layer_decay=0"])),
    ("methods.crm.lr: crm is not trained; set methods.ce.lr", lambda _: check_overrides("methods.crm.lr.classifier=1")),
    (
        f"^methods.ce: unknown key 'lr.clasifier'; did you mean 'lr.classifier'? {RATES}$",
        lambda shapes: planned(shapes, "methods.ce.lr.clasifier=0.1"),
    ),
    ("^methods.haframe: unknown key 'lr.clasifier'", lambda _: tuned({"lr.clasifier": 0.1})),
    ("^methods.haframe: lr.classifier = -1", lambda _: tuned({"lr.classifier": -1.0})),
    ("^methods.haframe: lr = 0.1", lambda _: tuned({"lr": 0.1})),
    (["^methods.haframe: ", "lr"], lambda _: tuned({"lr": 0.1, "lr.classifier": 0.1})),
    ("cached features of a frozen network", lambda _: resolve_precision("bfloat16", "cpu", frozen=True)),
    ("not for mps", lambda _: resolve_precision("bfloat16", "mps")),
    ("micro_batch = 1 leaves 1 image", lambda _: count_micro_batches(64, 1, 1)),
    ("micro_batch = 2 leaves 1 image", lambda _: count_micro_batches(9, 2, 1)),
    ("cannot be shared by 2", lambda _: count_micro_batches(64, 22, 2)),
    ("--devices 9: this machine has 8 cores", lambda _: side_by_side(1, "cpu", devices=9)),
    ("--devices 5: this machine has 4 of cuda", lambda _: side_by_side(20, "cuda", devices=5)),
]


@pytest.mark.parametrize(("message", "call"), CALLS)
def test_a_mistake_is_one_line(shapes, monkeypatch, message, call):
    monkeypatch.setattr("hierbench.execution.resources.num_cores", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    check_message(message, call, shapes)
