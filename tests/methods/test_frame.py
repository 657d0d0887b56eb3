import csv

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.profiler import profile

from hierbench import Hierarchy
from hierbench.losses.frames import (
    REFLECTIONS_PER_BLOCK,
    hierarchy_aware_frame,
    minimum_similarity,
    random_rotation,
)
from hierbench.methods.haframe import HAFrame


@pytest.fixture(scope="session")
def trees(shared, cifar100):
    folder = shared / "data/making-better-mistakes"
    return {
        "fgvc": Hierarchy.read(shared / "facts/fgvc-aircraft.csv"),
        "cifar100": cifar100,
        "tieredimagenet-h": Hierarchy.read(folder / "tiered_imagenet_isa.txt", distance="depth"),
        "inat19": Hierarchy.read(folder / "inaturalist19_isa.txt"),
    }


def test_all_published_values(shared, trees):
    with (shared / "oracles/s-min.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    for row in rows:
        distances, gamma = trees[row["hierarchy"]].distances, float(row["gamma"])
        for mode, column in (("exact", "exact_infimum"), ("authors", "authors_code"), ("paper", "paper_grid")):
            expected = row[column]
            assert f"{minimum_similarity(distances, gamma, mode):.{len(expected.split('.')[1])}f}" == expected


@given(st.integers(0, 10**6), st.floats(0.5, 6.0), st.sampled_from(["height", "depth"]), st.randoms())
def test_random_trees(reference, seed, gamma, distance, random):
    """The closed form of s_min equals that of the search, and W W^T = S, for any block size."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, (int(rng.integers(3, 25)), 3)).astype(str)
    paths = {f"c{i}": (a, a + b, a + b + c)[: random.randint(0, 3)] for i, (a, b, c) in enumerate(labels)}
    distances = Hierarchy.from_paths({name: (*path, name) for name, path in paths.items()}, distance).distances
    exact = minimum_similarity(distances, gamma, "exact")
    s_min = minimum_similarity(distances, gamma, "paper")
    assert s_min == pytest.approx(np.ceil(exact / 0.02 - 1e-9) * 0.02, abs=1e-9) or exact < -1
    above, below = (
        np.linalg.eigvalsh(reference.similarity(distances, gamma, s))[0] for s in (exact + 1e-6, exact - 1e-6)
    )
    assert above > 0 > below
    searched = reference.smallest_similarity_by_search(distances, gamma)
    assert s_min == pytest.approx(searched, abs=1e-12) or abs(exact - searched) < 1e-9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hierbench.hierarchy.roots.ROOT_COLUMNS", 7)
        patch.setattr("hierbench.hierarchy.roots.ROOT_ROWS", 9)
        frame, _ = hierarchy_aware_frame(distances, gamma)
    assert np.abs(frame @ frame.T - reference.similarity(distances, gamma, s_min)).max() < 1e-13


def test_largest_tree(trees, reference):
    """In float32 within its rounding, about 1e-7 for a cosine; and the frame of the same seed."""
    distances = trees["inat19"].distances
    double, similarity = hierarchy_aware_frame(distances, 5.0)
    s_min = minimum_similarity(distances, 5.0)
    assert np.abs(similarity - reference.similarity(distances, 5.0, s_min)).max() < 1e-15
    assert np.abs(double @ double.T - similarity).max() < 4e-15
    single, cosines = hierarchy_aware_frame(distances, 5.0, dtype=np.float32)
    assert single.dtype == cosines.dtype == np.float32
    assert np.abs(cosines - similarity).max() < 6e-8
    exact = single.astype(np.float64)
    assert np.abs(exact @ exact.T - similarity).max() < 4e-7
    assert np.abs((exact**2).sum(axis=1) - 1.0).max() < 1.2e-7
    assert np.abs(single - double).max() < 1e-6


def test_distances_that_are_not_ultrametric(cifar100, reference):
    """They still have a frame where exp(-gamma D / d_max) is positive definite."""
    distances = cifar100.distances.astype(float)
    distances[3, 4] = distances[4, 3] = distances[3, 4] + 0.1
    frame, similarity = hierarchy_aware_frame(distances, 2.0)
    s_min = minimum_similarity(distances, 2.0)
    assert np.abs(similarity - reference.similarity(distances, 2.0, s_min)).max() < 1e-15
    assert np.abs(frame @ frame.T - similarity).max() < 4e-15
    distances[3, 4] = distances[4, 3] = 0.0
    with pytest.raises(ValueError, match="not positive definite"):
        hierarchy_aware_frame(distances, 2.0)


@pytest.mark.parametrize(
    "size",
    [1, 2, REFLECTIONS_PER_BLOCK - 1, REFLECTIONS_PER_BLOCK, REFLECTIONS_PER_BLOCK + 1, 2 * REFLECTIONS_PER_BLOCK + 1],
)
def test_rotation_is_orthogonal(size):
    for dtype, tolerance in ((np.float64, 5e-15), (np.float32, 3e-6)):
        rotation = random_rotation(size, 0, dtype)
        assert rotation.dtype == dtype
        assert np.abs(rotation @ rotation.T - np.eye(size)).max() < tolerance


def test_rotation_is_haar():
    """Moments of the Haar measure on O(3): E Q = 0, E Q_ij^2 = 1/3, E tr^2 = 1, E tr Q^2 = 1, det +-1 alike."""
    samples = np.array([random_rotation(3, seed) for seed in range(2000)])
    traces = np.einsum("nii->n", samples)
    assert np.abs(samples.mean(axis=0)).max() < 0.06  # without the sign correction the diagonal is at -0.5
    assert np.abs((samples**2).mean(axis=0) - 1 / 3).max() < 0.04
    assert (traces**2).mean() == pytest.approx(1.0, abs=0.12)
    assert np.einsum("nij,nji->n", samples, samples).mean() == pytest.approx(1.0, abs=0.12)
    assert np.linalg.det(samples).mean() == pytest.approx(0.0, abs=0.08)


@pytest.mark.parametrize("block", [2, 5])
def test_rotation_equals_the_reflections_one_by_one(monkeypatch, block):
    monkeypatch.setattr("hierbench.losses.frames.REFLECTIONS_PER_BLOCK", block)
    size, seed = 5, 7
    generator, columns = torch.Generator().manual_seed(seed), np.zeros((size, size))
    for start in reversed(range(0, size, block)):  # drawn from the last block to the first
        stop = min(start + block, size)
        columns[start:, start:stop] = torch.randn(stop - start, size - start, generator=generator).triu().T
    rotation, signs = np.eye(size), np.empty(size)
    for i in range(size):  # H_i maps column i to minus its sign times its norm; the signs make this R_ii > 0
        vector = columns[:, i].copy()
        signs[i] = -np.sign(vector[i])
        vector[i] += np.copysign(np.linalg.norm(vector), vector[i])
        rotation = rotation @ (np.eye(size) - 2 * np.outer(vector, vector) / (vector @ vector))
    assert np.abs(random_rotation(size, seed) - rotation * signs).max() < 1e-14


def test_seeded_by_the_run(cifar100):
    frames = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        frames.append(HAFrame(cifar100, 100).frame)
    assert torch.equal(frames[0], frames[1])
    assert not torch.equal(frames[0], frames[2])
    assert "frame" in HAFrame(cifar100, 100).state_dict()
    assert not list(HAFrame(cifar100, 100).parameters())


def test_a_step_allocates_nothing_of_the_size_of_the_frame(trees):
    """Beside its frame, HAFrame takes memory linear in B K: no allocation of K K numbers, nor of K K bytes."""
    tree, batch = trees["inat19"], 2
    method = HAFrame(tree, tree.num_classes)
    features, targets = torch.randn(batch, tree.num_classes, requires_grad=True), torch.tensor([3, 900])

    def largest_allocation(extra=False):
        with profile(profile_memory=True) as record:
            sum(method.loss(method(features), targets).values()).backward()
            if extra:
                method.similarity(torch.arange(tree.num_classes))
        return max(event.self_cpu_memory_usage for event in record.function_events)

    largest_allocation()  # the distances are put on the device once, for the metrics too
    assert largest_allocation() <= 8 * batch * tree.num_classes < tree.num_classes**2
    assert largest_allocation(extra=True) >= 4 * tree.num_classes**2  # it would be seen
    assert [name for name, _ in method.state_dict().items()] == ["frame"]


def test_bad_arguments(cifar100):
    with pytest.raises(ValueError, match="mode must be"):
        minimum_similarity(cifar100.distances, 1.0, "best")


def test_d_max_is_the_height_also_under_a_root_of_one_child():
    inner = Hierarchy.from_paths({"x": ("a", "x"), "y": ("a", "y"), "z": ("b", "z")})
    outer = Hierarchy.from_paths({name: ("all", *path) for name, path in zip("xyz", ("ax", "ay", "bz"), strict=True)})
    assert outer.height == 3 and outer.distances.max() == 2
    torch.manual_seed(0)
    similarity = HAFrame(outer, 3, HAFrame.Params(gamma=2.0, s_min="exact")).similarity(torch.arange(3))
    s_min = minimum_similarity(outer.distances, 2.0, "exact", d_max=3)
    assert similarity[0, 1].item() == pytest.approx((1 - s_min) * np.exp(-2 / 3) + s_min, rel=1e-6)
    assert minimum_similarity(inner.distances, 2.0) == minimum_similarity(outer.distances, 2.0)
