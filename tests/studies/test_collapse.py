"""Neural collapse of constructed features, where it is known in closed form."""

import csv
import io
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe, recipe_names
from hierbench.config.sections import Collapse
from hierbench.execution.jobs import make_jobs
from hierbench.leaderboard.formats import render
from hierbench.methods.haframe import hierarchy_aware_frame
from hierbench.models import Classifier
from hierbench.runs.integrity import fingerprints
from hierbench.runs.store import Run, Store
from hierbench.studies.collapse.collapse_curves import FRAMES, Curve, Point, curves_table, mean_line
from hierbench.studies.collapse.collapse_study import frame_recipes
from hierbench.studies.collapse.measure import cached_measurements, measure, read_curve, to_measure
from hierbench.studies.collapse.metrics import angular_collapse, class_means, etf_similarity, self_duality
from hierbench.training.snapshots import (
    default_every,
    is_complete,
    kept_epochs,
    load_snapshot,
    measured_file,
    restart,
    snapshot_file,
)
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_json

HAFRAME, ETF = FRAMES


def simplex(num_classes, num_features, seed=0):
    """K unit vectors in D >= K dimensions, turned at random, with the cosine -1 / (K - 1) between any two."""
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((num_features, num_classes)))[0]
    vectors = math.sqrt(num_classes / (num_classes - 1)) * (np.eye(num_classes) - 1 / num_classes) @ basis.T
    return torch.from_numpy(vectors)


def reference_class_means(features, targets, num_classes):
    """`class_means`, one number at a time, every sum correctly rounded."""
    means = []
    for label in range(num_classes):
        rows = [row for row, target in zip(features, targets, strict=True) if target == label]
        means.append([math.fsum(column) / len(rows) for column in zip(*rows, strict=True)])
    return means, [math.fsum(column) / len(features) for column in zip(*features, strict=True)]


def reference_angular_collapse(vectors, ideal, deviation):
    """`angular_collapse`, pair by pair."""
    differences = []
    for i, x in enumerate(vectors):
        for j in range(i + 1, len(vectors)):
            y = vectors[j]
            dot = math.fsum(a * b for a, b in zip(x, y, strict=True))
            norms = math.sqrt(math.fsum(a * a for a in x)) * math.sqrt(math.fsum(b * b for b in y))
            differences.append(dot / norms - ideal[i][j])
    mean = math.fsum(map(abs, differences)) / len(differences)
    spread = [abs(d) for d in differences] if deviation == "absolute" else differences
    centre = math.fsum(spread) / len(spread)
    return mean, math.sqrt(math.fsum((s - centre) ** 2 for s in spread) / len(spread))


@pytest.mark.parametrize("deviation", ["absolute", "raw"])
@pytest.mark.parametrize(("num_classes", "num_features"), [(2, 2), (3, 5), (48, 600), (608, 608)])
def test_a_simplex_etf_has_collapsed(num_classes, num_features, deviation):
    scales = torch.linspace(0.5, 9.0, num_classes, dtype=torch.float64)[:, None]  # angles know no lengths
    vectors = scales * simplex(num_classes, num_features)
    assert angular_collapse(vectors, etf_similarity(num_classes), deviation) == pytest.approx((0.0, 0.0), abs=1e-13)


@pytest.mark.parametrize("mode", ["paper", "authors"])
def test_a_haframe_s_own_rows_have_collapsed(cifar100, mode):
    frame, similarity = map(torch.from_numpy, hierarchy_aware_frame(cifar100.distances, 2.0, mode))
    assert angular_collapse(frame, similarity) == pytest.approx((0.0, 0.0), abs=1e-13)
    assert angular_collapse(frame.float(), similarity.float())[0] < 1e-7
    assert self_duality(frame, 7.0 * frame) == pytest.approx(0.0, abs=1e-14)
    mean, _ = angular_collapse(frame, etf_similarity(100))  # and onto the other frame they have not
    pairs = similarity[np.triu_indices(100, 1)]
    assert mean == pytest.approx((pairs + 1 / 99).abs().mean().item(), rel=1e-12)


