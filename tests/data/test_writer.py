"""Rows written in place: gaps, unreadable pieces, and writes that the system cuts short."""

import os
import threading
import time
from functools import partial

import numpy as np
import pytest

from hierbench.data import writer
from hierbench.data.image import UnreadableImageError
from hierbench.data.source import Piece, Source
from hierbench.data.writer import RowFile, write_images

SHAPE = (3, 4, 5)
ROWS = np.random.default_rng(0).integers(1, 256, (9, *SHAPE), dtype=np.uint8)


def damaged():
    raise UnreadableImageError("image b cannot be read")


@pytest.mark.parametrize("most", [None, 60, 7])
def test_pieces_come_in_any_order_and_writes_may_be_short(tmp_path, monkeypatch, most):
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, rows, place: write(file, rows[:most], place))
    parts = [(0, 1), (1, 3), (3, 4), (7, 9), (6, 7)]  # 5 cannot be read, 4 is not there
    pieces = [Piece("train", start, partial(ROWS.__getitem__, slice(start, stop))) for start, stop in parts]
    pieces.insert(2, Piece("train", 5, damaged))
    rows = RowFile(tmp_path, "train", 9, SHAPE)
    written_rows = [rows.write(piece) for piece in pieces]
    rows.file.close()
    assert written_rows == [(1, ""), (2, ""), (1, "image b cannot be read"), (1, ""), (2, ""), (1, "")]
    written = np.load(tmp_path / "train-rows.npy")
    expected = ROWS.copy()
    expected[[4, 5]] = 0
    assert (written == expected).all()


def test_an_interrupt_keeps_all_that_were_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "num_cores", lambda: 2)
    loaded, interrupted = [], threading.Event()

    def load(number):
        if interrupted.is_set():
            time.sleep(0.05)
        loaded.append(number)
        return np.full((1, *SHAPE), number + 1, dtype=np.uint8)

    def pieces():
        for i in range(200):
            if i == 100:
                while len(loaded) < 30:  # the first groups are at work
                    time.sleep(0.001)
                interrupted.set()
                raise KeyboardInterrupt
            yield Piece("train", i, partial(load, i))

    labels = {"train": np.zeros(200, dtype=np.int64), "val": np.zeros(0, np.int64), "test": np.zeros(0, np.int64)}
    with pytest.raises(KeyboardInterrupt):
        write_images(Source({"a": ("a",), "b": ("b",)}, labels, SHAPE[1:], pieces), tmp_path, lambda count: None)
    marked = np.flatnonzero(np.fromfile(tmp_path / "train-done", dtype=np.bool_))
    assert marked.tolist() == sorted(loaded) and len(loaded) >= 30
    rows = np.load(tmp_path / "train-rows.npy")
    assert (rows[marked, 0, 0, 0] == marked + 1).all()
