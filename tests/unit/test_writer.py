"""Rows written in place: gaps, unreadable pieces, and writes that the system cuts short."""

import os
from functools import partial

import numpy as np
import pytest

from hierbench.data.image import UnreadableImageError
from hierbench.data.source import Piece
from hierbench.data.writer import RowFile

SHAPE = (3, 4, 5)
ROWS = np.random.default_rng(0).integers(1, 256, (9, *SHAPE), dtype=np.uint8)


def damaged():
    raise UnreadableImageError("image b cannot be read")


@pytest.mark.parametrize("most", [None, 60, 7, 1])
def test_pieces_come_in_any_order_and_writes_may_be_short(tmp_path, monkeypatch, most):
    write, calls = os.pwritev, []

    def short(file, blocks, place):
        calls.append(place)
        return write(file, blocks if most is None else [b"".join(blocks)[:most]], place)

    monkeypatch.setattr(os, "pwritev", short)
    parts = [(0, 1), (1, 3), (3, 4), (7, 9), (6, 7)]  # 0 to 4 are adjacent; 5 cannot be read, 4 is not there
    pieces = [Piece("train", start, partial(ROWS.__getitem__, slice(start, stop))) for start, stop in parts]
    pieces.insert(2, Piece("train", 5, damaged))
    rows = RowFile(tmp_path, "train", 9, SHAPE)
    found = rows.write(pieces)
    rows.file.close()
    assert found == [(1, ""), (2, ""), (1, "image b cannot be read"), (1, ""), (2, ""), (1, "")]
    written = np.load(tmp_path / "train-rows.npy")
    expected = ROWS.copy()
    expected[[4, 5]] = 0
    assert (written == expected).all()
    assert most is not None or len(calls) == 3
