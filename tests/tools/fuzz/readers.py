"""Targets of received files: a dataset's file and manifest, predictions to be scored, a published table.

As in `targets.py`, the first byte chooses what the others are put into. Where the next one is a zero, they choose one
value of a right file and what it becomes; the file that holds digests then says what a forger would let it say.
"""

import atexit
import contextlib
import io
import json
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
from mutations import with_one_value_changed

PUBLISHED = Path(__file__).resolve().parents[3] / "leaderboard/published/grocery-finetuned"


def unpack(folder, target):
    """Unpack the archive of a publication's records."""
    with zipfile.ZipFile(folder / "runs.zip") as archive:
        archive.extractall(target)


@cache
def unpacked(folder):
    """A folder with the records of a publication as files, which is removed at the end."""
    target = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    unpack(folder, target)
    return target


RATES = "".join(f"[train.lr.type-{kind}]\nbackbone = 0.1\ntransform = 0.1\nclassifier = 0.1\n" for kind in ("I", "II"))
RECIPE = f"""dataset = "birds"
title = "Birds"
seeds = 1
source = {{images = "MANIFEST", tree = "tree.csv", splits = "column"}}
expected = {{image_size = [4, 4]}}
model = {{backbone = "wrn10-1-s2"}}
train.epochs = 1
train.batch_size = 8
augment = {{mean = [0.5, 0.5, 0.5], std = [0.2, 0.2, 0.2]}}
{RATES}"""
TREE = b"bird,owl\nbird,wren\nfish,pike\n"
ROWS = [
    {"image": f"{label}{number}.png", "label": label, "split": split}
    for label in ("owl", "wren", "pike")
    for number, split in enumerate(("train", "val", "test"))
]
MANIFESTS = ("birds.toml", "list.csv", "list.parquet", "rows.parquet", "tree.csv", "tree.txt")


def manifests(data, folder):
    """A user's dataset: its file, its list of images as CSV or Parquet, or its tree; `rows.parquet` is made of JSON."""
    from hierbench.config.recipe import load_recipe
    from hierbench.data.user.listing import guess_splits
    from hierbench.data.user.user_dataset import open_source, source_state
    from hierbench.utils.errors import UserError

    name, content = MANIFESTS[(data[0] if data else 0) % len(MANIFESTS)], data[1:]
    if name == "rows.parquet":
        content = parquet_of(as_json(content, ROWS))
        if content is None:
            return
    listed = name if name.startswith(("list", "rows")) else "list.csv"
    files = {"birds.toml": RECIPE.replace("MANIFEST", listed).encode(), "list.csv": csv_of(ROWS), "tree.csv": TREE}
    if name == "tree.txt":
        files["birds.toml"] = files["birds.toml"].replace(b"tree.csv", b"./tree.txt")
    files |= {row["image"]: picture() for row in ROWS} | {name: content}
    for file, text in files.items():
        (folder / file).write_bytes(text)
    with contextlib.suppress(UserError):
        guess_splits(folder / listed)
    with contextlib.suppress(UserError):
        recipe = load_recipe(str(folder / "birds.toml"))
        source = open_source(recipe)
        assert source_state(recipe) == source.state
        labels = {split: rows.tolist() for split, rows in source.labels.items()}
        assert set(labels) == {"train", "val", "test"} and all(labels.values())
        assert {row for rows in labels.values() for row in rows} <= set(range(len(source.paths)))
        for piece in source.pieces():
            with contextlib.suppress(UserError):
                assert piece.load().shape == (1, 3, *source.image_size)


FORMS = (".csv", ".json", ".npy", ".npz", ".parquet", "rows.parquet", "rows.npz", "compact")
CLASSES = ("a", "b", "c", "d")
SCORED = [{"id": str(i), "target": i % 4, **{name: i * 0.5 - j for j, name in enumerate(CLASSES)}} for i in range(5)]
RANKED = [{"label": i % 4, "index": [i % 4, (i + 1) % 4], "prob": [0.5, 0.25]} for i in range(5)]


