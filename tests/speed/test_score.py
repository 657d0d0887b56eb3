"""Scoring 50,000 x 1,000 float32 scores in a fresh process, bootstrap and record included: `pytest -m speed -s`."""

import resource
import subprocess
import sys
import time

import numpy as np
import pytest

pytestmark = pytest.mark.speed
N, K = 50_000, 1_000


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_fifty_thousand_images_of_a_thousand_classes(tmp_path, save):
    """Asked: 30 s and 1.5 GB on two cores."""
    rng = np.random.default_rng(0)
    scores, targets = rng.standard_normal((N, K), dtype=np.float32), rng.integers(K, size=N)
    scores[np.arange(N), targets] += 2
    save(tmp_path / "a.npz", scores=scores, targets=targets)
    start = time.perf_counter()
    command = [sys.executable, "-m", "hierbench", "score", "a.npz", "--tree", "imagenet1k"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6  # KB on Linux; the largest child so far
    print(f"\n{N:,} x {K:,}, {save.__name__}: {seconds:.1f} s (asked: 30), {peak:.2f} GB (asked: 1.5)")
    assert seconds < 30 and peak < 1.5
