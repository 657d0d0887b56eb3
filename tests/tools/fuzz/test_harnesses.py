"""Each harness for a second, so that it runs when it is needed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


@pytest.mark.thorough
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="no atheris: it has wheels for Linux alone")
@pytest.mark.parametrize("kind", ["trees", "recipes", pytest.param("records", marks=pytest.mark.thorough)])
def test_a_harness_runs(tmp_path, kind):
    command = [sys.executable, str(RUN), kind, "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "stat::number_of_executed_units" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", "trees recipes records archives manifests predictions publications".split())
def test_a_harness_takes_its_seeds(targets, tmp_path_factory, kind):
    """Those of `archives` run here alone: what it needs of torch takes the fuzzer half a minute to load."""
    seeds = targets.seeds(kind)
    assert len(seeds) == len(set(seeds)) > 4
    for seed in seeds:
        targets.TARGETS[kind](seed, tmp_path_factory.mktemp("seed"))


@pytest.mark.parametrize("seed", ["a", "b"])
def test_the_harness_notices_planted_errors(targets, tmp_path, monkeypatch, seed):
    """An exception that no user may see, and a file beside the target, end a run."""
    if seed == "a":
        monkeypatch.setattr("hierbench.hierarchy.label_tree.read_tree", lambda *_: {}[1])
        with pytest.raises(KeyError):
            targets.trees(b"\x01a,b\nc,d\n", tmp_path)
    else:
        monkeypatch.setattr("hierbench.data.source.unpack", lambda *_: (tmp_path / "elsewhere").touch())
        with pytest.raises((AssertionError, FileNotFoundError)):
            targets.archives(b"\x01x", tmp_path)
