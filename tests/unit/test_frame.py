import csv

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hierbench import Hierarchy
from hierbench.methods.haframe import HAFrame, hierarchy_aware_frame, minimum_similarity, rotate_at_random


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


def random_tree(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, (int(rng.integers(3, 25)), 3)).astype(str)
    paths = {f"c{i}": (a, a + b, a + b + c, f"c{i}") for i, (a, b, c) in enumerate(labels)}
    return Hierarchy.from_paths(paths)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(0.5, 6.0))
def test_closed_form_equals_the_search(reference, seed, gamma):
    distances = random_tree(seed).distances
    exact = minimum_similarity(distances, gamma, "exact")
    found = minimum_similarity(distances, gamma, "paper")
    assert found == pytest.approx(np.ceil(exact / 0.02 - 1e-9) * 0.02, abs=1e-9) or exact < -1
    above, below = (
        np.linalg.eigvalsh(reference.similarity(distances, gamma, s))[0] for s in (exact + 1e-6, exact - 1e-6)
    )
    assert above > 0 > below
    searched = reference.smallest_similarity_by_search(distances, gamma)
    assert found == pytest.approx(searched, abs=1e-12) or abs(exact - searched) < 1e-9


@pytest.mark.parametrize("mode", ["paper", "authors", "exact"])
@pytest.mark.parametrize("gamma", [1.0, 5.0])
def test_gram_matrix(cifar100, reference, mode, gamma):
    frame, similarity = hierarchy_aware_frame(cifar100.distances, gamma, mode, seed=3)
    s_min = minimum_similarity(cifar100.distances, gamma, mode)
    assert np.abs(similarity - reference.similarity(cifar100.distances, gamma, s_min)).max() < 1e-15
    assert np.abs(frame @ frame.T - similarity).max() < 4e-15


def test_largest_tree(trees):
    frame, similarity = hierarchy_aware_frame(trees["inat19"].distances, 5.0)
    assert np.abs(frame @ frame.T - similarity).max() < 4e-15


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 130])
def test_rotation_is_orthogonal(size):
    rotation = rotate_at_random(np.eye(size), seed=0)
    assert np.abs(rotation @ rotation.T - np.eye(size)).max() < 4e-15


def test_rotation_is_haar():
    """Moments of the Haar measure on O(3): E Q = 0, E Q_ij^2 = 1/3, E tr^2 = 1, E tr Q^2 = 1, det +-1 alike."""
    samples = np.array([rotate_at_random(np.eye(3), seed) for seed in range(8000)])
    traces = np.einsum("nii->n", samples)
    assert np.abs(samples.mean(axis=0)).max() < 0.03  # without the sign correction the diagonal is at -0.5
    assert np.abs((samples**2).mean(axis=0) - 1 / 3).max() < 0.02
    assert (traces**2).mean() == pytest.approx(1.0, abs=0.06)
    assert np.einsum("nij,nji->n", samples, samples).mean() == pytest.approx(1.0, abs=0.06)
    assert np.linalg.det(samples).mean() == pytest.approx(0.0, abs=0.04)


def test_rotation_equals_the_reflections_one_by_one():
    size, seed = 5, 7
    rng = np.random.default_rng(seed)
    columns = np.triu(rng.standard_normal((size, size))).T
    rotation = np.eye(size)
    for i in range(size - 1):  # H_i maps column i to R_ii > 0 after the sign correction
        vector = columns[:, i].copy()
        vector[i] += np.copysign(np.linalg.norm(columns[i:, i]), vector[i])
        rotation = rotation @ (np.eye(size) - 2 * np.outer(vector, vector) / (vector @ vector))
    signs = -np.sign(columns.diagonal())
    signs[-1] *= -1
    rotation = rotation * signs
    assert np.abs(rotate_at_random(np.eye(size), seed) - rotation.T).max() < 1e-14


def test_seeded_by_the_run(cifar100):
    frames = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        frames.append(HAFrame(cifar100, 100).frame)
    assert torch.equal(frames[0], frames[1])
    assert not torch.equal(frames[0], frames[2])
    assert "frame" in HAFrame(cifar100, 100).state_dict()
    assert not list(HAFrame(cifar100, 100).parameters())


def test_bad_arguments(cifar100):
    with pytest.raises(ValueError, match="mode must be"):
        minimum_similarity(cifar100.distances, 1.0, "best")
    not_a_tree = np.array([[0, 9, 1], [9, 0, 1], [1, 1, 0]])
    with pytest.raises(ValueError, match="not positive definite"):
        minimum_similarity(not_a_tree, 1.0)


def test_float_distances_give_the_same(cifar100):
    ints = hierarchy_aware_frame(cifar100.distances, 2.0)
    floats = hierarchy_aware_frame(cifar100.distances.astype(float), 2.0)
    assert np.abs(ints[1] - floats[1]).max() < 1e-15


def test_d_max_is_the_height_also_under_a_root_of_one_child():
    inner = Hierarchy.from_paths({"x": ("a", "x"), "y": ("a", "y"), "z": ("b", "z")})
    outer = Hierarchy.from_paths({name: ("all", *path) for name, path in zip("xyz", ("ax", "ay", "bz"), strict=True)})
    assert outer.height == 3 and outer.distances.max() == 2
    torch.manual_seed(0)
    similarity = HAFrame(outer, 3, HAFrame.Params(gamma=2.0, s_min="exact")).similarity
    s_min = minimum_similarity(outer.distances, 2.0, "exact", d_max=3)
    assert similarity[0, 1].item() == pytest.approx((1 - s_min) * np.exp(-2 / 3) + s_min, rel=1e-6)
    assert minimum_similarity(inner.distances, 2.0) == minimum_similarity(outer.distances, 2.0)