def test_noise_within_classes_does_not_count_and_centring_takes_a_common_part_away():
    num_classes, per_class = 12, 8
    generator = torch.Generator().manual_seed(0)
    centres = simplex(num_classes, 40) + 5.0  # far from the origin
    noise = torch.randn(num_classes, per_class // 2, 40, generator=generator, dtype=torch.float64)
    features = (centres[:, None] + torch.cat([noise, -noise], dim=1)).flatten(0, 1)
    targets = torch.arange(num_classes).repeat_interleave(per_class)
    means = class_means([(features, targets)], num_classes)
    assert torch.allclose(means.means, centres, atol=1e-13)
    assert angular_collapse(means.centred, etf_similarity(num_classes)) == pytest.approx((0.0, 0.0), abs=1e-12)
    assert self_duality(simplex(num_classes, 40), means.centred) == pytest.approx(0.0, abs=1e-12)
    assert angular_collapse(means.means, etf_similarity(num_classes))[0] > 1.0  # all point the same way
    assert self_duality(simplex(num_classes, 40), means.means) > 1.0


def test_as_accurate_as_the_readable_reference(cifar100):
    generator = torch.Generator().manual_seed(2)
    features = 1e4 + torch.randn(3000, 6, generator=generator)  # float32 sums would lose four digits here
    targets = torch.randint(0, 20, (3000,), generator=generator)
    means = class_means(zip(features.split(256), targets.split(256), strict=True), 20)
    expected_means, overall = reference_class_means(features.tolist(), targets.tolist(), 20)
    assert means.means.dtype == torch.float64
    assert means.means.tolist() == [pytest.approx(row, rel=1e-14) for row in expected_means]
    assert means.overall.tolist() == pytest.approx(overall, rel=1e-14)
    similarity = torch.from_numpy(hierarchy_aware_frame(cifar100.distances[:20, :20], 2.0)[1])
    for deviation in ("absolute", "raw"):
        expected = reference_angular_collapse(means.centred.tolist(), similarity.tolist(), deviation)
        assert angular_collapse(means.centred, similarity, deviation) == pytest.approx(expected, rel=1e-12)


def test_a_class_without_examples_has_no_mean():
    with pytest.raises(ValueError, match="1 of 3 classes"):
        class_means([(torch.ones(2, 4), torch.tensor([0, 2]))], 3)
    with pytest.raises(ValueError, match="3 of 3 classes"):
        class_means([], 3)


def test_a_vector_of_length_zero_has_no_angle():
    mean, std = angular_collapse(torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), 0.0)
    assert math.isnan(mean) and math.isnan(std)
    assert math.isnan(self_duality(torch.zeros(2, 2), torch.eye(2)))


def test_self_duality_of_known_pairs():
    weights = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert self_duality(weights, 2.0 * weights) == 0.0
    assert self_duality(weights, -weights) == pytest.approx(2.0)
    assert self_duality(weights, -weights, "square") == pytest.approx(4.0)
    assert self_duality(weights, weights.flip(1)) == pytest.approx(math.sqrt(2.0))  # nothing in common
    expected = math.sqrt(2 - 2 * (0.6 + 0.8) / math.sqrt(2))  # the angle to the unit matrix
    assert self_duality(weights, torch.eye(2)) == pytest.approx(expected, rel=1e-12)


class Examples:
    """Features given as images, in batches; stands in for `hierbench.training.trainer.Split`."""

    def __init__(self, features, targets, batch=50):
        self.features, self.targets, self.batch = features, targets, batch

    def __len__(self):
        return len(self.targets)

    def eval_batches(self):
        assert torch.backends.cudnn.enabled and not torch.backends.cudnn.allow_tf32  # full float32
        yield from zip(self.features.split(self.batch), self.targets.split(self.batch), strict=True)


