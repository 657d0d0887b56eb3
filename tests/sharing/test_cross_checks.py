"""The digests of test targets that ship, each from its source, and their use in verification without data."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hierbench.config.recipe import load_protocols
from hierbench.config.spec import DatasetSpec
from hierbench.data.datasets import inat19, shapes, tieredimagenet_h
from hierbench.data.datasets.split_lists import read_lists
from hierbench.data.loader import evaluated_rows
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.readers import read_tree, shipped_paths
from hierbench.runs.compact import digest_of_targets, read_targets
from hierbench.runs.record import Record
from hierbench.runs.run_archive import opened
from hierbench.runs.run_check import RunCheck
from hierbench.runs.state import State
from hierbench.sharing.verification.cross_checks import (
    check_copies,
    check_targets,
    expected_sizes,
    shipped_targets,
    shipped_trees,
)

PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published"


def labels_of(dataset, request, tmp_path):
    """The labels of a whole test split."""
    if dataset == "shapes":
        return np.tile(np.arange(len(shapes.class_paths())), shapes.PER_CLASS["test"])
    if dataset.startswith("cifar100"):  # as pictures, ordered by class
        return np.repeat(np.arange(100), 100)
    if dataset not in ("inat19", "tieredimagenet-h"):
        tables = (file.stem for file in sorted(PUBLISHED.glob("*.md")) if file.with_name(file.stem).is_dir())
        table = next(name for name in tables if load_protocols(name)[0].data.dataset == dataset)
        return read_targets(opened(PUBLISHED / table))
    lists = request.getfixturevalue("shared") / "data/making-better-mistakes"
    return read_lists(tieredimagenet_h.TIERED_TREE, tieredimagenet_h.TIERED_SPLITS, tmp_path, lists).labels["test"]


@pytest.mark.parametrize(("dataset", "order", "data"), sorted(shipped_targets()))
def test_a_digest_is_that_of_its_source(dataset, order, data, request, tmp_path):
    labels = labels_of(dataset, request, tmp_path)
    assert len(labels) == expected_sizes(dataset).test
    evaluation = SimpleNamespace(drop_last=bool(order), drop_order=order or "class")
    spec = SimpleNamespace(train=SimpleNamespace(batch_size=256), evaluation=evaluation, seed=0)
    kept = labels[evaluated_rows(labels, "test", spec)]
    assert shipped_targets()[dataset, order, data] == (len(kept), digest_of_targets(kept))


@pytest.mark.parametrize("dataset", sorted({name for name, _ in shipped_trees()}))
def test_the_digests_of_a_tree_are_those_of_its_source(dataset, request):
    if dataset in ("inat19", "tieredimagenet-h"):
        file = inat19.INAT19_TREE if dataset == "inat19" else tieredimagenet_h.TIERED_TREE
        source = request.getfixturevalue("shared") / "data/making-better-mistakes" / file.name
        paths = read_tree(source).paths
    else:
        paths = shipped_paths(dataset)
    for distance in ("height", "depth"):
        assert shipped_trees()[dataset, distance] == Hierarchy.from_paths(paths, distance).digest()


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize(("right", "is_whole"), [(True, True), (False, True), (False, False)])
def test_runs_are_compared_with_it_where_their_data_is_not_prepared(right, is_whole, dropped):
    data = DatasetSpec(name="shapes", digest="d", hierarchy="h", distance="height")
    evaluation = SimpleNamespace(drop_last=dropped, drop_order="class")
    spec = SimpleNamespace(dataset=data, split="test", bases=("b",), seed=0, evaluation=evaluation, label="r")
    splits = {"test": 1920 if is_whole else 384}
    environment = {"data": {"splits": splits, "remark": "" if is_whole else "not the whole dataset"}}
    run = RunCheck.of(Record(Path("r"), State.RECORDED, spec=spec, result={"test": {}}, environment=environment))
    run.targets = shipped_targets()["shapes", "class" if dropped else "", ""][1] if right else "0" * 64
    check_targets([run])
    assert run.rejected == (not right and is_whole)
    assert bool(run.record.notes) == right


@pytest.mark.parametrize(("follows", "rejected"), [(False, 2), (True, 0)])
def test_two_seeds_share_predictions_only_where_these_follow_from_the_best_classes(follows, rejected):
    """Two seeds of a linear probe may have the same best classes, and so the same classes nearest to them."""
    reasons = []
    for_seed = [SimpleNamespace(seed=seed, follows_from_base=follows) for seed in (0, 1)]
    records = [SimpleNamespace(spec=job, job=job, row="row", recorded_digest=lambda _: "d") for job in for_seed]
    check_copies([SimpleNamespace(record=r, is_tested=True, facts=None, reject=reasons.append) for r in records])
    assert len(reasons) == rejected
