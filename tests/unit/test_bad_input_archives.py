"""Archives and arrays made to harm: refused in one line, in bounded time and memory, and nothing written elsewhere."""

import gzip
import io
import os
import pickle
import resource
import signal
import struct
import tarfile
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from hierbench.data.datasets.fgvc import load_image
from hierbench.data.datasets.fgvc import open_source as open_fgvc
from hierbench.data.datasets.image_finder import Locator
from hierbench.data.image import UnreadableImageError, decode
from hierbench.data.prepare import prepare
from hierbench.data.source import DamagedArchiveError, Request, unpack
from hierbench.utils.archives import DAMAGED, open_zip, zip_member
from hierbench.utils.arrays import load_array, load_arrays, map_array
from hierbench.utils.errors import UserError

SIZE = (4, 4)


def fuzzed():
    """Settings of a property: no deadline on a machine whose speed drifts; `in_time` has one of its own."""
    allowed = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(deadline=None, suppress_health_check=allowed)


@pytest.fixture(autouse=True)
def in_time():
    """A hang is an error after a minute."""

    def alarm(*_):
        raise AssertionError("no answer within a minute")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def little_memory():
    """Two gigabytes of address space above what is in use."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def header(name, size=0, kind=tarfile.REGTYPE, link=""):
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = size, kind, link
    return member


def raw(member, content=b""):
    """A header that may lie about its size, and what follows."""
    return member.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)


def pieces(path, names=("a.jpg",)):
    """Load all that an archive or folder gives; return how many images can be read."""
    found = 0
    for piece in Locator({"train": list(names)}, SIZE).pieces(path):
        try:
            found += piece.load().shape == (1, 3, *SIZE)
        except UnreadableImageError:
            pass
    return found


@pytest.mark.parametrize("kind", ["archives"])
@given(st.data())
@fuzzed()
def test_damaged_archives_of_every_sort(targets, tmp_path_factory, kind, data):
    """Seeds of the fuzzer, changed at random places; the target compares the folder before and after."""
    content = bytearray(data.draw(st.sampled_from(targets.seeds(kind))))
    for place, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=6)
    ):
        content[place] = byte
    cut = data.draw(st.none() | st.integers(0, len(content)))
    targets.TARGETS[kind](bytes(content[:cut]), tmp_path_factory.mktemp("fuzz"))


@given(st.binary(max_size=600), st.integers(0, 7))
@fuzzed()
def test_bytes_that_are_no_archive(targets, tmp_path_factory, content, sort):
    targets.archives(bytes([sort]) + content, tmp_path_factory.mktemp("fuzz"))


ODD = [
    header("../out", 1),
    header("in/../../out", 1),
    header("link", kind=tarfile.SYMTYPE, link="../out"),
    header("inner", kind=tarfile.SYMTYPE, link="a"),
    header("hard", kind=tarfile.LNKTYPE, link="/etc/passwd"),
    header("pipe", kind=tarfile.FIFOTYPE),
    header("device", kind=tarfile.CHRTYPE),
    header("disk", kind=tarfile.BLKTYPE),
]


@pytest.mark.parametrize("member", ODD, ids=lambda member: member.name)
@pytest.mark.parametrize("compressed", [False, True])
def test_nothing_is_unpacked_of_an_archive_with_a_member_that_would_leave_the_folder(
    targets, tmp_path, member, compressed
):
    (tmp_path / "given").write_bytes(targets.tar_of([("a", b"1"), (member, b"2")], compressed))
    with pytest.raises(UserError, match="given is not a complete tar archive"):
        unpack(tmp_path / "given", tmp_path / "below/target")
    assert not list((tmp_path / "below/target").iterdir())
    assert {entry.name for entry in tmp_path.rglob("*")} == {"given", "below", "target"}


@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=4))
@fuzzed()
def test_names_of_any_kind_stay_in_the_folder(targets, tmp_path_factory, names):
    folder = tmp_path_factory.mktemp("names")
    try:
        content = targets.tar_of([(name, b"1") for name in names])
    except (ValueError, UnicodeError):
        return
    (folder / "given").write_bytes(content)
    try:
        unpack(folder / "given", folder / "target")
    except (UserError, OSError):  # OSError: two names of one file, a file below a file
        pass
    assert {entry.name for entry in folder.iterdir()} <= {"given", "target"}


def test_an_absolute_name_is_one_below_the_folder(targets, tmp_path):
    (tmp_path / "given").write_bytes(targets.tar_of([("/etc/out", b"1")]))
    unpack(tmp_path / "given", tmp_path / "target")
    assert (tmp_path / "target/etc/out").read_bytes() == b"1"


def test_a_link_is_not_read_through(targets, tmp_path):
    (tmp_path / "secret.jpg").write_bytes(targets.image_of())
    member = header("a.jpg", kind=tarfile.SYMTYPE, link=str(tmp_path / "secret.jpg"))
    (tmp_path / "given.tar").write_bytes(targets.tar_of([(member, b"")]))
    assert pieces(tmp_path / "given.tar") == 0


METADATA = [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE]


@pytest.mark.parametrize("kind", METADATA)
def test_a_header_of_gigabytes_is_not_read(tmp_path, little_memory, kind):
    with gzip.open(tmp_path / "given.tar.gz", "wb", 1) as file:
        file.write(raw(header("x", 8 << 30, kind)))
        for _ in range(40):
            file.write(b"\0" * (1 << 20))
    with pytest.raises(DamagedArchiveError, match="a header has more than 4096 bytes"):
        pieces(tmp_path / "given.tar.gz")


def test_headers_without_end(tmp_path):
    """Each long name makes tarfile call itself for the header that follows."""
    block = raw(header("x", 2, tarfile.GNUTYPE_LONGNAME), b"y\0")
    (tmp_path / "given.tar").write_bytes(block * 3000)
    with pytest.raises(DamagedArchiveError, match="truncated or damaged"):
        pieces(tmp_path / "given.tar")


def sparse_of(version):
    names = {"0.0": {"GNU.sparse.size": "9"}, "0.1": {"GNU.sparse.map": "0,9"}}
    attributes = names.get(version, {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})
    member = header("a.jpg", 1024)
    member.pax_headers = attributes
    content = b"9999999\n" + b"0\n" * 508
    return member.tobuf(tarfile.PAX_FORMAT) + content + b"\0" * (-len(content) % 512)


@pytest.mark.parametrize("version", ["old", "0.0", "0.1", "1.0"])
def test_sparse_members_are_refused(tmp_path, version):
    content = raw(header("a.jpg", 512, tarfile.GNUTYPE_SPARSE), b"1") if version == "old" else sparse_of(version)
    (tmp_path / "given.tar").write_bytes(content + b"\0" * 2048)
    for read in (lambda: pieces(tmp_path / "given.tar"), lambda: unpack(tmp_path / "given.tar", tmp_path / "target")):
        with pytest.raises(UserError, match="a member is sparse"):
            read()


def test_a_negative_size(tmp_path):
    block = bytearray(raw(header("a.jpg", 512)))
    block[124:136] = b"\xff" * 12  # minus one, in base 256
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    (tmp_path / "given.tar").write_bytes(bytes(block) + b"\0" * 2048)
    with pytest.raises(DamagedArchiveError, match="negative size"):
        pieces(tmp_path / "given.tar")


def gzip_bomb(path, gigabytes, start=b""):
    """Zeros compress to a thousandth; one compressed block is repeated, so that it is made in no time."""
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = pack.compress(start) + pack.flush(zlib.Z_FULL_FLUSH)
    once = pack.compress(b"\0" * (1 << 24)) + pack.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(packed + once * (64 * gigabytes))
    return path


def test_a_gzip_bomb_ends_soon(tmp_path):
    bomb = gzip_bomb(tmp_path / "given.tar.gz", 40, raw(header("other", 40 << 30)))
    assert bomb.stat().st_size < 50 << 20
    began = time.process_time()
    with pytest.raises(DamagedArchiveError, match="expands to more than 200 times its size"):
        pieces(bomb)
    with pytest.raises(UserError, match="not a complete tar archive"):
        unpack(bomb, tmp_path / "target")
    assert time.process_time() - began < 20
    assert sum(entry.stat().st_size for entry in (tmp_path / "target").rglob("*")) == 0


def test_archives_in_archives_are_followed_so_far(targets, tmp_path):
    content = targets.tar_of([("a.jpg", targets.image_of())])
    for depth in range(5):
        (tmp_path / "given.tar").write_bytes(content)
        assert pieces(tmp_path / "given.tar") == (depth < 4)
        content = targets.tar_of([("in.tar", content)])


def test_what_is_unpacked_has_a_size_that_a_dataset_has(targets, tmp_path, monkeypatch):
    monkeypatch.setattr("hierbench.data.source.MOST_BYTES", 1000)
    (tmp_path / "given").write_bytes(targets.tar_of([("a", b"1" * 600), ("b", b"1" * 600)]))
    with pytest.raises(UserError, match="it holds more than any dataset"):
        unpack(tmp_path / "given", tmp_path / "target")
    monkeypatch.setattr("hierbench.data.source.MOST_MEMBERS", 2)
    (tmp_path / "given").write_bytes(targets.tar_of([(str(i), b"") for i in range(3)]))
    with pytest.raises(UserError, match="it holds more than any dataset"):
        unpack(tmp_path / "given", tmp_path / "target")


@pytest.mark.parametrize("name", ["a.jpg", "b.tar"])
def test_a_pipe_among_the_images_does_not_hold_up(tmp_path, name):
    os.mkfifo(tmp_path / name)
    if name == "a.jpg":
        assert pieces(tmp_path) == 0
    else:
        with pytest.raises(OSError, match="not a regular file"):
            pieces(tmp_path)
    with pytest.raises(UserError, match="no folder or archive"):
        pieces(tmp_path / name)


@pytest.mark.parametrize("name", ["inat19", "tieredimagenet-h", "cifar100", "fgvc", "tiny-imagenet"])
@pytest.mark.parametrize("source", ["pipe", "/dev/zero", "dangling", "nul\0"])
def test_a_source_that_is_no_file(tmp_path, name, source):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises((UserError, ValueError)):
        prepare(name, tmp_path / "data", tmp_path / source, offline=tmp_path)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["variants.txt", "images_variant_train.txt", "images/0000000.jpg"])
def test_a_pipe_among_the_files_of_fgvc(tmp_path, miniatures, name):
    source = miniatures.fgvc(tmp_path / "source")
    path = source / "fgvc-aircraft-2013b/data" / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match=r"no file|not a regular file"):
        prepare("fgvc", tmp_path / "data", source)


@pytest.mark.parametrize("image", ["../../../../../etc/passwd", "", "x\0y"])
def test_an_annotation_that_names_a_file_elsewhere(tmp_path, miniatures, image):
    source = miniatures.fgvc(tmp_path / "source")
    for path in (source / "fgvc-aircraft-2013b/data").glob("images_*_train.txt"):
        path.write_text(f"{image} {path.read_text().split(' ', 1)[1]}")
    with pytest.raises(UserError, match="a line is not 'image name'"):
        open_fgvc(Request(source, tmp_path))


@given(st.text(max_size=200))
@fuzzed()
def test_annotations_of_any_text(miniatures, tmp_path_factory, text):
    if not hasattr(test_annotations_of_any_text, "source"):
        test_annotations_of_any_text.source = miniatures.fgvc(tmp_path_factory.mktemp("fgvc"), per_class=1)
    data = test_annotations_of_any_text.source / "fgvc-aircraft-2013b/data"
    for name in ("images_variant_train.txt", "variants.txt"):
        before = (data / name).read_bytes()
        (data / name).write_text(before.decode() + text, encoding="utf-8", errors="replace", newline="")
        try:
            open_fgvc(Request(test_annotations_of_any_text.source, data))
        except UserError:
            pass
        finally:
            (data / name).write_bytes(before)


# Zip files


def test_a_zip_bomb_is_refused_by_its_declared_size(tmp_path):
    with zipfile.ZipFile(tmp_path / "given.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bomb", b"\0" * (8 << 20))
        file.writestr("small", b"1")
    with open_zip(tmp_path / "given.zip") as archive:
        with pytest.raises(DAMAGED, match="more than 1,000 bytes"):
            zip_member(archive, "bomb", 1000)
        assert zip_member(archive, "small", 1000) == b"1"


@pytest.mark.parametrize("size", [10, 1000, 0xFFFFFFF0])
def test_a_zip_that_lies_about_a_size(tmp_path, little_memory, size):
    with zipfile.ZipFile(tmp_path / "given.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bomb", b"\0" * 5000)
    content = bytearray((tmp_path / "given.zip").read_bytes())
    place = content.index(b"PK\1\2") + 24
    content[place : place + 4] = struct.pack("<I", size)
    (tmp_path / "given.zip").write_bytes(content)
    with open_zip(tmp_path / "given.zip") as archive, pytest.raises(DAMAGED):
        zip_member(archive, "bomb", 4000)


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_that_cannot_be_bounded_are_not_read(tmp_path, kind):
    with zipfile.ZipFile(tmp_path / "given.zip", "w", kind) as file:
        file.writestr("a", b"1")
    with open_zip(tmp_path / "given.zip") as archive, pytest.raises(DAMAGED, match="in a way that is not read"):
        zip_member(archive, "a", 1000)


def test_a_zip_that_refers_to_places_before_its_beginning(tmp_path):
    """The fuzzer's: the file without its first bytes."""
    with zipfile.ZipFile(tmp_path / "given.zip", "w") as file:
        file.writestr("a", b"1" * 40)
        file.writestr("b", b"1")
    (tmp_path / "given.zip").write_bytes((tmp_path / "given.zip").read_bytes()[20:])
    with open_zip(tmp_path / "given.zip") as archive, pytest.raises(DAMAGED, match="offsets outside the file"):
        zip_member(archive, "a", 1000)