def test_a_model_whose_features_are_known(cifar100):
    targets = torch.arange(100).repeat(3)
    shares = []
    for frame, num_features in ((ETF, 120), (HAFRAME, 100)):
        torch.manual_seed(0)
        model = Classifier(
            nn.Dropout(0.5), nn.Identity(), find_method(frame.method).cls(cifar100, num_features)
        ).train()
        if frame is ETF:
            centres = simplex(100, 120).float() + 2.0
            model.method.classifier.weight.data = 4.0 * simplex(100, 120).float()
        else:
            centres = 3.0 * model.method.frame
        measured = measure(model, frame, Examples(centres[targets], targets), shares.append)
        assert not model.training  # dropout is off
        for part in ("features", "classifiers"):
            assert [measured[part]["mean"], *measured[part]["std"].values()] == pytest.approx([0.0] * 3, abs=1e-6)
        duality = {"norm": pytest.approx(0.0, abs=1e-6), "square": pytest.approx(0.0, abs=1e-11)}
        assert measured["self_duality"] == duality
        assert shares == sorted(shares) and shares[-1] == 1.0
        shares.clear()
        turned = measure(model, frame, Examples(centres[targets].roll(1, dims=1), targets), lambda share: None)
        assert turned["features"]["mean"] == pytest.approx(0.0, abs=1e-6) and turned["self_duality"]["norm"] > 1.0


def content(number):
    angles = {"mean": number, "std": {"absolute": number + 1, "raw": number + 2}}
    return {"version": 1, "features": angles, "classifiers": angles, "self_duality": {"norm": 2.0, "square": 4.0}}


@pytest.fixture
def measured(shapes, tmp_path):
    """A job of two epochs and its run, whose snapshots are measured."""
    recipe = load_recipe("shapes", ["train.epochs=2"])
    (job,) = make_jobs(recipe, shapes, [find_method("ce")], ["type-I"], 1)
    run = Run(tmp_path / job.id)
    snapshot_file(run, 1).parent.mkdir(parents=True)
    write_json(measured_file(run, 1), content(10.0))
    write_json(measured_file(run, 2), content(float("nan")))
    return recipe, job, run


def test_the_recipe_s_switches_choose_measured_quantities(measured):
    _, job, run = measured
    paper = read_curve(job, run, ETF, 1, Collapse()).points[0]
    assert paper == Point(1, 10.0, 11.0, 10.0, 11.0, 2.0)
    authors = read_curve(job, run, ETF, 1, Collapse(deviation="raw", self_duality="square")).points
    assert authors[0] == Point(1, 10.0, 12.0, 10.0, 12.0, 4.0)
    assert math.isnan(authors[1].features_mean) and authors[1].self_duality == 4.0


def test_measurements_of_other_code_are_repeated(measured):
    _, job, run = measured
    assert to_measure(job, run, 1) == []
    write_json(measured_file(run, 1), content(10.0) | {"version": 0})
    measured_file(run, 2).write_text("{", encoding="utf-8")
    assert to_measure(job, run, 1) == [1, 2] and cached_measurements(run, 2) is None
    with pytest.raises(UserError, match=r"epoch-001.pt cannot be read"):
        load_snapshot(run, 1)


def test_csv_json_and_summary(measured):
    recipe, job, run = measured
    curves = [read_curve(job, run, ETF, 1, recipe.collapse)]
    second = Curve(ETF, 1, "other", tuple(Point(epoch, 12.0, 13.0, 12.0, 13.0, 1.0) for epoch in (1, 2)))
    rows = list(csv.DictReader(io.StringIO(render(curves_table(recipe, [*curves, second], 1), "csv"))))
    assert [(row["seed"], row["epoch"], row["features_mean"]) for row in rows] == [
        ("0", "1", "10.0"), ("0", "2", "nan"), ("1", "1", "12.0"), ("1", "2", "12.0")
    ]  # fmt: skip
    assert {(row["frame"], row["method"], row["type"]) for row in rows} == {("ETF", "ce", "type-I")}
    assert {(row["deviation"], row["self_duality_form"]) for row in rows} == {("absolute", "norm")}
    stored = json.loads(render(curves_table(recipe, curves, 1), "json"))
    assert stored["collapse"] == {"self_duality": "norm", "deviation": "absolute"} and stored["every"] == 1
    assert stored["curves"][0]["run"] == job.id and stored["curves"][0]["features_mean"] == [10.0, None]
    line = mean_line([*curves, second], ETF, "self_duality")
    assert line == ([1, 2], [1.5, 1.5], [1.0, 1.0], [2.0, 2.0]) and mean_line(curves, HAFRAME, "self_duality") is None
    table = render(curves_table(recipe, [curves[0], second], 1))
    assert "2 seeds" in table and "| cross-entropy | self-duality | 1.5000 | 1.5000 | +0 |" in " ".join(table.split())


