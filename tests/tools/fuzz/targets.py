"""The functions that the tests of bad input call: bytes in, a right result or a documented error.

A target takes bytes and an empty folder of its own, and raises what no user may see: any exception but UserError and
the ValueError that a function documents. The first byte often chooses what the others are put into.
"""

import contextlib
import csv
import gzip
import io
import json
import pickle
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import readers
from mutations import changed as changed
from mutations import with_one_value_changed

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = ROOT / "leaderboard/published/grocery-finetuned"
PUBLISHED_RECORDS = readers.unpacked(PUBLISHED)
RECORDS = ("spec.json", "status.json", "metrics.json", "history.csv", "environment.json")
UNDECIDED = ("predictions.npz",)


def trees(data, folder):
    """A tree's file, read in each of its two forms."""
    from hierbench import Hierarchy

    kind, content = data[:1], data[1:]
    number = kind[0] if kind else 0
    path = folder / ("tree.csv" if number & 1 else "tree.txt")
    path.write_bytes(content)
    distance = "depth" if number & 2 else "height"
    header = (None, True, False, None)[(number >> 2) & 3]
    try:
        tree = Hierarchy.read(path, distance=distance, header=header)
    except ValueError:
        return
    assert tree.num_classes == len(set(tree.classes)) >= 2
    assert tree.distances.shape == (tree.num_classes, tree.num_classes)
    assert (np.diag(tree.distances) == 0).all() and (tree.distances == tree.distances.T).all()
    assert tree.distances.max() <= tree.height == len(tree.level_sizes)
    assert len(tree.digest()) == 64


def recipes(data, folder):
    """Overrides of a recipe, one a line; or a file of tuned hyperparameters, which must survive being written."""
    from hierbench.config.recipe import load_recipe
    from hierbench.config.tuned_values import read_tuned, write_tuned
    from hierbench.utils.errors import UserError

    if data[:1] == b"T":
        path = folder / "tuned.toml"
        path.write_bytes(data[1:])
        with contextlib.suppress(UserError):
            values = read_tuned(path)
            again = folder / "again.toml"
            write_tuned(again, values)
            assert read_tuned(again) == values
        return
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(UserError):
        recipe = load_recipe("shapes", text.split("\x00"), "authors" if data[-1:] == b"A" else "paper")
        recipe.model_dump(mode="json", by_alias=True)


def records(data, folder):
    """A run's record whose one file holds the bytes, in the tables made of it and a whole run.

    Where the bytes begin with a zero, the file is a right one but for one value, which they choose and replace.
    """
    from hierbench.leaderboard.board import Board
    from hierbench.leaderboard.formats import TABLE_FORMATS, render
    from hierbench.leaderboard.ledger import build_ledger, ledger_table
    from hierbench.leaderboard.tables.board_table import board_table
    from hierbench.runs.record_reader import read_record, read_records
    from hierbench.runs.store import Store
    from hierbench.sharing.bundle import Bundle, published_ids
    from hierbench.utils.errors import UserError

    names = (*RECORDS, *UNDECIDED)
    name, content = names[(data[0] if data else 0) % len(names)], data[1:]
    runs = folder / "runs"
    first, second = sorted(PUBLISHED_RECORDS.iterdir())[:2]
    for run in (first, second):
        shutil.copytree(run, runs / run.name)
    if content[:1] == b"\0" and name.endswith(".json") and (first / name).exists():
        content = json.dumps(with_one_value_changed(json.loads((first / name).read_text()), content[1:])).encode()
    (runs / first.name / name).write_bytes(content)
    store = Store(runs)
    with contextlib.suppress(UserError):
        board = Board.of("tiny-imagenet", read_records(store.root))
        texts = {form: render(board_table(board), form) for form in TABLE_FORMATS}
        check_table(texts["markdown"], len(board.rows))
        json.loads(texts["json"])
        assert len(list(csv.reader(io.StringIO(texts["csv"])))) == len(board.rows) + 1
        beside = ledger_table(build_ledger(board, board))
        assert all(render(beside, form) for form in TABLE_FORMATS)
        Bundle(folder / "published", folder).add(board.records, published_ids(board))
    run = store.run(first.name)
    record = read_record(run.folder)
    for read in (record.history, record.predictions):
        with contextlib.suppress(ValueError, OSError):
            read()
    with contextlib.suppress(UserError):
        assert isinstance(run.status, dict) and isinstance(record.done, bool)


def check_table(markdown, num_rows):
    """The first table of a text has so many rows, each with as many cells as its head."""
    lines = markdown.split("\n\n")[0].split("\n")
    assert len(lines) == num_rows + 2, markdown
    cells = {len(cells_of(line)) for line in lines}
    assert len(cells) == 1, markdown


def cells_of(line):
    """Return a table row's cells as GitHub splits them: a backslash keeps the next character from acting."""
    cells, escaped = [""], False
    for char in line.strip().removeprefix("|").removesuffix("|"):
        if char == "|" and not escaped:
            cells.append("")
        else:
            cells[-1] += char
        escaped = char == "\\" and not escaped
    return cells


def archives(data, folder):
    """What holds images and arrays: tar, gzip, zip, pickle, npy, npz, images; and what is unpacked of them."""
    from hierbench.utils.errors import UserError

    kind, content = (data[0] if data else 0) % len(READERS), data[1:]
    path, target = folder / "given", folder / "target"
    path.write_bytes(content)
    with contextlib.suppress(UserError):
        READERS[kind](path, target)
    assert {entry.name for entry in folder.iterdir()} <= {"given", "target"}, list(folder.iterdir())