def predictions(data, folder):
    """A file for `hierbench score`, of predictions and of targets, in each of its formats; or a compact file."""
    from hierbench import Hierarchy
    from hierbench.leaderboard.formats import TABLE_FORMATS, render
    from hierbench.studies.scoring.score_files import ScoreRequest, score_files
    from hierbench.studies.scoring.score_report import report_table
    from hierbench.utils.errors import UserError

    form, content = FORMS[(data[0] if data else 0) % len(FORMS)], data[1:]
    tree = Hierarchy.from_paths({name: ("top", "ab" if name in "ab" else "cd", name) for name in CLASSES})
    if form == "compact":
        return compact(content, folder, tree)
    if form.startswith("rows"):
        right = RANKED if content[:1] == b"\0" and len(content) % 2 else SCORED
        make = parquet_of if form == "rows.parquet" else npz_of
        content = make(as_json(content, right))
        if content is None:
            return None
    path, right = folder / f"given{Path(form).suffix or form}", folder / "right.txt"
    path.write_bytes(content)
    right.write_text("a\nb\nc\nd\na\n")
    for files, targets in (([path], None), ([path], right), ([path], path)):
        with contextlib.suppress(UserError):
            report = score_files(ScoreRequest(files, None, tree, targets, None, None, 2, 0, folder / "runs", folder))
            assert all(render(report_table(report), form) for form in TABLE_FORMATS)
            assert 0 <= report["top1"] <= 100
    assert not (folder / "runs").exists()


def compact(content, folder, tree):
    """Predictions as published runs have them."""
    from hierbench.runs.compact import COMPACT_FILE, TARGETS, metrics_of_ranked, read_compact, read_targets

    (folder / COMPACT_FILE).write_bytes(content)
    (folder / TARGETS).write_bytes(content)
    with contextlib.suppress(ValueError, OSError):
        assert read_targets(folder).ndim == 1
    with contextlib.suppress(ValueError, OSError):
        predictions = read_compact(folder)
        assert 0 <= predictions.ranked.min() <= predictions.ranked.max() < predictions.num_classes
        if predictions.num_classes == tree.num_classes:
            metrics, mistakes = metrics_of_ranked(predictions.ranked, predictions.ranked[:, -1], tree)
            assert 0 <= metrics["top1"] <= 100 and sum(mistakes) <= len(predictions.ranked)


IN_FOLDER = ("D.json", "D.md", "D-verdict.json", "D-severity.svg", "D/targets.npy", "D/requests.jsonl")
IN_RUN = ("spec.json", "status.json", "metrics.json", "history.csv", "environment.json", "further-metrics.json")
PARTS = (*IN_FOLDER, *(f"D/RUN/{name}" for name in (*IN_RUN, "predictions-compact.npz")), "D/tree.json")


def publications(data, folder):
    """A published table one of whose files holds the bytes, verified as its reader does."""
    from hierbench.leaderboard.formats import render
    from hierbench.sharing.verification.verification import verify
    from hierbench.sharing.verification.verification_table import verification_table
    from hierbench.utils.errors import UserError

    part, content = PARTS[(data[0] if data else 0) % len(PARTS)], data[1:]
    published = folder / "published"
    shutil.copytree(a_publication(), published)
    run = sorted(path.parent for path in published.glob(f"{PUBLISHED.name}/*/spec.json"))[0]
    path = published / part.replace("RUN", run.name).replace("D", PUBLISHED.name, 1)
    if content[:1] == b"\0" and path.suffix == ".json" and path.exists():
        content = json.dumps(with_one_value_changed(json.loads(path.read_text()), content[1:])).encode()
    path.write_bytes(content)
    if path.parent == run:
        forge(run, path.name == "status.json")
    before = sorted(str(path) for path in folder.rglob("*"))
    with contextlib.suppress(UserError):
        reports = verify([published], folder / "data")
        table = verification_table(reports)
    assert render(table) and json.loads(render(table, "json"))
    assert sorted(str(path) for path in folder.rglob("*")) == before


@cache
def a_publication():
    """Return a right publication, made once: a run of cross-entropy and what re-ranks it."""
    from hierbench.config.options import RunSelection
    from hierbench.sharing.publication import publish

    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    specs = {run.parent: json.loads(run.read_text()) for run in sorted(unpacked(PUBLISHED).glob("*/spec.json"))}
    (trained,) = (run for run, spec in specs.items() if row_of(spec) == ("ce", "type-I", 0))
    ranked = [run for run, spec in specs.items() if row_of(spec)[0] == "crm" and spec.get("base") == trained.name]
    runs = folder / "runs" / PUBLISHED.name
    for run in (trained, *ranked):
        shutil.copytree(run, runs / run.name)
    for path in (unpacked(PUBLISHED) / "targets.npy", PUBLISHED.with_suffix(".json"), PUBLISHED.with_suffix(".md")):
        shutil.copy(path, (runs / path.name) if path.suffix == ".npy" else (folder / "runs" / path.name))
    publish(PUBLISHED.name, folder / "published", RunSelection(runs, folder / "data"))
    unpack(folder / "published" / PUBLISHED.name, folder / "published" / PUBLISHED.name)
    (folder / "published" / PUBLISHED.name / "runs.zip").unlink()
    return folder / "published"


