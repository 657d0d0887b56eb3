"""The commands that `soak.py` kills: their inputs, the files that they write, and their results."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sqlite3
import sys
from pathlib import Path

from miniatures import tiny_imagenet

OF_SHAPES = ("--dataset", "shapes", "--data-dir", "../data")
TRAINING = (
    "run", "--methods", "ce,crm", "--types", "type-I", "--seeds", "2", "--jobs", "2",
    "--set", "train.epochs=3", "--set", "train.batch_size=96", *OF_SHAPES,
)  # fmt: skip
TUNING = (
    "tune", "--method", "haframe", "--jobs", "2",
    "--set", "tune.grid.haframe.alpha=[0.3,0.5]", "--set", "tune.grid.haframe.gamma=[2,4]", "--set", "tune.runs=1",
    "--set", "train.epochs=2", "--set", "train.batch_size=96", *OF_SHAPES,
)  # fmt: skip
ABLATING = (
    "ablate", "--seeds", "1", "--jobs", "2", "--set", "train.epochs=3", "--set", "train.batch_size=96", *OF_SHAPES,
)  # fmt: skip
PREPARING = ("data", "prepare", "tiny-imagenet", "--source", "../tiny-imagenet-200.zip", "--data-dir", "prepared")
SCORING = ("score", "--order", "tree", "../resnet-1.npz", "../resnet-2.npz", "--name", "resnet", *OF_SHAPES)
PUBLISHING = ("publish", "--output", "published", *OF_SHAPES)
COMMANDS = {  # one after the other
    "training": (TRAINING,),
    "preparing": (PREPARING,),
    "tuning": (TUNING,),
    "ablating": (ABLATING,),
    "scoring": (SCORING,),
    "publishing": ((*PUBLISHING, "--runs", "../runs-1"), (*PUBLISHING, "--runs", "../runs-2")),
}
WORKERS = ("training", "tuning", "ablating")  # have worker processes
DATABASES = ("runs/mlflow.db", "runs/optuna.db")
FILES = {  # that a command writes, by the beginning of the name
    "training": ("spec", "status", "history", "checkpoint", "predictions", "metrics", "environment", "mirrored",
                 "mirror", "lock", "plans", "requests", "artifact", "mlflow", "leaderboard-shapes"),
    "preparing": ("plan", "meta", "train-rows", "train-done", "val-done", "test-done", "train-labels", "test-labels"),
    "tuning": ("spec", "status", "history", "checkpoint", "metrics", "environment", "mirrored", "lock", "study",
               "tuned", "requests", "optuna", "mlflow"),
    "ablating": ("spec", "status", "history", "checkpoint", "predictions", "metrics", "environment", "mirrored",
                 "lock", "requests", "mlflow", "ablation-shapes"),
    "scoring": ("probe", "scored", "spec", "predictions", "metrics", "environment", "status", "requests"),
    "publishing": ("published", "requests", "spec", "status", "metrics", "history", "environment",
                   "predictions-compact", "targets", "tree", "shapes", "shapes-verdict", "shapes-changes",
                   "shapes-tradeoff", "shapes-severity", "shapes-operating"),
}  # fmt: skip


def carry_out(*arguments: str) -> None:
    """Run the command line in this process; ends it after an error."""
    from hierbench.cli.main import main

    sys.argv = ["hierbench", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


def make_data(place: Path) -> None:
    """Prepare a fifth of `shapes`, and write a small zip of Tiny ImageNet; in a fork, since it computes."""
    from hierbench.data.datasets import shapes
    from hierbench.data.prepare import prepare

    shapes.PER_CLASS = {"train": 20, "val": 4, "test": 8}
    prepare("shapes", place / "data")
    tiny_imagenet(place / "tiny-imagenet-200.zip", train_per_class=8)


def make_runs(place: Path) -> None:
    """Make runs to score beside, and to publish: two rows in `runs-1`, and a third in `runs-2`; in a fork."""
    import numpy as np

    from hierbench.data.prepared import find

    prepared = find("shapes", place / "data")
    assert prepared is not None
    targets = np.array(prepared.arrays("test")[1])
    for seed, name in enumerate(("vit", "resnet-1", "resnet-2")):
        scores = np.random.default_rng(seed).normal(size=(len(targets), int(targets.max()) + 1))
        np.savez(place / f"{name}.npz", scores=scores.astype(np.float32), targets=targets)
    work = place / "make-runs"  # beside the data, as the folders of the rounds
    work.mkdir()
    os.chdir(work)
    short = ("--seeds", "1", "--jobs", "1", "--set", "train.epochs=1", "--set", "train.batch_size=96")
    carry_out("run", "--methods", "ce", "--types", "type-I", *short, *OF_SHAPES, "--runs", "../runs-1")
    carry_out("score", "../vit.npz", "--order", "tree", *OF_SHAPES, "--runs", "../runs-1")
    shutil.copytree(place / "runs-1", place / "runs-2")
    carry_out(*SCORING, "--runs", "../runs-2")


def make_folder(kind: str, folder: Path) -> None:
    """Make the folder of a round, as it is before the first command."""
    folder.mkdir()
    if kind == "scoring":
        shutil.copytree(folder.parent / "runs-1", folder / "runs")
    if kind == "publishing":  # beside what others have published
        (folder / "published/others").mkdir(parents=True)
        (folder / "published/others/README.md").write_text("stays\n")


def remaining(kind: str, folder: Path) -> tuple[tuple[str, ...], ...]:
    """Return the remaining commands: a user updates a publication."""
    return COMMANDS[kind][kind == "publishing" and (folder / "published/shapes.md").exists() :]


def digests(folder: Path, *patterns: str) -> dict[str, str]:
    """Return {path: SHA-256} of files."""
    paths = [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]
    return {str(path.relative_to(folder)): digest(path) for path in paths}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def published(folder: Path) -> dict[str, str]:
    """Return {path: SHA-256} of the folder of publications, and of anything in its place."""
    return digests(folder, "published/**/*")


def mirrored(runs: Path) -> dict[str, list[object]]:
    """Return {job: [how a child ended and what it has]} of the MLflow database, without attempts that failed."""
    child = "select t.value, r.status, r.run_uuid from tags t join runs r on r.run_uuid = t.run_uuid "
    child += "where t.key = 'hierbench.id' and r.lifecycle_stage = 'active' and r.status != 'FAILED'"
    children: dict[str, list[object]] = {}
    with contextlib.closing(sqlite3.connect(runs / "mlflow.db")) as database:
        for job, status, run in database.execute(child).fetchall():
            metrics = database.execute("select key, value, step from metrics where run_uuid = ? order by 1, 3", (run,))
            params = database.execute("select key, value from params where run_uuid = ? order by 1", (run,))
            children.setdefault(job, []).append([status, metrics.fetchall(), params.fetchall()])
    return children


def trials(database: Path) -> list[object]:
    """Return [configuration and value] of every trial that counts."""
    search = "select t.trial_id, v.value from trials t join trial_values v on v.trial_id = t.trial_id "
    params = "select param_name, param_value from trial_params where trial_id = ? order by 1"
    with contextlib.closing(sqlite3.connect(database)) as study:
        rows = study.execute(search + "where t.state = 'COMPLETE'").fetchall()
        return sorted([study.execute(params, (trial,)).fetchall(), value] for trial, value in rows)


def result(kind: str, folder: Path) -> dict[str, object]:
    """Return all of what a command left that must be as after any other."""
    leftovers = [path for path in folder.rglob("*") if re.search(r"\.tmp|partial|old-", path.name)]
    leftovers = [str(path.relative_to(folder)) for path in leftovers]
    if kind == "preparing":
        return {"left": leftovers, "files": digests(folder, "prepared/**/*")}
    if kind == "publishing":
        locks = [path.name for path in folder.glob(".published*")]
        return {"left": leftovers + locks, "files": published(folder)}
    runs = folder / "runs"
    names = ("spec.json", "history.csv", "metrics.json", "predictions.npz")
    states = [json.loads(path.read_text())["state"] for path in runs.glob("*/status.json")]
    content: dict[str, object] = {"left": leftovers, "states": states, "mlflow": mirrored(runs)}
    content |= {"files": digests(folder, *(f"runs/*/{name}" for name in names), "runs/leaderboard*", "runs/ablation*")}
    if kind == "tuning":
        winner = [line for line in (folder / "tuned.toml").read_text().splitlines() if not line.startswith("date")]
        content |= {"winner": winner, "trials": trials(runs / "optuna.db")}
    return content


def finished(folder: Path) -> dict[str, float]:
    """Return {job: when it began} of the runs that are done; one that is trained again begins later."""
    content = {path: json.loads(path.read_text()) for path in folder.glob("runs/[!.]*/status.json")}
    done = {path.parent.name: status for path, status in content.items() if status["state"] == "done"}
    return {job: status.get("started", 0.0) for job, status in done.items()}


def complaints(folder: Path) -> list[str]:
    """Return what a command said that no kill may lead to."""
    lines = (folder / "out.err").read_text(errors="replace").splitlines()
    return [line for line in lines if re.search(r"damaged|Traceback|warning|Warning|error:", line)]
