"""Cached features of a frozen backbone, and training on them, against the backbone run live."""

import shutil

import numpy as np
import pytest
import torch

from hierbench.data.augment import normalise
from hierbench.data.feature_cache import CacheRequest, check_features, find_features
from hierbench.data.feature_split import FeatureSplit, open_split
from hierbench.runs.store import Store
from hierbench.training import feature_extraction as extraction
from hierbench.training.feature_extraction import frozen_backbone, obtain_features, pool
from hierbench.training.step import new_classifier
from hierbench.training.trainer import seed_for
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json
from tests.support.jobs import plan_job, train_job

FROZEN = ("model.frozen=true", "train.epochs=1", "train.batch_size=48")
CPU = torch.device("cpu")


def job_of(prepared, method="ce", kind="type-I", overrides=()):
    return plan_job(prepared, *FROZEN, *overrides, method=method, kind=kind)


def normalised(images, spec):
    mean, std = torch.tensor(spec.augment.mean), torch.tensor(spec.augment.std)
    return normalise(torch.from_numpy(np.array(images)), mean, std)


@pytest.fixture
def without_features(shapes, tmp_path):
    """The dataset with no features cached, to be spoiled."""
    from hierbench.data.prepared import find

    folder = tmp_path / "prepared/shapes"
    shutil.copytree(shapes.folder, folder, ignore=shutil.ignore_patterns("features", ".features*"))
    return find("shapes", tmp_path)


def test_the_environment_of_an_extraction_is_recorded(shapes, tmp_path):
    """In their cache, and in the runs that train on them."""
    job = job_of(shapes)
    run = Store(tmp_path).run(job.id)
    cached = obtain_features(CacheRequest.by_spec(shapes, job.spec), None, "cpu").meta["environment"]
    train_job(job, shapes, tmp_path)
    assert read_json(run.folder / "environment.json")["features"] == cached
    assert cached["device"] == "cpu" and cached["torch"]


@pytest.mark.parametrize("pooling", ["average", "max"])
def test_features_are_the_pooled_output_of_the_backbone(shapes, pooling):
    spec = job_of(shapes, overrides=["model.views=2", f"model.type_i_pool={pooling}"]).spec
    features = obtain_features(CacheRequest.by_spec(shapes, spec), None, "cpu")
    backbone = frozen_backbone(spec.model, None)
    for split, views in (("train", 2), ("val", 1), ("test", 1)):
        images = normalised(shapes.arrays(split)[0], spec)
        array = features.array(split)
        assert array.shape == (views, len(images), 64) and array.dtype == np.float32
        for view in range(views):
            with torch.inference_mode():
                expected = pool(backbone(images.flip(3) if view else images), pooling)
            np.testing.assert_allclose(array[view], expected, rtol=0, atol=1e-5)
            assert expected.std() > 1e-2


