"""The optional parts of a method's interface: progress, own groups, several bases, fitting, level-wise predictions."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hierbench import Method, PostHoc
from hierbench.api.contract import check_method
from hierbench.api.contract_setup import CONTRACT_TREE
from hierbench.api.method import trainable_groups
from hierbench.api.registry import find_method
from hierbench.config.spec import Spec
from hierbench.methods.ce import CrossEntropy
from hierbench.models import build_classifier
from hierbench.training.prediction import level_predictions
from hierbench.training.step import make_optimizer, set_rates
from hierbench.utils.errors import UserError
from tests.support.jobs import StoppedError, plan_job, stop_at, train_job
from tests.support.run_files import history_of, metrics_of

METHOD = """
import torch
import torch.nn.functional as F
from hierbench import Method

class Told(Method):
    name = title = source = "told"
    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        self.classifier = torch.nn.Linear(num_features, hierarchy.num_classes)
        self.scale = torch.nn.Parameter(torch.ones(1))
    def forward(self, features):
        return self.scale * self.classifier(features)
    def loss(self, outputs, targets):
        SEEN.append(self.progress)
        smoothing = 0.5 * (1.0 - self.progress)
        return {"cross_entropy": F.cross_entropy(outputs, targets, label_smoothing=smoothing)}
    def scores(self, outputs):
        return outputs
    def parameter_groups(self):
        return {"scale": [self.scale]}

