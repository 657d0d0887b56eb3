"""Compute the golden values; as a script, write them. Only for a change that is meant to move numbers."""

import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
import torch

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.data.augment import PadAndCrop
from hierbench.data.datasets import shapes
from hierbench.data.prepare import prepare
from hierbench.execution.jobs import make_jobs
from hierbench.methods.haframe import hierarchy_aware_frame
from hierbench.runs.store import Store
from hierbench.training.trainer import train
from tests.support.run_files import history_of, metrics_of

FILE = Path(__file__).with_name("values.json")
PER_CLASS = {"train": 20, "val": 4, "test": 8}  # 960, 192 and 384 images
RUNS = [("ce", "type-I"), ("flamingo", "type-I"), ("hafeature", "type-I"), ("ce", "type-II"), ("haframe", "type-II")]
OVERRIDES = ["train.epochs=2", "train.batch_size=48"]


def short_run(prepared, folder, method, kind):
    """Two epochs of 20 steps in float64; return the last row of the history and the test metrics.

    In float32 the rounding of another processor's kernels grows to a per cent of the loss within these 40 steps.
    """
    job = make_jobs(load_recipe("shapes", OVERRIDES), prepared, [find_method(method)], [kind], 1)[0]
    run = Store(folder).run(job.id)
    run.plan(job.spec.content())
    torch.set_default_dtype(torch.float64)
    try:
        train(job, prepared, run, "cpu", lambda done, total: None)
    finally:
        torch.set_default_dtype(torch.float32)
    return {"history": history_of(run)[-1], "test": metrics_of(run)["test"]}


def values(prepared, folder):
    """Return everything; digests for values that must not change at all."""
    drawn = shapes.draw(np.arange(48), np.random.default_rng(0))
    torch.manual_seed(0)
    augmented = PadAndCrop(4, "zero", flip=True)(torch.from_numpy(drawn), torch.arange(48))
    tree = prepared.hierarchy("height")
    frame, _ = hierarchy_aware_frame(tree.distances, 3.0, seed=1)
    return {
        "augmentation": hashlib.sha256(augmented.numpy().tobytes()).hexdigest(),
        "hierarchy": tree.digest(),
        "frame": frame[:2, :4].ravel().tolist(),
        "shapes": [float(prepared.arrays(split)[0].mean()) for split in ("train", "val", "test")],
        "runs": {f"{method} {kind}": short_run(prepared, folder, method, kind) for method, kind in RUNS},
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        shapes.PER_CLASS = PER_CLASS
        small = prepare("shapes", Path(temporary))
        FILE.write_text(json.dumps(values(small, Path(temporary) / "runs"), indent=1) + "\n", encoding="utf-8")