@pytest.mark.parametrize(
    ("method", "kind", "views"), [("ce", "type-I", 1), ("ce", "type-II", 2), ("haframe", "type-II", 2)]
)
def test_training_on_features_is_training_on_a_live_frozen_backbone(shapes, tmp_path, method, kind, views):
    """20 steps of the engine against a plain loop with the backbone in evaluation mode in it."""
    job = job_of(shapes, method, kind, [f"model.views={views}"])
    spec, run = job.spec, Store(tmp_path).run(job.id)
    obtain_features(CacheRequest.by_spec(shapes, spec), None, "cpu")
    train_job(job, shapes, tmp_path)
    trained = torch.load(run.folder / "checkpoint.pt", weights_only=True)["best"]
    assert not any(name.startswith("backbone") for name in trained)

    torch.manual_seed(seed_for(spec.seed, 0))
    model = new_classifier(job, shapes.hierarchy("height"))
    backbone = frozen_backbone(spec.model, None)
    images, labels = shapes.arrays("train")
    groups = [{"params": p, "lr": getattr(spec.train.lr, name)} for name, p in model.parameter_groups().items() if p]
    sgd = torch.optim.SGD(groups, momentum=spec.train.momentum, weight_decay=spec.train.weight_decay)
    torch.manual_seed(seed_for(spec.seed, 1))
    order = torch.randperm(len(labels))
    mirrored = torch.randint(2, order.shape) if views == 2 else torch.zeros_like(order)
    model.train()
    for rows, mirror in zip(order.split(48), mirrored.split(48), strict=True):
        batch = normalised(images[rows], spec)
        batch = torch.where(mirror[:, None, None, None] == 1, batch.flip(3), batch)
        with torch.no_grad():
            feature_map = backbone(batch)
        assert feature_map.shape[2:] == (2, 2)
        outputs = model.method(model.features(feature_map))
        sgd.zero_grad()
        sum(model.method.loss(outputs, torch.from_numpy(labels)[rows]).values()).backward()
        sgd.step()
    torch.manual_seed(seed_for(spec.seed, 0))
    start = new_classifier(job, shapes.hierarchy("height")).state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(trained[name], value, rtol=1e-4, atol=1e-5)
    assert any((trained[name] - value).abs().max() > 1e-2 for name, value in start.items() if value.is_floating_point())


def test_extraction_resumes_where_it_was_killed(without_features, monkeypatch):
    spec = job_of(without_features, overrides=["model.views=3"]).spec
    request = CacheRequest.by_spec(without_features, spec)
    features = obtain_features(request, None, "cpu")
    expected = {split: np.array(features.array(split)) for split in ("train", "val", "test")}
    assert len({view.tobytes() for view in expected["train"]}) == 3  # each view has crops of its own
    shutil.rmtree(features.folder)

    def killed(done, total):
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        obtain_features(request, None, "cpu", killed)
    assert find_features(request) is None
    computed, call = [], extraction.Extractor.__call__
    monkeypatch.setattr(extraction.Extractor, "__call__", lambda self, b: (computed.append(b), call(self, b))[1])
    seen = []
    resumed = obtain_features(request, None, "cpu", lambda done, total: seen.append((done, total)))
    assert seen[0][0] > seen[0][1] // 2 and seen[-1] == (request.num_rows(),) * 2
    assert 0 < sum(block.last - block.first for block in computed) <= request.num_rows() // 2
    for split, values in expected.items():
        np.testing.assert_array_equal(resumed.array(split), values)
    assert sorted(path.name for path in resumed.folder.iterdir()) == [
        "checked.json",
        "meta.json",
        "test-features.npy",
        "train-features.npy",
        "val-features.npy",
    ]


def test_a_truncated_or_changed_cache_is_found(without_features, monkeypatch):
    spec = job_of(without_features).spec
    request = CacheRequest.by_spec(without_features, spec)
    file = obtain_features(request, None, "cpu").folder / "train-features.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-4])
    with pytest.raises(
        UserError, match=r"train-features.npy has 123,004 bytes instead of 123,008\); remove the folder"
    ):
        open_split(without_features, "train", spec, CPU)
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match=r"train-features.npy was changed"):
        check_features(find_features(request))
    file.write_bytes(content)
    check_features(find_features(request))
    file.unlink()
    with pytest.raises(UserError, match=r"train-features.npy is missing"):
        find_features(request)


def test_jobs_share_a_cache_unless_their_features_differ(shapes):
    def key(*overrides, kind="type-I"):
        return CacheRequest.by_spec(shapes, job_of(shapes, kind=kind, overrides=overrides).spec).key

    same = key()
    assert same == key(kind="type-II") == key("train.epochs=9") == key("augment.pad=3") == key("model.type_i_units=9")
    assert key("model.type_i_pool=max", kind="type-II") == same
    different = [
        key("model.views=2"),
        key("model.views=3"),
        key("model.views=3", "augment.pad=3"),
        key("model.type_i_pool=max"),
        key("model.backbone=wrn10-1-s2"),
        key("augment.mean=[0.4, 0.5, 0.5]"),
        key("model.wrn_group_input=raw"),
    ]
    assert len({same, *different}) == 8