# Pickles


class Marker:
    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (self.place,)


@pytest.mark.parametrize("protocol", range(6))
def test_no_pickle_runs_code(tmp_path, miniatures, protocol):
    source = miniatures.cifar100(tmp_path / "source")
    for content in (Marker(str(tmp_path / "harm")), {"data": [Marker(str(tmp_path / "harm"))]}):
        (source / "cifar-100-python/train").write_bytes(pickle.dumps(content, protocol))
        with pytest.raises(UserError, match=r"train refers to posix\.mkdir"):
            prepare("cifar100", tmp_path / "data", source)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "code",
    [
        b"}r\xff\xff\xff\xff.",  # the memory of what was seen, with a place of the number 4 billion
        b"p4000000000\n.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00.",  # bytes, as many as no file has
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02" + b"]" * 100_000,
        b"\x80\x02" + b"(" * 100_000 + b"l.",
        b"cnumpy\nndarray\n(I1099511627776\ntR.",
        b"\x82\x01.",
        b"Pid\n.",
        b"N.",
        b"",
    ],
)
def test_pickles_that_ask_for_what_no_file_needs(tmp_path, miniatures, little_memory, code):
    source = miniatures.cifar100(tmp_path / "source")
    (source / "cifar-100-python/train").write_bytes(code)
    with pytest.raises(UserError, match=r"train (is truncated or damaged|holds a|refers to)"):
        prepare("cifar100", tmp_path / "data", source)