def _located(path, target):
    from hierbench.data.datasets.image_finder import Locator

    for piece in Locator({"train": ["a.jpg", "b.jpg"]}, (4, 4)).pieces(path):
        with contextlib.suppress(ValueError):
            assert piece.load().shape == (1, 3, 4, 4)


def _unpacked(path, target):
    from hierbench.data.source import unpack

    unpack(path, target)
    assert all(entry.is_dir() or entry.is_file() for entry in target.rglob("*"))
    assert not any(entry.is_symlink() for entry in target.rglob("*"))


def _zipped(path, target):
    from hierbench.data.datasets.tiny_imagenet import open_source
    from hierbench.data.source import SourceRequest

    for piece in open_source(SourceRequest(path, target)).pieces():
        with contextlib.suppress(ValueError):
            piece.load()


def _listed(path, target):
    from hierbench.data.datasets.split_lists import read_splits

    read_splits(path, {"a": ("x", "a"), "b": ("x", "b")})


def _pickled(path, target):
    from hierbench.data.datasets.cifar100 import read_pickle, read_split

    for read in (read_split, read_pickle):
        read(path)


def _array(path, target):
    from hierbench.utils.arrays import load_array, map_array

    for read in (load_array, map_array):
        with contextlib.suppress(ValueError):
            read(path).sum()


def _arrays(path, target):
    from hierbench.utils.arrays import load_arrays

    with contextlib.suppress(ValueError):
        for array in load_arrays(path, "scores", "targets"):
            array.sum()


def _image(path, target):
    from hierbench.data.image import decode

    decode(path.read_bytes(), "image", (4, 4))


READERS = (_located, _unpacked, _zipped, _listed, _pickled, _array, _arrays, _image)
TARGETS = {"trees": trees, "recipes": recipes, "records": records, "archives": archives, **readers.TARGETS}


def seeds(kind):
    """Return inputs to start from: small, right, one of each sort."""
    makers = {"trees": _seed_trees, "recipes": _seed_recipes, "records": _seed_records, "archives": _seed_archives}
    return (makers | readers.SEEDS)[kind]()


def _seed_trees():
    csvs = [b"a,x\na,y\nb,z\n", b"top,leaf\na,x\na,y\nb,\xc3\xa9\n", b'fine,coarse\nx,a\ny,a\n"z,1",b\n', b"a,b,c\nd\n"]
    lines = [b"root a\nroot b\na c\na d\n", b"# comment\n\nr n00000001\nr n00000002\n"]
    return [bytes([1 + 2 * i]) + text for i, text in enumerate(csvs)] + [b"\x00" + text for text in lines]


def _seed_recipes():
    overrides = ["train.epochs=3", "model.backbone=wrn10-2-s4", "methods.haframe.gamma=2.5", "seeds=1\x00title=x"]
    overrides += ["augment.mean=[0.1, 0.2, 0.3]", "methods.ce={a={b=[1]}}", "evaluation.drop_last=true"]
    tuned = b"""T[paper."ce".type-I]
params = { "gamma" = 2.0 }
study = "s"
date = "2026-01-01"
sampler = "grid"
trials = 2
pruned = 0
runs = 3
mean = 1.5
"""
    return [*(text.encode() for text in overrides), tuned]


def _seed_records():
    run = sorted(PUBLISHED_RECORDS.iterdir())[0]
    paths = [(i, run / name) for i, name in enumerate(RECORDS)]
    seeds = [bytes([i]) + path.read_bytes() for i, path in paths if path.exists()]
    npz = io.BytesIO()
    np.savez(npz, scores=np.zeros((2, 3), np.float32), targets=np.zeros(2, np.int64))
    seeds += [bytes([i, 0, j, k, 250, 5]) for i in range(len(RECORDS)) for j in range(3) for k in (0, 3)]
    return [*seeds, bytes([len(RECORDS)]) + npz.getvalue()]


def tar_of(members, compressed=False):
    """Return a tar archive of (TarInfo or name, content) pairs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member, content in members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            info.size = len(content) if info.isreg() else info.size
            tar.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return gzip.compress(buffer.getvalue(), mtime=0) if compressed else buffer.getvalue()


def image_of(kind="JPEG"):
    """Return a small image."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (5, 4), (200, 10, 30)).save(buffer, kind)
    return buffer.getvalue()


def _seed_archives():
    image = image_of()
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "a.jpg"
    plain = tar_of([("x/a.jpg", image), ("b.jpg", image[:40]), ("n" * 120, b"1")])
    nested = tar_of([("in.tar", plain), ("y", b"2")])
    tars = [plain, nested, tar_of([("a.jpg", image)], compressed=True), tar_of([("a", b"1"), (link, b"")])]
    zipped, listed, npy, npz = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("tiny-imagenet-200/wnids.txt", "n01443537\n")
        file.writestr("tiny-imagenet-200/val/val_annotations.txt", "a.JPEG\tn01443537\t0\n")
    with zipfile.ZipFile(listed, "w") as file:
        file.writestr("s/train/a.txt", "1.jpg\n2.jpg\n")
        file.writestr("s/test/b.txt", "3.jpg\n")
    np.save(npy, np.arange(6, dtype=np.int64).reshape(2, 3))
    np.savez(npz, scores=np.zeros((2, 3), np.float32), targets=np.zeros(2, np.int64))
    rows = {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [1, 2]}
    pickles = [pickle.dumps(content, protocol=2) for content in (rows, {"fine_label_names": ["a"]})]
    numbered = [*((i, tar) for i in (0, 1) for tar in tars), (2, zipped.getvalue()), (3, listed.getvalue())]
    numbered += [*((4, content) for content in pickles), (5, npy.getvalue()), (6, npz.getvalue())]
    numbered += [(7, image), (7, image_of("PNG"))]
    return [bytes([number]) + content for number, content in numbered]