@pytest.mark.parametrize("resident", [True, False])
def test_ranks_take_their_share_of_the_same_batches(shapes, resident):
    spec = job_of(shapes, overrides=["model.views=2"]).spec
    features = obtain_features(CacheRequest.by_spec(shapes, spec), None, "cpu")

    def batches(rank, num_ranks):
        split = FeatureSplit(shapes, features, "train", spec, CPU, rank, num_ranks, resident)
        torch.manual_seed(0)
        trained = list(split.train_batches(torch.randperm(len(split)).split(96)))
        return trained, list(FeatureSplit(shapes, features, "val", spec, CPU, rank, num_ranks, resident).eval_batches())

    alone, first, second = batches(0, 1), batches(0, 2), batches(1, 2)
    for (vectors, labels), (a, of_a), (b, of_b) in zip(alone[0], first[0], second[0], strict=True):
        assert torch.equal(vectors, torch.cat([a, b])) and torch.equal(labels, of_a) and torch.equal(labels, of_b)
    vectors, a, b = (torch.cat([x for x, _ in part[1]]) for part in (alone, first, second))
    assert torch.equal(vectors, torch.cat([a, b])) and torch.equal(
        vectors, torch.from_numpy(np.array(features.array("val")[0]))
    )


def test_two_at_once_extract_once(without_features, monkeypatch):
    from concurrent.futures import ThreadPoolExecutor

    request = CacheRequest.by_spec(without_features, job_of(without_features).spec)
    computed, call = [], extraction.Extractor.__call__
    monkeypatch.setattr(extraction.Extractor, "__call__", lambda self, b: (computed.append(b), call(self, b))[1])
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: obtain_features(request, None, "cpu"), range(2))
    assert first.folder == second.folder == request.folder
    assert len(computed) == len(set(computed)) == len(list(extraction.plan_blocks(request)))
    assert [path.name for path in request.folder.parent.iterdir()] == [request.key]


def test_a_failed_extraction_leaves_nothing(without_features, monkeypatch):
    request = CacheRequest.by_spec(without_features, job_of(without_features).spec)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1 << 20, 1 << 20, 1000))
        with pytest.raises(UserError, match=r"features need 0.2 MiB in .*features, 0.0 MiB are free"):
            obtain_features(request, None, "cpu")
    assert not request.folder.parent.exists()
    nan = torch.full((64, 64), torch.nan)
    monkeypatch.setattr(extraction.Extractor, "__call__", lambda self, b: nan[: b.last - b.first])
    with pytest.raises(UserError, match=r"values that are not finite"):
        obtain_features(request, None, "cpu")
    assert not request.folder.parent.exists()


def test_features_do_not_depend_on_the_number_of_cores(without_features, monkeypatch):
    request = CacheRequest.by_spec(without_features, job_of(without_features, overrides=["model.views=2"]).spec)
    arrays = []
    for cores in (1, 2):
        monkeypatch.setattr(extraction, "num_cores", lambda cores=cores: cores)
        features = obtain_features(request, None, "cpu")
        arrays.append(np.array(features.array("train")))
        shutil.rmtree(features.folder)
    np.testing.assert_array_equal(*arrays)


def test_a_block_that_does_not_fit_in_memory_is_one_line(without_features, monkeypatch):
    request = CacheRequest.by_spec(without_features, job_of(without_features).spec)

    def too_large(self, block):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")

    monkeypatch.setattr(extraction.Extractor, "__call__", too_large)
    with pytest.raises(UserError, match=r"^wrn10-1-s4 needs more memory .* 64 images of 32x32 .*model.input_size"):
        obtain_features(request, None, "cpu")
