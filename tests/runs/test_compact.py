"""Compact predictions: exact metrics, a bounded size, and nothing impossible that can be read from a file."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hierbench import Hierarchy, evaluate
from hierbench.metrics import mistakes_by_distance
from hierbench.runs import compact
from hierbench.runs.compact import (
    COMPACT_FILE,
    digest_of_targets,
    metrics_of_ranked,
    pack,
    read_compact,
    read_targets,
    unpack,
    write_compact,
    write_packed,
    write_targets,
)

SOURCE = "ab" * 32


def tree_of(num_classes, seed=0):
    """A ragged tree: every other class lies a level deeper."""
    generator = np.random.default_rng(seed)
    paths = {}
    for i in range(num_classes):
        group = f"g{generator.integers(max(1, num_classes // 3))}"
        paths[f"c{i}"] = (group, f"c{i}") if i % 2 else (group, f"{group} s{i % 4}", f"c{i}")
    return Hierarchy.from_paths(paths)


@given(num=st.integers(1, 40), num_classes=st.integers(2, 300), seed=st.integers(0, 999), ties=st.booleans())
def test_the_papers_metrics_follow_exactly(num, num_classes, seed, ties):
    generator, tree = np.random.default_rng(seed), tree_of(num_classes)
    scores = generator.normal(size=(num, num_classes)).astype(np.float32)
    scores = np.round(scores) if ties else scores
    targets = generator.integers(num_classes, size=num)
    unpacked = unpack(pack(scores, targets, SOURCE))
    metrics, mistakes = metrics_of_ranked(unpacked.ranked, targets, tree)
    expected = evaluate(scores, targets, tree)
    assert metrics.keys() == expected.keys()
    assert all(metrics[name] == value or value != value for name, value in expected.items())
    assert mistakes == mistakes_by_distance(torch.from_numpy(scores), torch.from_numpy(targets), tree)
    assert (unpacked.num_classes, unpacked.source) == (num_classes, SOURCE)
    assert unpacked.targets == digest_of_targets(targets)


@pytest.mark.parametrize("num_classes", [100, 200, 608, 1010, 1024])
def test_ten_thousand_examples_take_less_than_310_kb(tmp_path, num_classes):
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(10_000, num_classes)).astype(np.float32)
    targets = generator.integers(num_classes, size=10_000)
    assert write_compact(tmp_path, scores, targets, SOURCE).stat().st_size < 310_000
    assert write_targets(tmp_path, targets).stat().st_size < 21_000
    assert np.array_equal(read_targets(tmp_path), targets)
    assert np.array_equal(read_compact(tmp_path).ranked[:, 0], scores.argmax(axis=1))


def test_invalid_rankings_cannot_be_read(monkeypatch, tmp_path):
    generator = np.random.default_rng(0)
    scores, targets = generator.normal(size=(8, 24)), generator.integers(24, size=8)
    honest = pack(scores, targets, SOURCE)
    wrong = [
        {"ranked": np.zeros_like(honest["ranked"])},  # one class twenty times, the nearest
        {"ranked": np.full_like(honest["ranked"], 255)},  # no class
        {"ranked": honest["ranked"][:-1]},
        {"ranked": honest["ranked"].astype(np.float32)},
        {"ranked": -honest["ranked"].astype(np.int64)},
        {"shape": np.array([8, 19, 24])},
        {"shape": np.array([8, 21, 24])},
        {"shape": np.array([1 << 40, 20, 24])},
        {"shape": np.array([8, 20, -1])},
        {"shape": np.array([8.0, 20.0, 24.0])},
        {"targets_sha256": honest["targets_sha256"][:5]},
    ]
    for change in wrong:
        with pytest.raises(ValueError, match=r".+"):
            unpack(honest | change)
    np.savez(tmp_path / COMPACT_FILE, **honest, top_scores=scores.max(axis=1))  # with more than is needed
    assert np.array_equal(read_compact(tmp_path).ranked[:, 0], scores.argmax(axis=1))
    write_packed(tmp_path, honest)
    monkeypatch.setattr(compact, "LARGEST_ARRAY", 10)  # a small file may ask for all memory
    with pytest.raises(ValueError, match="is compressed"):
        read_compact(tmp_path)
    with pytest.raises(ValueError, match="NaN"):
        pack(np.full((2, 3), np.nan), np.zeros(2, dtype=np.int64), SOURCE)
    with pytest.raises(ValueError, match="is not a SHA-256"):
        pack(scores, targets, "abcd")
    with pytest.raises(ValueError, match=r"\[N, K\]"):
        pack(scores, targets[:3], SOURCE)