@pytest.mark.parametrize(
    "change",
    [
        {"data": np.zeros((3, 3072), np.uint8)},
        {"data": np.zeros((2, 3072), np.float32)},
        {"data": [[0] * 3072] * 2},
        {"fine_labels": [0, 100]},
        {"fine_labels": [0, True]},
        {"fine_labels": [0, None]},
        {"fine_labels": []},
        {"fine_labels": "ab"},
    ],
)
def test_a_cifar_file_with_other_content(tmp_path, miniatures, change):
    source = miniatures.cifar100(tmp_path / "source")
    content = {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, 1]} | change
    (source / "cifar-100-python/train").write_bytes(pickle.dumps(content, 2))
    with pytest.raises(UserError, match="train"):
        prepare("cifar100", tmp_path / "data", source)


# Arrays


def npy(descr="'<i8'", shape="(2,)", content=b"\0" * 16, extra=""):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, {extra}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


@pytest.mark.parametrize(
    "content",
    [
        npy(shape="(10**15,)"),
        npy(shape="(1099511627776, 1099511627776)"),
        npy(shape="(-2, -1)"),
        npy(shape="(2, 2)"),
        npy(shape="(1,)"),
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
        pickle.dumps(Marker("harm")),
    ],
    ids=range(17),
)
def test_arrays_that_promise_what_does_not_follow(tmp_path, little_memory, monkeypatch, content):
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
    arrays = [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.eye(3, 2, dtype=np.float32)),
        np.zeros((0, 4)),
        np.array(1),
    ]
    np.savez(tmp_path / "given.npz", *arrays)
    for number, array in enumerate(arrays):
        np.save(tmp_path / "given.npy", array)
        read = [load_array(tmp_path / "given.npy"), *load_arrays(tmp_path / "given.npz", f"arr_{number}")]
        for found in read + [map_array(tmp_path / "given.npy")] * bool(array.size):
            assert found.dtype == array.dtype and np.array_equal(found, array)
        assert all(found.flags.writeable for found in read)


