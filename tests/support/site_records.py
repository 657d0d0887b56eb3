"""Published tables made by hand, for the tests of the site: records of invented methods on invented datasets."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from hierbench.config.spec import Spec
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.image_intervals import with_examples
from hierbench.leaderboard.tables.board_table import board_table
from hierbench.runs.integrity import fingerprints
from hierbench.runs.record_reader import read_records
from hierbench.runs.requests import read_requests, record_request
from hierbench.runs.run_archive import opened
from hierbench.runs.state import State
from hierbench.runs.store import Store
from hierbench.sharing.table_page import table_page
from hierbench.sharing.verification.published_answers import tree_finder

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "leaderboard/published"
# What a stranger may call a class, a method, a dataset or himself to break out of a page.
BREAK_OUT = "</script><img src=x onerror=alert(1)>"
QUOTED = '" onmouseover="alert(1)" x="'
HIDDEN = "plain\u202etxt.exe\u200b\u2066 \u0000\u001b[31m"
HOSTILE = (
    BREAK_OUT,
    QUOTED,
    HIDDEN,
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "</pre></style><svg/onload=alert(1)>",
)


def write_run(folder, spec, title, mean, **extra):
    """Write the record of a finished run whose metrics lie around `mean`; the seed decides how far."""
    epochs = spec.train.epochs
    noise = np.random.default_rng([spec.seed, len(title), *map(ord, spec.method.name[:8])]).normal(size=4).tolist()
    run = Store(folder).run(spec.id)
    run.folder.mkdir(parents=True)
    top1 = round(min(max(mean + 0.4 * noise[0], 1.0), 99.0), 2)
    severity = 2.0 + 0.05 * noise[1] + (mean - 60.0) / 50.0
    metrics = {
        "top1": top1,
        "mistake_severity": severity,
        "hierdist@1": severity * (100 - top1) / 100,
        "hierdist@5": 1.9 + 0.02 * noise[2],
        "hierdist@20": 2.4 + 0.02 * noise[3],
    }
    content = {"schema": 1, "title": title, "test": metrics, "val": metrics, "best_epoch": epochs}
    run.write_record("spec.json", spec.content())
    run.write_record("metrics.json", content)
    columns = ["epoch", "train_loss", *(f"val_{name}" for name in metrics)]
    lines = [",".join(columns)]
    for epoch in range(1, epochs + 1):  # the last is the tested one
        far = [0.1 * (epochs - epoch) * (-1 if name == "top1" else 1) for name in metrics]
        values = [value + more for value, more in zip(metrics.values(), far, strict=True)]
        lines.append(",".join(map(repr, [epoch, 3 * math.exp(-epoch / 3), *values])))
    (run.folder / "history.csv").write_text("\n".join(lines) + "\n")
    data = {"digest": spec.dataset.digest, "splits": {"train": 40, "val": 20, "test": 20}, "remark": ""}
    environment = {"python": "3.11.7", "device": "cpu", "time": "2026-11-22T11:34:45Z", "data": data}
    run.write_record("environment.json", environment | extra)
    predictions = {"sha256": spec.id, "size": 1000, "mtime_ns": 1}  # not published
    files = fingerprints(run.folder) | {"predictions.npz": predictions}
    run.write_record("status.json", {"state": "done", "seconds": 1.0, "files": files})
    return run


def publish(folder, dataset, rows, seeds=3, **extra):
    """Publish a table of (method, title, type, mean accuracy[, hyperparameter]) rows; return the ids of its runs."""
    ids, base = [], min(opened(SHIPPED / "grocery-finetuned").glob("*/spec.json")).read_text()
    for method, title, kind, mean, *beta in rows:
        for seed in range(seeds):
            content = json.loads(base) | {"type": kind, "seed": seed}
            content["dataset"] |= {"name": dataset, "digest": "0" * 64, "hierarchy": "1" * 64}
            content["method"] |= {"name": method, "code": "2" * 64, "params": {"beta": beta[0] if beta else 0.5}}
            spec = Spec.model_validate(content)
            ids.append(write_run(folder / dataset, spec, title, mean, **extra).folder.name)
    write_table(folder, dataset)
    return ids


def shipped(folder, seeds):
    """Publish the shipped table with fewer seeds."""
    dataset = "grocery-finetuned"
    records = opened(SHIPPED / dataset)
    for path in records.glob("*/spec.json"):
        if json.loads(path.read_text())["seed"] < seeds:
            shutil.copytree(path.parent, folder / dataset / path.parent.name)
    shutil.copy2(records / "targets.npy", folder / dataset)
    shutil.copytree(SHIPPED / "methods", folder / "methods", dirs_exist_ok=True)
    for request in read_requests(records):
        ids = [run_id for run_id in request.ids if (folder / dataset / run_id).exists()]
        record_request(folder / dataset, "comparison", dataset, {**request.options, "seeds": seeds}, ids)
    write_table(folder, dataset)


def write_table(folder, dataset):
    """Write the files of a table as its records give it."""
    write_board(folder, Board.of(dataset, read_records(folder / dataset)))


def write_board(folder, board):
    """Write the files of a table."""
    (folder / f"{board.dataset}.json").write_text(render(board_table(board), "json"))
    shown = with_examples(board, tree_finder(board.records, folder / "no-data"))
    (folder / f"{board.dataset}.md").write_text(table_page(shown, folder))


def hostile_folder(folder):
    """Two tables; names, titles and environments are made to break out, and a picture holds code."""
    dataset = "img-src-x"  # a spec has no other sort of name
    rows = [
        (name, name, kind, 60.0 + 2 * number) for number, name in enumerate(HOSTILE) for kind in ("type-I", "type-II")
    ]
    rows.append(("ce", "ce", "type-I", 59.0))  # which the others are compared with
    publish(folder, dataset, rows, seeds=2, python=BREAK_OUT, **{QUOTED: HIDDEN})
    (folder / f"{dataset}-tradeoff.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    )
    plain = [
        ("ce", "cross-entropy", "type-I", 60.0),
        ("mine", "Mine", "type-I", 64.0),
        ("mine", "Mine", "type-II", 61.0),
    ]
    publish(folder, "birds", plain)
    return dataset


def as_recorded(folder):
    """The records of a folder as if their predictions were here."""
    records = read_records(folder)
    return replace(records, by_id={record.id: replace(record, state=State.RECORDED) for record in records})
