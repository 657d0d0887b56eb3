"""A small prepared dataset and finished runs with predictions made by hand."""

import json
from dataclasses import replace

import numpy as np
import torch

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.data.prepared import Prepared, arrays_digest, find
from hierbench.execution.jobs import make_jobs
from hierbench.metrics import Tally
from hierbench.runs.integrity import PREDICTIONS, fingerprints
from hierbench.runs.state import State
from hierbench.training.results import write_result

HOSTILE = "</script><img src=x onerror=alert(1)>"
MARKUP = "<b>&\"'"
# Height 3; `wren` hangs two levels higher than `robin`.
PATHS = [
    ["animal", "bird", "robin"],
    ["animal", "bird", MARKUP],
    ["animal", "fish", "cod"],
    ["animal", "fish", HOSTILE],
    ["plant", "tree", "oak"],
    ["plant", "fern"],
]


def prepare(data_dir, paths=PATHS, per_class=50, size=32, name="shapes"):
    """Write noise images of the classes, `per_class` test images each in shuffled order, under a recipe's name."""
    folder = data_dir / "prepared" / name
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    splits = {"train": len(paths), "val": len(paths), "test": per_class * len(paths)}
    for split, count in splits.items():
        images = generator.integers(0, 256, (count, 3, size, size), dtype=np.uint8)
        np.save(folder / f"{split}-images.npy", images)
        np.save(folder / f"{split}-labels.npy", generator.permutation(np.arange(count) % len(paths)))
    meta = {"paths": paths, "remark": "", "splits": splits, "image_size": [size, size]}
    digest = arrays_digest(paths, Prepared(folder, meta).arrays)
    (folder / "meta.json").write_text(json.dumps(meta | {"digest": digest}))
    return find(name, data_dir)


def seal(run):
    """Record the digests of a run's files as they are now."""
    gone = {name: record for name, record in run.status.get("files", {}).items() if name == PREDICTIONS}  # if published
    run.set_status("done", files=gone | fingerprints(run.folder))


def store_run(store, prepared, method, kind, scores, targets, seed=0, overrides=(), **recipe):
    """Write a finished run, and of a re-ranked one its base with the same scores; return its id."""
    loaded = find_method(method)
    settings = load_recipe("shapes", overrides, **recipe)
    jobs = [job for job in make_jobs(settings, prepared, [loaded], [kind], seed + 1) if job.spec.seed == seed]
    for job in jobs:
        run = store.run(job.id)
        run.plan(job.spec.content())
        hierarchy = prepared.hierarchy(job.spec.dataset.distance)
        scores, targets, tally = torch.as_tensor(scores), torch.as_tensor(targets), Tally(hierarchy)
        tally.add(scores, targets)
        row = {"train_loss": 1.0, "train_cross_entropy": 1.0, **_validation(prepared, hierarchy, scores, targets)}
        rows = [{"epoch": epoch + 1, **row} for epoch in range(job.spec.train.epochs)]
        write_result(run, job.method.cls.title, scores, targets, tally, rows[0] if job.trains else None)
        data = {key: prepared.meta[key] for key in ("digest", "splits")} | {"remark": "not the whole dataset"}
        run.write_record("environment.json", {"device": "cpu", "data": data})
        if job.trains:
            run.write_history(rows)
        seal(run)
    return jobs[-1].id


def _validation(prepared, hierarchy, scores, targets):
    """Return validation metrics as a history has them: those of so many test examples."""
    tally, num = Tally(hierarchy), prepared.meta["splits"]["val"]
    tally.add(scores[:num], targets[:num])
    return {f"val_{name}": value for name, value in tally.metrics().items()}


def random_scores(targets, num_classes, seed, skill=1.5):
    """Return scores [N, K] float32 that are right more often than not."""
    scores = np.random.default_rng(seed).normal(size=(len(targets), num_classes)).astype(np.float32)
    scores[np.arange(len(targets)), targets] += skill
    return scores


def of_runs(dataset, runs):
    """Return the board of all runs in a folder."""
    from hierbench.leaderboard.board import Board
    from hierbench.runs.record_reader import read_records

    return Board.of(dataset, read_records(runs), scored=False)


def without(root, ids):
    """Return the records of a folder, of which these are rejected."""
    from hierbench.runs.record_reader import read_records

    records = read_records(root)
    rejected = {run_id: replace(records.by_id[run_id], state=State.REJECTED) for run_id in ids}
    return replace(records, by_id={record.id: record for record in records} | rejected)