SEEN = []
"""


@pytest.fixture
def told_method(tmp_path):
    path = tmp_path / "told.py"
    path.write_text(METHOD)
    return find_method(str(path))


def planned(prepared, method, *overrides):
    return plan_job(prepared, "train.batch_size=240", "train.precision=float32", *overrides, method=method)


def test_progress_is_set_before_every_step_and_exact_after_a_kill(shapes, told_method, tmp_path):
    seen = __import__("sys").modules[told_method.cls.__module__].SEEN
    job = planned(shapes, told_method)
    alone = train_job(job, shapes, tmp_path / "alone")
    steps = 480 // 240
    expected = [(epoch + step / steps) / 2 for epoch in range(2) for step in range(steps)]
    assert seen == expected and max(seen) < 1
    seen.clear()
    with pytest.raises(StoppedError):
        train_job(job, shapes, tmp_path / "stopped", stop_at(1.5))
    seen.clear()
    stopped = train_job(job, shapes, tmp_path / "stopped")
    assert seen == expected[steps:]
    for name in ("history.csv", "metrics.json", "predictions.npz"):
        assert (alone.folder / name).read_bytes() == (stopped.folder / name).read_bytes()
    seen.clear()
    train_job(planned(shapes, told_method, "train.micro_batch=120", "train.epochs=1"), shapes, tmp_path / "parts")
    assert seen == [step / steps for step in range(steps) for _ in range(2)]  # two parts of each batch


def test_an_own_group_has_its_rate_or_the_classifiers(shapes, told_method):
    own_rate, shared = planned(shapes, told_method, "methods.told.lr.scale=0.5"), planned(shapes, told_method)
    assert own_rate.id != shared.id and "scale" not in shared.spec.content()["train"]["lr"]
    assert own_rate.spec.content()["train"]["lr"]["scale"] == 0.5
    assert Spec.model_validate(own_rate.spec.content()) == own_rate.spec
    for job, expected in ((own_rate, 0.5), (shared, 0.15)):
        model = build_classifier(told_method.cls, CONTRACT_TREE, "type-I", job.spec.model)
        optimizer = make_optimizer(model, job.spec.train)
        assert {group["name"]: group["lr"] for group in optimizer.param_groups}["scale"] == expected
        rates = set_rates(optimizer, job.spec.train, 1)
        assert list(rates) == ["backbone", "transform", "classifier", "scale"]
        assert rates["scale"] == pytest.approx(expected / 2)  # half of the cosine
    wrong = own_rate.spec.train.model_copy(update={"lr": own_rate.spec.train.lr.model_copy(update={"sclae": 0.1})})
    with pytest.raises(UserError, match=r"unknown key 'lr\.sclae'; did you mean 'lr\.scale'"):
        make_optimizer(model, wrong)


class Grouped(Method):
    name = title = source = "grouped"
    make_groups = None

    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        self.one, self.two = (torch.nn.Parameter(torch.zeros(3)) for _ in range(2))
        self.fixed = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

    def parameter_groups(self):
        return self.make_groups(self)


def test_unnamed_parameters_belong_to_the_classifier(monkeypatch):
    monkeypatch.setattr(Grouped, "make_groups", staticmethod(lambda m: {"a": iter([m.two, m.fixed])}))
    method = Grouped(CONTRACT_TREE, 4)
    groups = trainable_groups(method)
    assert list(groups) == ["classifier", "a"]
    assert groups["classifier"][0] is method.one and len(groups["classifier"]) == 1
    assert groups["a"][0] is method.two and len(groups["a"]) == 1  # what is not trained is in none


class Levels(Method):
    name = title = source = "levels"

    def level_scores(self, outputs):
        return outputs


def test_level_predictions_take_the_lower_of_equals():
    method = Levels(CONTRACT_TREE, 4)
    scores = [torch.zeros(2, size) for size in CONTRACT_TREE.level_sizes]
    scores[-1][1, 4] = scores[-1][1, 2] = 1.0
    assert level_predictions(method, scores).tolist() == [
        [0] * CONTRACT_TREE.num_levels,
        [0] * (CONTRACT_TREE.num_levels - 1) + [2],
    ]
    assert level_predictions(method, None) is None


class Twice(PostHoc):
    name = title = source = "twice"
    base = ("ce", "haframe")

    def rescore(self, first, second):
        return first


def test_a_base_that_does_nothing_or_a_fit_that_is_never_called_fails_the_check():
    problems = dict(check_method(Twice))
    assert problems.pop("every base acts") == "the scores do not depend on the base haframe"
    assert set(problems.values()) == {""} and "fit before rescore" not in problems

    class Fitted(Twice):
        def fit(self, *probabilities, targets):
            raise AssertionError

    assert dict(check_method(Fitted))["fit before rescore"] == "fit is never called: set needs_validation = True"


def posthoc_file(folder, base):
    file = Path(folder) / "mine.py"
    body = "name = title = source = 'mine'\n    def rescore(self, *given):\n        return sum(given)\n"
    file.write_text(f"from hierbench import PostHoc\nclass Mine(PostHoc):\n    base = {base}\n    {body}")
    return find_method(str(file))


def test_one_base_in_a_tuple_is_one_id_and_several_are_a_list(shapes, tmp_path):
    single, several = posthoc_file(tmp_path, '("ce",)'), None
    job = planned(shapes, single)
    assert isinstance(job.spec.content()["base"], str) and job.spec.bases == (job.spec.base,)
    (tmp_path / "two").mkdir()
    several = planned(shapes, posthoc_file(tmp_path / "two", '("ce", "flamingo")'))
    assert several.spec.content()["base"] == list(several.spec.bases) and len(several.spec.bases) == 2
    assert Spec.model_validate(several.spec.content()).id == several.id
    assert [base.name for base in several.bases] == ["ce", "flamingo"]


def test_a_base_that_cannot_use_a_type_is_said_before_anything_is_trained(shapes, tmp_path):
    with pytest.raises(UserError, match="mine cannot use type-I"):
        planned(shapes, posthoc_file(tmp_path, '("ce", "haframe")'))


def test_the_tested_epoch_is_the_one_of_most_merit(shapes, tmp_path):
    """A method may choose by another validation metric than top-1 accuracy."""

    class Contrary(CrossEntropy):
        name = "contrary"

        def merit(self, metrics):
            return -metrics["top1"]

    runs = {}
    for cls in (CrossEntropy, Contrary):
        method = replace(find_method("ce"), cls=cls)
        job = plan_job(shapes, "train.epochs=3", "train.batch_size=96", method=method)
        runs[cls.name] = train_job(job, shapes, tmp_path / cls.name)
    top1 = [row["val_top1"] for row in history_of(runs["ce"])]
    assert top1 == [row["val_top1"] for row in history_of(runs["contrary"])] and len(set(top1)) > 1
    assert metrics_of(runs["ce"])["best_epoch"] == 1 + top1.index(max(top1))
    assert metrics_of(runs["contrary"])["best_epoch"] == 1 + top1.index(min(top1))
