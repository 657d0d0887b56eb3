"""Inputs of every kind, right ones and changed ones: a right result, or an error that a user may see."""

import random

import pytest

CHANGES = 5  # of each right input


@pytest.mark.parametrize("kind", "trees recipes records archives manifests predictions publications".split())
def test_inputs_as_they_are_and_changed_at_random(targets, tmp_path_factory, kind):
    inputs = targets.seeds(kind)
    assert len(inputs) == len(set(inputs)) > 4
    chosen = random.Random(0)
    for content in inputs:
        for data in (content, *(targets.changed(content, chosen) for _ in range(CHANGES))):
            targets.TARGETS[kind](data, tmp_path_factory.mktemp("input"))


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