def test_an_npz_that_refers_to_places_before_its_beginning(tmp_path):
    """The fuzzer's: the file without some of its first bytes."""
    np.savez(tmp_path / "given.npz", scores=np.zeros(10), targets=np.zeros(2))
    (tmp_path / "given.npz").write_bytes((tmp_path / "given.npz").read_bytes()[100:])
    with pytest.raises(ValueError, match=r"Invalid argument|Bad magic|truncated"):
        load_arrays(tmp_path / "given.npz", "scores")


def test_a_compressed_npz_is_not_ours(tmp_path):
    np.savez_compressed(tmp_path / "given.npz", scores=np.zeros(10))
    with pytest.raises(ValueError, match=r"scores\.npy is compressed"):
        load_arrays(tmp_path / "given.npz", "scores")


# Images


def png(width, height):
    """A PNG that says it is so large, with nothing in it."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [9500, 12_000, 30_000, 0x7FFFFFFF])
def test_an_image_of_absurd_size(little_memory, side):
    with pytest.raises(UnreadableImageError, match="image x cannot be read"):
        decode(png(side, side), "x", SIZE)


def test_formats_that_programs_from_outside_read_are_not_opened(tmp_path):
    content = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n"
    with pytest.raises(UnreadableImageError, match="not a JPEG, PNG or WebP file"):
        decode(content, "x", SIZE)
    buffer = io.BytesIO()
    Image.new("RGB", SIZE).save(buffer, "TIFF")
    with pytest.raises(UnreadableImageError):
        decode(buffer.getvalue(), "x", SIZE)


def test_a_text_chunk_bomb(targets):
    content = targets.image_of("PNG")
    text = b"zTXt" + b"k\0\0" + zlib.compress(b"a" * (100 << 20), 9)
    bomb = content[:33] + struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text)) + content[33:]
    with pytest.raises(UnreadableImageError):
        decode(bomb, "x", SIZE)


def test_an_image_that_is_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(UnreadableImageError, match="not a regular file"):
        load_image(tmp_path / "pipe.jpg")