def row_of(spec):
    """Return method, type and seed of a spec."""
    return spec.get("method", {}).get("name"), spec.get("type"), spec.get("seed")


def forge(run, is_status):
    """Let a run's status say the digests of its files: anyone can compute those."""
    from hierbench.runs.integrity import fingerprints
    from hierbench.utils.files import as_json_text

    path = run / "status.json"
    with contextlib.suppress(ValueError, RecursionError):
        status = json.loads(path.read_text())
        if isinstance(status, dict):
            if not is_status:
                status["files"] = {**status["files"], **fingerprints(run)}
            path.write_text(as_json_text(status), encoding="utf-8", errors="replace")


def as_json(content, right):
    """Return the JSON in some bytes, or after a zero the right one with a value changed; None if there is none."""
    if content[:1] == b"\0":
        return with_one_value_changed(json.loads(json.dumps(right)), content[1:])
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(content)
    return None


def parquet_of(rows):
    """Return rows as Parquet, None where they are no table that pandas and pyarrow can write."""
    import pandas as pd

    buffer = io.BytesIO()
    try:
        pd.DataFrame(rows).to_parquet(buffer)
    except Exception:  # theirs, of any kind
        return None
    return buffer.getvalue()


def npz_of(rows):
    """Return rows as an .npz with an array per column, None where NumPy makes none of them."""
    buffer = io.BytesIO()
    try:
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        scores = [name for name in columns if name in CLASSES]
        arrays = {name: values for name, values in columns.items() if name not in scores}
        arrays |= {"scores": np.stack([columns[name] for name in scores], axis=1)} if scores else {}
        np.savez(buffer, **arrays)
    except Exception:  # NumPy's, of any kind
        return None
    return buffer.getvalue()


def csv_of(rows):
    """Return rows as CSV."""
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


@cache
def picture():
    """Return a small image."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (5, 4), (200, 10, 30)).save(buffer, "PNG")
    return buffer.getvalue()


def _seed_manifests():
    texts = [RECIPE.replace("MANIFEST", "list.csv").encode(), csv_of(ROWS), parquet_of(ROWS), json.dumps(ROWS).encode()]
    lines = b"root bird\nroot fish\nbird owl\nbird wren\nfish pike\n"
    shares = texts[0].replace(b'"column"', b"{val = 0.1, test = 0.2, seed = 0}")
    numbered = [*enumerate([*texts, TREE, lines]), (0, shares)]
    numbered += [(3, bytes([0, row, column, 250, odd])) for row in (0, 4) for column in range(3) for odd in (0, 7, 14)]
    return [bytes([number]) + content for number, content in numbered]


def _seed_predictions():
    from hierbench.runs.compact import pack

    scores, targets, npy, packed = np.eye(5, 4, dtype=np.float32), np.arange(5) % 4, io.BytesIO(), io.BytesIO()
    np.save(npy, scores)
    np.savez(packed, **pack(scores, targets, "0" * 64))
    texts = [csv_of(SCORED), json.dumps(SCORED).encode(), npy.getvalue(), npz_of(SCORED), parquet_of(SCORED)]
    numbered = [*enumerate([*texts, json.dumps(RANKED).encode(), json.dumps(SCORED).encode(), packed.getvalue()])]
    numbered += [
        (4, parquet_of(RANKED)),
        (1, json.dumps({"columns": ["label", *CLASSES], "data": [[0, 1, 2, 3, 4]]}).encode()),
    ]
    numbered += [(1, json.dumps(RANKED).encode()), (0, b"a\nb\nc\nd\na\n")]
    numbered += [
        (5, bytes([0, 1, column, *rest])) for column in range(3) for rest in ((250, 4), (0, 250, 16), (250, 9, 1))
    ]
    numbered += [(6, bytes([0, 1, column, *rest])) for column in range(3) for rest in ((250, 4), (250, 9, 1))]
    return [bytes([number]) + content for number, content in numbered]


def _seed_publications():
    published = a_publication()
    run = sorted(path.parent for path in published.glob(f"{PUBLISHED.name}/*/spec.json"))[0]
    names = [part.replace("RUN", run.name).replace("D", PUBLISHED.name, 1) for part in PARTS]
    paths = [(i, published / name) for i, name in enumerate(names)]
    seeds = [bytes([i]) + path.read_bytes() for i, path in paths if path.exists() and path.stat().st_size < 20_000]
    return [*seeds, *(bytes([i, 0, value, 250, 5]) for i in (0, 6, 7, 8) for value in (0, 3))]


TARGETS = {"manifests": manifests, "predictions": predictions, "publications": publications}
SEEDS = {"manifests": _seed_manifests, "predictions": _seed_predictions, "publications": _seed_publications}
