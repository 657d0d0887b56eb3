"""A runs folder of any number of small runs that verification accepts, made without training."""

import io
from hashlib import sha256

import numpy as np

from hierbench import Hierarchy
from hierbench.config.recipe import load_recipe
from hierbench.config.spec import DatasetSpec, MethodSpec, Spec, TrainSpec
from hierbench.runs.compact import metrics_of_ranked, ranked_classes
from hierbench.utils.files import as_json_text

EXAMPLES, EPOCHS = 100, 2


def make(folder, num, seeds=10):
    """Write `num` finished runs of `shapes`, `seeds` of each method."""
    tree, recipe = Hierarchy.load("shapes"), load_recipe("shapes", [f"train.epochs={EPOCHS}"])
    data = {"digest": "d" * 64, "remark": "not the whole dataset", "splits": {"train": 1, "val": 48, "test": EXAMPLES}}
    shared = {
        "dataset": DatasetSpec(name="shapes", digest="d" * 64, hierarchy=tree.digest(), distance="height"),
        "type": "type-I",
        "model": recipe.model,
        "train": TrainSpec(**recipe.train.model_dump(exclude={"lr"}), lr=recipe.train.lr.type_i),
        "augment": recipe.augment,
    }
    rows = (divmod(number, seeds) for number in range(num))
    methods = ((MethodSpec(name=f"method_{row:05}", version="1", code="c" * 64, params={}), seed) for row, seed in rows)
    specs = [Spec(method=method, seed=seed, **shared) for method, seed in methods]
    write(folder, specs, tree, np.arange(EXAMPLES) % tree.num_classes, data)


def write(folder, specs, tree, targets, data, title=None, term="loss"):
    """Write a finished run of each spec, with noise for scores.

    `data` is what a prepared dataset says of itself, `title` a method's, and `term` the name of its loss.
    """
    for number, spec in enumerate(specs):
        scores = np.random.default_rng(number).normal(size=(len(targets), tree.num_classes)).astype(np.float32)
        scores[np.arange(len(targets)), targets] += 1.5
        test, mistakes = metrics_of_ranked(ranked_classes(scores), targets, tree)
        val, _ = metrics_of_ranked(ranked_classes(scores[:48]), targets[:48], tree)
        predictions = io.BytesIO()
        np.savez(predictions, scores=scores, targets=targets)
        lines = [",".join(["epoch", f"train_{term}", *(f"val_{name}" for name in val)])]
        lines += [",".join(map(repr, [epoch + 1, 1.0, *val.values()])) for epoch in range(spec.train.epochs)]
        metrics = {"schema": 1, "title": title or spec.method.name, "test": test, "mistakes_by_distance": mistakes}
        files = {
            "spec.json": as_json_text(spec.content()).encode(),
            "metrics.json": as_json_text({**metrics, "val": val, "best_epoch": 1}).encode(),
            "history.csv": "\n".join([*lines, ""]).encode(),
            "environment.json": as_json_text({"device": "cpu", "data": data}).encode(),
            "predictions.npz": predictions.getvalue(),
        }
        _write(folder / spec.id, files)


def _write(folder, files):
    folder.mkdir(parents=True)
    recorded = {}
    for name, content in files.items():
        (folder / name).write_bytes(content)
        time = (folder / name).stat().st_mtime_ns
        recorded[name] = {"sha256": sha256(content).hexdigest(), "size": len(content), "mtime_ns": time}
    status = {"state": "done", "seconds": 1.0, "files": recorded}
    (folder / "status.json").write_text(as_json_text(status))


if __name__ == "__main__":
    import sys
    from pathlib import Path

    make(Path(sys.argv[1]), int(sys.argv[2]))