def test_the_switches_are_not_part_of_a_job(shapes):
    ids = set()
    for overrides in ([], ["collapse.deviation=raw"], ["collapse.self_duality=square"]):
        recipe = load_recipe("shapes", overrides)
        ids |= {job.id for job in make_jobs(recipe, shapes, [find_method("ce")], ["type-I"], 1)}
    assert len(ids) == 1
    with pytest.raises(UserError, match=r"did you mean 'collapse\.deviation'"):
        load_recipe("shapes", ["collapse.deviations=raw"])


@pytest.fixture
def plan(shapes):
    return make_jobs(load_recipe("shapes", ["train.epochs=4"]), shapes, [find_method("ce")], ["type-I"], 1)


def pretend(run, job, epochs, snapshots):
    """Write the files of a run of so many epochs, with some snapshots; a complete one is done."""
    run.plan(job.spec.content())
    run.write_history([{"epoch": epoch} for epoch in range(1, epochs + 1)])
    snapshot_file(run, 1).parent.mkdir()
    for epoch in snapshots:
        snapshot_file(run, epoch).touch()
    if epochs == job.spec.train.epochs:
        result = {"title": "x", "test": dict.fromkeys(("top1", "mistake_severity", "hierdist@1"), 1.0)}
        for name, content in (("metrics", result), ("environment", {"data": {"splits": {}}})):
            write_json(run.folder / f"{name}.json", content)
        (run.folder / "predictions.npz").touch()
        run.set_status("done", files=fingerprints(run.folder))


@pytest.mark.parametrize(
    ("epochs", "snapshots", "every", "restarts"),
    [
        (0, [], 1, False),  # not begun
        (4, [2, 4], 2, False),
        (4, [2, 4], 4, False),
        (4, [2, 4], 1, True),
        (4, [2], 2, True),  # the last is missing
        (4, [], 4, True),
        (3, [2], 2, False),  # cut off: it goes on
        (3, [3], 3, False),
        (3, [], 4, False),
        (3, [], 3, True),
    ],
)
def test_a_run_that_lacks_snapshots_starts_over(plan, tmp_path, epochs, snapshots, every, restarts):
    (job,), store = plan, Store(tmp_path)
    if epochs:
        pretend(store.run(job.id), job, epochs, snapshots)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    restart(plan, store, every)
    assert {path: path.stat().st_mtime_ns for path in before if path.exists()} == ({} if restarts else before)
    assert is_complete(store.run(job.id), every, 4) == (epochs == 4 and not restarts)


def test_which_epochs_are_kept():
    assert kept_epochs(5, 100) == list(range(5, 101, 5))
    assert kept_epochs(5, 12) == [5, 10, 12] and kept_epochs(1, 3) == [1, 2, 3] and kept_epochs(9, 4) == [4]
    assert [default_every(epochs) for epochs in (1, 5, 20, 40, 90, 100, 400)] == [1, 1, 1, 2, 4, 5, 5]


WIDENED = {"imagenet1k": 1000, "inat19": 1010, "tieredimagenet-h": 608}


@pytest.mark.parametrize("name", recipe_names())
def test_type_one_has_a_feature_per_class_at_least(name):
    recipe = load_recipe(name)
    recipes = frame_recipes(recipe, recipe.expected.level_sizes[-1])
    assert recipes[HAFRAME] is recipe
    assert recipes[ETF].model.type_i_units == WIDENED.get(name, 600)
    assert (recipes[ETF] is recipe) == (name not in WIDENED)


def test_without_its_layer_type_one_has_the_backbone_s_channels():
    recipe = load_recipe("cifar100", protocol="authors")
    assert frame_recipes(recipe, 100)[ETF] is recipe  # 512 channels
    narrow = load_recipe("cifar100", ["model.backbone=wrn10-1"], "authors")
    assert frame_recipes(narrow, 100)[ETF].model.type_i_units == 100  # 64
