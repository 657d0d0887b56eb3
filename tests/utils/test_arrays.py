"""Arrays from files: as they were written, and never more than a file holds, nor code."""

import pickle
import struct
import zipfile

import numpy as np
import pytest

from hierbench.utils.arrays import load_array, load_arrays, map_array, read_arrays, with_columns
from tests.support.crafted import Marker


def npy(descr="'<i8'", shape="(2,)", content=b"\0" * 16, extra=""):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, {extra}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


@pytest.mark.parametrize(
    "content",
    [
        npy(shape="(10**15,)"),
        npy(shape="(1000000000000000,)"),
        npy(shape="(1099511627776, 1099511627776)"),
        npy(shape="(-2, -1)"),
        npy(shape="(2, 2)"),
        npy(shape="(" * 3000 + ")" * 3000),
        npy(shape="'x'"),
        npy(descr="'|O'"),
        npy(descr="'|V8'"),
        npy(descr="'|S8'"),
        npy(descr="[('a', '<i8')]"),
        npy(descr="'<m8'"),
        npy(extra="'more': 1"),
        npy(shape="__import__('os').mkdir('harm')"),
        b"",
        b"\x93NUMPY\x09\x00",
        pickle.dumps(Marker()),
    ],
    ids=range(17),
)
def test_arrays_shorter_than_their_header(tmp_path, little_memory, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "given.npz", "w") as file:
        file.writestr("scores.npy", content)
    for read in (load_array, map_array):
        with pytest.raises(ValueError):
            read(tmp_path / "given.npy")
    with pytest.raises(ValueError):
        load_arrays(tmp_path / "given.npz", "scores")
    assert not (tmp_path / "harm").exists()


def test_arrays_come_as_they_were_written(tmp_path):
    arrays = [np.arange(6).reshape(2, 3), np.asfortranarray(np.eye(3, 2, dtype=np.float32)), np.array(1)]
    np.savez(tmp_path / "given.npz", *arrays)
    for number, array in enumerate(arrays):
        np.save(tmp_path / "given.npy", array)
        read = [load_array(tmp_path / "given.npy"), *load_arrays(tmp_path / "given.npz", f"arr_{number}")]
        for copy in [*read, map_array(tmp_path / "given.npy")]:
            assert copy.dtype == array.dtype and np.array_equal(copy, array)
        assert all(copy.flags.writeable for copy in read)


def test_an_npz_that_is_compressed_or_damaged(tmp_path):
    np.savez_compressed(tmp_path / "given.npz", scores=np.zeros(10))
    with pytest.raises(ValueError, match=r"scores\.npy' is compressed"):
        load_arrays(tmp_path / "given.npz", "scores")
    np.savez(tmp_path / "given.npz", scores=np.zeros(10), targets=np.zeros(2))
    with pytest.raises(ValueError, match="it has no array 'other'"):
        load_arrays(tmp_path / "given.npz", "scores", "other")
    (tmp_path / "given.npz").write_bytes((tmp_path / "given.npz").read_bytes()[100:])  # as the fuzzer once found it
    with pytest.raises(ValueError, match=r"not a complete \.npz|Bad magic"):
        load_arrays(tmp_path / "given.npz", "scores")


def test_large_arrays_of_an_archive_are_mapped_in_place(tmp_path, monkeypatch):
    """As they would be read, whatever their order and header; compressed ones, small ones and text are read."""
    monkeypatch.setattr("hierbench.utils.arrays.MAPPED_BYTES", 500)
    scores = np.arange(120.0).reshape(12, 10)
    content = {"a": scores, "b": np.asfortranarray(scores), "few": scores[:1], "ids": np.array(["x", "y"] * 100)}
    for save, kind in ((np.savez, np.memmap), (np.savez_compressed, np.ndarray)):
        save(tmp_path / "a.npz", **content)
        arrays = read_arrays(tmp_path / "a.npz", in_place=True)
        assert type(arrays["a"]) is kind and type(arrays["b"]) is kind and type(arrays["few"]) is np.ndarray
        assert all((arrays[name] == values).all() for name, values in content.items())
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", npy(shape="(100,)", content=b"\0" * 808))
    with pytest.raises(ValueError, match="another size than its header says"):
        read_arrays(tmp_path / "a.npz", in_place=True)


def test_columns_in_another_order(monkeypatch):
    values = np.arange(21.0).reshape(3, 7)
    order = np.array([2, 0, 6, 5, 4, 3, 1])
    in_memory = with_columns(values, order)
    monkeypatch.setattr("hierbench.utils.arrays.SCRATCH_BYTES", 0)
    monkeypatch.setattr("hierbench.utils.arrays.ROWS_AT_A_TIME", 2)
    mapped = with_columns(values, order)
    assert type(in_memory) is np.ndarray and isinstance(mapped, np.memmap)
    assert (in_memory == values[:, order]).all() and (mapped == in_memory).all()


@pytest.mark.parametrize("content", [npy(descr="'|O'", content=b"x" * 300), npy(shape="(10**15,)", content=b"x" * 300)])
def test_a_crafted_large_array_is_not_mapped(tmp_path, monkeypatch, content):
    monkeypatch.setattr("hierbench.utils.arrays.MAPPED_BYTES", 200)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(ValueError, match=r"."):
        read_arrays(tmp_path / "a.npz", in_place=True)


def test_a_small_file_of_much_content_is_not_unpacked(tmp_path):
    """Zeros take a thousandth of their size; several arrays count together."""
    for name in ("a", "b"):
        np.savez_compressed(
            tmp_path / f"{name}.npz", **{key: np.zeros(600, dtype=np.uint8) for key in "xy"[: 1 + (name == "b")]}
        )
    assert read_arrays(tmp_path / "a.npz", largest=1000)["x"].sum() == 0
    with pytest.raises(ValueError, match="too large"):
        read_arrays(tmp_path / "b.npz", largest=1000)
